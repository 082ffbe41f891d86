//! Ending a turn, wherever it stands.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Action, Caller, CancelRequest, Condition, EndState, Outcome, Session, SessionsError,
};
use mainspring_controller::{Cancellation, ControllerError, IgnoreAll, TurnStop};
use mainspring_eventlog::SessionRow;
use mainspring_placement::{Lease, Operation, PlacementError, Told};
use tokio::time::Instant;

use crate::approvals::LEASE_WAIT_MAX;
use crate::service::{Inner, placement_failed};

/// How long a cancel waits for a turn of this process to end once it was told:
/// what the effect in flight and the harness are granted, and suspending the
/// compute of a turn that parked first.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(30);

impl Inner {
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        caller: &Caller,
        request: CancelRequest,
    ) -> Result<Session, SessionsError> {
        self.find_active_for(caller, &[Action::Cancel], &request.session).await?;
        let inner = Arc::clone(self);
        // The host's: who asked may go away, and it is cancelled all the same.
        self.owned(async move {
            inner.cancel_turn(&request).await?;
            inner.release_when_idle(&request.session).await;
            Ok(inner.seen(inner.find(&request.session).await?))
        })
        .await
    }

    /// Tells the turn and waits for its end, or ends it in its place, by what
    /// the journal says.
    pub(crate) async fn cancel_turn(
        self: &Arc<Self>,
        request: &CancelRequest,
    ) -> Result<(), SessionsError> {
        let session = &request.session;
        let mut changes = self.guard.changes();
        let mut told = false;
        let begun = Instant::now();
        loop {
            let row = self.find_active(session).await?;
            let ended = is_ended(&row, request);
            if !matches!(ended, Ok(false)) {
                // Its lease goes a moment after its end: the next call is not busy.
                let until = begun + LEASE_WAIT_MAX;
                while self.guard.driven(session).as_ref() == Some(&request.execution_id)
                    && changes.next_until(until).await
                {}
                return ended.map(drop);
            }
            let busy = match self.lease(session, Operation::Cancel) {
                Ok(lease) => return self.end_turn(lease, request).await,
                Err(busy) => busy,
            };
            let stop = TurnStop::Cancel(request.reason);
            match self.guard.stop(session, &request.execution_id, stop) {
                Told::Turn => told = true,
                Told::OtherTurn => return Err(busy),
                Told::NoTurn => {}
            }
            let bound = if told { CANCEL_WAIT_MAX } else { LEASE_WAIT_MAX };
            if !changes.next_until(begun + bound).await {
                return Err(if told { not_ended_yet(request) } else { busy });
            }
        }
    }

    async fn end_turn(&self, lease: Lease, request: &CancelRequest) -> Result<(), SessionsError> {
        let cancellation = Cancellation {
            execution: request.execution_id.clone(),
            reason: request.reason,
            holder: self.options.holder.clone(),
            clock: Arc::clone(&self.options.clock),
            entropy: Arc::clone(&self.options.entropy),
            observer: Arc::new(IgnoreAll),
        };
        let journal = self.journal(lease.session());
        let ended = mainspring_controller::cancel(&journal, &cancellation).await;
        ended.map(drop).map_err(|error| placement_failed(error.into()).on(lease.session()))
    }
}

/// Whether the turn was ended by a cancellation, for whatever reason; refuses
/// one that has ended otherwise, or that is not the session's latest.
fn is_ended(row: &SessionRow, request: &CancelRequest) -> Result<bool, SessionsError> {
    let refuse = |what: String| {
        let error = PlacementError::Controller(ControllerError::Precondition(what));
        Err(placement_failed(error).on(&request.session))
    };
    let execution = &request.execution_id;
    let Some(latest) = row.view.latest.as_ref().filter(|latest| latest.id == *execution) else {
        return refuse(format!("execution {execution} is not the session's latest"));
    };
    let missing = latest.missing_inputs();
    match latest.end {
        // Its end would make the journal's evidence ill-formed.
        None if missing > 0 => {
            let execution = execution.clone();
            let error = ControllerError::IncompleteInvocation { execution, missing };
            Err(placement_failed(error.into()).on(&request.session))
        }
        None => Ok(false),
        // What the host had to end has failed; nothing else leaves such an end.
        Some((_, Some(EndState::Canceled | EndState::Failed))) => Ok(true),
        Some((seq, state)) => {
            let state = state.map_or("otherwise", EndState::name);
            refuse(format!("execution {execution} has ended at seq {seq}: {state}"))
        }
    }
}

fn not_ended_yet(request: &CancelRequest) -> SessionsError {
    let message = format!(
        "execution {} was told to stop and has not ended within {} s; it stays told",
        request.execution_id,
        CANCEL_WAIT_MAX.as_secs()
    );
    SessionsError::new(Condition::DeadlineExceeded, message)
        .with_outcome(Outcome::Unknown)
        .on(&request.session)
}
