//! Ending a turn that nobody is to go on with.

use std::sync::Arc;

use mainspring_api::{
    AppendId, ApprovalRequest, ApprovalResult, CancelReason, Clock, EndState, Entropy, Event,
    EventBody, ExecutionId, HarnessEnd, Head, IdentityRef, RecordedError, Seq,
};
use mainspring_eventlog::{GateView, Holder, LogError, NewRecord, SessionRow, mint_any};

use crate::approval::{Binding, check_approvals, decision_event};
use crate::error::ControllerError;
use crate::execution::{check_evidence, check_inputs};
use crate::journal::Journal;
use crate::observer::Observer;
use crate::recorded::EffectNotes;
use crate::writer::{Tag, Writer};

/// How often a cancellation follows a head that a writer which was superseded
/// meanwhile has still moved.
const TRIES_MAX: usize = 8;

/// gRPC's CANCELLED, as an end carries it.
const CANCELLED_CODE: i32 = 1;

/// A turn to end from outside of its run, and with whose means.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// The session's latest execution.
    pub execution: ExecutionId,
    /// Why.
    pub reason: CancelReason,
    /// Who mints the fence.
    pub holder: Holder,
    /// Wall clock: a decision is timestamped.
    pub clock: Arc<dyn Clock>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// Is told of the records.
    pub observer: Arc<dyn Observer>,
}

/// Ends the latest turn, which no run of this process drives: it is parked,
/// interrupted, failed, or driven elsewhere. Supersedes whoever drives it. An
/// open gate is closed first; its call is not run. Calls no harness.
///
/// # Guarantees
/// The turn's end is its last record. Cancelling a canceled turn again does
/// nothing, whatever the reasons are.
///
/// # Errors
/// `Precondition` when the execution is not the latest or has ended otherwise,
/// `InheritedToolIntent` when its open gate was inherited, `IncompleteInvocation`
/// when it lacks inputs; nothing was recorded.
pub async fn cancel(journal: &Journal, request: &Cancellation) -> Result<Head, ControllerError> {
    if let Some(done) = canceled(&admit(journal, request).await?) {
        return Ok(done);
    }
    // Not only if the head is still there: that would starve while it moves.
    let id = || AppendId::random(&*request.entropy);
    let fence = mint_any(&**journal.log(), journal.uid(), id, request.holder.clone()).await?;
    let mut conflict = None;
    for _ in 0..TRIES_MAX {
        let row = admit(journal, request).await?;
        if let Some(done) = canceled(&row) {
            return Ok(done);
        }
        let (observer, entropy) = (Arc::clone(&request.observer), Arc::clone(&request.entropy));
        let mut writer = Writer::new(journal.clone(), fence, row.view.head, observer, entropy);
        let tag = Tag::Execution(request.execution.clone());
        match end_canceled(&mut writer, &tag, &row, request.reason, &*request.clock).await {
            Ok(()) => return Ok(writer.head),
            Err(ControllerError::Log(error @ LogError::Conflict { .. })) => conflict = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(conflict.unwrap_or(LogError::Moved { what: "the head" }).into())
}

/// The row, if the execution can be cancelled or was.
async fn admit(journal: &Journal, request: &Cancellation) -> Result<SessionRow, ControllerError> {
    let row = journal.open().await?;
    check_evidence(&row.view)?;
    let latest = row.view.latest.as_ref().filter(|latest| latest.id == request.execution);
    let Some(latest) = latest else {
        let what = format!("execution {} is not the session's latest", request.execution);
        return Err(ControllerError::Precondition(what));
    };
    if let Some((seq, state)) = latest.end
        // Nothing but a cancellation leaves an end that says failed.
        && !matches!(state, Some(EndState::Canceled | EndState::Failed))
    {
        let state = state.map_or("otherwise", EndState::name);
        let what = format!("execution {} has ended at seq {seq}: {state}", request.execution);
        return Err(ControllerError::Precondition(what));
    }
    if latest.end.is_none() {
        // With an end it would be evidence out of shape, for good; a new turn abandons it.
        check_inputs(latest)?;
    }
    check_approvals(journal, latest).await?;
    match &latest.gate {
        Some(gate) if gate.receipt.is_none() && !row.view.owns(gate.call) => {
            Err(ControllerError::InheritedToolIntent(gate.call))
        }
        _ => Ok(row),
    }
}

fn canceled(row: &SessionRow) -> Option<Head> {
    let latest = row.view.latest.as_ref()?;
    latest.end.is_some().then_some(row.view.head)
}

/// Records, as one unit, what closes the open gate of the turn, and its end. It
/// is the latest one; an old one without an id has no gate.
pub(crate) async fn end_canceled(
    writer: &mut Writer,
    tag: &Tag,
    row: &SessionRow,
    reason: CancelReason,
    clock: &dyn Clock,
) -> Result<(), ControllerError> {
    let mut records: Vec<NewRecord> = Vec::new();
    let view = row.view.latest.as_ref();
    let view = view.filter(|view| matches!(tag, Tag::Execution(id) if *id == view.id));
    let gate = view.and_then(|view| view.gate.as_ref());
    if let Some(gate) = gate.filter(|gate| gate.receipt.is_none()) {
        let started = is_started(&writer.journal, gate).await?;
        let closing = close_gate(tag, gate, writer.head.seq, started, clock);
        records.extend(closing.into_iter().map(NewRecord::from));
    }
    records.push(tag.event(EventBody::End(Some(end(reason)))).into());
    writer.append(records).await?;
    Ok(())
}

/// Whether the executor of an approved call may have been started.
async fn is_started(journal: &Journal, gate: &GateView) -> Result<bool, ControllerError> {
    let mut started = false;
    if matches!(gate.decision, Some((_, true))) {
        journal
            .read_range(gate.call, gate.call, |stored| {
                started = EffectNotes::of(&stored.notes).started;
                Ok(())
            })
            .await?;
    }
    Ok(started)
}

/// The records that are missing between a gated call and its receipt. The
/// first of them comes after `last`.
fn close_gate(
    tag: &Tag,
    gate: &GateView,
    last: Seq,
    started: bool,
    clock: &dyn Clock,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut seq = last;
    let mut take = || {
        seq = seq.next();
        seq
    };
    let request = gate.request.unwrap_or_else(|| {
        let body = ApprovalRequest { tool_call_id: gate.call_id.clone(), reason: String::new() };
        events.push(tag.event(EventBody::ApprovalRequest(Some(body))));
        take()
    });
    let (decision, approved) = gate.decision.unwrap_or_else(|| {
        let body = ApprovalResult {
            tool_call_id: gate.call_id.clone(),
            approved: false,
            reason: "canceled".to_owned(),
            request_seq: request.as_i64(),
        };
        let identity =
            IdentityRef { principal: "mainspring/cancel".to_owned(), ..IdentityRef::default() };
        events.push(decision_event(tag.id(), body, Some(identity), clock));
        (take(), false)
    });
    let binding = Binding { call_id: &gate.call_id, request, decision };
    let receipt = match (approved, started) {
        (false, _) => binding.denied(),
        // Not every host notes starts, so this does not say that there was none.
        (true, false) => binding.failed("canceled; no start of the tool was noted".to_owned()),
        (true, true) => {
            binding.failed("canceled while the tool was run; its outcome is unknown".to_owned())
        }
    };
    events.push(tag.event(EventBody::ToolResult(Some(receipt))));
    events
}

fn end(reason: CancelReason) -> HarnessEnd {
    let state = match reason {
        CancelReason::User | CancelReason::Timeout => EndState::Canceled,
        CancelReason::Internal => EndState::Failed,
    };
    let error =
        RecordedError { code: CANCELLED_CODE, description: format!("canceled: {}", reason.name()) };
    HarnessEnd { state: state.name().to_owned(), error: Some(error) }
}
