//! The one place where everything waits: a seed decides who goes next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_testkit::SeededRng;
use tokio::sync::oneshot;

/// A host, as the turnstile knows it.
pub(crate) type HostId = usize;

/// Lets one waiter through at a time, when nothing else can run.
#[derive(Debug, Clone)]
pub(crate) struct Turnstile(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: SeededRng,
    waiting: Vec<(HostId, oneshot::Sender<()>)>,
    /// Hosts that are dead: whatever they wait for never comes.
    dead: Vec<HostId>,
    /// A host that stands still, and for how many more steps.
    frozen: Option<(HostId, usize)>,
    /// Whether hosts may be frozen.
    faults: bool,
}

impl Turnstile {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = SeededRng::new(seed);
        let state =
            State { rng, waiting: Vec::new(), dead: Vec::new(), frozen: None, faults: true };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A random choice, in the same order as everything else.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.state().rng.percent(percent)
    }

    /// A random number below `bound`.
    pub(crate) fn below(&self, bound: usize) -> usize {
        self.state().rng.below(bound)
    }

    /// Waits for its turn; for ever, if its host is dead.
    pub(crate) async fn pass(&self, host: HostId) {
        let (go, turn) = oneshot::channel();
        self.state().waiting.push((host, go));
        if turn.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// As a `kill -9`: nothing of this host goes on.
    pub(crate) fn kill(&self, host: HostId) {
        let mut state = self.state();
        state.dead.push(host);
        state.waiting.retain(|(waiting, _)| *waiting != host);
    }

    /// No more faults.
    pub(crate) fn calm(&self) {
        let mut state = self.state();
        state.faults = false;
        state.frozen = None;
    }

    /// Lets waiters through until `done` says so. On paused time the sleep
    /// ends only when no task can run.
    pub(crate) async fn turn_until(&self, done: impl Fn() -> bool) {
        let mut idle = 0;
        while !done() {
            tokio::time::sleep(Duration::from_micros(1)).await;
            if self.step() {
                idle = 0;
                continue;
            }
            // Somebody waits for time alone.
            tokio::time::sleep(Duration::from_millis(100)).await;
            idle += 1;
            assert!(idle < 2_000, "nobody goes on: a host hangs");
        }
    }

    fn step(&self) -> bool {
        let mut state = self.state();
        let State { rng, waiting, dead, frozen, faults } = &mut *state;
        waiting.retain(|(host, _)| !dead.contains(host));
        if let Some((_, left)) = frozen {
            *left -= 1;
            if *left == 0 {
                *frozen = None;
            }
        }
        let still = frozen.map(|(host, _)| host);
        let able: Vec<usize> =
            (0..waiting.len()).filter(|at| Some(waiting[*at].0) != still).collect();
        if able.is_empty() {
            // Only the frozen one waits: it thaws.
            let thawed = frozen.take().is_some();
            return thawed && !waiting.is_empty();
        }
        let chosen = able[rng.below(able.len())];
        let (host, go) = waiting.remove(chosen);
        if *faults && frozen.is_none() && rng.percent(2) {
            *frozen = Some((host, 1 + rng.below(60)));
        }
        let _ = go.send(());
        true
    }
}
