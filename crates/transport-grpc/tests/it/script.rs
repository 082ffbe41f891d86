//! Scripted harnesses, and a scripted sink that remembers its calls.

use std::fmt;
use std::sync::{Arc, Mutex};

use mainspring_api::{
    BoxFuture, Capabilities, Descriptor, EventSink, ExecutionId, Harness, HarnessError, Message,
    ModelReply, ModelRequest, SessionUid, SinkError, Start, ToolCall, ToolResult, Usage,
    async_trait,
};

type Run =
    dyn Fn(Start, Arc<dyn EventSink>) -> BoxFuture<'static, Result<(), HarnessError>> + Send + Sync;

/// A harness that is a function.
pub(crate) struct Script(Box<Run>);

impl Script {
    pub(crate) fn new<F>(
        run: impl Fn(Start, Arc<dyn EventSink>) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Result<(), HarnessError>> + Send + 'static,
    {
        Arc::new(Self(Box::new(move |start, sink| Box::pin(run(start, sink)))))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

pub(crate) fn descriptor() -> Descriptor {
    Descriptor {
        id: "script".to_owned(),
        version: "1".to_owned(),
        models: vec!["m".to_owned()],
        tools: Vec::new(),
        capabilities: Capabilities { streaming: true, ..Default::default() },
    }
}

#[async_trait]
impl Harness for Script {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(descriptor())
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        (self.0)(start, sink).await
    }
}

type OnTool = dyn Fn(&ToolCall) -> Result<ToolResult, SinkError> + Send + Sync;
type OnModel = dyn Fn(&ModelRequest) -> Result<ModelReply, SinkError> + Send + Sync;

/// A sink that answers by rule and writes down what it was asked.
pub(crate) struct Recorder {
    pub(crate) calls: Mutex<Vec<String>>,
    pub(crate) on_tool: Box<OnTool>,
    pub(crate) on_model: Box<OnModel>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            on_tool: Box::new(|call| {
                Ok(ToolResult {
                    id: call.id.clone(),
                    output: call.args.clone(),
                    ..Default::default()
                })
            }),
            on_model: Box::new(|request| Ok(echo(request))),
        }
    }
}

pub(crate) fn echo(request: &ModelRequest) -> ModelReply {
    let text = request.messages.last().map(Message::plain_text);
    ModelReply {
        message: Message::assistant(format!("echo:{}", text.unwrap_or_default())),
        usage: Usage {
            model: request.model.clone(),
            input_tokens: 1,
            output_tokens: 2,
            reasoning_tokens: 0,
        },
    }
}

impl Recorder {
    fn note(&self, call: impl fmt::Debug) {
        self.calls.lock().unwrap().push(format!("{call:?}"));
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventSink for Recorder {
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError> {
        self.note(&request);
        (self.on_model)(&request)
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        self.note(("output", &text));
        Ok(())
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        self.note(&call);
        (self.on_tool)(&call)
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        self.note(("report", &result));
        Ok(())
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        self.note(&usage);
        Ok(())
    }
}

pub(crate) fn start() -> Start {
    Start {
        session: Some(SessionUid::new("session").unwrap()),
        execution_id: ExecutionId::new("exec").unwrap(),
        model: "default-model".to_owned(),
        config: "config".into(),
        history: Arc::new(mainspring_api::EmptyHistory),
        inputs: vec![Message::user("hello")],
        resume_from_seq: 7,
    }
}

pub(crate) fn ask(text: &str) -> ModelRequest {
    ModelRequest { messages: vec![Message::user(text)], ..Default::default() }
}
