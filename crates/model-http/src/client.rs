//! Talks to the endpoint: one POST, bounded, with the key in its header alone.

use std::sync::Arc;

use mainspring_api::{ModelError, Secret};
use mainspring_support_http::{client, is_loopback};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};

use crate::completion::error_words;
use crate::config::{HttpModelConfigError, HttpModelLimits, HttpModelOptions};

/// How many characters of a body that is not the endpoint's error form are shown.
const DETAIL_CHARS_MAX: usize = 200;

/// How many characters of the endpoint's own error message are shown.
const MESSAGE_CHARS_MAX: usize = 2000;

pub(crate) struct Endpoint {
    client: Client,
    pub(crate) url: Url,
    headers: HeaderMap,
    secrets: Vec<Secret>,
    pub(crate) limits: HttpModelLimits,
}

impl Endpoint {
    pub(crate) fn new(options: &HttpModelOptions, url: Url) -> Result<Self, HttpModelConfigError> {
        if url.scheme() == "http" && options.api_key.is_some() && !is_loopback(&url) {
            tracing::warn!("model key travels in clear text");
        }
        let client = client(&url, options.limits.connect_within)?;
        Ok(Self {
            client,
            headers: headers(options)?,
            secrets: secrets(options),
            limits: options.limits,
            url,
        })
    }

    /// Sends `body` and returns an answer of status 2xx.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Response, ModelError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.error_body(&mut response).await;
        Err(ModelError::Refused { status: status.as_u16(), message: self.error_message(&body) })
    }

    /// The next bytes of an answer, `None` after the last.
    pub(crate) async fn chunk(
        &self,
        response: &mut Response,
    ) -> Result<Option<Vec<u8>>, ModelError> {
        let chunk = response.chunk().await.map_err(unreachable)?;
        Ok(chunk.map(Vec::from))
    }

    /// A whole answer, within its bound.
    pub(crate) async fn body(&self, response: &mut Response) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        let mut left = BodyBound::new(self.limits.body_bytes_max);
        while let Some(chunk) = self.chunk(response).await? {
            left.take(chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// As much of an error's body as is read. That it breaks off matters less
    /// than its status.
    async fn error_body(&self, response: &mut Response) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < self.limits.error_body_bytes_max
            && let Ok(Some(chunk)) = response.chunk().await
        {
            let room = self.limits.error_body_bytes_max - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        body
    }

    fn error_message(&self, body: &[u8]) -> String {
        let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let words = parsed
            .as_ref()
            .and_then(|json| json.get("error").and_then(error_words).or_else(|| error_words(json)));
        match words {
            Some(words) => self.shown(words, MESSAGE_CHARS_MAX),
            None => self.shown(&String::from_utf8_lossy(body), DETAIL_CHARS_MAX),
        }
    }

    /// Words of the endpoint without our secrets, which it may quote, as one
    /// line, cut. Redacted before it is cut: half a key is a key, too.
    pub(crate) fn shown(&self, words: &str, chars_max: usize) -> String {
        let mut text = words.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose(), "[redacted]");
        }
        let line = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        line.take(chars_max).collect()
    }

    /// An error whose words came with an answer of status 200.
    pub(crate) fn redact(&self, error: ModelError) -> ModelError {
        match error {
            ModelError::Refused { status, message } => {
                ModelError::Refused { status, message: self.shown(&message, MESSAGE_CHARS_MAX) }
            }
            other => other,
        }
    }
}

/// Counts the bytes of an answer down.
pub(crate) struct BodyBound {
    bytes_max: usize,
    left: usize,
}

impl BodyBound {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, left: bytes_max }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| ModelError::BadAnswer {
            message: format!("it is larger than {} bytes", self.bytes_max),
        })?;
        Ok(())
    }
}

/// The address may hold a key in its query, so no error shows it.
fn unreachable(error: reqwest::Error) -> ModelError {
    let message = if error.is_connect() { "no connection" } else { "the connection broke" };
    ModelError::Unavailable {
        message: message.to_owned(),
        source: Some(Arc::new(error.without_url())),
    }
}

fn secrets(options: &HttpModelOptions) -> Vec<Secret> {
    let extra = options.extra_headers.iter().map(|(_, value)| value);
    let all = options.api_key.iter().chain(extra);
    all.filter(|secret| !secret.expose().is_empty()).cloned().collect()
}

fn headers(options: &HttpModelOptions) -> Result<HeaderMap, HttpModelConfigError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &options.extra_headers {
        let (name, value) = header(name, value.expose())?;
        headers.insert(name, value);
    }
    if let Some(key) = &options.api_key {
        let bearer = options.auth_header.eq_ignore_ascii_case(AUTHORIZATION.as_str());
        let value =
            if bearer { format!("Bearer {}", key.expose()) } else { key.expose().to_owned() };
        let (name, value) = header(&options.auth_header, &value)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HttpModelConfigError> {
    let refuse = |why| HttpModelConfigError::Header { name: name.to_owned(), why };
    let parsed: HeaderName = name.parse().map_err(|_| refuse("its name is not a header name"))?;
    if matches!(parsed.as_str(), "content-type" | "content-length" | "host" | "transfer-encoding") {
        return Err(refuse("the client sets it"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| refuse("its value has a character that no header takes"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}
