//! Gates as raw appends leave them, and all that may be asked of a journal.

use std::sync::Arc;

use mainspring_api::{
    ApprovalRef, CancelReason, Event, ExecutionId, LogRecord, Notes, OsEntropy, Resolution,
    ResultCode, SystemClock,
};
use mainspring_controller::{
    Cancellation, Controller, ControllerError, Options, Resolving, approve, cancel,
    inspect_approval, resolve,
};
use mainspring_testkit::sample;

use super::{Fixture, Placed, Probe, gated, raw, turn};

/// The id of the gated call here, and its tool.
pub(crate) const CALL: &str = "c1";
pub(crate) const TOOL: &str = "deploy";

/// The kinds of a whole turn of [`deploying`], whose start is at `first`.
pub(crate) fn gate_turn(id: &ExecutionId, first: i64, approved: bool) -> Vec<Event> {
    let (request, decision) = (first + 3, first + 4);
    let status = match approved {
        true => (ResultCode::Unspecified, false),
        false => (ResultCode::ApprovalDenied, true),
    };
    vec![
        raw::start(id, Some(1)),
        raw::input(id, "hello"),
        raw::tool_call(id, gated(CALL, TOOL)),
        raw::approval_request(id, CALL),
        raw::approval_result(id, CALL, approved, request),
        raw::receipt(id, CALL, status, (request, decision)),
        raw::end(id),
    ]
}

/// The request of [`gate_turn`], whose start is at `first`.
pub(crate) fn gate_ref(id: &ExecutionId, first: i64) -> ApprovalRef {
    ApprovalRef {
        execution_id: id.to_string(),
        tool_call_id: CALL.to_owned(),
        request_seq: first + 3,
    }
}

/// A harness that makes the gated call, and nothing else.
pub(crate) fn deploying() -> Probe {
    Probe::new(|_, sink| async move {
        sink.tool_call(gated(CALL, TOOL)).await?;
        Ok(())
    })
}

/// A record without what its store noted beside it: whoever wrote it has not read that.
pub(crate) fn unnoted(record: LogRecord) -> LogRecord {
    LogRecord { notes: Notes::default(), ..record }
}

/// What may be asked of a journal that holds a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Exec,
    Resume,
    Replay,
    Inspect,
    Approve,
    ParkAgain,
    Cancel,
    Resolve,
}

impl Asked {
    /// Those that say what is wrong with a gate's evidence.
    pub(crate) const OF_EVIDENCE: [Self; 5] =
        [Self::Exec, Self::Resume, Self::Replay, Self::Inspect, Self::Approve];

    pub(crate) const ALL: [Self; 8] = [
        Self::Exec,
        Self::Resume,
        Self::Replay,
        Self::Inspect,
        Self::Approve,
        Self::ParkAgain,
        Self::Cancel,
        Self::Resolve,
    ];

    /// Asks it, by a controller that takes over the fence in force.
    pub(crate) async fn of(
        self,
        session: &Fixture,
        placed: &Placed,
        approval: &ApprovalRef,
    ) -> Result<(), ControllerError> {
        let journal = session.journal();
        let options = Options { fence: Some(session.fence().await), ..session.options() };
        let controller = Controller::new(journal.clone(), options).await?;
        self.asked(session, &controller, &journal, placed, approval).await
    }

    /// Asks it of this controller and this journal.
    pub(crate) async fn asked(
        self,
        session: &Fixture,
        controller: &Controller,
        journal: &mainspring_controller::Journal,
        placed: &Placed,
        approval: &ApprovalRef,
    ) -> Result<(), ControllerError> {
        let harness = &placed.harness;
        let execution = ExecutionId::new(&approval.execution_id).unwrap();
        let (holder, entropy) = (sample::holder("other"), Arc::new(OsEntropy));
        let observer = Arc::clone(&session.watcher) as Arc<_>;
        match self {
            Self::Exec => controller.exec(harness, turn(&["more"])).await.map(drop),
            Self::Resume => controller.resume(harness, None).await.result,
            Self::Replay => controller.replay(harness).await.map(drop),
            Self::Inspect => inspect_approval(journal, 0).await.map(drop),
            Self::Approve => {
                let decision = session.decision(approval, true, "because");
                approve(journal, decision).await.map(drop)
            }
            Self::ParkAgain => controller.park_again().await.map(drop),
            Self::Cancel => {
                let (reason, clock) = (CancelReason::User, Arc::new(SystemClock));
                let request = Cancellation { execution, reason, holder, clock, entropy, observer };
                cancel(journal, &request).await.map(drop)
            }
            Self::Resolve => {
                let request = Resolving {
                    execution,
                    tool_call_id: approval.tool_call_id.clone(),
                    resolution: Resolution::Failed("it broke".to_owned()),
                    holder,
                    entropy,
                    observer,
                };
                resolve(journal, request).await.map(drop)
            }
        }
    }

    /// Asks it, and checks that the refusal came before everything else.
    pub(crate) async fn refused(
        self,
        session: &Fixture,
        placed: &Placed,
        approval: &ApprovalRef,
        what: &str,
    ) -> ControllerError {
        let tools = || session.tools.as_ref().map(|tools| tools.calls());
        let before = (session.row().await, session.model.calls(), tools());
        let asked_before = (placed.runs(), placed.describes());
        session.watcher.take();
        let refused = self.of(session, placed, approval).await;
        let Err(error) = refused else { panic!("{what}: {self:?} was not refused") };
        let after = (session.row().await, session.model.calls(), tools());
        assert_eq!(after, before, "{what}: {self:?} appends nothing and mints nothing");
        assert_eq!((placed.runs(), placed.describes()), asked_before, "{what}: {self:?}");
        assert_eq!(session.watcher.take(), [], "{what}: {self:?}");
        error
    }
}
