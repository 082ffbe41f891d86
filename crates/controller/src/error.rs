//! What the controller reports.

use mainspring_api::{
    ApprovalRef, Classify, Condition, ErrorKind, ExecutionId, HarnessError, Outcome, Seq, SinkError,
};
use mainspring_eventlog::LogError;

/// Why an operation on a session failed. Each variant says what has not happened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The log refused or failed: a conflict, a newer fence, a tampered or
    /// damaged journal, a value above its bound.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The journal's evidence of an execution is ill-formed. Nothing was run or appended.
    #[error("invalid execution log at seq {seq}: {what}")]
    InvalidExecutionLog {
        /// Where.
        seq: Seq,
        /// What.
        what: String,
    },
    /// The trailing turn has fewer inputs than it declares. Nothing was run or
    /// appended; a new turn with all inputs is allowed.
    #[error("execution {execution} has {missing} fewer inputs than it declares")]
    IncompleteInvocation {
        /// The execution.
        execution: ExecutionId,
        /// How many are missing.
        missing: u64,
    },
    /// An unresolved tool call was inherited through a fork. Nothing was run or appended.
    #[error("tool call at seq {0} was inherited unresolved through a fork")]
    InheritedToolIntent(Seq),
    /// The latest turn waits for an approval or its receipt. Nothing was run or appended.
    #[error("execution {0} waits for an approval")]
    ApprovalBlocked(ExecutionId),
    /// The turn parked.
    #[error("turn is parked on the approval of tool call {:?}", .0.tool_call_id)]
    ApprovalParked(ApprovalRef),
    /// The harness could not describe itself. Nothing was run or appended.
    #[error("harness cannot describe itself")]
    HarnessDescribeFailed(#[source] HarnessError),
    /// Another harness recorded the turn. Nothing was run or appended.
    #[error("turn was recorded by harness {recorded:?}, this is {actual:?}")]
    HarnessMismatch {
        /// Recorded.
        recorded: String,
        /// Present.
        actual: String,
    },
    /// Another version recorded the turn. Nothing was run or appended.
    #[error("turn was recorded by version {recorded:?} of the harness, this is {actual:?}")]
    HarnessVersionMismatch {
        /// Recorded.
        recorded: String,
        /// Present.
        actual: String,
    },
    /// The harness and the recorded turn disagree. On replay nothing was
    /// appended; on resume only an error record.
    #[error("replay diverged: {0}")]
    ReplayDiverged(String),
    /// A replay reached a model.
    #[error("replay invoked a model")]
    ReplayInvokedModel,
    /// The operation needs a session uid.
    #[error("session uid is missing")]
    MissingSessionUid,
    /// The caller went away, or ran out of time, before the turn began. Nothing
    /// was recorded.
    #[error("call ended before the turn began ({})", if *.out_of_time { "deadline" } else { "cancelled" })]
    NotStarted {
        /// Whether it was the deadline.
        out_of_time: bool,
    },
    /// The turn's deadline passed.
    #[error("deadline exceeded")]
    DeadlineExceeded,
    /// This build does not do it yet.
    #[error("{0} is not supported yet")]
    Unsupported(&'static str),
    /// The run failed, with the harness's own error.
    #[error(transparent)]
    Run(HarnessError),
}

impl ControllerError {
    pub(crate) fn invalid(seq: Seq, what: impl Into<String>) -> Self {
        Self::InvalidExecutionLog { seq, what: what.into() }
    }

    /// A latched sink error as the verdict of the whole operation.
    pub(crate) fn latched(error: SinkError) -> Self {
        match error {
            SinkError::Diverged(what) => Self::ReplayDiverged(what.to_string()),
            SinkError::Parked(park) => Self::ApprovalParked(park),
            other => Self::Run(HarnessError::Sink(other)),
        }
    }

    /// The condition that this reports.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::Log(error) => error.condition(),
            Self::InvalidExecutionLog { .. } => Condition::InvalidExecutionLog,
            Self::IncompleteInvocation { .. } => Condition::IncompleteInvocation,
            Self::InheritedToolIntent(_) => Condition::InheritedToolIntent,
            Self::ApprovalBlocked(_) => Condition::ApprovalBlocked,
            Self::ApprovalParked(_) => Condition::ApprovalParked,
            Self::HarnessDescribeFailed(_) => Condition::HarnessDescribeFailed,
            Self::HarnessMismatch { .. } => Condition::HarnessMismatch,
            Self::HarnessVersionMismatch { .. } => Condition::HarnessVersionMismatch,
            Self::ReplayDiverged(_) => Condition::ReplayDiverged,
            Self::ReplayInvokedModel => Condition::ReplayInvokedModel,
            Self::MissingSessionUid => Condition::MissingSessionUid,
            Self::DeadlineExceeded | Self::NotStarted { out_of_time: true } => {
                Condition::DeadlineExceeded
            }
            Self::NotStarted { out_of_time: false } => Condition::Cancelled,
            Self::Unsupported(_) => Condition::Unimplemented,
            // A peer that was lost within a turn is a failed turn, not a call
            // that may be repeated as it is.
            Self::Run(HarnessError::Unavailable { .. } | HarnessError::Deadline { .. }) => {
                Condition::HarnessFailed
            }
            Self::Run(error) => error.condition(),
        }
    }
}

impl Classify for ControllerError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Log(error) => error.kind(),
            other => other.condition().kind(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Log(error) => error.code(),
            other => other.condition().code(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Log(error) => error.outcome(),
            // Only the log's own doubt about an append is doubt about the turn.
            Self::Run(error) if self.condition() == Condition::OutcomeUnknown => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}
