//! What happens next in a turn: a pure function of recorded effects and calls.
//!
//! Replay serves recorded effects and nothing else. Resume serves them, then
//! goes on live. Live has none to serve. What latches a failure is where it
//! came from, a disagreement with recorded evidence, never its type.
//!
//! The machine sees a window of what is recorded; the driver keeps it filled
//! ([`Machine::wants_more`]), so that a turn of any length is served in bounded
//! memory.

mod identity;
mod tool;

use std::collections::{HashMap, VecDeque};

use mainspring_api::{
    Condition, Divergence, EventBody, ModelPolicy, ModelReply, ResultCode, Seq, SinkError,
    ToolResult, Usage,
};

use crate::recorded::Effect;
use crate::run::TurnStop;

pub(crate) use tool::{Decided, Redriven, ToolStep};

/// Where effects beyond the recorded ones go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// They do not exist: the turn is finished.
    Nowhere,
    /// They happen now.
    Live,
}

/// What a run is known by, besides its recorded effects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// An id-less turn of an old journal: usage is ignored while it is served,
    /// and an intent without result is never driven again.
    pub(crate) legacy: bool,
    /// The default model that the turn recorded; empty without a policy.
    pub(crate) model: String,
    /// Today's policy. It binds live effects of turns that recorded a default.
    pub(crate) policy: Option<ModelPolicy>,
    /// Whether the controller has a session scope.
    pub(crate) has_session: bool,
    /// Whether the harness resumes by replay; `None` until it was described.
    pub(crate) stateless: Option<bool>,
}

/// Effects that must be in sight to decide a call: a gate with its request,
/// decision and receipt, and what comes next.
const LOOKAHEAD: usize = 8;

/// The state of one run.
#[derive(Debug)]
pub(crate) struct Machine {
    recorded: VecDeque<Effect>,
    /// Whether nothing is recorded beyond the window.
    drained: bool,
    beyond: Beyond,
    facts: Facts,
    /// Ids of the tool calls so far; `true` for gated ones.
    calls: HashMap<String, bool>,
    closed: bool,
    /// Parked, or failed after a gate's intent: neither error nor end may follow.
    stop: Option<SinkError>,
    /// Disagreed with the record, or broke a rule that fails the turn.
    failure: Option<SinkError>,
    /// The host's word that the turn is to stop.
    latch: Option<TurnStop>,
    /// Whether a call was refused because of that.
    latched: bool,
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
    /// A park, or a failure after which nothing may be recorded.
    pub(crate) stop: Option<SinkError>,
    /// A disagreement with recorded evidence, or a broken rule.
    pub(crate) failure: Option<SinkError>,
    /// Whether a call was refused because the host stops the turn.
    pub(crate) latched: bool,
    /// The first recorded effect that was not asked for.
    pub(crate) unconsumed: Option<Seq>,
}

type Result<T> = std::result::Result<T, SinkError>;

impl Machine {
    /// A run over what is pushed into its window.
    pub(crate) fn new(beyond: Beyond, facts: Facts) -> Self {
        Self {
            recorded: VecDeque::new(),
            drained: false,
            beyond,
            facts,
            calls: HashMap::new(),
            closed: false,
            stop: None,
            failure: None,
            latch: None,
            latched: false,
        }
    }

    /// A turn with nothing recorded.
    pub(crate) fn live(facts: Facts) -> Self {
        Self { drained: true, ..Self::new(Beyond::Live, facts) }
    }

    /// Whether the next call may need more of what is recorded.
    pub(crate) fn wants_more(&self) -> bool {
        !self.drained && (self.recorded.len() < LOOKAHEAD || self.usage_is_out_of_sight())
    }

    /// A completion's usage may be any number of effects away.
    fn usage_is_out_of_sight(&self) -> bool {
        let mut effects = self.recorded.iter().map(|effect| &effect.body);
        matches!(effects.next(), Some(EventBody::ModelCall(_)))
            && matches!(effects.next(), Some(EventBody::Output(_)))
            && !effects.any(|body| matches!(body, EventBody::Usage(_) | EventBody::ModelCall(_)))
    }

    /// More of what is recorded, in order.
    pub(crate) fn push(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.recorded.extend(effects);
    }

    /// Nothing more is recorded.
    pub(crate) fn drain(&mut self) {
        self.drained = true;
    }

    /// The harness was described.
    pub(crate) fn described(&mut self, stateless: bool) {
        self.facts.stateless = Some(stateless);
    }

    /// The host stops the turn at the next effect. The first word counts.
    pub(crate) fn latch(&mut self, stop: TurnStop) {
        self.latch.get_or_insert(stop);
    }

    /// From now on every call returns this, and nothing more is recorded.
    pub(crate) fn stop<T>(&mut self, error: SinkError) -> Result<T> {
        self.stop.get_or_insert(error.clone());
        Err(error)
    }

    /// From now on every call returns this; the turn fails with it.
    pub(crate) fn fail<T>(&mut self, error: SinkError) -> Result<T> {
        self.failure.get_or_insert(error.clone());
        Err(error)
    }

    /// Refuses a call in the order in which refusals take precedence.
    pub(crate) fn admit(&mut self) -> Result<()> {
        if let Some(stop) = &self.stop {
            return Err(stop.clone());
        }
        if self.closed {
            return Err(SinkError::Closed);
        }
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let Some(latch) = self.latch else { return Ok(()) };
        self.latched = true;
        Err(match latch {
            TurnStop::Cancel(reason) => SinkError::Canceled(reason),
            TurnStop::Interrupt => SinkError::Interrupted,
        })
    }

    fn diverge<T>(&mut self, divergence: Divergence) -> Result<T> {
        self.fail(SinkError::Diverged(divergence))
    }

    /// A call for which nothing is recorded any more.
    fn go_beyond<T>(&mut self, what: &str, live: T) -> Result<T> {
        match self.beyond {
            Beyond::Live => Ok(live),
            Beyond::Nowhere => {
                self.diverge(Divergence::beyond(format!("{what} is beyond what was recorded")))
            }
        }
    }

    /// Whether effects happen from here on.
    fn is_live(&self) -> bool {
        self.recorded.is_empty() && self.beyond == Beyond::Live
    }

    /// The model that a request for `asked` is for: what is hashed and called.
    pub(crate) fn effective_model<'a>(&'a self, asked: &'a str) -> &'a str {
        if asked.is_empty() { &self.facts.model } else { asked }
    }

    /// A live model call under today's policy, if the turn was begun under one.
    fn check_policy(&mut self, model: &str) -> Result<()> {
        if self.facts.model.is_empty() {
            return Ok(());
        }
        let Some(policy) = &self.facts.policy else { return Ok(()) };
        if let Err(invalid) = policy.check() {
            return self.fail(SinkError::InvalidModelPolicy(invalid));
        }
        if policy.allows(model) {
            return Ok(());
        }
        self.fail(SinkError::ModelNotAllowed(model.to_owned()))
    }

    /// A request for `model`, after [`Machine::effective_model`], that hashes so.
    pub(crate) fn model(&mut self, input_hash: &str, model: &str) -> Result<ModelStep> {
        self.admit()?;
        let Some(next) = self.recorded.front() else {
            self.go_beyond("model call (I0)", ())?;
            self.check_policy(model)?;
            return Ok(ModelStep::Call { record_intent: true });
        };
        let seq = next.seq;
        match &next.body {
            EventBody::ModelCall(Some(call)) if call.input_hash == input_hash => {}
            EventBody::ModelCall(Some(_)) => {
                let what = "the model request hashes otherwise than the recorded one (I0)";
                return self.diverge(Divergence::at(seq, what));
            }
            other => {
                let what = format!("model call where {} is recorded (I0)", other.kind().name());
                return self.diverge(Divergence::at(seq, what));
            }
        }
        self.recorded.pop_front();
        match self.recorded.front().map(|effect| &effect.body) {
            Some(EventBody::Output(Some(_))) => Ok(ModelStep::Served(Box::new(self.completion()))),
            None if self.beyond == Beyond::Live && !self.facts.legacy => {
                self.check_policy(model)?;
                Ok(ModelStep::Call { record_intent: false })
            }
            // What may have happened in between is not known, so it is not driven again.
            _ => Err(SinkError::CompletionMissing),
        }
    }

    /// Takes the completion at the front, with the usage recorded for it.
    fn completion(&mut self) -> ModelReply {
        let Some(Effect { body: EventBody::Output(Some(message)), notes, .. }) =
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
        ModelReply { message, usage: recorded.or(notes.usage).unwrap_or_default() }
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
        if carries_receipt(result) {
            return Err(SinkError::ApprovalReceiptReport);
        }
        if self.calls.get(&result.id).is_some_and(|gated| *gated) {
            let Some(next) = self.recorded.front() else {
                return self.fail(SinkError::ApprovalReceiptReport);
            };
            let divergence = Divergence::at(next.seq, "a report names a gated tool call")
                .because(Condition::ApprovalReceiptReport);
            return self.diverge(divergence);
        }
        self.serve("tool result", |body| match body {
            EventBody::ToolResult(Some(recorded)) if !carries_receipt(recorded) => {
                Some(recorded.id == result.id)
            }
            _ => None,
        })
    }

    /// Whether a tool was called under this id.
    pub(crate) fn has_called(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }

    pub(crate) fn usage(&mut self, usage: &Usage) -> Result<Step> {
        self.admit()?;
        if self.facts.legacy && (self.beyond == Beyond::Nowhere || !self.recorded.is_empty()) {
            return Ok(Step::Served);
        }
        self.serve("usage", |body| match body {
            EventBody::Usage(Some(recorded)) => Some(recorded == usage),
            _ => None,
        })
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
                self.diverge(Divergence::at(seq, format!("{what} differs from the recorded one")))
            }
            None => self.diverge(Divergence::at(seq, format!("{what} where {kind} is recorded"))),
        }
    }

    /// The run was given up: what is called from now on is too late.
    pub(crate) fn refuse_late(&mut self) {
        self.closed = true;
    }

    /// The run has returned: every later call is refused.
    pub(crate) fn close(&mut self) -> Closing {
        self.closed = true;
        Closing {
            stop: self.stop.clone(),
            failure: self.failure.clone(),
            latched: self.latched,
            unconsumed: self.recorded.front().map(|effect| effect.seq),
        }
    }
}

/// Whether a result carries what only the host may set.
pub(crate) fn carries_receipt(result: &ToolResult) -> bool {
    result.decision.is_some()
        || result.approval_request_seq != 0
        || result.approval_decision_seq != 0
        || result.code == ResultCode::ApprovalDenied
}
