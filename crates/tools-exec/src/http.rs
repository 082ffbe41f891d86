//! A tool as an address: one POST for each call, sent once.

use std::time::Duration;

use mainspring_api::{Secret, ToolCall, ToolResult, ToolScope};
use mainspring_support_http::client;
use reqwest::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout_at};

use crate::answer::{failure, result_of, with_words};
use crate::config::{ToolsConfigError, ToolsOptions};
use crate::entry::Address;
use crate::error::CallError;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SESSION: HeaderName = HeaderName::from_static("x-mainspring-session");
const TOOL: HeaderName = HeaderName::from_static("x-mainspring-tool");
const TOOL_CALL_ID: HeaderName = HeaderName::from_static("x-mainspring-tool-call-id");

/// What is shorter is no secret, and would be found in innocent words.
const SECRET_BYTES_MIN: usize = 4;

/// An address with the client that calls it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    client: Client,
    address: Address,
    secrets: Vec<Secret>,
}

impl Endpoint {
    pub(crate) fn new(address: Address, options: &ToolsOptions) -> Result<Self, ToolsConfigError> {
        let client = client(&address.0, options.connect_within)?;
        Ok(Self { client, secrets: secrets(&address.0), address })
    }

    pub(crate) async fn execute(
        &self,
        options: &ToolsOptions,
        within: Duration,
        scope: &ToolScope,
        call: &ToolCall,
        input: Vec<u8>,
    ) -> Result<ToolResult, CallError> {
        let request = self
            .client
            .post(self.address.0.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            // A connection that is used again may break for what went before.
            .header(CONNECTION, HeaderValue::from_static("close"))
            .header(IDEMPOTENCY_KEY, header("idempotency key", &call.idempotency_key)?)
            .header(SESSION, header("session uid", scope.session.as_str())?)
            .header(TOOL, header("tool name", &call.tool)?)
            .header(TOOL_CALL_ID, header("tool call id", &call.id)?)
            .body(input);
        let deadline = Instant::now() + within;
        let late = |_| CallError::TimedOut { within: options.call_within };
        let mut response =
            timeout_at(deadline, request.send()).await.map_err(late)?.map_err(not_sent)?;
        let status = response.status();
        if status.is_success() {
            let body = whole_body(&mut response, options.output_bytes_max);
            return Ok(result_of(timeout_at(deadline, body).await.map_err(late)??));
        }
        if !status.is_client_error() {
            return Err(CallError::Status(status.as_u16()));
        }
        let mut body = Vec::new();
        // That the words of a refusal break off, or never end, matters less than its status.
        let read = refusal_body(&mut response, options.output_bytes_max, &mut body);
        let _ = timeout_at(deadline, read).await;
        let words = self.shown(&body, &call.idempotency_key, options.error_bytes_max);
        Ok(failure(with_words(&format!("answered status {}", status.as_u16()), &words)))
    }

    /// Words of the endpoint without what it must not quote, cut. Redacted
    /// before they are cut: half a key is a key, too.
    fn shown(&self, body: &[u8], key: &str, bytes_max: usize) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for secret in self.secrets.iter().map(Secret::expose).chain([key]) {
            if secret.len() >= SECRET_BYTES_MIN {
                text = text.replace(secret, "[redacted]");
            }
        }
        let within = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = within.take_while(|end| *end <= bytes_max).last().unwrap_or(0);
        text.truncate(end);
        text
    }
}

/// Whether the request may have reached the endpoint.
fn not_sent(error: reqwest::Error) -> CallError {
    if error.is_connect() { CallError::NoConnection(error) } else { CallError::Broken(error) }
}

async fn whole_body(response: &mut Response, bytes_max: usize) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(CallError::Broken)? {
        if chunk.len() > bytes_max - body.len() {
            return Err(CallError::TooLarge { bytes_max });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn refusal_body(response: &mut Response, bytes_max: usize, body: &mut Vec<u8>) {
    while body.len() < bytes_max
        && let Ok(Some(chunk)) = response.chunk().await
    {
        let room = bytes_max - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
}

/// A header's value. White space at its ends would be dropped on the way, and
/// two keys would become one.
fn header(what: &'static str, value: &str) -> Result<HeaderValue, CallError> {
    let is_plain = value.bytes().all(|b| matches!(b, b' '..=b'~')) && value == value.trim();
    if !is_plain {
        return Err(CallError::Header { what });
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| CallError::Header { what })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The parts of an address that an endpoint might quote and nobody should read.
fn secrets(url: &Url) -> Vec<Secret> {
    let whole = url.query().into_iter().chain(url.password()).chain([url.username()]);
    let whole = whole.map(str::to_owned);
    let values = url.query_pairs().map(|(_, value)| value.into_owned());
    whole.chain(values).filter(|text| !text.is_empty()).map(Secret::new).collect()
}
