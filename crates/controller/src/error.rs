//! What the controller reports.

use mainspring_api::{
    ApprovalRef, CancelReason, Classify, Condition, Divergence, ErrorKind, ExecutionId,
    HarnessError, InvalidModelPolicy, Outcome, Seq, SinkError,
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
        /// A rule of effects that the evidence breaks, if it is one.
        cause: Option<Condition>,
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
    #[error("execution {0} waits for an approval, or for the receipt of its tool call")]
    ApprovalBlocked(ExecutionId),
    /// A tool call has no receipt, and nothing says that it may be sent again.
    /// Nothing was run or appended; a person resolves it.
    #[error("tool call {call_id:?} at seq {seq} has no receipt, and its outcome is unknown")]
    UnansweredToolCall {
        /// Where it is.
        seq: Seq,
        /// Its id.
        call_id: String,
    },
    /// The decision does not fit a pending request. Neither fence nor record exists.
    #[error("approval decision is invalid: {0}")]
    InvalidApprovalDecision(&'static str),
    /// Approvals need a harness that resumes by replay. Nothing was run or appended.
    #[error("approvals need a harness that resumes by stateless replay")]
    ApprovalUnavailable,
    /// The model is not allowed by the host's policy. Nothing was run or appended.
    #[error("model {0:?} is not allowed by policy")]
    ModelNotAllowed(String),
    /// The host's model policy is ill-formed. Nothing was run or appended.
    #[error(transparent)]
    InvalidModelPolicy(#[from] InvalidModelPolicy),
    /// The session's memory is on other compute. Nothing was run or appended.
    #[error("memory is on compute instance {recorded:?} (seq {seq}), this is {actual:?}")]
    MemoryStateLost {
        /// The instance that the journal records.
        recorded: String,
        /// Where it does.
        seq: Seq,
        /// The instance at hand.
        actual: String,
    },
    /// The journal has an execution of the chosen id. Nothing was run or appended.
    #[error("execution {0} exists already")]
    ExecutionExists(ExecutionId),
    /// The turn cannot be cancelled, or its call not be resolved. Nothing was recorded.
    #[error("{0}")]
    Precondition(String),
    /// The turn was cancelled; its end is recorded.
    #[error("turn was canceled ({})", .0.name())]
    Canceled(CancelReason),
    /// The host stopped the turn; it can be resumed.
    #[error("turn was interrupted; it can be resumed")]
    Interrupted,
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
    ReplayDiverged(Divergence),
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
    /// The run failed, with the harness's own error.
    #[error(transparent)]
    Run(HarnessError),
}

impl ControllerError {
    pub(crate) fn invalid(seq: Seq, what: impl Into<String>) -> Self {
        Self::InvalidExecutionLog { seq, what: what.into(), cause: None }
    }

    pub(crate) fn invalid_because(seq: Seq, what: &str, cause: Condition) -> Self {
        Self::InvalidExecutionLog { seq, what: what.to_owned(), cause: Some(cause) }
    }

    /// Whether this reports `condition`, itself, as its cause, or anywhere in
    /// the tree of the harness's own error.
    #[must_use]
    pub fn is(&self, condition: Condition) -> bool {
        match self {
            Self::InvalidExecutionLog { cause: Some(cause), .. } if *cause == condition => true,
            Self::ReplayDiverged(Divergence { cause: Some(cause), .. }) if *cause == condition => {
                true
            }
            // Both are kinds of it.
            Self::IncompleteInvocation { .. } | Self::InheritedToolIntent(_)
                if condition == Condition::InvalidExecutionLog =>
            {
                true
            }
            Self::HarnessDescribeFailed(error) | Self::Run(error) if error.is(condition) => true,
            other => other.condition() == condition,
        }
    }

    /// A latched sink error as the verdict of the whole operation.
    pub(crate) fn latched(error: SinkError) -> Self {
        match error {
            SinkError::Diverged(what) => Self::ReplayDiverged(what),
            SinkError::Parked(park) => Self::ApprovalParked(park),
            SinkError::ModelNotAllowed(model) => Self::ModelNotAllowed(model),
            SinkError::InvalidModelPolicy(invalid) => Self::InvalidModelPolicy(invalid),
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
            Self::UnansweredToolCall { .. } => Condition::UnansweredToolCall,
            Self::InvalidApprovalDecision(_) => Condition::InvalidApprovalDecision,
            Self::ApprovalUnavailable => Condition::ApprovalUnavailable,
            Self::ModelNotAllowed(_) => Condition::ModelNotAllowed,
            Self::InvalidModelPolicy(_) => Condition::InvalidModelPolicy,
            Self::MemoryStateLost { .. } => Condition::MemoryStateLost,
            Self::ExecutionExists(_) => Condition::AlreadyExists,
            Self::Precondition(_) => Condition::FailedPrecondition,
            Self::Canceled(_) => Condition::Cancelled,
            Self::Interrupted => Condition::Interrupted,
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
            Self::Canceled(_) | Self::Interrupted | Self::ApprovalParked(_) => Outcome::Applied,
            // Only the log's own doubt about an append is doubt about the turn.
            Self::Run(error) if self.condition() == Condition::OutcomeUnknown => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}
