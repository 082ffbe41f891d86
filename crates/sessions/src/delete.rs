//! Recording that a session is to be deleted. What is kept of it is dropped
//! later, if at all: see the reclaimer.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Action, Caller, CancelReason, Condition, DeletionState, Outcome, Session, SessionUid,
    SessionsError,
};
use mainspring_controller::{Deletion, IgnoreAll, TurnStop};
use mainspring_placement::{Lease, Operation, Told};
use tokio::time::Instant;

use crate::approvals::LEASE_WAIT_MAX;
use crate::service::{Inner, placement_failed};

/// How long a delete waits for a turn of this process to end once it was told:
/// as long as a cancel does.
const DELETE_WAIT_MAX: Duration = Duration::from_secs(30);

impl Inner {
    pub(crate) async fn delete(
        self: &Arc<Self>,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        let row = self.find_for(caller, &[Action::Delete], session).await?;
        if row.view.deletion == DeletionState::Pending {
            return Ok(self.seen(row));
        }
        let (inner, session) = (Arc::clone(self), session.clone());
        // The host's: who asked may go away, and it is deleted all the same.
        self.owned(async move {
            if let Some(lease) = inner.lease_to_delete(&session).await? {
                inner.delete_under(&lease).await?;
            }
            Ok(inner.seen(inner.find(&session).await?))
        })
        .await
    }

    /// The session's lease, once the turn that runs here has ended; `None` when
    /// somebody else has deleted it meanwhile.
    async fn lease_to_delete(&self, session: &SessionUid) -> Result<Option<Lease>, SessionsError> {
        let mut changes = self.guard.changes();
        let mut told = false;
        let begun = Instant::now();
        loop {
            if self.find(session).await?.view.deletion == DeletionState::Pending {
                return Ok(None);
            }
            let busy = match self.lease(session, Operation::Delete) {
                Ok(lease) => return Ok(Some(lease)),
                Err(busy) => busy,
            };
            if let Some(execution) = self.guard.driven(session) {
                let stop = TurnStop::Cancel(CancelReason::User);
                told |= self.guard.stop(session, &execution, stop) == Told::Turn;
            }
            let bound = if told { DELETE_WAIT_MAX } else { LEASE_WAIT_MAX };
            if !changes.next_until(begun + bound).await {
                return Err(if told { not_ended_yet(session) } else { busy });
            }
        }
    }

    async fn delete_under(&self, lease: &Lease) -> Result<(), SessionsError> {
        let session = lease.session();
        let deletion = Deletion {
            holder: self.options.holder.clone(),
            entropy: Arc::clone(&self.options.entropy),
            observer: Arc::new(IgnoreAll),
        };
        let deleted = mainspring_controller::delete(&self.journal(session), &deletion).await;
        deleted.map_err(|error| placement_failed(error.into()).on(session))?;
        self.deletions.notify_one();
        // Nothing will run on it any more.
        for placer in self.options.harnesses.placers() {
            placer.release(session).await;
        }
        Ok(())
    }
}

fn not_ended_yet(session: &SessionUid) -> SessionsError {
    let message = format!(
        "the turn of session {session} was told to stop and has not ended within {} s; the session \
         is not deleted",
        DELETE_WAIT_MAX.as_secs()
    );
    SessionsError::new(Condition::DeadlineExceeded, message)
        .with_outcome(Outcome::Unknown)
        .on(session)
}
