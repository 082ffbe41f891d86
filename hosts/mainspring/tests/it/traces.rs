//! Spans, as a collector gets them.

use std::sync::{Arc, Mutex};

use mainspring::api::async_trait;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::{Request, Response, Status};

use crate::support::{Dir, session_of};

#[derive(Debug, Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn take(&self) -> Vec<Span> {
        let requests = std::mem::take(&mut *self.0.lock().unwrap());
        let resources = requests.into_iter().flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes
            .inspect(|scope| {
                assert_eq!(scope.schema_url, mainspring::controller::spans::SCHEMA_URL)
            })
            .flat_map(|scope| scope.spans)
            .collect()
    }
}

fn text(span: &Span, key: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        other => Some(format!("{other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_one_trace_and_its_replay_none() {
    let dir = Dir::new();
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let service = TraceServiceServer::new(collector.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    let serving = tokio::spawn(server.serve_with_incoming(incoming));
    let run = async |args: &[&str]| {
        let mut command = dir.command(args);
        command.env("MAINSPRING_OTEL_ENDPOINT", &endpoint);
        let out = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let session = session_of(&run(&["exec", "--input", "secret words"]).await);
    let spans = collector.take();
    let mut names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with("chat"), "{names:?}");
    assert_eq!(names[1], "invoke_agent echo");
    let chat = spans.iter().find(|span| span.name.starts_with("chat")).unwrap();
    let agent = spans.iter().find(|span| span.name.starts_with("invoke_agent")).unwrap();
    assert_eq!(chat.parent_span_id, agent.span_id);
    assert_eq!(chat.trace_id, agent.trace_id);
    assert_eq!(text(agent, "gen_ai.operation.name").as_deref(), Some("invoke_agent"));
    assert_eq!(text(agent, "gen_ai.conversation.id").as_deref(), Some(session.as_str()));
    assert!(text(chat, "gen_ai.usage.input_tokens").is_some(), "{chat:?}");
    assert!(!format!("{spans:?}").contains("secret"), "content is never sent");
    let replayed = run(&["replay", "--session", &session, "--re-execute"]).await;
    assert!(replayed.ends_with("turns=1 model_calls=0\n"), "{replayed}");
    assert!(collector.take().is_empty(), "a replay is no trace");
    serving.abort();
}
