//! The state of a session's approval.

use mainspring_api::{
    Condition, Divergence, EventBody, ExecutionId, ExecutionStart, Head, LogRecord, Seq, ToolCall,
};
use mainspring_eventlog::{ExecutionView, SessionView, tool_call_digest};

use super::scan::check_approvals;
use crate::error::ControllerError;
use crate::execution::check_ids;
use crate::index::Index;
use crate::journal::{Journal, missing};

/// The last gated tool call of the latest execution, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalState {
    /// The execution.
    pub execution: ExecutionId,
    /// Its start; absent for one that has none.
    pub invocation: Option<ExecutionStart>,
    /// Where the call is recorded.
    pub call_seq: Seq,
    /// The call, as it was recorded.
    pub call: ToolCall,
    /// The request.
    pub request: Option<LogRecord>,
    /// The decision.
    pub decision: Option<LogRecord>,
    /// The receipt.
    pub receipt: Option<LogRecord>,
    /// The head that this is the state at.
    pub head: Head,
    /// Whether the call was copied by a fork, also after a receipt landed.
    pub inherited: bool,
    /// Whether the execution has ended.
    pub completed: bool,
}

/// The approval state of the latest execution at `through` (0 means the head).
/// Reads only.
///
/// # Errors
/// A tampered journal; `InvalidExecutionLog` for a negative bound, one beyond
/// the head, or evidence out of shape; `ReplayDiverged` for evidence of another
/// call, request or decision.
pub async fn inspect_approval(
    journal: &Journal,
    through: i64,
) -> Result<Option<ApprovalState>, ControllerError> {
    let bound = Seq::from_i64(through)
        .ok_or_else(|| ControllerError::invalid(Seq::ZERO, "the bound is negative"))?;
    let row = journal.open().await?;
    if bound > row.view.head.seq {
        return Err(ControllerError::invalid(bound, "the bound is beyond the head"));
    }
    let view = if bound == Seq::ZERO || bound == row.view.head.seq {
        row.view
    } else {
        fold(journal, bound).await?
    };
    check_ids(&view)?;
    let Some(latest) = view.latest.as_ref().filter(|latest| latest.gate.is_some()) else {
        return Ok(None);
    };
    check_approvals(journal, latest).await?;
    state(journal, &view, latest).await.map(Some)
}

async fn fold(journal: &Journal, bound: Seq) -> Result<SessionView, ControllerError> {
    let (mut view, mut index) = (SessionView::default(), Index::default());
    journal
        .read_range(Seq::new(1), bound, |stored| {
            let event = stored.event()?;
            Ok(view.apply(&event, stored.head(), stored.canonical.len(), &mut index)?)
        })
        .await?;
    Ok(view)
}

async fn state(
    journal: &Journal,
    view: &SessionView,
    latest: &ExecutionView,
) -> Result<ApprovalState, ControllerError> {
    let gate = latest.gate.as_ref().expect("the caller saw a gate");
    let invocation = match &latest.start {
        None => None,
        Some(start) => match record_at(journal, start.seq).await?.event.body {
            EventBody::ExecutionStart(body) => body,
            _ => return Err(moved(start.seq)),
        },
    };
    let call = match record_at(journal, gate.call).await?.event.body {
        EventBody::ToolCall(Some(call)) => call,
        _ => return Err(moved(gate.call)),
    };
    Ok(ApprovalState {
        execution: latest.id.clone(),
        invocation,
        call_seq: gate.call,
        call,
        request: optional(journal, gate.request).await?,
        decision: optional(journal, gate.decision.map(|(seq, _)| seq)).await?,
        receipt: optional(journal, gate.receipt).await?,
        head: view.head,
        inherited: !view.owns(gate.call),
        completed: latest.end.is_some(),
    })
}

async fn optional(
    journal: &Journal,
    seq: Option<Seq>,
) -> Result<Option<LogRecord>, ControllerError> {
    match seq {
        None => Ok(None),
        Some(seq) => record_at(journal, seq).await.map(Some),
    }
}

/// The record at a position that the fold names.
pub(crate) async fn record_at(journal: &Journal, seq: Seq) -> Result<LogRecord, ControllerError> {
    let mut found = None;
    journal
        .read_range(seq, seq, |stored| {
            found = Some(stored.to_record()?);
            Ok(())
        })
        .await?;
    found.ok_or_else(|| missing(seq).into())
}

fn moved(seq: Seq) -> ControllerError {
    ControllerError::invalid(seq, "the record is of another kind than the fold says")
}

/// The digest of a recorded call.
pub(crate) fn digest(seq: Seq, call: &ToolCall) -> Result<String, ControllerError> {
    tool_call_digest(call).map_err(|_| {
        let what = "the recorded arguments have no canonical form";
        ControllerError::ReplayDiverged(
            Divergence::at(seq, what).because(Condition::InvalidToolArgs),
        )
    })
}
