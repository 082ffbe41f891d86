//! What the suite brings: a harness by script, tools, a model, a policy.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use mainspring_api::{
    Action, AuthorizeRequest, Authorizer, AuthzError, Descriptor, EventSink, Harness, HarnessError,
    Mediation, Message, ModelError, ModelProvider, ModelReply, ModelRequest, Outcome, ResultCode,
    Signal, Start, StreamingModel, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope,
    async_trait,
};

/// Does the steps of its turn's configuration, separated by `, `:
///
/// | step | does |
/// |---|---|
/// | `out TEXT` | outputs a word |
/// | `model TEXT` | asks the model |
/// | `tool ID NAME` | calls a mediated tool |
/// | `gate ID` | calls a tool that needs an approval, and outputs what came of it |
/// | `hold NAME` | waits until the suite lets `NAME` go |
/// | `fail TEXT` | fails |
#[derive(Debug, Default)]
pub struct Script {
    holds: Holds,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Holds(Arc<Mutex<HashMap<String, Hold>>>);

#[derive(Debug, Default, Clone)]
struct Hold {
    entered: Signal<()>,
    go: Signal<()>,
}

impl Holds {
    fn of(&self, name: &str) -> Hold {
        self.0.lock().unwrap().entry(name.to_owned()).or_default().clone()
    }

    /// Waits until somebody waits at `name`.
    pub(super) async fn entered(&self, name: &str) {
        self.of(name).entered.wait().await;
    }

    /// Lets go who waits at `name`, now and later.
    pub(super) fn let_go(&self, name: &str) {
        self.of(name).go.set(());
    }

    async fn wait(&self, name: &str) {
        let hold = self.of(name);
        hold.entered.set(());
        hold.go.wait().await;
    }
}

impl Script {
    pub(super) fn with(holds: Holds) -> Self {
        Self { holds }
    }
}

#[async_trait]
impl Harness for Script {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        let (id, version) = ("script".to_owned(), "1".to_owned());
        Ok(Descriptor { id, version, ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let script = String::from_utf8_lossy(&start.config).into_owned();
        for step in script.split(", ").filter(|step| !step.is_empty()) {
            let words: Vec<&str> = step.split(' ').collect();
            match words[..] {
                ["out", text] => sink.output(text.to_owned()).await?,
                ["model", text] => {
                    let messages = vec![Message::user(text)];
                    sink.model(ModelRequest { messages, ..ModelRequest::default() }).await?;
                }
                ["tool", id, name] => {
                    sink.tool_call(call(id, name, Mediation::ControllerMediated)).await?;
                }
                ["gate", id] => {
                    let called = call(id, "deploy", Mediation::RequiresApproval);
                    let word = match sink.tool_call(called).await?.code {
                        ResultCode::ApprovalDenied => "denied",
                        ResultCode::ExecutorError => "failed",
                        ResultCode::Unspecified => "done",
                    };
                    sink.output(format!("{id} {word}")).await?;
                }
                ["hold", name] => self.holds.wait(name).await,
                ["fail", what] => return Err(HarnessError::failed(what)),
                _ => return Err(HarnessError::failed(format!("what is {step:?}?"))),
            }
        }
        Ok(())
    }
}

fn call(id: &str, tool: &str, mediation: Mediation) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        tool: tool.to_owned(),
        mediation,
        idempotency_key: format!("key-{id}"),
        ..ToolCall::default()
    }
}

/// Counts its calls by key. The tool `lost` does what it is asked, and loses
/// the answer; `slow` waits until it is let go.
#[derive(Debug, Default, Clone)]
pub(super) struct Tools {
    pub(super) keys: Arc<Mutex<Vec<String>>>,
    pub(super) holds: Holds,
}

#[async_trait]
impl ToolExecutor for Tools {
    async fn execute(&self, _: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        self.keys.lock().unwrap().push(call.idempotency_key.clone());
        match call.tool.as_str() {
            "lost" => {
                let message = "the answer was lost".to_owned();
                return Err(ToolError { message, outcome: Outcome::Unknown, source: None });
            }
            "slow" => self.holds.wait("slow").await,
            _ => {}
        }
        Ok(ToolResult::default())
    }

    fn offers(&self, _: &str) -> bool {
        true
    }

    fn is_repeatable(&self, _: &str) -> bool {
        false
    }
}

/// Says `I heard TEXT`, a word at a time.
#[derive(Debug, Default)]
pub(super) struct Parrot;

#[async_trait]
impl ModelProvider for Parrot {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let heard = request.messages.last().map(Message::plain_text).unwrap_or_default();
        let message = Message::assistant(format!("I heard {heard}"));
        Ok(ModelReply { message, ..ModelReply::default() })
    }

    fn streaming(&self) -> Option<&dyn StreamingModel> {
        Some(self)
    }
}

#[async_trait]
impl StreamingModel for Parrot {
    async fn stream(
        &self,
        request: &ModelRequest,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError> {
        let reply = self.complete(request).await?;
        for word in reply.message.plain_text().split_inclusive(' ') {
            on_chunk(word);
        }
        Ok(reply)
    }
}

/// One question that an authoriser was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What.
    pub action: &'static str,
    /// Whether it was about a session.
    pub about_session: bool,
    /// The subject of the session's stored owner.
    pub owner: Option<String>,
    /// The method that the call came in by.
    pub method: &'static str,
}

/// Owners may do everything to what is theirs, and those who are listed may
/// create and list. It writes down what it is asked.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    asked: Arc<Mutex<Vec<Asked>>>,
    denied: Arc<Mutex<HashSet<Action>>>,
    down: Arc<Mutex<bool>>,
}

impl Policy {
    /// What was asked since the last time.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Denies an action to everybody from now on.
    pub fn deny(&self, action: Action) {
        self.denied.lock().unwrap().insert(action);
    }

    /// Cannot answer from now on.
    pub fn fail(&self) {
        *self.down.lock().unwrap() = true;
    }
}

#[async_trait]
impl Authorizer for Policy {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        self.asked.lock().unwrap().push(Asked {
            action: request.action.name(),
            about_session: request.session.is_some(),
            owner: request.owner.map(|owner| owner.subject.clone()),
            method: request.method,
        });
        if *self.down.lock().unwrap() {
            return Err(AuthzError::Unavailable);
        }
        let is_owner = match (request.caller, request.owner) {
            (Some(caller), Some(owner)) => {
                caller.issuer == owner.issuer && caller.subject == owner.subject
            }
            _ => false,
        };
        let general = matches!(request.action, Action::Create | Action::List);
        let is_denied = self.denied.lock().unwrap().contains(&request.action);
        if (general || is_owner) && !is_denied { Ok(()) } else { Err(AuthzError::Denied) }
    }
}
