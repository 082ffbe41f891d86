//! An issuer's keys, kept for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::fetch::Fetcher;
use crate::keys::KeySet;

/// How often an issuer is asked for its keys at most, however many tokens name
/// a key that is not known, and also when it does not answer.
pub const REFETCH_EVERY: Duration = Duration::from_secs(30);

/// The age from which keys are asked for again in the background; until they
/// come, the old ones serve, up to [`JWKS_STALE_MAX`].
pub const JWKS_AGE_MAX: Duration = Duration::from_secs(3_600);

/// The age from which keys that could not be got again are not used any more:
/// the issuer may have withdrawn them. Tokens cannot be checked then.
pub const JWKS_STALE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Where keys come from.
#[derive(Debug)]
pub(crate) enum Keys {
    /// They are given for good.
    Fixed(Arc<KeySet>),
    /// They are asked for.
    Fetched(Arc<Cache>),
}

/// Keys that are asked for when they are needed.
#[derive(Debug)]
pub(crate) struct Cache {
    fetcher: Fetcher,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: Option<Arc<KeySet>>,
    /// When `keys` were got.
    since: Option<Instant>,
    last: Option<Attempt>,
    /// Closes when the fetch under way has ended.
    flight: Option<watch::Receiver<()>>,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    at: Instant,
    failed: bool,
}

/// The keys as they are known, and whether that is all that can be known now.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) keys: Option<Arc<KeySet>>,
    /// Whether the last fetch failed: a key that is not here may exist.
    pub(crate) failed: bool,
}

impl Keys {
    /// What is known without waiting; starts a refresh of keys that are old.
    pub(crate) fn known(&self) -> Known {
        match self {
            Self::Fixed(keys) => Known { keys: Some(Arc::clone(keys)), failed: false },
            Self::Fetched(cache) => cache.known(),
        }
    }

    /// What is known after asking again, if it may be asked again yet. Calls
    /// that come at the same time share one fetch.
    pub(crate) async fn fresh(&self) -> Known {
        match self {
            Self::Fixed(_) => self.known(),
            Self::Fetched(cache) => cache.fresh().await,
        }
    }
}

impl Cache {
    pub(crate) fn new(fetcher: Fetcher) -> Arc<Self> {
        Arc::new(Self { fetcher, state: Mutex::default() })
    }

    fn known(self: &Arc<Self>) -> Known {
        let mut state = self.state();
        if state.since.is_some_and(|since| since.elapsed() >= JWKS_AGE_MAX) {
            // Nobody waits for it.
            let _ = self.ask(&mut state);
        }
        state.known()
    }

    async fn fresh(self: &Arc<Self>) -> Known {
        let flight = self.ask(&mut self.state());
        if let Some(mut flight) = flight {
            // Ends with the fetch, whose result is in the state.
            let _ = flight.changed().await;
        }
        self.state().known()
    }

    /// The fetch under way, or a new one unless the last was just now.
    fn ask(self: &Arc<Self>, state: &mut State) -> Option<watch::Receiver<()>> {
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return Some(flight.clone());
        }
        let now = Instant::now();
        if state.last.is_some_and(|last| now.duration_since(last.at) < REFETCH_EVERY) {
            return None;
        }
        // Until it has ended it counts as one that failed.
        state.last = Some(Attempt { at: now, failed: true });
        let (done, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        let this = Arc::clone(self);
        // In a task of its own: a caller that goes away takes nothing from those who wait too.
        tokio::spawn(async move {
            let fetched = this.fetcher.fetch().await;
            this.settle(fetched);
            drop(done);
        });
        Some(flight)
    }

    fn settle(&self, fetched: Result<KeySet, &'static str>) {
        let mut state = self.state();
        match fetched {
            Ok(keys) => {
                if keys.is_empty() {
                    tracing::warn!("the issuer publishes no key that tokens can be checked with");
                }
                state.keys = Some(Arc::new(keys));
                state.since = Some(Instant::now());
                if let Some(last) = &mut state.last {
                    last.failed = false;
                }
            }
            Err(reason) => tracing::warn!(reason, "the issuer's keys were not got"),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn known(&self) -> Known {
        let failed = self.last.is_none_or(|last| last.failed);
        let is_stale = self.since.is_some_and(|since| since.elapsed() >= JWKS_STALE_MAX);
        let keys = self.keys.as_ref().filter(|_| !is_stale);
        Known { keys: keys.map(Arc::clone), failed }
    }
}
