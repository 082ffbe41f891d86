//! Spans of turns: one for what happens now, none for what is served.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use mainspring::api::{
    ApproveRequest, Caller, ExecRequest, ExecState, ExecStream, ExecUpdate, Message, ModelError,
    ModelProvider, ModelReply, ModelRequest, RequestId, ResumeRequest, Session, Sessions as _,
    ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope, Usage, async_trait,
};
use mainspring::controller::{Journal, spans as names};
use mainspring::eventlog::EventLog;
use mainspring::placement::Call;
use mainspring::{Host, HostBuilder, Stores};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A span's name, its parent's name, and its fields.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: String,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<(u64, Seen)>>>);

impl Spans {
    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.0.lock().unwrap()).into_iter().map(|(_, seen)| seen).collect()
    }
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != names::TARGET {
            return;
        }
        let span = context.span(id).unwrap();
        let mut seen = Seen {
            name: span.name().to_owned(),
            parent: span.parent().map(|parent| parent.name().to_owned()),
            fields: BTreeMap::new(),
        };
        attributes.record(&mut Fields(&mut seen.fields));
        self.0.lock().unwrap().push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.0.lock().unwrap();
        if let Some((_, seen)) = spans.iter_mut().rev().find(|(seen, _)| *seen == id.into_u64()) {
            values.record(&mut Fields(&mut seen.fields));
        }
    }
}

#[derive(Debug)]
struct Model;

#[async_trait]
impl ModelProvider for Model {
    async fn complete(&self, _: &ModelRequest) -> Result<ModelReply, ModelError> {
        let usage = Usage { input_tokens: 11, output_tokens: 5, ..Usage::default() };
        Ok(ModelReply { message: Message::assistant("secret answer"), usage })
    }
}

#[derive(Debug)]
struct Tool;

#[async_trait]
impl ToolExecutor for Tool {
    async fn execute(&self, _: &ToolScope, _: &ToolCall) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::default())
    }

    fn offers(&self, _: &str) -> bool {
        true
    }

    fn is_repeatable(&self, _: &str) -> bool {
        true
    }
}

const SCRIPT: &str = r#"{"steps":[{"model":"secret question"},{"tool":"look","args":{"a":"secret"}},
    {"model":"secret again"},{"gate":"pay","args":{"b":"secret"}}]}"#;

fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("test").unwrap())
}

fn spans_of(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| seen.name.as_str()).collect()
}

async fn last_session(mut updates: ExecStream) -> Session {
    let mut last = None;
    while let Some(update) = updates.next().await {
        if let ExecUpdate::Session(session) = update.unwrap() {
            last = Some(*session);
        }
    }
    last.unwrap()
}

async fn parked(host: &Host) -> Session {
    let request = ExecRequest {
        inputs: vec![Message::user("secret input")],
        harness: "gate".to_owned(),
        config: SCRIPT.as_bytes().to_vec().into(),
        ..ExecRequest::default()
    };
    last_session(host.service().exec(&caller(), request).await.unwrap()).await
}

async fn resumed(host: &Host, session: &Session) -> Session {
    let request = ResumeRequest { session: session.uid.clone(), approval_ttl: None };
    last_session(host.service().resume(&caller(), request).await.unwrap()).await
}

#[test]
fn what_happens_now_makes_a_span_and_what_is_served_makes_none() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let log: Arc<dyn EventLog> =
            Stores::with_defaults().open("memory:", Default::default()).unwrap();
        let builder = HostBuilder::new(Arc::clone(&log)).model(Arc::new(Model));
        let host = builder.tools(Arc::new(Tool)).build().unwrap();

        let session = parked(&host).await;
        let live = spans.take();
        assert_eq!(spans_of(&live), ["invoke_agent", "chat", "execute_tool", "chat"]);
        assert_eq!(live[0].fields[names::AGENT_NAME], "gate");
        assert_eq!(live[0].fields[names::CONVERSATION_ID], session.uid.as_str());
        assert!(!live[0].fields.contains_key(names::ERROR_TYPE), "a park is no failure");
        for inner in &live[1..] {
            assert_eq!(inner.parent.as_deref(), Some("invoke_agent"));
            assert_eq!(inner.fields[names::OPERATION_NAME], inner.name);
        }
        assert_eq!(live[1].fields[names::INPUT_TOKENS], "11");
        assert_eq!(live[1].fields[names::OUTPUT_TOKENS], "5");
        assert_eq!(live[2].fields[names::TOOL_NAME], "look");
        assert_eq!(live[2].fields["otel.name"], "execute_tool look");
        assert!(!format!("{live:?}").contains("secret"), "content is never on a span");

        let request = ApproveRequest {
            session: session.uid.clone(),
            approval: session.pending_approval.clone().unwrap(),
            approved: true,
            reason: String::new(),
            identity: None,
            digest: None,
        };
        host.service().approve(&caller(), request).await.unwrap();
        assert!(spans.take().is_empty(), "a decision runs nothing");
        let session = resumed(&host, &session).await;
        assert_eq!(session.exec_state, ExecState::Completed);
        let again = spans.take();
        assert_eq!(spans_of(&again), ["invoke_agent", "execute_tool"], "the rest was served");

        let journal = Journal::new(log, session.uid.clone());
        let gate = host.harnesses().find("gate").unwrap();
        let replayed = gate.replay(&journal, &Call::default()).await.unwrap();
        assert!(!replayed.outputs.is_empty(), "it was run");
        resumed(&host, &session).await;
        assert!(spans.take().is_empty(), "a replay makes no span");
        host.close().await;
    });
}
