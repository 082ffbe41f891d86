//! The harness that calls tools and waits for approvals.

mod script;

use std::sync::Arc;

use mainspring_api::{
    Descriptor, EventSink, Harness, HarnessError, JsonObject, Mediation, Message, ModelRequest,
    ResultCode, SinkError, Start, ToolCall, ToolResult, Usage, async_trait,
};

use crate::keys::Keys;
use script::{Effect, Step};

pub use script::GATE_CONFIG_INVALID;

/// Calls tools as its config or its input says, with or without an approval.
///
/// It shows a host's tools and approvals without a model that asks for them.
///
/// # By hand
/// Without a config, the last input's text says what it does:
///
/// | Text | Effect |
/// |---|---|
/// | `refund N` | a call of the tool `refund` with `{"amount": N}`, once approved |
/// | `tool NAME` | a call of the tool `NAME` without arguments |
/// | `tool NAME {...}` | the same with this JSON object as arguments |
/// | `tool NAME WORDS` | the same with `{"input": "WORDS"}` |
/// | anything else | asks the model, with this text as the one message |
///
/// # By script
/// The config is empty, or a JSON object with an optional array `steps`. Each
/// step is one effect, in order, and an object of one of these forms:
///
/// | Step | Effect |
/// |---|---|
/// | `{"model": TEXT}` | asks the model |
/// | `{"tool": NAME, "args": {...}, "key": KEY}` | a mediated call; `args` and `key` are optional |
/// | `{"gate": NAME, "args": {...}, "key": KEY}` | the same, once approved |
/// | `{"say": TEXT}` | output |
/// | `{"usage": true}` | reports what the last model call used |
/// | `{"report": ID, "output": {...}}` | reports a tool's result; `output` is optional |
///
/// With `"optional": true`, the run goes on when the step fails. A park is no
/// failure: it ends the run at once.
///
/// # In both
/// Calls have the ids `call-1`, `call-2`, and so on, and the [`Keys`] of the same
/// ordinals unless the script gives one, which is passed on as it is. After each
/// result one line says what came of it: `refund: done`, `refund: denied: REASON`
/// or `refund: failed: ERROR`.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    model: String,
}

impl Gate {
    /// Its id.
    pub const ID: &str = "gate";

    /// A gate that leaves the model to the host.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A gate that asks for `model`; empty leaves it to the host.
    #[must_use]
    pub fn with_model(model: impl Into<String>) -> Self {
        Self { model: model.into() }
    }
}

#[async_trait]
impl Harness for Gate {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        let models = Some(self.model.clone()).filter(|model| !model.is_empty());
        Ok(Descriptor {
            id: Self::ID.to_owned(),
            version: "1".to_owned(),
            models: models.into_iter().collect(),
            ..Descriptor::default()
        })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let steps = match script::parse(&start.config)? {
            Some(steps) => steps,
            None => {
                let said = start.inputs.last().map(Message::plain_text);
                vec![script::by_hand(&said.unwrap_or_default())]
            }
        };
        let mut run = Run {
            model: if self.model.is_empty() { start.model.clone() } else { self.model.clone() },
            keys: Keys::of(&start),
            calls: 0,
            used: Usage::default(),
        };
        for Step { effect, is_optional } in steps {
            match run.perform(effect, &*sink).await {
                Err(SinkError::Parked(park)) => return Err(SinkError::Parked(park).into()),
                Err(error) if !is_optional => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// What one execution carries from step to step.
#[derive(Debug)]
struct Run {
    model: String,
    keys: Keys,
    calls: u64,
    used: Usage,
}

impl Run {
    async fn perform(&mut self, effect: Effect, sink: &dyn EventSink) -> Result<(), SinkError> {
        match effect {
            Effect::Model(text) => {
                let messages = vec![Message::user(text)];
                let model = self.model.clone();
                let request = ModelRequest { model, messages, ..ModelRequest::default() };
                self.used = sink.model(request).await?.usage;
                Ok(())
            }
            Effect::Call { tool, args, key, mediation } => {
                let call = self.call(tool, args, key, mediation);
                let tool = call.tool.clone();
                let result = sink.tool_call(call).await?;
                sink.output(line(&tool, &result)).await
            }
            Effect::Say(text) => sink.output(text).await,
            Effect::Usage => sink.usage(self.used.clone()).await,
            Effect::Report { id, output } => {
                sink.report(ToolResult { id, output, ..ToolResult::default() }).await
            }
        }
    }

    /// A key of the script's own moves the ordinal, too: ids and keys stay in step.
    fn call(
        &mut self,
        tool: String,
        args: Option<JsonObject>,
        key: Option<String>,
        mediation: Mediation,
    ) -> ToolCall {
        self.calls += 1;
        let own = self.keys.next_key();
        ToolCall {
            id: format!("call-{}", self.calls),
            tool,
            args,
            mediation,
            idempotency_key: key.unwrap_or(own),
        }
    }
}

/// What came of a call, for a person.
fn line(tool: &str, result: &ToolResult) -> String {
    let reason = result.decision.as_ref().map(|decision| decision.reason.as_str());
    let (what, why) = match (result.code, result.is_error) {
        (ResultCode::ApprovalDenied, _) => ("denied", reason.unwrap_or_default()),
        (_, true) => ("failed", result.error.as_str()),
        (_, false) => ("done", ""),
    };
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    if why.is_empty() { format!("{tool}: {what}") } else { format!("{tool}: {what}: {why}") }
}
