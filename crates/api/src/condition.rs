//! The documented conditions that a sessions service reports.

use crate::error::ErrorKind;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $code:literal => $kind:ident),* $(,)?) => {
        /// One documented condition. Its code is stable and travels on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Condition {
            $($(#[$doc])* $name,)*
        }

        impl Condition {
            /// Every condition.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable code.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The sort of failure.
            #[must_use]
            pub const fn kind(self) -> ErrorKind {
                match self { $(Self::$name => ErrorKind::$kind,)* }
            }

            /// The condition of a code that came over the wire.
            #[must_use]
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|condition| condition.code() == code)
            }
        }
    };
}

conditions! {
    /// No such session for this caller.
    SessionNotFound = "session_not_found" => NotFound,
    /// The name or uid is taken, or an idempotency key was used for another request.
    AlreadyExists = "already_exists" => AlreadyExists,
    /// The head is not the expected one.
    Conflict = "conflict" => Conflict,
    /// A newer writer took the session over.
    Fenced = "fenced" => Fenced,
    /// Another operation runs on this session, here or on another live host.
    SessionBusy = "session_busy" => Busy,
    /// A stateful fork is capturing the session.
    Checkpointing = "checkpointing" => Busy,
    /// A turn is just starting.
    TurnStarting = "turn_starting" => Busy,
    /// Compute is in transition.
    ComputeBusy = "compute_busy" => Busy,
    /// The fork's source snapshot was superseded.
    SnapshotSuperseded = "snapshot_superseded" => Conflict,
    /// No verified caller.
    Unauthenticated = "unauthenticated" => Unauthenticated,
    /// The caller may not do this.
    PermissionDenied = "permission_denied" => Denied,
    /// The authoriser could not answer.
    AuthorizationUnavailable = "authorization_unavailable" => Internal,
    /// This build does not offer the operation or the field.
    Unimplemented = "unimplemented" => Unsupported,
    /// The request is malformed.
    InvalidArgument = "invalid_argument" => InvalidInput,
    /// No harness of that name is served here.
    UnknownHarness = "unknown_harness" => InvalidInput,
    /// No harness of that name is registered or configured.
    HarnessNotFound = "harness_not_found" => NotFound,
    /// The harness takes no new sessions.
    HarnessRetired = "harness_retired" => Precondition,
    /// The harness is known, and this host cannot serve it.
    HarnessUnservable = "harness_unservable" => Precondition,
    /// The session stays with its harness: it, or the one that was asked for, is registered.
    HarnessPinned = "harness_pinned" => Precondition,
    /// A single value exceeds its bound.
    ValueTooLarge = "value_too_large" => LimitExceeded,
    /// A quota of the host is used up.
    QuotaExceeded = "quota_exceeded" => LimitExceeded,
    /// The state does not allow it; a peer that names no condition of ours said so.
    FailedPrecondition = "failed_precondition" => Precondition,
    /// The turn's start would exceed the message size agreed with the harness.
    StartTooLarge = "start_too_large" => Precondition,
    /// The session is to be deleted.
    SessionDeleted = "session_deleted" => Precondition,
    /// The journal's chain does not hold.
    JournalTampered = "journal_tampered" => Corrupt,
    /// A record uses a field or value that this build does not know.
    UnsupportedRecord = "unsupported_record" => Corrupt,
    /// Stored bytes cannot be read.
    Corrupt = "corrupt" => Corrupt,
    /// A line of an exported journal cannot be read.
    BadLine = "bad_line" => Corrupt,
    /// The journal's evidence of an execution is ill-formed.
    InvalidExecutionLog = "invalid_execution_log" => Precondition,
    /// The latest turn has fewer inputs than it declares.
    IncompleteInvocation = "incomplete_invocation" => Precondition,
    /// An unresolved tool call was inherited through a fork.
    InheritedToolIntent = "inherited_tool_intent" => Precondition,
    /// A tool call has no receipt and the tool is not declared repeatable.
    UnansweredToolCall = "unanswered_tool_call" => Precondition,
    /// The latest turn waits for an approval, or for its receipt.
    ApprovalBlocked = "approval_blocked" => Precondition,
    /// The turn parked and waits for an approval.
    ApprovalParked = "approval_parked" => Precondition,
    /// Approvals need a stateless harness.
    ApprovalUnavailable = "approval_unavailable" => Precondition,
    /// A gated call is ill-formed.
    InvalidApprovalCall = "invalid_approval_call" => Precondition,
    /// The decision does not fit a pending request.
    InvalidApprovalDecision = "invalid_approval_decision" => Precondition,
    /// A report or reply carried receipt fields that only the host may set.
    ApprovalReceiptReport = "approval_receipt_report" => Precondition,
    /// A mediated call, and no executor is configured.
    MissingToolExecutor = "missing_tool_executor" => Precondition,
    /// A mediated call without an idempotency key.
    MissingIdempotencyKey = "missing_idempotency_key" => Precondition,
    /// A tool call that is not mediated.
    UnmediatedToolCall = "unmediated_tool_call" => Precondition,
    /// Tool arguments that cannot be recorded.
    InvalidToolArgs = "invalid_tool_args" => InvalidInput,
    /// The controller has no session uid.
    MissingSessionUid = "missing_session_uid" => Internal,
    /// The recorded turn and the harness disagree.
    ReplayDiverged = "replay_diverged" => Precondition,
    /// A replay reached a model.
    ReplayInvokedModel = "replay_invoked_model" => Internal,
    /// A recorded model call has no completion.
    CompletionMissing = "completion_missing" => Precondition,
    /// A recorded tool call has no result.
    ToolResultMissing = "tool_result_missing" => Precondition,
    /// The sink was used after its run.
    SinkClosed = "sink_closed" => Internal,
    /// The sink was used from inside one of its own callbacks.
    SinkReentered = "sink_reentered" => Internal,
    /// The harness could not describe itself.
    HarnessDescribeFailed = "harness_describe_failed" => Internal,
    /// The harness cannot be reached.
    HarnessUnavailable = "harness_unavailable" => Unavailable,
    /// Another harness recorded this turn.
    HarnessMismatch = "harness_mismatch" => Precondition,
    /// Another version of the harness recorded this turn.
    HarnessVersionMismatch = "harness_version_mismatch" => Precondition,
    /// The harness describes itself otherwise than expected.
    DescriptorMismatch = "descriptor_mismatch" => Precondition,
    /// The harness that recorded this turn is not served here.
    RecordedHarnessNotServed = "recorded_harness_not_served" => Precondition,
    /// No runtime here can run this harness.
    Unplaceable = "unplaceable" => Precondition,
    /// The runtime cannot do this.
    RuntimeUnsupported = "runtime_unsupported" => Precondition,
    /// The runtime failed.
    RuntimeFailed = "runtime_failed" => Internal,
    /// The session's memory is gone.
    MemoryStateLost = "memory_state_lost" => Precondition,
    /// The checkpoint cannot be used.
    InvalidCheckpoint = "invalid_checkpoint" => Precondition,
    /// The checkpoint is still being written.
    CheckpointPending = "checkpoint_pending" => Unavailable,
    /// The model is not allowed by policy.
    ModelNotAllowed = "model_not_allowed" => Precondition,
    /// The model policy is ill-formed.
    InvalidModelPolicy = "invalid_model_policy" => Precondition,
    /// The model gave no completion.
    ModelFailed = "model_failed" => Internal,
    /// The tool could not be run.
    ToolFailed = "tool_failed" => Internal,
    /// The harness failed in its turn.
    HarnessFailed = "harness_failed" => Internal,
    /// The host is shutting down.
    Draining = "draining" => Unavailable,
    /// The store is being opened; the message says how far it is.
    StoreRecovering = "store_recovering" => Unavailable,
    /// The host was told to stop a turn; it can be resumed.
    Interrupted = "interrupted" => Unavailable,
    /// Cancelled by request.
    Cancelled = "cancelled" => Cancelled,
    /// Out of time.
    DeadlineExceeded = "deadline_exceeded" => Deadline,
    /// A dependency cannot be reached; nothing was applied.
    Unavailable = "unavailable" => Unavailable,
    /// Whether it took effect is not known.
    OutcomeUnknown = "outcome_unknown" => Unavailable,
    /// Anything else.
    Internal = "internal" => Internal,
}

#[cfg(test)]
mod tests {
    use super::Condition;

    #[test]
    fn every_code_is_documented_once() {
        let docs = include_str!("../../../docs/errors.md");
        for condition in Condition::ALL {
            let row = format!("\n| `{}` |", condition.code());
            assert_eq!(docs.matches(&row).count(), 1, "{row}");
            assert_eq!(Condition::from_code(condition.code()), Some(*condition));
        }
    }
}
