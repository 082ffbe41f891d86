//! How a running bridge stops, seen from the harness's side.

use mainspring_api::{CancelReason, Classify, Condition, ErrorKind, SharedError, SinkError};
use std::sync::Arc;

/// A fault of the bridge itself.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LinkError {
    /// The host broke the protocol.
    #[error("host protocol: {0}")]
    Protocol(String),
    /// The host is gone.
    #[error("host is gone: {0}")]
    Lost(String),
}

impl LinkError {
    pub(crate) fn protocol(rule: impl Into<String>) -> Self {
        Self::Protocol(rule.into())
    }

    pub(crate) fn eof() -> Self {
        Self::Lost("EOF, the host closed the stream".to_owned())
    }

    pub(crate) fn into_sink(self) -> SinkError {
        let shared: SharedError = Arc::new(self);
        SinkError::failed(shared)
    }
}

impl Classify for LinkError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Protocol(_) => ErrorKind::Internal,
            Self::Lost(_) => ErrorKind::Unavailable,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Protocol(_) => Condition::HarnessFailed.code(),
            Self::Lost(_) => Condition::HarnessUnavailable.code(),
        }
    }
}

/// Why no effect is possible any more.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// The run has returned.
    Returned,
    /// The host sent `cancel`.
    Canceled(CancelReason),
    /// The bridge is at fault.
    Fault(LinkError),
}

impl Stop {
    pub(crate) fn into_sink(self) -> SinkError {
        match self {
            Self::Returned => SinkError::Closed,
            Self::Canceled(reason) => SinkError::Canceled(reason),
            Self::Fault(error) => error.into_sink(),
        }
    }
}
