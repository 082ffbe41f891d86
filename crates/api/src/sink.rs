//! What a harness can do during its run.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::condition::Condition;
use crate::error::{Classify, ErrorKind, Outcome, SharedError};
use crate::event::ApprovalRef;
use crate::harness::HarnessError;
use crate::id::Seq;
use crate::model::{InvalidModelPolicy, ModelReply, ModelRequest, Usage};
use crate::sessions::CancelReason;
use crate::tool::{ToolCall, ToolResult};

/// The effects of one run, each recorded before and after it happens.
///
/// Calls from several tasks are journaled one complete effect at a time. After
/// `Run` has returned every call fails with [`SinkError::Closed`].
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Calls a model. The completion is recorded by this; do not `output` it again.
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError>;

    /// Says something, as one assistant text part.
    async fn output(&self, text: String) -> Result<(), SinkError>;

    /// Has the controller run a tool.
    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError>;

    /// Records the result of a tool that the harness ran itself.
    async fn report(&self, result: ToolResult) -> Result<(), SinkError>;

    /// Records token counts; pass what [`EventSink::model`] returned.
    async fn usage(&self, usage: Usage) -> Result<(), SinkError>;
}

/// Why an effect was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The run has ended.
    #[error("sink is closed: the run has ended")]
    Closed,
    /// The sink was used from inside one of its own callbacks.
    #[error("sink was re-entered from inside one of its own callbacks")]
    Reentered,
    /// The turn waits for a person; return promptly.
    #[error("turn is parked on the approval of tool call {:?}", .0.tool_call_id)]
    Parked(ApprovalRef),
    /// The harness does otherwise than was recorded.
    #[error("replay diverged: {0}")]
    Diverged(Divergence),
    /// The recorded model call has no completion.
    #[error("expected a recorded completion")]
    CompletionMissing,
    /// The recorded tool call has no result.
    #[error("recorded tool call has no result")]
    ToolResultMissing,
    /// A mediated call without a key.
    #[error("mediated tool call has no idempotency key")]
    MissingIdempotencyKey,
    /// A tool call that is not mediated.
    #[error("tool call is not mediated by the controller")]
    UnmediatedToolCall,
    /// No executor is configured.
    #[error("no tool executor is configured")]
    MissingToolExecutor,
    /// Arguments that cannot be recorded. Carries no part of them.
    #[error("tool arguments cannot be recorded")]
    InvalidToolArgs,
    /// A gated call is ill-formed.
    #[error("gated tool call is invalid: {0}")]
    InvalidApprovalCall(&'static str),
    /// Approvals need a stateless harness.
    #[error("approvals need a harness that resumes by stateless replay")]
    ApprovalUnavailable,
    /// Receipt fields that only the host may set.
    #[error("tool result carries receipt fields that only the host may set")]
    ApprovalReceiptReport,
    /// The controller has no session uid.
    #[error("session uid is missing")]
    MissingSessionUid,
    /// The model is not allowed.
    #[error("model {0:?} is not allowed by policy")]
    ModelNotAllowed(String),
    /// The host's model policy is ill-formed.
    #[error(transparent)]
    InvalidModelPolicy(#[from] InvalidModelPolicy),
    /// The harness could not say whether it can wait for an approval.
    #[error("harness cannot describe itself")]
    HarnessDescribeFailed(#[source] Arc<HarnessError>),
    /// A value that cannot be recorded.
    #[error("effect cannot be recorded: {0}")]
    Unrecordable(String),
    /// A value above its bound.
    #[error("effect is too large: {what} is {bytes} bytes, bound is {bytes_max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// This build does not do it yet.
    #[error("{0} is not supported yet")]
    Unsupported(&'static str),
    /// The turn is being canceled.
    #[error("turn is canceled")]
    Canceled(CancelReason),
    /// The host is stopping; the turn will be resumed.
    #[error("turn is interrupted")]
    Interrupted,
    /// The model, the tool, or the log failed. (Display and source are the cause's own.)
    #[error(transparent)]
    Failed(SharedErrorBox),
}

/// A disagreement between a harness and what was recorded. Names positions,
/// kinds and fields, never values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The record that disagrees; `None` when nothing is recorded there.
    pub seq: Option<Seq>,
    /// What disagrees.
    pub what: String,
    /// What is wrong with the recorded evidence itself, if that is the cause.
    pub cause: Option<Condition>,
}

impl Divergence {
    /// A disagreement with the record at `seq`.
    #[must_use]
    pub fn at(seq: Seq, what: impl Into<String>) -> Self {
        Self { seq: Some(seq), what: what.into(), cause: None }
    }

    /// An effect where nothing is recorded.
    #[must_use]
    pub fn beyond(what: impl Into<String>) -> Self {
        Self { seq: None, what: what.into(), cause: None }
    }

    /// The same, because the evidence itself is at fault.
    #[must_use]
    pub fn because(self, cause: Condition) -> Self {
        Self { cause: Some(cause), ..self }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "at seq {seq}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// A [`SharedError`] that is an `Error` itself.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct SharedErrorBox(SharedError);

impl SinkError {
    /// Wraps a classified failure of the model, the tool or the log.
    #[must_use]
    pub fn failed(error: SharedError) -> Self {
        Self::Failed(SharedErrorBox(error))
    }

    /// The wrapped failure, if it is one.
    #[must_use]
    pub fn as_failed(&self) -> Option<&SharedError> {
        match self {
            Self::Failed(inner) => Some(&inner.0),
            _ => None,
        }
    }

    /// Whether this reports `condition`, itself or as its cause.
    #[must_use]
    pub fn is(&self, condition: Condition) -> bool {
        self.code() == condition.code()
            || matches!(self, Self::Diverged(divergence) if divergence.cause == Some(condition))
    }

    /// The condition that this reports; `None` for a wrapped failure.
    #[must_use]
    pub const fn condition(&self) -> Option<Condition> {
        Some(match self {
            Self::Closed => Condition::SinkClosed,
            Self::Reentered => Condition::SinkReentered,
            Self::Parked(_) => Condition::ApprovalParked,
            Self::Diverged(_) => Condition::ReplayDiverged,
            Self::CompletionMissing => Condition::CompletionMissing,
            Self::ToolResultMissing => Condition::ToolResultMissing,
            Self::MissingIdempotencyKey => Condition::MissingIdempotencyKey,
            Self::UnmediatedToolCall => Condition::UnmediatedToolCall,
            Self::MissingToolExecutor => Condition::MissingToolExecutor,
            Self::InvalidToolArgs => Condition::InvalidToolArgs,
            Self::InvalidApprovalCall(_) => Condition::InvalidApprovalCall,
            Self::ApprovalUnavailable => Condition::ApprovalUnavailable,
            Self::ApprovalReceiptReport => Condition::ApprovalReceiptReport,
            Self::MissingSessionUid => Condition::MissingSessionUid,
            Self::ModelNotAllowed(_) => Condition::ModelNotAllowed,
            Self::InvalidModelPolicy(_) => Condition::InvalidModelPolicy,
            Self::HarnessDescribeFailed(_) => Condition::HarnessDescribeFailed,
            Self::Unrecordable(_) => Condition::InvalidArgument,
            Self::TooLarge { .. } => Condition::ValueTooLarge,
            Self::Unsupported(_) => Condition::Unimplemented,
            Self::Canceled(_) => Condition::Cancelled,
            Self::Interrupted => Condition::Interrupted,
            Self::Failed(_) => return None,
        })
    }
}

impl Classify for SinkError {
    fn kind(&self) -> ErrorKind {
        match (self.condition(), self) {
            (Some(condition), _) => condition.kind(),
            (None, Self::Failed(inner)) => inner.0.kind(),
            (None, _) => ErrorKind::Internal,
        }
    }

    fn code(&self) -> &'static str {
        match (self.condition(), self) {
            (Some(condition), _) => condition.code(),
            (None, Self::Failed(inner)) => inner.0.code(),
            (None, _) => Condition::Internal.code(),
        }
    }

    fn outcome(&self) -> Outcome {
        self.as_failed().map_or(Outcome::NotApplied, |inner| inner.outcome())
    }
}
