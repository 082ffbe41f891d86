//! An endpoint that answers what it is told and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// What each request gets.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) then: Then,
}

/// What follows the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Then {
    End,
    Break,
    Hang,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, location: None, body: body.into(), then: Then::End }
    }

    pub(crate) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

#[derive(Debug)]
struct Shared {
    answer: Answer,
    asked: Mutex<Vec<Asked>>,
    left: Semaphore,
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
        let left = Semaphore::new(0);
        let shared = Arc::new(Shared { answer, asked: Mutex::default(), left });
        let app = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/tool", self.address)
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
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    });
    let answer = shared.answer.clone();
    let leaving = (answer.then == Then::Hang).then(|| Leaving(Arc::clone(&shared)));
    let chunks =
        stream::unfold((Some(answer.body), leaving), move |(mut body, leaving)| async move {
            match (body.take(), answer.then) {
                (Some(chunk), _) => Some((Ok(chunk), (None, leaving))),
                (None, Then::End) => None,
                (None, Then::Break) => {
                    // The server sends what it has once there is no more for now.
                    tokio::task::yield_now().await;
                    Some((Err(std::io::Error::other("cut")), (None, leaving)))
                }
                (None, Then::Hang) => {
                    let held = leaving;
                    std::future::pending::<()>().await;
                    drop(held);
                    None
                }
            }
        });
    let mut response = Response::new(Body::from_stream(chunks));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
    if let Some(location) = answer.location {
        response.headers_mut().insert("location", location.parse().unwrap());
    }
    response
}
