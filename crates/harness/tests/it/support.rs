//! A sink that remembers, and a history that gives short pages.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    ApprovalRef, ApprovalResult, Bytes, Event, EventSink, ExecutionId, History, HistoryError,
    Message, ModelProvider, ModelReply, ModelRequest, ResultCode, SessionUid, SinkError, Start,
    ToolCall, ToolResult, Usage, async_trait,
};
use mainspring_harness::EchoModel;

/// What a harness did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    Model(ModelRequest),
    Output(String),
    Tool(ToolCall),
    Report(ToolResult),
    Usage(Usage),
}

/// Answers models with the echo model, and tools by their name: `missing` is refused,
/// `parks` waits for approval, `denied` and `failing` fail as they say, others give an empty result.
#[derive(Debug, Default)]
pub(crate) struct Sink(Mutex<Vec<Effect>>);

impl Sink {
    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, effect: Effect) {
        self.0.lock().unwrap().push(effect);
    }
}

#[async_trait]
impl EventSink for Sink {
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError> {
        self.note(Effect::Model(request.clone()));
        let any = ModelRequest { model: String::new(), ..request };
        Ok(EchoModel.complete(&any).await.unwrap())
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        self.note(Effect::Output(text));
        Ok(())
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        self.note(Effect::Tool(call.clone()));
        let result = ToolResult { id: call.id.clone(), ..ToolResult::default() };
        match call.tool.as_str() {
            "missing" => Err(SinkError::MissingToolExecutor),
            "parks" => Err(SinkError::Parked(ApprovalRef {
                execution_id: "00000000000000aa".to_owned(),
                tool_call_id: call.id,
                request_seq: 3,
            })),
            "denied" => Ok(ToolResult {
                is_error: true,
                error: "approval denied".to_owned(),
                code: ResultCode::ApprovalDenied,
                decision: call.args.map(|args| ApprovalResult {
                    tool_call_id: call.id,
                    approved: false,
                    reason: format!("{:?}", args.keys().collect::<Vec<_>>()),
                    request_seq: 3,
                }),
                ..result
            }),
            "failing" => {
                let error = "exit status 1:\n no such order\n".to_owned();
                Ok(ToolResult { is_error: true, error, code: ResultCode::ExecutorError, ..result })
            }
            _ => Ok(result),
        }
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        self.note(Effect::Report(result));
        Ok(())
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        self.note(Effect::Usage(usage));
        Ok(())
    }
}

/// Events of which one call gives at most `page`, as a bound on bytes would.
#[derive(Debug)]
pub(crate) struct ShortPages {
    pub(crate) events: Vec<Event>,
    pub(crate) page: usize,
    /// Claims this many more events than there are.
    pub(crate) missing: u64,
}

#[async_trait]
impl History for ShortPages {
    fn len(&self) -> u64 {
        self.events.len() as u64 + self.missing
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        let from = usize::try_from(from).unwrap().min(self.events.len());
        let to = (from + limit.min(self.page)).min(self.events.len());
        Ok(self.events[from..to].to_vec())
    }
}

pub(crate) fn start(inputs: &[&str], history: Vec<Event>, config: &[u8]) -> Start {
    Start {
        session: Some(SessionUid::new("sess-000000000000000000000001").unwrap()),
        execution_id: ExecutionId::new("00000000000000aa").unwrap(),
        model: String::new(),
        config: Bytes::copy_from_slice(config),
        history: Arc::new(ShortPages { events: history, page: 2, missing: 0 }),
        inputs: inputs.iter().map(|text| Message::user(*text)).collect(),
        resume_from_seq: 0,
    }
}
