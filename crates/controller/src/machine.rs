//! What happens next in a turn: a pure function of recorded effects and calls.
//!
//! Replay serves recorded effects and nothing else. Resume serves them, then
//! goes on live. Live has none to serve. What latches a failure is where it
//! came from, a disagreement with recorded evidence, never its type.

use std::collections::VecDeque;

use mainspring_api::{
    EventBody, Mediation, ModelReply, ResultCode, Seq, SinkError, ToolCall, ToolResult, Usage,
};

use crate::recorded::Effect;

/// Where effects beyond the recorded ones go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// They do not exist: the turn is finished.
    Nowhere,
    /// They happen now.
    Live,
}

/// The state of one run.
#[derive(Debug)]
pub(crate) struct Machine {
    recorded: VecDeque<Effect>,
    beyond: Beyond,
    /// An id-less turn of an old journal: usage is ignored while it is served,
    /// and a model call without completion is never driven again.
    legacy: bool,
    closed: bool,
    failure: Option<SinkError>,
}

/// What a model call comes to.
#[derive(Debug)]
pub(crate) enum ModelStep {
    /// It was recorded with its completion.
    Served(Box<ModelReply>),
    /// The model is to be called; the intent is recorded first unless it already is.
    Call {
        /// Whether the intent is still to be recorded.
        record_intent: bool,
    },
}

/// What another effect comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It was recorded.
    Served,
    /// It is to be recorded.
    Record,
}

/// What was left when a run ended.
#[derive(Debug)]
pub(crate) struct Closing {
    /// A disagreement with recorded evidence.
    pub(crate) failure: Option<SinkError>,
    /// The first recorded effect that was not asked for.
    pub(crate) unconsumed: Option<Seq>,
}

type Result<T> = std::result::Result<T, SinkError>;

impl Machine {
    pub(crate) fn new(recorded: Vec<Effect>, beyond: Beyond, legacy: bool) -> Self {
        Self { recorded: recorded.into(), beyond, legacy, closed: false, failure: None }
    }

    /// A turn with nothing recorded.
    pub(crate) fn live() -> Self {
        Self::new(Vec::new(), Beyond::Live, false)
    }

    /// Refuses a call in the order in which refusals take precedence.
    fn admit(&self) -> Result<()> {
        if self.closed {
            return Err(SinkError::Closed);
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn diverge<T>(&mut self, what: String) -> Result<T> {
        let error = SinkError::Diverged(mainspring_api::Divergence::beyond(what));
        self.failure = Some(error.clone());
        Err(error)
    }

    /// A call for which nothing is recorded any more.
    fn go_beyond<T>(&mut self, what: &str, live: T) -> Result<T> {
        match self.beyond {
            Beyond::Live => Ok(live),
            Beyond::Nowhere => self.diverge(format!("{what} is beyond what was recorded")),
        }
    }

    pub(crate) fn model(&mut self, input_hash: &str) -> Result<ModelStep> {
        self.admit()?;
        let Some(next) = self.recorded.front() else {
            return self.go_beyond("model call (I0)", ModelStep::Call { record_intent: true });
        };
        let seq = next.seq;
        match &next.body {
            EventBody::ModelCall(Some(call)) if call.input_hash == input_hash => {}
            EventBody::ModelCall(Some(_)) => {
                return self.diverge(format!(
                    "the model request hashes otherwise than the one recorded at seq {seq} (I0)"
                ));
            }
            other => {
                let kind = other.kind().name();
                return self.diverge(format!("a model call where seq {seq} records {kind} (I0)"));
            }
        }
        self.recorded.pop_front();
        match self.recorded.front().map(|effect| &effect.body) {
            Some(EventBody::Output(Some(_))) => Ok(ModelStep::Served(Box::new(self.completion()))),
            None if self.beyond == Beyond::Live && !self.legacy => {
                Ok(ModelStep::Call { record_intent: false })
            }
            // What may have happened in between is not known, so it is not driven again.
            _ => Err(SinkError::CompletionMissing),
        }
    }

    /// Takes the completion at the front, with the usage recorded for it.
    fn completion(&mut self) -> ModelReply {
        let Some(Effect { body: EventBody::Output(Some(message)), usage, .. }) =
            self.recorded.pop_front()
        else {
            unreachable!("the caller saw an output at the front")
        };
        let recorded = self
            .recorded
            .iter()
            .take_while(|effect| !matches!(effect.body, EventBody::ModelCall(_)))
            .find_map(|effect| match &effect.body {
                EventBody::Usage(Some(usage)) => Some(usage.clone()),
                _ => None,
            });
        ModelReply { message, usage: recorded.or(usage).unwrap_or_default() }
    }

    pub(crate) fn output(&mut self, text: &str) -> Result<Step> {
        self.admit()?;
        self.serve("output", |body| match body {
            EventBody::Output(Some(message)) => Some(message.plain_text() == text),
            _ => None,
        })
    }

    pub(crate) fn report(&mut self, result: &ToolResult) -> Result<Step> {
        self.admit()?;
        if is_receipt(result) {
            return Err(SinkError::ApprovalReceiptReport);
        }
        self.serve("tool result", |body| match body {
            EventBody::ToolResult(Some(recorded)) if !is_receipt(recorded) => {
                Some(recorded.id == result.id)
            }
            _ => None,
        })
    }

    pub(crate) fn usage(&mut self, usage: &Usage) -> Result<Step> {
        self.admit()?;
        if self.legacy && (self.beyond == Beyond::Nowhere || !self.recorded.is_empty()) {
            return Ok(Step::Served);
        }
        self.serve("usage", |body| match body {
            EventBody::Usage(Some(recorded)) => Some(recorded == usage),
            _ => None,
        })
    }

    pub(crate) fn tool_call(&mut self, call: &ToolCall) -> Result<std::convert::Infallible> {
        self.admit()?;
        match call.mediation {
            Mediation::Unspecified | Mediation::InHarnessReported => {
                Err(SinkError::UnmediatedToolCall)
            }
            _ if call.idempotency_key.is_empty() => Err(SinkError::MissingIdempotencyKey),
            Mediation::ControllerMediated => Err(SinkError::Unsupported("mediated tool call")),
            Mediation::RequiresApproval => Err(SinkError::Unsupported("tool call with approval")),
        }
    }

    /// Consumes the next recorded effect if `same` says that it is this one;
    /// `None` from it means another kind of effect.
    fn serve(
        &mut self,
        what: &'static str,
        same: impl FnOnce(&EventBody) -> Option<bool>,
    ) -> Result<Step> {
        let Some(next) = self.recorded.front() else {
            return self.go_beyond(what, Step::Record);
        };
        let (seq, kind) = (next.seq, next.body.kind().name());
        match same(&next.body) {
            Some(true) => {
                self.recorded.pop_front();
                Ok(Step::Served)
            }
            Some(false) => {
                self.diverge(format!("{what} differs from the one recorded at seq {seq}"))
            }
            None => self.diverge(format!("{what} where seq {seq} records {kind}")),
        }
    }

    /// The run has returned: every later call is refused.
    pub(crate) fn close(&mut self) -> Closing {
        self.closed = true;
        let unconsumed = self.recorded.front().map(|effect| effect.seq);
        Closing { failure: self.failure.clone(), unconsumed }
    }
}

/// Whether a result carries what only the host may set.
fn is_receipt(result: &ToolResult) -> bool {
    result.decision.is_some()
        || result.approval_request_seq != 0
        || result.approval_decision_seq != 0
        || result.code == ResultCode::ApprovalDenied
}
