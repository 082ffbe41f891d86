//! Whether the recorded evidence of an execution's approvals is well formed.

use std::collections::HashMap;

use mainspring_api::{
    ApprovalRequest, ApprovalResult, Condition, Divergence, Event, EventBody, Mediation,
    ResultCode, Seq, ToolCall, ToolResult,
};
use mainspring_eventlog::{ExecutionView, StoredRecord};

use crate::error::ControllerError;
use crate::journal::Journal;

/// A gate without its receipt.
#[derive(Debug)]
struct OpenGate {
    call_id: String,
    request: Option<Seq>,
    decision: Option<(Seq, bool)>,
}

/// The evidence of one execution so far.
#[derive(Debug, Default)]
pub(super) struct Scan {
    open: Option<OpenGate>,
    /// Ids of the tool calls so far; `true` for gated ones.
    calls: HashMap<String, bool>,
}

type Checked = Result<(), ControllerError>;

fn invalid(seq: Seq, what: &str) -> Checked {
    Err(ControllerError::invalid(seq, what))
}

fn diverged(seq: Seq, what: &str) -> Checked {
    Err(ControllerError::ReplayDiverged(Divergence::at(seq, what)))
}

impl Scan {
    /// Takes the next record of the execution.
    pub(super) fn apply(&mut self, seq: Seq, event: &Event) -> Checked {
        match &event.body {
            EventBody::ToolCall(call) => self.call(seq, call.as_ref()),
            EventBody::ApprovalRequest(body) => self.request(seq, body.as_ref()),
            EventBody::ApprovalResult(body) => self.decision(seq, body.as_ref()),
            EventBody::ToolResult(body) => self.result(seq, body.as_ref()),
            EventBody::Error(_) | EventBody::Lifecycle(_) => Ok(()),
            other if self.open.is_some() => {
                let kind = other.kind().name();
                invalid(seq, &format!("{kind} between a gated tool call and its receipt"))
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, seq: Seq, call: Option<&ToolCall>) -> Checked {
        if self.open.is_some() {
            return invalid(seq, "a tool call between a gated one and its receipt");
        }
        let Some(call) = call else { return Ok(()) };
        let gated = call.mediation == Mediation::RequiresApproval;
        if gated && call.id.is_empty() {
            return invalid(seq, "a gated tool call has no id");
        }
        if gated && call.idempotency_key.is_empty() {
            return Err(ControllerError::invalid_because(
                seq,
                "a gated tool call has no idempotency key",
                Condition::MissingIdempotencyKey,
            ));
        }
        let used = self.calls.insert(call.id.clone(), gated);
        if used.is_some_and(|used| used || gated) {
            return invalid(seq, "the id of a gated tool call is used twice");
        }
        if gated {
            self.open = Some(OpenGate { call_id: call.id.clone(), request: None, decision: None });
        }
        Ok(())
    }

    fn request(&mut self, seq: Seq, body: Option<&ApprovalRequest>) -> Checked {
        let Some(body) = body else { return invalid(seq, "an approval request has no body") };
        let Some(gate) = &mut self.open else {
            return invalid(seq, "an approval request without a gated tool call before it");
        };
        if gate.request.is_some() {
            return invalid(seq, "a second approval request of one tool call");
        }
        if gate.call_id != body.tool_call_id {
            return diverged(seq, "the approval request is of another tool call");
        }
        gate.request = Some(seq);
        Ok(())
    }

    fn decision(&mut self, seq: Seq, body: Option<&ApprovalResult>) -> Checked {
        let Some(body) = body else { return invalid(seq, "an approval decision has no body") };
        let Some((gate, request)) =
            self.open.as_mut().and_then(|gate| gate.request.map(|request| (gate, request)))
        else {
            return invalid(seq, "an approval decision without a request before it");
        };
        if gate.decision.is_some() {
            return invalid(seq, "a second decision of one approval request");
        }
        if gate.call_id != body.tool_call_id {
            return diverged(seq, "the approval decision is of another tool call");
        }
        if request.as_i64() != body.request_seq {
            return diverged(seq, "the approval decision names another request");
        }
        gate.decision = Some((seq, body.approved));
        Ok(())
    }

    fn result(&mut self, seq: Seq, body: Option<&ToolResult>) -> Checked {
        let Some(gate) = self.open.take() else {
            let of_gate = body.is_some_and(|result| self.calls.get(&result.id) == Some(&true));
            return if of_gate {
                invalid(seq, "a second receipt of one gated tool call")
            } else {
                Ok(())
            };
        };
        let Some(result) = body else { return invalid(seq, "a receipt has no body") };
        let (Some(request), Some((decision, approved))) = (gate.request, gate.decision) else {
            return invalid(seq, "a tool result before the decision of its approval");
        };
        if gate.call_id != result.id {
            return diverged(seq, "the receipt is of another tool call");
        }
        if result.approval_request_seq != request.as_i64() {
            return diverged(seq, "the receipt names another approval request");
        }
        if result.approval_decision_seq != decision.as_i64() {
            return diverged(seq, "the receipt names another approval decision");
        }
        let agrees = match (approved, result.is_error) {
            (false, is_error) => is_error && result.code == ResultCode::ApprovalDenied,
            (true, false) => result.code == ResultCode::Unspecified,
            (true, true) => result.code == ResultCode::ExecutorError,
        };
        if agrees { Ok(()) } else { diverged(seq, "the receipt contradicts the decision") }
    }
}

/// Checks the approvals of an execution, if it has any. What was found well
/// formed by this process is not read again.
///
/// # Errors
/// `InvalidExecutionLog` for evidence out of shape, `ReplayDiverged` for
/// evidence of another call, request or decision.
pub(crate) async fn check_approvals(journal: &Journal, view: &ExecutionView) -> Checked {
    if view.gate.is_none() || journal.has_checked(&view.id, view.last_seq) {
        return Ok(());
    }
    scan_approvals(journal, view.first_seq, view.last_seq).await?;
    journal.checked(&view.id, view.last_seq);
    Ok(())
}

/// Checks the approvals of the execution whose records lie between its first
/// and its last, in one pass.
///
/// # Errors
/// As [`check_approvals`].
pub(crate) async fn scan_approvals(journal: &Journal, first: Seq, last: Seq) -> Checked {
    let mut scan = Scan::default();
    let mut whose = None;
    let visit = |stored: StoredRecord| {
        let event = stored.event()?;
        match *whose.get_or_insert_with(|| event.execution_id.clone()) == event.execution_id {
            true => scan.apply(stored.seq, &event),
            false => Ok(()),
        }
    };
    journal.read_range(first, last, visit).await
}
