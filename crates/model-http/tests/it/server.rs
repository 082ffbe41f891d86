//! A chat completions endpoint that answers what it is told and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::stream;
use mainspring_api::{Message, ModelRequest, Secret};
use mainspring_model_http::{HttpModel, HttpModelOptions};
use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) const KEY: &str = "sk-0123456789-very-secret";

/// What one request gets.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) then: Then,
}

/// What follows the chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Then {
    End,
    Break,
    Hang,
}

impl Answer {
    pub(crate) fn json(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            chunks: vec![Bytes::from(body.into())],
            then: Then::End,
        }
    }

    pub(crate) fn sse(chunks: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "text/event-stream".to_owned())],
            chunks: chunks.into_iter().map(Into::into).collect(),
            then: Then::End,
        }
    }

    pub(crate) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Debug)]
struct Shared {
    answer: Answer,
    asked: Mutex<Vec<Asked>>,
    left: tokio::sync::Semaphore,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    pub(crate) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Mutex::default();
        let left = tokio::sync::Semaphore::new(0);
        let shared = Arc::new(Shared { answer, asked, left });
        let app = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, shared }
    }

    pub(crate) fn options(&self) -> HttpModelOptions {
        let mut options = HttpModelOptions::new("gpt-test");
        options.base_url = format!("http://{}/v1", self.address);
        options.api_key = Some(Secret::new(KEY.to_owned()));
        options
    }

    pub(crate) fn model(&self) -> HttpModel {
        HttpModel::new(self.options()).unwrap()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Waits until a client has gone away in the middle of an answer.
    pub(crate) async fn client_left(&self) {
        drop(self.shared.left.acquire().await.unwrap());
    }
}

/// Dropped with the body of an answer that hangs.
struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.left.add_permits(1);
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    shared.asked.lock().unwrap().push(Asked {
        target: head.uri.to_string(),
        headers: head.headers,
        body: serde_json::from_slice(&body).unwrap(),
    });
    let answer = shared.answer.clone();
    let leaving = (answer.then == Then::Hang).then(|| Leaving(Arc::clone(&shared)));
    let chunks = stream::unfold(
        (answer.chunks.into_iter(), leaving),
        move |(mut chunks, leaving)| async move {
            match (chunks.next(), answer.then) {
                (Some(chunk), _) => Some((Ok(chunk), (chunks, leaving))),
                (None, Then::End) => None,
                (None, Then::Break) => Some((Err(std::io::Error::other("cut")), (chunks, leaving))),
                (None, Then::Hang) => {
                    let held = leaving;
                    std::future::pending::<()>().await;
                    drop(held);
                    None
                }
            }
        },
    );
    let mut response = Response::new(Body::from_stream(chunks));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
    for (name, value) in answer.headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

pub(crate) fn ask(text: &str) -> ModelRequest {
    ModelRequest { messages: vec![Message::user(text)], ..ModelRequest::default() }
}

pub(crate) const HELLO: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}"#;
