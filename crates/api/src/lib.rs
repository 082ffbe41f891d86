//! Values and contracts of durable agent sessions.
//!
//! This crate says what a session, an event, a harness, a runtime and a
//! sessions service *are*; other crates do the work. It has no IO, no
//! executor, no protobuf and no serde on its domain types, so that every
//! adapter can depend on it at no cost.
//!
//! Every contract is usable as `Arc<dyn Trait>`, and every error implements
//! [`Classify`], which answers what sort of failure it is, whether it took
//! effect, and its stable code.
//!
//! ```
//! use mainspring_api::{Event, EventBody, Message};
//!
//! let event = Event::of(EventBody::Input(Some(Message::user("hello"))));
//! assert_eq!(event.body.kind().name(), "EVENT_INPUT");
//! ```

mod approval;
mod auth;
mod clock;
mod condition;
mod connector;
mod describe;
mod error;
mod event;
mod harness;
mod id;
mod json;
mod message;
pub mod method;
mod model;
mod operations;
mod registry;
mod runtime;
mod secret;
mod session;
mod sessions;
mod signal;
mod sink;
mod tool;

pub use async_trait::async_trait;
pub use bytes::Bytes;

pub use approval::{ApprovalPolicy, Decision, PendingApproval};
pub use auth::{
    Action, Authenticator, AuthnError, AuthorizeRequest, Authorizer, AuthzError, Caller,
    CallerIdentity, Credentials, Verified,
};
pub use clock::{Clock, Entropy, OsEntropy, SystemClock, Timestamp};
pub use condition::Condition;
pub use connector::{
    Address, ConnectError, HarnessConnection, HarnessConnector, InProcess, Incarnation,
};
pub use describe::{
    DescribeReport, FenceHolder, LastError, OpenCall, RunningOperation, Standing, StoreDurability,
    WarmHost,
};
pub use error::{Classified, Classify, ErrorKind, Outcome, SharedError, report};
pub use event::{
    ApprovalRef, ApprovalRequest, ApprovalResult, EndState, Event, EventBody, EventKind,
    ExecutionStart, HarnessEnd, Lifecycle, LifecycleKind, RecordedError, SnapshotRef,
};
pub use harness::{
    Capabilities, Descriptor, EmptyHistory, Harness, HarnessError, History, HistoryError,
    Resumability, Start,
};
pub use id::{
    AppendId, ExecutionId, Fence, Hash, Head, IdError, RequestId, Seq, SessionUid, StoreId,
    random_hex,
};
pub use json::{InvalidJson, JSON_DEPTH_MAX, Json, JsonObject};
pub use message::{DataPart, FilePart, FileSource, Message, Opaque, Part, ReasoningPart};
pub use model::{
    InvalidModelPolicy, ModelCall, ModelError, ModelPolicy, ModelProvider, ModelReply,
    ModelRequest, StreamingModel, ToolChoice, ToolChoiceMode, ToolDefinition, Usage,
};
pub use operations::{
    AdoptRequest, ExportRequest, FindRequest, ImportRequest, Operations, VerifyProgress,
    VerifyReport, VerifyRequest,
};
pub use registry::{
    HarnessRegistration, HarnessRegistry, HarnessSource, HarnessSpec, HarnessState, Placement,
    RegisterOutcome,
};
pub use runtime::{
    ComputeStatus, Fidelity, MemoryTier, Runtime, RuntimeCapabilities, RuntimeError,
    SessionHistory, SessionSpec,
};
pub use secret::Secret;
pub use session::{
    ComputeState, DeletionState, ExecState, IdentityRef, LogRecord, Notes, Origin, Owner, Session,
};
pub use sessions::{
    ApproveRequest, Approved, CancelReason, CancelRequest, CreateRequest, Delta, ExecRequest,
    ExecStream, ExecUpdate, FollowRequest, FollowUpdate, ForkRequest, ListPage, ListRequest,
    OnDisconnect, ReplayRequest, Resolution, ResolveRequest, ResumeRequest, Sessions,
    SessionsError,
};
pub use signal::Signal;
pub use sink::{Divergence, EventSink, SinkError};
pub use tool::{
    Mediation, ResultCode, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope, ToolSpec,
};

/// A boxed future, as contracts return them.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed stream, as contracts return them.
pub type BoxStream<'a, T> = std::pin::Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;
