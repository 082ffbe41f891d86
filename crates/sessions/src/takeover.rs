//! Turns of hosts that have died, finished by those that live on.
//!
//! Where many hosts serve one store, each of them looks once a round at the open
//! turns, and goes on with those whose holder gives no sign of life any more.
//! That a holder is dead is advice: two hosts that take the same turn are told
//! apart by its fence, and so is a holder that was only thought dead.
//!
//! A look is a list of the open sessions of each project that turns were run in,
//! which the store has an index for: with nothing open it reads nothing but the
//! names of the projects. It needs no mark of its own in the stored form. So
//! that many projects or many open turns do not keep a store busy, looks may
//! take a tenth of the time, and each second asks only after the holders that
//! were seen before: when one of them has died, a look is made at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{Classify as _, DeletionState, Fence, Seq, SessionUid, SessionsError};
use mainspring_eventlog::{Liveness, LogError, SessionRow};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::recovery::{Became, PAUSE_MAX, PAUSE_MIN, ROUNDS_MAX, Search, refuse};
use crate::service::{Inner, Service};
use crate::sightings::{Sightings, Verdict};

/// How often it is asked who is alive.
const ROUND: Duration = Duration::from_secs(1);

/// A round that comes so late says that this host itself stood still, and so
/// did its hearing of the others.
const STALLED: Duration = Duration::from_secs(3);

/// After a look the next one is this many times as far away as it took.
const REST_PER_LOOK: u32 = 9;

/// How long no look is made at most.
const REST_MAX: Duration = Duration::from_secs(30);

/// Turns of dead hosts that run here at a time; the others are left for the
/// next round, or for another host.
const TAKEN_MAX: usize = 256;

/// Sessions of which it is remembered how a takeover went.
const ATTEMPTS_MAX: usize = 65_536;

impl Service {
    /// Tells the other hosts of a store that many serve that this one lives,
    /// from now on. To be called before it takes a turn; a host that cannot
    /// must not start, since the others would take its turns from it. Does
    /// nothing on a store that is exclusive to one process.
    ///
    /// # Errors
    /// The log's.
    pub async fn announce(&self) -> Result<(), SessionsError> {
        let options = &self.inner.options;
        match options.log.liveness() {
            None => Ok(()),
            Some(liveness) => liveness.announce(&options.holder).await.map_err(|error| {
                let message = format!("this host cannot announce itself in its store: {error}");
                SessionsError::new(error.condition(), message)
            }),
        }
    }

    /// Whether many hosts may serve the store at a time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.inner.options.log.liveness().is_some()
    }

    /// Goes on with the turns of hosts that have died, for as long as this one
    /// is there and does not drain; nothing on a store that is exclusive to one
    /// process. Must be called within a runtime, after [`Service::announce`].
    ///
    /// # Guarantees
    /// - A turn whose holder gives signs of life is left alone, however long it
    ///   takes.
    /// - Of several hosts that go on with one turn, one does; the others are
    ///   told that it moved, and leave it.
    pub fn take_over(&self) {
        if !self.is_shared() {
            return;
        }
        let (host, draining) = (Arc::downgrade(&self.inner), self.inner.draining.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = draining.wait() => {}
                () = run(&host) => {}
            }
        });
    }
}

async fn run(host: &Weak<Inner>) {
    let mut takeover = Takeover {
        sightings: Sightings::default(),
        attempts: Arc::default(),
        lanes: Arc::new(Semaphore::new(TAKEN_MAX)),
        look_at: Instant::now(),
        failing: false,
    };
    loop {
        let Some(inner) = host.upgrade() else { return };
        takeover.round(&inner).await;
        drop(inner);
        let slept = Instant::now();
        tokio::time::sleep(ROUND).await;
        if slept.elapsed() >= STALLED {
            takeover.sightings.wait_again(Instant::now());
        }
    }
}

/// What one host knows of the others and of their turns.
#[derive(Debug)]
struct Takeover {
    sightings: Sightings,
    attempts: Arc<Attempts>,
    lanes: Arc<Semaphore>,
    /// When the next look is due, whoever dies.
    look_at: Instant,
    /// The last round could not read the store; it is said once.
    failing: bool,
}

impl Takeover {
    async fn round(&mut self, inner: &Arc<Inner>) {
        let Some(liveness) = inner.options.log.liveness() else { return };
        let result = self.try_round(inner, liveness).await;
        if let Err(error) = &result
            && !self.failing
        {
            tracing::warn!(code = error.code(), "cannot look for turns of dead hosts");
        }
        self.failing = result.is_err();
    }

    async fn try_round(
        &mut self,
        inner: &Arc<Inner>,
        liveness: &dyn Liveness,
    ) -> Result<(), LogError> {
        let own = &inner.options.holder.id;
        let has_died = self.sightings.ask(liveness, own, Instant::now()).await?;
        let begun = Instant::now();
        if !has_died && begun < self.look_at {
            return Ok(());
        }
        self.look(inner, liveness).await?;
        let rest = begun.elapsed() * REST_PER_LOOK;
        self.look_at = Instant::now() + rest.min(REST_MAX);
        Ok(())
    }

    /// Looks at every open turn, and goes on with those that nobody drives.
    async fn look(&mut self, inner: &Arc<Inner>, liveness: &dyn Liveness) -> Result<(), LogError> {
        let failed = Mutex::default();
        let search = Search::begin(inner, &failed).await?;
        let mut rows = std::pin::pin!(stream::unfold(search, Search::next));
        let (mut holders, mut open) = (HashSet::new(), HashSet::new());
        let mut is_whole = true;
        while let Some(row) = rows.next().await {
            let Some(holder) = row.fence.holder.as_ref().filter(|_| is_candidate(&row)) else {
                continue;
            };
            let uid = &row.session.uid;
            let is_own = holder.id == inner.options.holder.id;
            let is_dead = !is_own
                && self.sightings.verdict(liveness, &holder.id, Instant::now()).await?
                    == Verdict::Dead;
            holders.insert(holder.id.clone());
            open.insert(uid.clone());
            let is_free = inner.guard.held(uid).is_none();
            let due = is_free && self.attempts.is_due(&row, is_own, is_dead, Instant::now());
            if due && !self.take(inner, row) {
                is_whole = false;
                break;
            }
        }
        if let Some(error) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        if is_whole {
            self.sightings.keep(&holders);
            self.attempts.keep(&open);
        }
        Ok(())
    }

    /// Goes on with a turn in a task of its own; `false` when too many run.
    fn take(&self, inner: &Arc<Inner>, row: SessionRow) -> bool {
        let Ok(lane) = Arc::clone(&self.lanes).try_acquire_owned() else { return false };
        self.attempts.begin(&row.session.uid);
        let (inner, attempts) = (Arc::clone(inner), Arc::clone(&self.attempts));
        tokio::spawn(async move {
            let uid = &row.session.uid;
            let holder = row.fence.holder.as_ref().map(|holder| holder.name.as_str());
            tracing::warn!(session = %uid, holder, "goes on with the turn of a host that is gone");
            let became = inner.recover(&row).await;
            attempts.settle(uid, became, Instant::now(), inner.find(uid).await.ok().as_ref());
            drop(lane);
        });
        true
    }
}

/// Whether a row has an open turn that a host may have left.
fn is_candidate(row: &SessionRow) -> bool {
    row.view.deletion != DeletionState::Pending && row.view.pending().is_some()
}

/// How takeovers went, by session.
#[derive(Debug, Default)]
struct Attempts(Mutex<HashMap<SessionUid, Attempt>>);

#[derive(Debug)]
enum Attempt {
    /// It is being gone on with.
    Running { tries: u32 },
    /// It is tried again, also when it is this host's by now.
    Again { tries: u32, at: Instant },
    /// It is not tried again as long as nothing has happened to it.
    Refused { fence: Fence, head: Seq },
}

impl Attempts {
    fn by_session(&self) -> MutexGuard<'_, HashMap<SessionUid, Attempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self, row: &SessionRow, is_own: bool, is_dead: bool, now: Instant) -> bool {
        match self.by_session().get(&row.session.uid) {
            None => is_dead,
            Some(Attempt::Running { .. }) => false,
            Some(Attempt::Again { at, .. }) => (is_own || is_dead) && *at <= now,
            Some(Attempt::Refused { fence, head }) => {
                is_dead && (*fence, *head) != (row.fence.fence, row.view.head.seq)
            }
        }
    }

    fn begin(&self, session: &SessionUid) {
        let mut attempts = self.by_session();
        let tries = match attempts.get(session) {
            Some(Attempt::Again { tries, .. }) => *tries,
            _ => 0,
        };
        if attempts.len() >= ATTEMPTS_MAX
            && !attempts.contains_key(session)
            && let Some(forgotten) = attempts.keys().next().cloned()
        {
            attempts.remove(&forgotten);
        }
        attempts.insert(session.clone(), Attempt::Running { tries });
    }

    /// Keeps what is to be known of a turn at the next look.
    fn settle(&self, session: &SessionUid, became: Became, now: Instant, row: Option<&SessionRow>) {
        became.tell(session);
        let mut attempts = self.by_session();
        let tries = match attempts.remove(session) {
            Some(Attempt::Running { tries }) => tries + 1,
            _ => 1,
        };
        let next = match became {
            Became::Resumed | Became::Left(_) => None,
            Became::Unreached(_) if tries < ROUNDS_MAX => {
                let pause = PAUSE_MIN * 2_u32.saturating_pow(tries - 1);
                Some(Attempt::Again { tries, at: now + pause.min(PAUSE_MAX) })
            }
            Became::Unreached(error) | Became::Refused(error) => {
                refuse(session, &error);
                row.map(|row| Attempt::Refused { fence: row.fence.fence, head: row.view.head.seq })
            }
        };
        if let Some(next) = next {
            attempts.insert(session.clone(), next);
        }
    }

    /// Forgets the sessions that have no open turn any more.
    fn keep(&self, open: &HashSet<SessionUid>) {
        let is_known = |uid: &SessionUid, attempt: &Attempt| {
            matches!(attempt, Attempt::Running { .. }) || open.contains(uid)
        };
        self.by_session().retain(|uid, attempt| is_known(uid, attempt));
    }
}
