//! Events: what a journal records.

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::id::{ExecutionId, Seq};
use crate::message::Message;
use crate::model::{ModelCall, Usage};
use crate::session::IdentityRef;
use crate::tool::{ToolCall, ToolResult};

/// One event.
///
/// A body of another kind than the event's cannot be expressed; a kind without
/// its body can, because damaged journals hold such records and must be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The execution that it belongs to; absent on lifecycle events and in id-less old journals.
    pub execution_id: Option<ExecutionId>,
    /// When; set on approval decisions alone.
    pub ts: Option<Timestamp>,
    /// Schema version; 0 today.
    pub schema_version: i32,
    /// Who; set on approval decisions alone.
    pub actor: Option<IdentityRef>,
    /// Kind and body.
    pub body: EventBody,
}

impl Event {
    /// An event of no execution.
    #[must_use]
    pub fn of(body: EventBody) -> Self {
        Self { execution_id: None, ts: None, schema_version: 0, actor: None, body }
    }

    /// An event of `execution`.
    #[must_use]
    pub fn in_execution(execution: &ExecutionId, body: EventBody) -> Self {
        Self { execution_id: Some(execution.clone()), ..Self::of(body) }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.body.kind()
    }
}

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $kind:ident($body:ty) = $name:literal),* $(,)?) => {
        /// The kind of an event, with its body if it has one.
        #[derive(Debug, Clone, PartialEq)]
        pub enum EventBody {
            /// No kind.
            Unspecified,
            $($(#[$doc])* $kind(Option<$body>),)*
        }

        /// The kind of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventKind {
            /// No kind.
            Unspecified,
            $($(#[$doc])* $kind,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[Self::Unspecified, $(Self::$kind),*];

            /// The name that is hashed, such as `EVENT_INPUT`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::Unspecified => "EVENT_KIND_UNSPECIFIED",
                    $(Self::$kind => $name,)*
                }
            }
        }

        impl EventBody {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> EventKind {
                match self {
                    Self::Unspecified => EventKind::Unspecified,
                    $(Self::$kind(_) => EventKind::$kind,)*
                }
            }

            /// Whether the body is there.
            #[must_use]
            pub const fn has_body(&self) -> bool {
                match self {
                    Self::Unspecified => false,
                    $(Self::$kind(body) => body.is_some(),)*
                }
            }
        }
    };
}

event_kinds! {
    /// A message given to the turn.
    Input(Message) = "EVENT_INPUT",
    /// The intent to call a model.
    ModelCall(ModelCall) = "EVENT_MODEL_CALL",
    /// A message of the agent; right after a model call it is the completion.
    Output(Message) = "EVENT_OUTPUT",
    /// The intent to run a tool.
    ToolCall(ToolCall) = "EVENT_TOOL_CALL",
    /// The receipt of a tool call, or a report.
    ToolResult(ToolResult) = "EVENT_TOOL_RESULT",
    /// A request for a person's approval.
    ApprovalRequest(ApprovalRequest) = "EVENT_APPROVAL_REQUEST",
    /// The decision.
    ApprovalResult(ApprovalResult) = "EVENT_APPROVAL_RESULT",
    /// Token counts.
    Usage(Usage) = "EVENT_USAGE",
    /// A transition of the session or its compute.
    Lifecycle(Lifecycle) = "EVENT_LIFECYCLE",
    /// The end of an execution.
    End(HarnessEnd) = "EVENT_END",
    /// A failed attempt of an execution.
    Error(RecordedError) = "EVENT_ERROR",
    /// The first record of an execution.
    ExecutionStart(ExecutionStart) = "EVENT_EXECUTION_START",
    /// A stream acknowledgement; never journaled.
    Parked(ApprovalRef) = "EVENT_PARKED",
}

/// A request for approval of a gated tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The gated call.
    pub tool_call_id: String,
    /// Why; empty when the host wrote it.
    pub reason: String,
}

/// A person's decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalResult {
    /// The gated call.
    pub tool_call_id: String,
    /// Yes or no.
    pub approved: bool,
    /// Why.
    pub reason: String,
    /// Seq of the request that is decided; 0 in old journals.
    pub request_seq: i64,
}

/// Names one pending approval inside a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRef {
    /// Execution id.
    pub execution_id: String,
    /// The gated call.
    pub tool_call_id: String,
    /// Seq of the request.
    pub request_seq: i64,
}

/// A failure as recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedError {
    /// gRPC status code.
    pub code: i32,
    /// Words.
    pub description: String,
}

/// How an execution ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HarnessEnd {
    /// `COMPLETED`, `FAILED` or `CANCELED`; other texts are kept as they are.
    pub state: String,
    /// Why it failed.
    pub error: Option<RecordedError>,
}

impl HarnessEnd {
    /// Ended as it should.
    #[must_use]
    pub fn completed() -> Self {
        Self { state: EndState::Completed.name().to_owned(), error: None }
    }

    /// The state, if it is one of the three.
    #[must_use]
    pub fn end_state(&self) -> Option<EndState> {
        [EndState::Completed, EndState::Failed, EndState::Canceled]
            .into_iter()
            .find(|state| state.name() == self.state)
    }
}

/// The three ways in which an execution ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// As it should.
    Completed,
    /// With a failure.
    Failed,
    /// By request.
    Canceled,
}

impl EndState {
    /// The recorded text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

/// A transition of the session or its compute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lifecycle {
    /// Which.
    pub kind: LifecycleKind,
    /// For a fork: `parent@<seq>`.
    pub detail: String,
    /// For a suspend: what was captured.
    pub snapshot: SnapshotRef,
    /// For a stateful fork: the child's compute.
    pub compute_instance: String,
}

/// Which transition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LifecycleKind {
    /// Not said.
    #[default]
    Unspecified,
    /// Compute was captured and freed.
    Suspend,
    /// Compute was brought back.
    Resume,
    /// This session was forked from another.
    Fork,
    /// A baseline; read, never written by us.
    Baseline,
    /// A cancellation; read, never written by us.
    Cancel,
    /// The session is to be deleted.
    Delete,
}

/// What a suspend captured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotRef {
    /// The runtime's own name of the compute.
    pub local: String,
    /// Where the durable capture is.
    pub external_uri: String,
    /// Whether memory was captured.
    pub memory: bool,
    /// Whether the capture is sealed.
    pub sealed: bool,
}

/// The first record of every modern execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionStart {
    /// Opaque configuration for the harness, verbatim.
    pub config: Bytes,
    /// The harness's own cursor.
    pub resume_from_seq: i64,
    /// How many inputs follow; absent and 0 are different.
    pub input_count: Option<i64>,
    /// The harness that runs it.
    pub harness: String,
    /// The harness's replay version.
    pub harness_version: String,
    /// The compute that runs it; memory tier only.
    pub compute_instance: String,
    /// The effective default model; only under a model policy.
    pub model: String,
}

impl ApprovalRef {
    /// Seq of the request, if it is a position.
    #[must_use]
    pub fn request(&self) -> Option<Seq> {
        Seq::from_i64(self.request_seq).filter(|seq| *seq > Seq::ZERO)
    }
}
