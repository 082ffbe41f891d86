//! What a tool call comes to.

use mainspring_api::{
    ApprovalResult, Divergence, EventBody, Mediation, Seq, SinkError, ToolCall, ToolResult,
};
use mainspring_eventlog::normalise_args;

use super::{Beyond, Machine, Result, carries_receipt, identity};
use crate::recorded::{Effect, EffectNotes};

/// What a tool call comes to.
#[derive(Debug)]
pub(crate) enum ToolStep {
    /// It was recorded with its result; a gated one comes with its decision.
    Served(Box<ToolResult>),
    /// The intent is to be recorded in this form, then the tool is run.
    Call(Box<ToolCall>),
    /// The intent is the last thing recorded: the tool is run under it.
    Redrive(Box<Redriven>),
    /// The intent and its request are to be recorded, and the turn parks.
    Gate(Box<ToolCall>),
    /// The gate was decided and has no receipt yet.
    Decided(Box<Decided>),
    /// The harness must be described first; then the call is made once more.
    Describe,
}

/// An intent that is driven again.
#[derive(Debug)]
pub(crate) struct Redriven {
    pub(crate) seq: Seq,
    /// The call as it was recorded.
    pub(crate) call: ToolCall,
    pub(crate) notes: EffectNotes,
}

/// A gate with a decision and without a receipt.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) seq: Seq,
    /// The call as it was recorded.
    pub(crate) call: ToolCall,
    pub(crate) notes: EffectNotes,
    pub(crate) request: Seq,
    pub(crate) decision_seq: Seq,
    pub(crate) decision: ApprovalResult,
}

/// The tool call that is recorded next, if one is.
struct Next<'a> {
    seq: Seq,
    call: Option<&'a ToolCall>,
}

impl Next<'_> {
    fn has_id(&self, id: &str) -> bool {
        self.call.is_none_or(|call| call.id == id)
    }

    fn is_gated(&self) -> bool {
        self.call.is_some_and(|call| call.mediation == Mediation::RequiresApproval)
    }
}

impl Machine {
    pub(crate) fn tool_call(&mut self, call: &ToolCall) -> Result<ToolStep> {
        self.admit()?;
        match call.mediation {
            Mediation::RequiresApproval => self.gated(call),
            _ => self.ungated(call),
        }
    }

    fn next_call(&self) -> Option<Next<'_>> {
        match self.recorded.front() {
            Some(Effect { seq, body: EventBody::ToolCall(call), .. }) => {
                Some(Next { seq: *seq, call: call.as_ref() })
            }
            _ => None,
        }
    }

    /// Refusals that a call earns by its own form come before anything is
    /// consumed, so that replay meets them where they were met.
    fn ungated(&mut self, call: &ToolCall) -> Result<ToolStep> {
        let mediated = call.mediation == Mediation::ControllerMediated;
        let next = self.next_call();
        let is_next = next.as_ref().is_some_and(|next| next.has_id(&call.id));
        if !is_next && self.calls.get(&call.id).is_some_and(|gated| *gated) {
            return Err(SinkError::InvalidApprovalCall("its id is that of a gated call"));
        }
        if mediated && call.idempotency_key.is_empty() {
            let is_that_gate = is_next && next.as_ref().is_some_and(Next::is_gated);
            if !is_that_gate {
                return Err(SinkError::MissingIdempotencyKey);
            }
        }
        match next {
            Some(next) if mediated || is_next => {
                let seq = next.seq;
                if let Err(divergence) = identity::compare(seq, next.call, call) {
                    return self.diverge(divergence);
                }
                self.serve_call(call)
            }
            // Refused before its intent, as when it was recorded.
            _ if !mediated => Err(SinkError::UnmediatedToolCall),
            None if self.recorded.is_empty() => {
                self.go_beyond("tool call", ())?;
                let args = self.recordable_args(call)?;
                self.calls.insert(call.id.clone(), false);
                Ok(ToolStep::Call(Box::new(ToolCall { args, ..call.clone() })))
            }
            _ => self.not_recorded("tool call"),
        }
    }

    fn recordable_args(&mut self, call: &ToolCall) -> Result<Option<mainspring_api::JsonObject>> {
        match normalise_args(call.args.as_ref()) {
            Ok(args) => Ok(args),
            Err(_) => self.fail(SinkError::InvalidToolArgs),
        }
    }

    fn not_recorded<T>(&mut self, what: &str) -> Result<T> {
        let next = self.recorded.front().expect("the caller saw a recorded effect");
        let divergence = Divergence::at(
            next.seq,
            format!("{what} where {} is recorded", next.body.kind().name()),
        );
        self.diverge(divergence)
    }

    fn take_call(&mut self) -> Effect {
        let effect = self.recorded.pop_front().expect("the caller saw a tool call at the front");
        if let EventBody::ToolCall(Some(call)) = &effect.body {
            let gated = call.mediation == Mediation::RequiresApproval;
            self.calls.insert(call.id.clone(), gated);
        }
        effect
    }

    /// The recorded call is this one: its result, or what is left of it to do.
    fn serve_call(&mut self, call: &ToolCall) -> Result<ToolStep> {
        let taken = self.take_call();
        match self.recorded.front() {
            Some(Effect { seq, body: EventBody::ToolResult(result), notes }) => {
                let (seq, is_report) = (*seq, taken.notes.failed && notes.reported);
                match result {
                    Some(result)
                        if result.id == call.id && !is_report && !carries_receipt(result) =>
                    {
                        let result = result.clone();
                        self.recorded.pop_front();
                        Ok(ToolStep::Served(Box::new(result)))
                    }
                    // A report, right after a call that failed.
                    Some(result) if taken.notes.failed && !carries_receipt(result) => {
                        Err(SinkError::ToolResultMissing)
                    }
                    Some(_) => self.diverge(Divergence::at(seq, "the result is of another call")),
                    None => self.diverge(Divergence::at(seq, "the recorded result has no body")),
                }
            }
            None if self.beyond == Beyond::Live && !self.facts.legacy => {
                let EventBody::ToolCall(Some(call)) = taken.body else {
                    unreachable!("it was compared with a recorded call")
                };
                Ok(ToolStep::Redrive(Box::new(Redriven {
                    seq: taken.seq,
                    call,
                    notes: taken.notes,
                })))
            }
            // What may have happened in between is not known, so it is not driven again.
            _ => Err(SinkError::ToolResultMissing),
        }
    }

    fn gated(&mut self, call: &ToolCall) -> Result<ToolStep> {
        if let Some(next) = self.next_call()
            && (next.is_gated() || next.has_id(&call.id))
        {
            let seq = next.seq;
            if let Err(divergence) = identity::compare(seq, next.call, call) {
                return self.diverge(divergence);
            }
            return self.serve_gate();
        }
        if self.is_live() && self.facts.stateless.is_none() {
            return Ok(ToolStep::Describe);
        }
        if self.facts.stateless == Some(false) {
            return Err(SinkError::ApprovalUnavailable);
        }
        if !self.facts.has_session {
            return Err(SinkError::MissingSessionUid);
        }
        if self.facts.legacy {
            return Err(SinkError::InvalidApprovalCall("the turn has no execution id"));
        }
        if call.id.is_empty() {
            return Err(SinkError::InvalidApprovalCall("its id is empty"));
        }
        if call.idempotency_key.is_empty() {
            return Err(SinkError::MissingIdempotencyKey);
        }
        if self.calls.contains_key(&call.id) {
            return Err(SinkError::InvalidApprovalCall("its id was used before in this turn"));
        }
        if self.next_call().is_some() {
            // Refused when it was recorded: the harness could not wait then.
            return Err(SinkError::ApprovalUnavailable);
        }
        if !self.recorded.is_empty() {
            return self.not_recorded("gated tool call");
        }
        self.go_beyond("gated tool call", ())?;
        let args = self.recordable_args(call)?;
        self.calls.insert(call.id.clone(), true);
        Ok(ToolStep::Gate(Box::new(ToolCall { args, ..call.clone() })))
    }

    /// The recorded gate is this one: its request, its decision, and its receipt if it is there.
    fn serve_gate(&mut self) -> Result<ToolStep> {
        let taken = self.take_call();
        let (seq, notes) = (taken.seq, taken.notes);
        let EventBody::ToolCall(Some(call)) = taken.body else {
            unreachable!("it was compared with a recorded call")
        };
        let request = match self.recorded.pop_front() {
            Some(Effect { seq, body: EventBody::ApprovalRequest(Some(_)), .. }) => seq,
            _ => return self.diverge(Divergence::at(seq, "the gate has no request")),
        };
        let (decision_seq, decision) = match self.recorded.pop_front() {
            Some(Effect { seq, body: EventBody::ApprovalResult(Some(body)), .. }) => (seq, body),
            _ => return self.diverge(Divergence::at(seq, "the gate has no decision")),
        };
        match self.recorded.front() {
            Some(Effect { body: EventBody::ToolResult(Some(receipt)), .. }) => {
                let mut receipt = receipt.clone();
                self.recorded.pop_front();
                receipt.decision = Some(decision);
                Ok(ToolStep::Served(Box::new(receipt)))
            }
            None if self.beyond == Beyond::Live => Ok(ToolStep::Decided(Box::new(Decided {
                seq,
                call,
                notes,
                request,
                decision_seq,
                decision,
            }))),
            _ => self.diverge(Divergence::at(seq, "the decided gate has no receipt")),
        }
    }
}
