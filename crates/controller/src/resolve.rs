//! A person's word on a tool call whose outcome nobody knows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mainspring_api::{
    AppendId, Entropy, EventBody, ExecutionId, Fence, Head, Part, Resolution, ResultCode, Seq,
    ToolExecutor, ToolResult, random_hex,
};
use mainspring_eventlog::{ExecutionView, Holder, SessionRow};

use crate::approval::{Binding, check_approvals};
use crate::error::ControllerError;
use crate::execution::check_evidence;
use crate::journal::Journal;
use crate::machine::carries_receipt;
use crate::observer::Observer;
use crate::recorded::{EffectNotes, RETRIES_MAX, RETRY_NOTE, normalise_result};
use crate::writer::{Tag, Writer, settle};

/// What a person says, and with whose means it is recorded.
#[derive(Debug, Clone)]
pub struct Resolving {
    /// The session's latest execution.
    pub execution: ExecutionId,
    /// The call.
    pub tool_call_id: String,
    /// What is known of it.
    pub resolution: Resolution,
    /// Who mints the fence.
    pub holder: Holder,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// Is told of the record.
    pub observer: Arc<dyn Observer>,
}

/// A call that has an intent and no receipt.
#[derive(Debug)]
struct Unresolved {
    seq: Seq,
    notes: EffectNotes,
    /// Request and decision, for an approved call.
    gate: Option<(Seq, Seq)>,
}

/// Settles a tool call without a receipt: records its result or its failure as
/// the receipt, or allows one more start under its key. Does not resume, and
/// runs nothing.
///
/// # Errors
/// `Precondition` when the call is not one that waits for such a word, its
/// result carries what only the host may set, or a start that was allowed
/// before has not been made. Nothing was recorded.
pub async fn resolve(journal: &Journal, request: Resolving) -> Result<Head, ControllerError> {
    let row = journal.open().await?;
    check_evidence(&row.view)?;
    let latest = row.view.pending().filter(|latest| latest.id == request.execution);
    let Some(latest) = latest else {
        let what = format!("execution {} is not the session's open turn", request.execution);
        return Err(ControllerError::Precondition(what));
    };
    check_approvals(journal, latest).await?;
    let call = unresolved(journal, &row, latest, &request.tool_call_id).await?;
    let result = match &request.resolution {
        Resolution::Retry => return allow_retry(journal, &row, &call, &request).await,
        Resolution::Result(result) if carries_receipt(result) => {
            return refuse("the result carries receipt fields that only the host may set");
        }
        Resolution::Result(result) if result.code != ResultCode::Unspecified => {
            return refuse("the result has a code, which only the host sets");
        }
        Resolution::Result(result) => (**result).clone(),
        Resolution::Failed(error) => ToolResult {
            is_error: true,
            error: error.clone(),
            content: vec![Part::Text(error.clone())],
            ..ToolResult::default()
        },
    };
    let mut receipt = receipt(&call, &request, result);
    normalise_result(&mut receipt);
    let fence = acquire(journal, &row, &request).await?;
    let tag = Tag::Execution(request.execution.clone());
    let (observer, entropy) = (Arc::clone(&request.observer), Arc::clone(&request.entropy));
    let mut writer = Writer::new(journal.clone(), fence, row.view.head, observer, entropy);
    writer.append_one(tag.event(EventBody::ToolResult(Some(receipt))).into()).await?;
    Ok(writer.head)
}

fn refuse<T>(what: impl Into<String>) -> Result<T, ControllerError> {
    Err(ControllerError::Precondition(what.into()))
}

fn receipt(call: &Unresolved, request: &Resolving, result: ToolResult) -> ToolResult {
    match call.gate {
        Some((asked, decision)) => {
            let binding = Binding { call_id: &request.tool_call_id, request: asked, decision };
            binding.replied(result)
        }
        None => {
            let code =
                if result.is_error { ResultCode::ExecutorError } else { ResultCode::Unspecified };
            ToolResult { id: request.tool_call_id.clone(), code, ..result }
        }
    }
}

/// The call of this id, if it is the one without a receipt.
async fn unresolved(
    journal: &Journal,
    row: &SessionRow,
    latest: &ExecutionView,
    id: &str,
) -> Result<Unresolved, ControllerError> {
    let missing = || format!("tool call {id:?} does not wait for a word on its outcome");
    let (seq, gate) = match (&latest.gate, latest.unanswered) {
        (Some(gate), _) if gate.receipt.is_none() && gate.call_id == id => {
            if !row.view.owns(gate.call) {
                return Err(ControllerError::InheritedToolIntent(gate.call));
            }
            match (gate.request, gate.decision) {
                (Some(request), Some((decision, true))) => (gate.call, Some((request, decision))),
                (_, Some((_, false))) => {
                    return refuse(format!("tool call {id:?} was denied; resume the session"));
                }
                _ => return refuse(format!("tool call {id:?} waits for a decision")),
            }
        }
        (_, Some(seq)) => (seq, None),
        _ => return refuse(missing()),
    };
    let mut found = None;
    journal
        .read_range(seq, seq, |stored| {
            if let EventBody::ToolCall(Some(call)) = stored.event()?.body
                && call.id == id
            {
                found = Some(Unresolved { seq, notes: EffectNotes::of(&stored.notes), gate });
            }
            Ok(())
        })
        .await?;
    match found {
        Some(call) => Ok(call),
        None => refuse(missing()),
    }
}

async fn acquire(
    journal: &Journal,
    row: &SessionRow,
    request: &Resolving,
) -> Result<Fence, ControllerError> {
    let id = AppendId::random(&*request.entropy);
    let (log, uid, holder) = (journal.log(), journal.uid(), request.holder.clone());
    let (fence, head) = (row.fence.fence, row.view.head);
    Ok(settle(|| log.acquire_if_head(uid, id, fence, head, holder.clone())).await?)
}

async fn allow_retry(
    journal: &Journal,
    row: &SessionRow,
    call: &Unresolved,
    request: &Resolving,
) -> Result<Head, ControllerError> {
    if !row.view.owns(call.seq) {
        return Err(ControllerError::InheritedToolIntent(call.seq));
    }
    if call.gate.is_some() && !call.notes.started {
        return refuse("the approved call was not started yet; resume the session");
    }
    if call.notes.allowed().is_some() {
        // The word was given before, and nothing has come of it yet.
        return Ok(row.view.head);
    }
    if call.notes.retries >= RETRIES_MAX {
        return refuse(format!("the call was allowed {RETRIES_MAX} more starts already"));
    }
    let fence = acquire(journal, row, request).await?;
    let key = format!("{RETRY_NOTE}{}", call.notes.retries + 1);
    let (log, uid) = (journal.log(), journal.uid());
    let value = random_hex(&*request.entropy, 8);
    settle(|| log.annotate(uid, call.seq, fence, &key, &value)).await?;
    Ok(row.view.head)
}

/// What the executor declares of a tool; one that panics declares nothing.
pub(crate) fn is_repeatable(executor: &dyn ToolExecutor, tool: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| executor.is_repeatable(tool))).unwrap_or(false)
}

/// Whether the executor has a tool; one that panics has none.
pub(crate) fn offers(executor: &dyn ToolExecutor, tool: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| executor.offers(tool))).unwrap_or(false)
}

/// Whether a call's outcome is unknown, so that a resume must not go on by itself.
pub(crate) fn is_unknown(notes: &EffectNotes, may_have_started: bool) -> bool {
    may_have_started && notes.allowed().is_none()
}
