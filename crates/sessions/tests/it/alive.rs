//! A store that more than one host writes, and who of them gives signs of life.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_api::{SessionUid, Signal, async_trait};
use mainspring_eventlog::{Holder, Liveness, LogError, WarmHost, Warmth};
use mainspring_sessions::Service;
use mainspring_testkit::{HookedLog, LogCall, LogHook};
use tokio::time::Instant;

use crate::support::World;

/// How long a host is thought alive after its last sign of life.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// Who gives signs of life, and since when no more.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    holders: Mutex<HashMap<String, Option<Instant>>>,
    /// Nothing is told to anybody.
    pub(crate) refuses: AtomicBool,
    /// Nobody can be heard.
    pub(crate) deaf: AtomicBool,
    warm: Mutex<Option<WarmHost>>,
}

impl Alive {
    /// Has it alive, or dead for long.
    pub(crate) fn set(&self, holder: &str, alive: bool) {
        let mut holders = self.holders.lock().unwrap();
        if alive {
            holders.insert(holder.to_owned(), None);
        } else {
            holders.remove(holder);
        }
    }

    /// Its last sign of life comes now.
    pub(crate) fn kill(&self, holder: &str) {
        self.holders.lock().unwrap().insert(holder.to_owned(), Some(Instant::now()));
    }

    /// Names one host for every session.
    pub(crate) fn warm(&self, warm: WarmHost) {
        *self.warm.lock().unwrap() = Some(warm);
    }
}

#[async_trait]
impl Liveness for Alive {
    async fn announce(&self, holder: &Holder) -> Result<(), LogError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(LogError::unavailable("nobody listens"));
        }
        self.set(&holder.id, true);
        Ok(())
    }

    async fn is_alive(&self, holder: &str) -> Result<bool, LogError> {
        if self.deaf.load(Ordering::Relaxed) {
            return Err(LogError::unavailable("nobody can be heard"));
        }
        let holders = self.holders.lock().unwrap();
        Ok(holders.get(holder).is_some_and(|last| last.is_none_or(|at| at.elapsed() < SILENCE)))
    }
}

#[async_trait]
impl Warmth for Alive {
    fn warm_host(&self, _: &SessionUid) -> Option<WarmHost> {
        self.warm.lock().unwrap().clone()
    }

    async fn advertise(&self, _: &str) -> Result<(), LogError> {
        Ok(())
    }
}

/// Passes operations on, counts the reads, and can hold fences.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    alive: Arc<Alive>,
    pub(crate) reads: AtomicUsize,
    /// How long each read takes, in seconds.
    pub(crate) read_takes: AtomicUsize,
    /// How many fences must be asked for before any is minted.
    pub(crate) mints_at_once: AtomicUsize,
    minting: AtomicUsize,
    go: Signal<()>,
}

impl LogHook for Passes {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        if call == LogCall::Read {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let takes = u64::try_from(self.read_takes.load(Ordering::Relaxed)).unwrap();
            tokio::time::sleep(Duration::from_secs(takes)).await;
        }
        let together = self.mints_at_once.load(Ordering::Relaxed);
        if call == LogCall::Mint && together > 0 {
            if self.minting.fetch_add(1, Ordering::Relaxed) + 1 >= together {
                self.go.set(());
            }
            self.go.wait().await;
        }
        run.await
    }

    fn liveness(&self) -> Option<&dyn Liveness> {
        Some(&*self.alive)
    }

    fn warmth(&self) -> Option<&dyn Warmth> {
        Some(&*self.alive)
    }
}

/// A store that many hosts write.
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) log: Arc<HookedLog<Passes>>,
    pub(crate) alive: Arc<Alive>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let plain = World::new();
        plain.tools.repeatable.store(true, Ordering::Relaxed);
        let alive = Arc::new(Alive::default());
        let passes = Passes { alive: Arc::clone(&alive), ..Passes::default() };
        let log = Arc::new(HookedLog::with_hook(Arc::clone(&plain.log), passes));
        Self { world: World { log: Arc::clone(&log) as _, ..plain }, log, alive }
    }

    /// A host that has announced itself.
    pub(crate) async fn host(&self, holder: &str) -> Service {
        let service = self.world.service_by("scripted", holder);
        service.announce().await.unwrap();
        service
    }

    /// A host that goes on with the turns of dead ones.
    pub(crate) async fn survivor(&self, holder: &str) -> Service {
        let service = self.host(holder).await;
        service.take_over();
        service
    }
}

/// Waits for a condition, for so long at most. How long it took.
pub(crate) async fn within(bound: Duration, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < bound, "not within {bound:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}
