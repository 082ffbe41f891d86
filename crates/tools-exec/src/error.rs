//! Why a call left no receipt.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{InvalidJson, Outcome, ToolError};

/// A failure of one call, before it meets the contract.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("call has no idempotency key")]
    NoKey,
    #[error("arguments cannot be written")]
    Args(#[source] InvalidJson),
    #[error("{calls_max} calls, the bound calls_max, ran for all of {within:?}")]
    NoRoom { calls_max: usize, within: Duration },
    #[error("cannot start {program:?}")]
    Spawn { program: String, source: io::Error },
    #[error("{what} cannot travel in a header")]
    Header { what: &'static str },
    #[error("no connection")]
    NoConnection(#[source] reqwest::Error),
    #[error("no result within {within:?}, the bound call_within")]
    TimedOut { within: Duration },
    #[error("result is larger than {bytes_max} bytes, the bound output_bytes_max")]
    TooLarge { bytes_max: usize },
    #[error("ended by signal {0}")]
    Signal(i32),
    #[error("its process was lost")]
    Lost(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[source] reqwest::Error),
    #[error("answered status {0}, which is neither a result nor a refusal")]
    Status(u16),
}

impl CallError {
    fn outcome(&self) -> Outcome {
        match self {
            Self::NoKey
            | Self::Args(_)
            | Self::NoRoom { .. }
            | Self::Spawn { .. }
            | Self::Header { .. }
            | Self::NoConnection(_) => Outcome::NotApplied,
            Self::TimedOut { .. }
            | Self::TooLarge { .. }
            | Self::Signal(_)
            | Self::Lost(_)
            | Self::Broken(_)
            | Self::Status(_) => Outcome::Unknown,
        }
    }

    pub(crate) fn of_tool(self, name: &str) -> ToolError {
        let message = format!("tool {name:?}: {self}");
        let outcome = self.outcome();
        let source: Option<Arc<dyn std::error::Error + Send + Sync>> = match self {
            Self::Args(cause) => Some(Arc::new(cause)),
            Self::Spawn { source: cause, .. } | Self::Lost(cause) => Some(Arc::new(cause)),
            // An address may hold a key.
            Self::NoConnection(cause) | Self::Broken(cause) => Some(Arc::new(cause.without_url())),
            _ => None,
        };
        ToolError { message, outcome, source }
    }
}
