//! One driver per session in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mainspring_api::{Clock, ExecutionId, SessionUid, Signal, Timestamp};
use mainspring_controller::TurnStop;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::PlacementError;

/// What a lease is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Operation {
    Exec,
    Resume,
    Suspend,
    Approve,
    Resolve,
    Cancel,
    Delete,
}

impl Operation {
    /// Whether it runs a turn, which may take any time.
    #[must_use]
    pub const fn is_turn(self) -> bool {
        matches!(self, Self::Exec | Self::Resume)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exec => "exec",
            Self::Resume => "resume",
            Self::Suspend => "suspend",
            Self::Approve => "approve",
            Self::Resolve => "resolve",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        })
    }
}

/// Leases of this process: at most one per session, no queueing.
///
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Guard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Moves whenever a lease is freed or says which turn it drives.
    changes: watch::Sender<()>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(()) }
    }
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<SessionUid, Entry>,
    interrupted: bool,
}

#[derive(Debug)]
struct Entry {
    operation: Operation,
    since: Timestamp,
    /// The execution that is to be driven, as its caller chose it.
    chosen: Option<ExecutionId>,
    turn: Option<RunningTurn>,
}

#[derive(Debug)]
struct RunningTurn {
    execution: Option<ExecutionId>,
    stop: Signal<TurnStop>,
}

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What for.
    pub operation: Operation,
    /// Since when.
    pub since: Timestamp,
    /// The turn that it drives, once that is known.
    pub execution: Option<ExecutionId>,
}

/// What became of the word that a turn is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The turn has it. The first word counts, and this may not be it.
    Turn,
    /// Another turn runs on the session.
    OtherTurn,
    /// No turn runs on it, or none that has said which it is.
    NoTurn,
}

impl Guard {
    /// Takes the session's lease.
    ///
    /// # Errors
    /// [`PlacementError::SessionBusy`] when it is held; nothing waits.
    pub fn try_acquire(
        &self,
        session: &SessionUid,
        operation: Operation,
        now: Timestamp,
    ) -> Result<Lease, PlacementError> {
        self.try_acquire_for(session, operation, None, now)
    }

    /// As [`Guard::try_acquire`], for a turn whose id was chosen: whoever is
    /// refused can see it from the first moment on.
    ///
    /// # Errors
    /// [`PlacementError::SessionBusy`] when it is held; nothing waits.
    pub fn try_acquire_for(
        &self,
        session: &SessionUid,
        operation: Operation,
        chosen: Option<ExecutionId>,
        now: Timestamp,
    ) -> Result<Lease, PlacementError> {
        let mut state = self.state();
        if let Some(held) = state.entries.get(session) {
            return Err(PlacementError::SessionBusy {
                operation: held.operation,
                age_seconds: now.seconds.saturating_sub(held.since.seconds).max(0),
            });
        }
        let entry = Entry { operation, since: now, chosen, turn: None };
        state.entries.insert(session.clone(), entry);
        Ok(Lease { guard: self.clone(), session: session.clone() })
    }

    /// As [`Guard::try_acquire`], and waits until `until` for a lease that a
    /// short operation holds. It does not wait for a turn.
    ///
    /// # Errors
    /// [`PlacementError::SessionBusy`].
    pub async fn acquire_until(
        &self,
        session: &SessionUid,
        operation: Operation,
        clock: &dyn Clock,
        until: Instant,
    ) -> Result<Lease, PlacementError> {
        let mut changes = self.changes();
        loop {
            match self.try_acquire(session, operation, clock.now()) {
                Err(PlacementError::SessionBusy { operation: held, .. }) if !held.is_turn() => {}
                other => return other,
            }
            if !changes.next_until(until).await {
                return self.try_acquire(session, operation, clock.now());
            }
        }
    }

    /// What changes from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes(self.0.changes.subscribe())
    }

    /// Tells the turn of an execution that it is to stop.
    pub fn stop(&self, session: &SessionUid, execution: &ExecutionId, stop: TurnStop) -> Told {
        let state = self.state();
        match state.entries.get(session).and_then(|entry| entry.turn.as_ref()) {
            None => Told::NoTurn,
            Some(turn) if turn.execution.as_ref() == Some(execution) => {
                turn.stop.set(stop);
                Told::Turn
            }
            Some(_) => Told::OtherTurn,
        }
    }

    /// Interrupts every turn that runs, and each that begins from now on.
    pub fn interrupt(&self) {
        let mut state = self.state();
        state.interrupted = true;
        for turn in state.entries.values().filter_map(|entry| entry.turn.as_ref()) {
            turn.stop.set(TurnStop::Interrupt);
        }
    }

    /// What the session's lease is held for.
    #[must_use]
    pub fn held_for(&self, session: &SessionUid) -> Option<Operation> {
        self.state().entries.get(session).map(|entry| entry.operation)
    }

    /// The session's lease, if it is held.
    #[must_use]
    pub fn held(&self, session: &SessionUid) -> Option<Held> {
        let state = self.state();
        state.entries.get(session).map(|entry| Held {
            operation: entry.operation,
            since: entry.since,
            execution: entry.turn.as_ref().and_then(|turn| turn.execution.clone()),
        })
    }

    /// The execution that the session's lease drives, once it is known.
    #[must_use]
    pub fn driven(&self, session: &SessionUid) -> Option<ExecutionId> {
        self.state().entries.get(session)?.turn.as_ref()?.execution.clone()
    }

    /// The execution that the session's lease drives, or is about to.
    #[must_use]
    pub fn drives(&self, session: &SessionUid) -> Option<ExecutionId> {
        let state = self.state();
        let entry = state.entries.get(session)?;
        match &entry.turn {
            Some(turn) => turn.execution.clone(),
            None => entry.chosen.clone(),
        }
    }

    /// Sessions whose lease is held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().entries.len()
    }

    /// Whether no lease is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leases that are freed, and turns that begin.
#[derive(Debug)]
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Waits for the next change; whether one came before `until`. What
    /// happened since this was made, or asked last, is not missed.
    pub async fn next_until(&mut self, until: Instant) -> bool {
        matches!(tokio::time::timeout_at(until, self.0.changed()).await, Ok(Ok(())))
    }
}

/// The right to drive one session, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    guard: Guard,
    session: SessionUid,
}

impl Lease {
    /// The session.
    #[must_use]
    pub fn session(&self) -> &SessionUid {
        &self.session
    }

    /// Says which turn it drives, and how that is stopped. A resume may find
    /// that there is none.
    pub fn drives(&self, execution: Option<ExecutionId>, stop: Signal<TurnStop>) {
        let mut state = self.guard.state();
        if state.interrupted {
            stop.set(TurnStop::Interrupt);
        }
        let entry = state.entries.get_mut(&self.session).expect("a lease has its entry");
        entry.turn = Some(RunningTurn { execution, stop });
        drop(state);
        self.guard.0.changes.send_replace(());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.guard.state().entries.remove(&self.session);
        self.guard.0.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_api::CancelReason;

    fn uid(text: &str) -> SessionUid {
        SessionUid::new(text).unwrap()
    }

    #[test]
    fn a_lease_excludes_its_session_alone_and_frees_its_entry() {
        let guard = Guard::default();
        let (a, b) = (uid("a"), uid("b"));
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let lease = guard.try_acquire(&a, Operation::Exec, at(10)).unwrap();
        let busy = guard.try_acquire(&a, Operation::Resume, at(13)).unwrap_err();
        assert!(matches!(
            busy,
            PlacementError::SessionBusy { operation: Operation::Exec, age_seconds: 3 }
        ));
        assert!(guard.try_acquire(&b, Operation::Exec, at(10)).is_ok());
        drop(lease);
        assert!(guard.is_empty());
    }

    #[test]
    fn a_chosen_execution_is_seen_before_it_is_driven() {
        let guard = Guard::default();
        let (a, id) = (uid("a"), ExecutionId::new("1").unwrap());
        let at = Timestamp::default();
        let chosen = Some(id.clone());
        let lease = guard.try_acquire_for(&a, Operation::Exec, chosen, at).unwrap();
        assert_eq!(guard.drives(&a), Some(id.clone()));
        assert_eq!(guard.driven(&a), None);
        let stop = TurnStop::Cancel(CancelReason::User);
        assert_eq!(guard.stop(&a, &id, stop), Told::NoTurn, "nobody hears it yet");
        lease.drives(Some(id.clone()), Signal::default());
        assert_eq!(guard.driven(&a), Some(id));
        lease.drives(None, Signal::default());
        assert_eq!(guard.drives(&a), None, "there was none to go on with");
        drop(lease);
        assert_eq!(guard.drives(&a), None);
    }

    #[test]
    fn a_stop_reaches_the_turn_that_it_names() {
        let guard = Guard::default();
        let execution = |text| ExecutionId::new(text).unwrap();
        let stop = TurnStop::Cancel(CancelReason::User);
        assert_eq!(guard.stop(&uid("a"), &execution("1"), stop), Told::NoTurn);
        let lease = guard.try_acquire(&uid("a"), Operation::Exec, Timestamp::default()).unwrap();
        assert_eq!(guard.stop(&uid("a"), &execution("1"), stop), Told::NoTurn);
        let signal = Signal::default();
        lease.drives(Some(execution("1")), signal.clone());
        assert_eq!(guard.stop(&uid("a"), &execution("2"), stop), Told::OtherTurn);
        assert_eq!(signal.get(), None);
        assert_eq!(guard.stop(&uid("a"), &execution("1"), stop), Told::Turn);
        guard.interrupt();
        assert_eq!(signal.get(), Some(stop), "the first word counts");
        let late = guard.try_acquire(&uid("b"), Operation::Resume, Timestamp::default()).unwrap();
        let signal = Signal::default();
        late.drives(None, signal.clone());
        assert_eq!(signal.get(), Some(TurnStop::Interrupt));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_waited_for_unless_a_turn_holds_it() {
        let guard = Guard::default();
        let clock = mainspring_api::SystemClock;
        let a = uid("a");
        let until = || Instant::now() + std::time::Duration::from_secs(5);
        let held = guard.try_acquire(&a, Operation::Suspend, Timestamp::default()).unwrap();
        let waiting = guard.acquire_until(&a, Operation::Cancel, &clock, until());
        assert!(waiting.await.is_err(), "it is bounded");
        let waiting = guard.acquire_until(&a, Operation::Cancel, &clock, until());
        let (got, ()) = tokio::join!(waiting, async { drop(held) });
        drop(got.unwrap());
        let _held = guard.try_acquire(&a, Operation::Exec, Timestamp::default()).unwrap();
        let before = Instant::now();
        let waiting = guard.acquire_until(&a, Operation::Cancel, &clock, until());
        assert!(waiting.await.is_err());
        assert_eq!(Instant::now(), before);
    }
}
