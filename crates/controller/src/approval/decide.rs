//! Recording a decision.

use std::sync::Arc;

use mainspring_api::{
    AppendId, ApprovalRef, ApprovalResult, Clock, Decision, Entropy, Event, EventBody, ExecutionId,
    IdentityRef, LogRecord, Seq,
};
use mainspring_eventlog::reader::parse_rfc3339;
use mainspring_eventlog::{Holder, SessionRow};

use super::inspect::{digest, record_at};
use super::scan::check_approvals;
use crate::error::ControllerError;
use crate::execution::check_ids;
use crate::journal::Journal;
use crate::observer::Observer;
use crate::recorded::{EXPIRES_NOTE, Effect};
use crate::tape::Tape;
use crate::writer::{Writer, settle};

/// The principal of the decision that ends a request whose time has come.
pub const EXPIRY_PRINCIPAL: &str = "mainspring/expiry";

/// A decision to record, and with whose means.
#[derive(Debug, Clone)]
pub struct Approval {
    /// Which request.
    pub approval: ApprovalRef,
    /// The decision.
    pub decision: Decision,
    /// Digest of the call that was shown to whoever decided; `None` binds to
    /// the recorded call without a check.
    pub digest: Option<String>,
    /// Who mints the fence.
    pub holder: Holder,
    /// Wall clock: a decision is timestamped.
    pub clock: Arc<dyn Clock>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// Is told of the record.
    pub observer: Arc<dyn Observer>,
}

/// Records a decision on a pending request. Touches neither harness nor
/// compute, and does not resume.
///
/// # Guarantees
/// The exact repetition of a recorded decision answers the original record and
/// writes nothing, also after the receipt or newer turns.
///
/// # Errors
/// - `InvalidApprovalDecision`: the request is unknown, incomplete, inherited,
///   superseded, of a finished turn, decided otherwise, expired, or shown with
///   another digest. Neither fence nor record exists.
/// - A tampered journal, evidence out of shape.
/// - The log's conflict or newer fence, when another writer came first.
pub async fn approve(journal: &Journal, request: Approval) -> Result<LogRecord, ControllerError> {
    let named = request.approval.request().filter(|_| !request.approval.tool_call_id.is_empty());
    let Some(seq) = named else {
        return refuse("the request is not named in full");
    };
    let Ok(execution) = ExecutionId::new(&request.approval.execution_id) else {
        return refuse("the execution is not named");
    };
    let row = journal.open().await?;
    check_ids(&row.view)?;
    if let Some(latest) = &row.view.latest {
        check_approvals(journal, latest).await?;
    }
    if seq > row.view.head.seq {
        return refuse("there is no such request");
    }
    let recorded = record_at(journal, seq).await?;
    let names_it = matches!(&recorded.event.body, EventBody::ApprovalRequest(Some(body))
        if body.tool_call_id == request.approval.tool_call_id);
    if !names_it || recorded.event.execution_id.as_ref() != Some(&execution) {
        return refuse("there is no such request");
    }
    check_digest(journal, &execution, &request, seq).await?;
    if let Some(decided) = decision_of(journal, &row, &execution, seq).await? {
        return repeated(&request, decided);
    }
    check_open(&row, &request, seq)?;
    check_time(&request, &recorded)?;
    decide(journal, &row, &execution, &request).await
}

fn refuse<T>(what: &'static str) -> Result<T, ControllerError> {
    Err(ControllerError::InvalidApprovalDecision(what))
}

/// The decision of the request at `seq`: the next decision of that execution.
async fn decision_of(
    journal: &Journal,
    row: &SessionRow,
    execution: &ExecutionId,
    seq: Seq,
) -> Result<Option<LogRecord>, ControllerError> {
    if let Some(latest) = row.view.latest.as_ref().filter(|latest| latest.id == *execution)
        && let Some(gate) = latest.gate.as_ref().filter(|gate| gate.request == Some(seq))
    {
        return match gate.decision {
            None => Ok(None),
            Some((seq, _)) => record_at(journal, seq).await.map(Some),
        };
    }
    // Of another gate: no other effect of its execution can stand between.
    let mut tape = Tape::of(journal, execution, seq.next(), row.view.head.seq);
    match tape.page().await?.and_then(|mut effects| effects.pop_front()) {
        Some(Effect { seq: at, body: EventBody::ApprovalResult(Some(body)), .. })
            if body.request_seq == seq.as_i64() =>
        {
            record_at(journal, at).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Only the very same decision may be sent again.
fn repeated(request: &Approval, decided: LogRecord) -> Result<LogRecord, ControllerError> {
    let EventBody::ApprovalResult(Some(body)) = &decided.event.body else {
        return refuse("the request was decided by a record without a body");
    };
    let given = &request.decision;
    let identity =
        |identity: &Option<IdentityRef>| identity.clone().filter(|identity| !identity.is_empty());
    let same = body.approved == given.approved
        && body.reason == given.reason
        && body.tool_call_id == request.approval.tool_call_id
        && identity(&decided.event.actor) == identity(&given.identity);
    if same { Ok(decided) } else { refuse("the request was decided otherwise") }
}

fn check_open(row: &SessionRow, request: &Approval, seq: Seq) -> Result<(), ControllerError> {
    let Some(latest) = &row.view.latest else { return refuse("there is no such request") };
    if latest.id.as_str() != request.approval.execution_id {
        return refuse("a newer turn superseded the request");
    }
    if latest.end.is_some() {
        return refuse("the request's turn has ended");
    }
    let Some(gate) = latest.gate.as_ref().filter(|gate| gate.request == Some(seq)) else {
        return refuse("a newer request superseded this one");
    };
    if row.view.owns(gate.call) {
        Ok(())
    } else {
        refuse("the request was inherited through a fork")
    }
}

/// After its time a request can only be ended: denied, as expired.
fn check_time(request: &Approval, recorded: &LogRecord) -> Result<(), ControllerError> {
    let expires = recorded.notes.get(EXPIRES_NOTE).and_then(|note| parse_rfc3339(note));
    let decision = &request.decision;
    let by_expiry = decision.identity.as_ref().is_some_and(|by| by.principal == EXPIRY_PRINCIPAL);
    match expires {
        Some(at) if at <= request.clock.now() && (decision.approved || !by_expiry) => {
            refuse("the request has expired; a resume records that and goes on")
        }
        _ => Ok(()),
    }
}

/// Whoever decides, or decides again, must have been shown the recorded call.
async fn check_digest(
    journal: &Journal,
    execution: &ExecutionId,
    request: &Approval,
    seq: Seq,
) -> Result<(), ControllerError> {
    let Some(shown) = &request.digest else { return Ok(()) };
    // Only errors and lifecycle records stand between a call and its request.
    let mut at = seq;
    while at > Seq::new(1) {
        at = Seq::new(at.get() - 1);
        let event = record_at(journal, at).await?.event;
        match event.body {
            EventBody::ToolCall(Some(call))
                if event.execution_id.as_ref() == Some(execution)
                    && call.id == request.approval.tool_call_id =>
            {
                return match digest(at, &call)? == *shown {
                    true => Ok(()),
                    false => refuse("the digest is not that of the recorded call"),
                };
            }
            EventBody::Error(_) | EventBody::Lifecycle(_) => {}
            _ if event.execution_id.as_ref() == Some(execution) => break,
            _ => {}
        }
    }
    refuse("the request's tool call is not recorded")
}

async fn decide(
    journal: &Journal,
    row: &SessionRow,
    execution: &ExecutionId,
    request: &Approval,
) -> Result<LogRecord, ControllerError> {
    let (log, uid) = (journal.log(), journal.uid());
    let (id, holder) = (AppendId::random(&*request.entropy), request.holder.clone());
    let fence =
        settle(|| log.acquire_if_head(uid, id, row.fence.fence, row.view.head, holder.clone()))
            .await?;
    let (observer, entropy) = (Arc::clone(&request.observer), Arc::clone(&request.entropy));
    let mut writer = Writer::new(journal.clone(), fence, row.view.head, observer, entropy);
    let body = ApprovalResult {
        tool_call_id: request.approval.tool_call_id.clone(),
        approved: request.decision.approved,
        reason: request.decision.reason.clone(),
        request_seq: request.approval.request_seq,
    };
    let event = decision_event(execution, body, request.decision.identity.clone(), &*request.clock);
    Ok(writer.append_one(event.into()).await?)
}

/// A decision as it is recorded: with the time, and with who decided.
pub(crate) fn decision_event(
    execution: &ExecutionId,
    body: ApprovalResult,
    identity: Option<IdentityRef>,
    clock: &dyn Clock,
) -> Event {
    Event {
        ts: Some(clock.now()),
        actor: identity.filter(|identity| !identity.is_empty()),
        ..Event::in_execution(execution, EventBody::ApprovalResult(Some(body)))
    }
}
