//! Random scripts, and the harness that follows one.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    Descriptor, EventSink, Harness, HarnessError, Mediation, Message, ModelRequest, SinkError,
    Start, ToolCall, ToolResult, Usage,
};
use mainspring_testkit::SeededRng;

/// One effect of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Model,
    Output,
    Usage,
    Report,
    Tool(&'static str),
    Gate(&'static str),
}

/// A turn: its effects, and whether the failure of each is handled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script(Vec<(Step, bool)>);

const TOOLS: [&str; 4] = ["safe-search", "mail", "safe-write", "pay"];

impl Script {
    pub(crate) fn random(rng: &mut SeededRng) -> Self {
        let length = 1 + rng.below(9);
        let mut steps: Vec<(Step, bool)> = Vec::new();
        for _ in 0..length {
            let step = match rng.below(8) {
                0 | 1 => Step::Model,
                2 => Step::Output,
                3 => Step::Usage,
                4 => Step::Report,
                5 | 6 => Step::Tool(TOOLS[rng.below(TOOLS.len())]),
                _ => Step::Gate(TOOLS[rng.below(TOOLS.len())]),
            };
            let handled = rng.percent(50);
            // An output right after a model call that failed cannot be told from its completion.
            let after_model = matches!(steps.last(), Some((Step::Model, true)));
            if after_model && step == Step::Output {
                steps.push((Step::Report, false));
            }
            steps.push((step, handled));
        }
        Self(steps)
    }
}

/// Follows its script, whatever happens.
#[derive(Debug)]
pub(crate) struct Scripted(pub(crate) Script);

#[async_trait]
impl Harness for Scripted {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "scripted".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        for (number, (step, handled)) in self.0.0.iter().enumerate() {
            match effect(&*sink, start.execution_id.as_str(), number, step).await {
                Ok(()) => {}
                Err(error) if *handled && may_be_handled(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What an author would handle: a provider or a tool that failed, then or now.
fn may_be_handled(error: &SinkError) -> bool {
    use mainspring_api::Classify as _;
    match error {
        SinkError::CompletionMissing | SinkError::ToolResultMissing => true,
        SinkError::Failed(_) => matches!(error.code(), "model_unavailable" | "tool_failed"),
        _ => false,
    }
}

async fn effect(
    sink: &dyn EventSink,
    execution: &str,
    number: usize,
    step: &Step,
) -> Result<(), SinkError> {
    let id = format!("c{number}");
    let call = |tool: &str, mediation| ToolCall {
        id: id.clone(),
        tool: tool.to_owned(),
        args: None,
        mediation,
        idempotency_key: format!("{execution}-{number}"),
    };
    match step {
        Step::Model => {
            let messages = vec![Message::user(format!("ask {number}"))];
            sink.model(ModelRequest { messages, ..ModelRequest::default() }).await.map(drop)
        }
        Step::Output => sink.output(format!("say {number}")).await,
        Step::Usage => {
            let input_tokens = i64::try_from(number).unwrap_or_default();
            sink.usage(Usage { input_tokens, ..Usage::default() }).await
        }
        Step::Report => {
            sink.report(ToolResult { id: format!("r{number}"), ..Default::default() }).await
        }
        Step::Tool(tool) => {
            sink.tool_call(call(tool, Mediation::ControllerMediated)).await.map(drop)
        }
        Step::Gate(tool) => sink.tool_call(call(tool, Mediation::RequiresApproval)).await.map(drop),
    }
}
