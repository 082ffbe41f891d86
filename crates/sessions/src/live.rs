//! The turns that run on this host, for those who ask for one of them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mainspring_api::{ExecutionId, Seq, SessionUid};
use mainspring_controller::TurnDigest;

use crate::feed::Feed;
use crate::service::Inner;

/// A turn that runs, as one who joins it must know it.
#[derive(Debug)]
pub(crate) struct LiveTurn {
    pub(crate) execution: ExecutionId,
    /// The position before the execution's first record.
    pub(crate) before: Seq,
    /// What it was asked for; `None` when that is in the journal.
    pub(crate) digest: Option<TurnDigest>,
    pub(crate) feed: Arc<Feed>,
}

/// At most one for each session, as its lease has it.
#[derive(Debug, Default)]
pub(crate) struct LiveTurns(Mutex<HashMap<SessionUid, Arc<LiveTurn>>>);

impl LiveTurns {
    fn turns(&self) -> std::sync::MutexGuard<'_, HashMap<SessionUid, Arc<LiveTurn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of an execution, if it runs.
    pub(crate) fn find(
        &self,
        session: &SessionUid,
        execution: &ExecutionId,
    ) -> Option<Arc<LiveTurn>> {
        let turns = self.turns();
        turns.get(session).filter(|turn| turn.execution == *execution).cloned()
    }
}

/// A turn's place among those that run, until this is dropped. It goes before
/// the turn's lease does.
#[derive(Debug)]
pub(crate) struct Listed {
    inner: Arc<Inner>,
    session: SessionUid,
    turn: Arc<LiveTurn>,
}

impl Listed {
    /// Lists a turn. The caller holds the session's lease.
    pub(crate) fn new(inner: &Arc<Inner>, session: &SessionUid, turn: LiveTurn) -> Self {
        let turn = Arc::new(turn);
        inner.live.turns().insert(session.clone(), Arc::clone(&turn));
        Self { inner: Arc::clone(inner), session: session.clone(), turn }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut turns = self.inner.live.turns();
        // After a panic its lease may have gone first, and another turn have come.
        if turns.get(&self.session).is_some_and(|turn| Arc::ptr_eq(turn, &self.turn)) {
            turns.remove(&self.session);
        }
    }
}
