//! The fold of one execution.

use mainspring_api::{EndState, Event, EventBody, ExecutionId, ExecutionStart, Mediation, Seq};

/// What is known of one execution.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionView {
    /// Its id.
    pub id: ExecutionId,
    /// Its first record.
    pub first_seq: Seq,
    /// Its last record.
    pub last_seq: Seq,
    /// Its start record.
    pub start: Option<StartView>,
    /// Inputs recorded so far.
    pub inputs: u64,
    /// Its end, with the state if that is one of the three.
    pub end: Option<(Seq, Option<EndState>)>,
    /// A trailing error: the last attempt failed and nothing follows.
    pub trailing_error: Option<Seq>,
    /// Its last gated tool call.
    pub gate: Option<GateView>,
    /// A trailing ungated tool call: no result and no other effect follows it.
    pub unanswered: Option<Seq>,
}

/// What a start record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartView {
    /// Where it is.
    pub seq: Seq,
    /// Inputs that it declares.
    pub input_count: Option<i64>,
    /// The harness.
    pub harness: String,
    /// Its version.
    pub harness_version: String,
    /// The default model, under a policy.
    pub model: String,
}

/// A gated tool call and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateView {
    /// The call's id.
    pub call_id: String,
    /// The call.
    pub call: Seq,
    /// The request.
    pub request: Option<Seq>,
    /// The decision.
    pub decision: Option<(Seq, bool)>,
    /// The receipt.
    pub receipt: Option<Seq>,
}

impl ExecutionView {
    pub(super) fn new(id: ExecutionId, seq: Seq) -> Self {
        Self {
            id,
            first_seq: seq,
            last_seq: seq,
            start: None,
            inputs: 0,
            end: None,
            trailing_error: None,
            gate: None,
            unanswered: None,
        }
    }

    /// Folds one more record of a session into the view of this execution
    /// alone; those of others change nothing.
    pub fn refold(view: &mut Option<Self>, id: &ExecutionId, seq: Seq, event: &Event) {
        if event.execution_id.as_ref() == Some(id) {
            let view = view.get_or_insert_with(|| Self::new(id.clone(), seq));
            // What is ill-formed was reported when the journal was folded.
            let _ = view.apply(seq, event);
        }
    }

    /// Folds one record of this execution; an `Err` says what is ill-formed.
    pub(super) fn apply(&mut self, seq: Seq, event: &Event) -> Result<(), &'static str> {
        use EventBody as B;
        let first = self.first_seq == seq;
        self.last_seq = seq;
        self.trailing_error = None;
        if !matches!(event.body, B::Error(_)) {
            self.unanswered = None;
        }
        match &event.body {
            B::ExecutionStart(body) => return self.start(seq, first, body.as_ref()),
            B::Input(body) => return self.input(body.is_some()),
            B::ToolCall(Some(call)) if call.mediation == Mediation::RequiresApproval => {
                self.gate = Some(GateView {
                    call_id: call.id.clone(),
                    call: seq,
                    request: None,
                    decision: None,
                    receipt: None,
                });
            }
            B::ToolCall(_) => self.unanswered = Some(seq),
            B::ApprovalRequest(_) => self.on_gate(|gate| gate.request = Some(seq)),
            B::ApprovalResult(Some(body)) => {
                let approved = body.approved;
                self.on_gate(|gate| gate.decision = Some((seq, approved)));
            }
            B::ToolResult(body) => {
                let id = body.as_ref().map_or("", |result| &result.id);
                if self.gate.as_ref().is_some_and(|gate| gate.call_id == id) {
                    self.on_gate(|gate| gate.receipt = Some(seq));
                }
            }
            B::End(body) => {
                self.end = Some((seq, body.as_ref().and_then(|end| end.end_state())));
                return self.counts_at_end();
            }
            B::Error(_) => self.trailing_error = Some(seq),
            _ => {}
        }
        Ok(())
    }

    fn on_gate(&mut self, change: impl FnOnce(&mut GateView)) {
        if let Some(gate) = &mut self.gate {
            change(gate);
        }
    }

    fn start(
        &mut self,
        seq: Seq,
        first: bool,
        body: Option<&ExecutionStart>,
    ) -> Result<(), &'static str> {
        if self.start.is_some() {
            return Err("an execution has two start records");
        }
        if !first {
            return Err("a start record is not the first of its execution");
        }
        let body = body.ok_or("a start record has no body")?;
        self.start = Some(StartView {
            seq,
            input_count: body.input_count,
            harness: body.harness.clone(),
            harness_version: body.harness_version.clone(),
            model: body.model.clone(),
        });
        match body.input_count {
            None => Err("a start record declares no input count"),
            Some(count) if count < 0 => Err("a start record declares a negative input count"),
            Some(_) => Ok(()),
        }
    }

    fn input(&mut self, has_message: bool) -> Result<(), &'static str> {
        self.inputs += 1;
        if !has_message {
            return Err("an input has no message");
        }
        match self.declared() {
            Some(declared) if self.inputs > declared => {
                Err("an execution has more inputs than it declares")
            }
            _ => Ok(()),
        }
    }

    fn counts_at_end(&self) -> Result<(), &'static str> {
        match self.declared() {
            Some(declared) if self.inputs < declared => {
                Err("a finished execution has fewer inputs than it declares")
            }
            _ => Ok(()),
        }
    }

    fn declared(&self) -> Option<u64> {
        self.start.as_ref()?.input_count.and_then(|count| u64::try_from(count).ok())
    }

    /// Inputs that are declared but not there.
    #[must_use]
    pub fn missing_inputs(&self) -> u64 {
        self.declared().map_or(0, |declared| declared.saturating_sub(self.inputs))
    }
}
