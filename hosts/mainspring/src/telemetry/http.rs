//! A small listener for whoever watches the process: `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::metrics;
use crate::error::CliError;
use crate::standing::{Lack, Standing};

/// What a server needs to be ready. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readiness(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    store_open: AtomicBool,
    draining: AtomicBool,
    standing: Standing,
}

impl Readiness {
    /// Of a server whose store is seen by `standing`.
    pub(crate) fn of(standing: Standing) -> Self {
        Self(Arc::new(Flags { standing, ..Flags::default() }))
    }

    /// The store is open.
    pub(crate) fn opened(&self) {
        self.0.store_open.store(true, Ordering::Relaxed);
        self.tell();
    }

    /// No new work is taken any more.
    pub(crate) fn draining(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
        self.tell();
    }

    /// What the store lacks. One that was opened had caught up, and a few messages
    /// that it has yet to fold keep nobody waiting.
    fn lack(&self) -> Option<Lack> {
        let is_open = self.0.store_open.load(Ordering::Relaxed);
        self.0.standing.lack().filter(|lack| lack.for_good || !is_open)
    }

    /// What is missing, by name.
    fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if !self.0.store_open.load(Ordering::Relaxed) {
            missing.push("store_open");
        }
        missing.extend(self.lack().map(|lack| lack.name));
        if self.0.draining.load(Ordering::Relaxed) {
            missing.push("not_draining");
        }
        missing
    }

    fn tell(&self) {
        self.0.standing.measure();
        ::metrics::gauge!(metrics::READY).set(if self.missing().is_empty() { 1.0 } else { 0.0 });
    }
}

/// The listener, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    task: JoinHandle<()>,
    address: String,
}

impl Watch {
    /// Binds `address`, a loopback one, and serves.
    ///
    /// # Errors
    /// `unavailable` when it cannot be bound.
    pub(crate) async fn start(address: &str, readiness: Readiness) -> Result<Self, CliError> {
        let failed = |error: std::io::Error| {
            let message = format!("metrics.addr {address} cannot be bound: {error}");
            CliError::of(mainspring::api::Condition::Unavailable, message)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        readiness.tell();
        let router = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(page))
            .with_state(readiness);
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(error = %error, "the listener of metrics failed");
            }
        });
        Ok(Self { task, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ready(State(readiness): State<Readiness>) -> impl IntoResponse {
    let missing = readiness.missing();
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({"ready": missing.is_empty(), "missing": missing});
    if let Some(lack) = readiness.lack() {
        body["why"] = json!(lack.why);
    }
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string() + "\n")
}

async fn page(State(readiness): State<Readiness>) -> impl IntoResponse {
    readiness.tell();
    match metrics::page() {
        Some(page) => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, content_type)], page)
        }
        None => {
            let text = "metrics are not recorded\n".to_owned();
            (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/plain")], text)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn ready(watch: &Watch) -> (String, String) {
        let mut stream = tokio::net::TcpStream::connect(watch.address()).await.unwrap();
        let ask = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.trim_end().to_owned())
    }

    #[tokio::test]
    async fn a_server_is_ready_once_its_store_is_open_and_until_it_drains() {
        let readiness = Readiness::default();
        let watch = Watch::start("127.0.0.1:0", readiness.clone()).await.unwrap();
        let says = |status: &str, body: &str| (status.to_owned(), body.to_owned());
        let opening = says("503", r#"{"missing":["store_open"],"ready":false}"#);
        assert_eq!(ready(&watch).await, opening);
        readiness.opened();
        assert_eq!(ready(&watch).await, says("200", r#"{"missing":[],"ready":true}"#));
        readiness.draining();
        let draining = says("503", r#"{"missing":["not_draining"],"ready":false}"#);
        assert_eq!(ready(&watch).await, draining);
    }

    #[tokio::test]
    async fn a_taken_address_is_told_by_name() {
        let first = Watch::start("127.0.0.1:0", Readiness::default()).await.unwrap();
        let second = Watch::start(first.address(), Readiness::default()).await;
        let error = second.unwrap_err();
        assert!(error.message.contains(first.address()), "{}", error.message);
        assert_eq!(error.exit_code(), 7);
    }
}
