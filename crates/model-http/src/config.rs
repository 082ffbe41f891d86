//! Where a model is, and how much of it is taken.

use std::time::Duration;

use mainspring_api::{Classify, Condition, ErrorKind, Secret};
use mainspring_support_http::HttpClientError;

/// Where a model is and how to call it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpModelOptions {
    /// Scheme, host and leading path; `https://api.openai.com/v1`. A query is kept.
    pub base_url: String,
    /// Path after the base, with or without a leading slash; `/chat/completions`.
    /// A query is kept.
    pub path: String,
    /// The header that carries the key; `Authorization`, which gets
    /// `Bearer <key>`. Any other gets the key as it is.
    pub auth_header: String,
    /// The key; without one no such header is sent.
    pub api_key: Option<Secret>,
    /// More headers, whose values are treated as secrets.
    pub extra_headers: Vec<(String, Secret)>,
    /// The model that is asked for when a request names none, or `echo`.
    pub model: String,
    /// The bounds of a call.
    pub limits: HttpModelLimits,
}

impl HttpModelOptions {
    /// The public endpoint, without a key, for `model`.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            base_url: "https://api.openai.com/v1".to_owned(),
            path: "/chat/completions".to_owned(),
            auth_header: "Authorization".to_owned(),
            api_key: None,
            extra_headers: Vec::new(),
            model: model.into(),
            limits: HttpModelLimits::default(),
        }
    }
}

/// The bounds of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpModelLimits {
    /// How long a connection may take; 20 s.
    pub connect_within: Duration,
    /// How long a whole call may take, its last byte included; 2 min.
    pub call_within: Duration,
    /// How large an answer may be, streamed or not; 32 MiB.
    pub body_bytes_max: usize,
    /// How much of an error's body is read; 1 MiB.
    pub error_body_bytes_max: usize,
    /// How long one line, and one event, of a stream may be; 8 MiB.
    pub sse_line_bytes_max: usize,
}

impl Default for HttpModelLimits {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(20),
            call_within: Duration::from_secs(120),
            body_bytes_max: 32 << 20,
            error_body_bytes_max: 1 << 20,
            sse_line_bytes_max: 8 << 20,
        }
    }
}

/// Why a provider cannot be built. Carries no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpModelConfigError {
    /// No default model.
    #[error("model is missing")]
    NoModel,
    /// The address cannot be called.
    #[error("model base url or path: {why}")]
    Url {
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A header that cannot be sent.
    #[error("header {name:?} cannot be sent: {why}")]
    Header {
        /// Its name.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(#[from] HttpClientError),
}

impl Classify for HttpModelConfigError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoModel | Self::Url { .. } | Self::Header { .. } => {
                Condition::InvalidArgument.kind()
            }
            Self::Client(_) => Condition::Internal.kind(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::NoModel | Self::Url { .. } | Self::Header { .. } => {
                Condition::InvalidArgument.code()
            }
            Self::Client(_) => Condition::Internal.code(),
        }
    }
}
