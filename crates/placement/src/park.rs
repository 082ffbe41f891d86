//! Turns that wait for an approval: their compute is freed, and it is not
//! brought back before there is a decision.

use mainspring_api::{ApprovalRef, Divergence, Head};
use mainspring_controller::{Controller, ControllerError, Journal, Options, inspect_approval};
use mainspring_eventlog::SessionRow;

use crate::error::PlacementError;
use crate::placer::{Call, Placer};

impl Placer {
    /// What a turn that did not succeed is answered with, its connection being
    /// closed: after a park its compute is captured and that recorded, and any
    /// failure in doing so is told instead of the park. The request stays, and
    /// a later suspend makes up for it.
    pub(crate) async fn parked(
        &self,
        journal: &Journal,
        controller: &Controller,
        error: ControllerError,
    ) -> PlacementError {
        let ControllerError::ApprovalParked(park) = error else { return error.into() };
        match self.hand_off(journal, controller, &park).await {
            Ok(()) => ControllerError::ApprovalParked(park).into(),
            Err(error) => error,
        }
    }

    async fn hand_off(
        &self,
        journal: &Journal,
        controller: &Controller,
        park: &ApprovalRef,
    ) -> Result<(), PlacementError> {
        let head = pending_at(journal, park).await?;
        self.capture(journal, controller, head.seq).await?;
        Ok(())
    }

    /// Answers a turn that cannot be gone on with, before any compute is
    /// touched: with its park while it waits for a decision (its request is
    /// recorded first, if it is missing), or with the tool call that was
    /// inherited, or whose outcome is unknown.
    pub(crate) async fn refuse_waiting(
        &self,
        journal: &Journal,
        row: &SessionRow,
        call: &Call,
    ) -> Result<(), PlacementError> {
        let Some(turn) = row.view.pending() else { return Ok(()) };
        let options = self.controller_options(journal, call);
        let gate = turn.gate.as_ref().filter(|gate| gate.receipt.is_none());
        let repairs = gate.is_some_and(|gate| row.view.owns(gate.call) && gate.request.is_none());
        let controller = if repairs {
            let fence = self.acquire(journal, row).await?;
            let options = Options { fence: Some(fence), ..options };
            Controller::new(journal.clone(), options).await?
        } else {
            Controller::reader(journal.clone(), options)
        };
        match controller.park_again().await? {
            Some(park) => Err(ControllerError::ApprovalParked(park).into()),
            None => Ok(controller.refuse_unresumable().await?),
        }
    }
}

/// The head at which exactly this request of the session's own waits.
async fn pending_at(journal: &Journal, park: &ApprovalRef) -> Result<Head, ControllerError> {
    let found = inspect_approval(journal, 0).await?;
    let waits = found.filter(|state| {
        let request = state.request.as_ref().map(|request| request.seq.as_i64());
        state.execution.as_str() == park.execution_id
            && state.call.id == park.tool_call_id
            && request == Some(park.request_seq)
            && state.decision.is_none()
            && state.receipt.is_none()
            && !state.inherited
            && !state.completed
    });
    waits.map(|state| state.head).ok_or_else(|| {
        let what = "the pending request is not the one that the turn parked on";
        ControllerError::ReplayDiverged(Divergence::beyond(what))
    })
}
