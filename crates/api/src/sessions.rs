//! The sessions service, as everything above the log sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::BoxStream;
use crate::auth::Caller;
use crate::condition::Condition;
use crate::describe::{DescribeReport, WarmHost};
use crate::error::{Classify, ErrorKind, Outcome, SharedError};
use crate::event::ApprovalRef;
use crate::id::{ExecutionId, Seq, SessionUid};
use crate::message::Message;
use crate::session::{IdentityRef, LogRecord, Origin, Session};
use crate::tool::ToolResult;

/// A new session.
#[derive(Debug, Clone, Default)]
pub struct CreateRequest {
    /// Project; empty means the default one.
    pub project: String,
    /// Display name; need not be unique.
    pub name: String,
    /// Harness; empty means the host's default.
    pub harness: String,
    /// Model.
    pub model: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Where it came from.
    pub origin: Option<Origin>,
    /// Provenance.
    pub identity: Option<IdentityRef>,
    /// Makes the call repeatable.
    pub idempotency_key: Option<String>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Project; empty means the default one, never all.
    pub project: String,
    /// Rows a page; 0 or less means 50, above 500 means 500.
    pub page_size: i32,
    /// Where to go on; empty means the start.
    pub page_token: String,
}

/// A page of sessions, newest first.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Token of the next page; empty when there is none.
    pub next_page_token: String,
}

/// What losing the client's stream does to its turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// The turn goes on.
    #[default]
    Detach,
    /// The turn is cancelled.
    Cancel,
}

/// A turn to run.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// The session; `None` creates one.
    pub session: Option<SessionUid>,
    /// What the turn is about.
    pub inputs: Vec<Message>,
    /// The harness's own cursor.
    pub resume_from_seq: i64,
    /// Harness for this turn; empty means the session's.
    pub harness: String,
    /// Opaque configuration; readable by anyone who can replay.
    pub config: Bytes,
    /// The position that the journal must end at; `None` means wherever it ends.
    pub expected_last_seq: Option<i64>,
    /// Unix seconds by which the whole turn must end; 0 or less means none.
    pub deadline_unix: i64,
    /// Chosen execution id; makes the call repeatable.
    pub execution_id: Option<ExecutionId>,
    /// Key that the execution id is derived from; makes the call repeatable.
    pub idempotency_key: Option<String>,
    /// What losing the stream does.
    pub on_disconnect: OnDisconnect,
    /// How long a request for approval that this call makes may stay open;
    /// `None` leaves it to the host.
    pub approval_ttl: Option<Duration>,
}

/// One step of a turn.
#[derive(Debug, Clone)]
pub enum ExecUpdate {
    /// The session, first, and last again when the turn parked.
    Session(Box<Session>),
    /// A committed record.
    Record(Box<LogRecord>),
    /// A piece of output that is not recorded.
    Delta(Delta),
}

/// An ephemeral piece of output. Never journaled, never replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The execution.
    pub execution_id: ExecutionId,
    /// Part of the message; 0 today.
    pub part_index: i32,
    /// Text.
    pub chunk: String,
    /// Whether it is the last; then the chunk is empty.
    pub done: bool,
}

/// Which records to read.
#[derive(Debug, Clone)]
pub struct ReplayRequest {
    /// The session.
    pub session: SessionUid,
    /// First position; 0 or less means 1.
    pub from_seq: i64,
    /// Last position; 0 means the head.
    pub to_seq: i64,
    /// Whether to verify the chain first.
    pub verify: bool,
}

/// What to follow.
#[derive(Debug, Clone)]
pub struct FollowRequest {
    /// The session.
    pub session: SessionUid,
    /// The last position that the client has; the stream starts after it.
    pub after_seq: Seq,
}

/// One step of following a session.
#[derive(Debug, Clone)]
pub enum FollowUpdate {
    /// A committed record; no position is left out.
    Record(Box<LogRecord>),
    /// A piece of output that is not recorded.
    Delta(Delta),
    /// Deltas were left out here.
    DeltaGap,
    /// Nothing happened, and the stream is alive.
    Heartbeat,
}

/// What becomes of suspended work.
#[derive(Debug, Clone)]
pub struct ResumeRequest {
    /// The session.
    pub session: SessionUid,
    /// How long a request for approval that this call makes may stay open;
    /// `None` leaves it to the host.
    pub approval_ttl: Option<Duration>,
}

/// A person's decision.
#[derive(Debug, Clone)]
pub struct ApproveRequest {
    /// The session.
    pub session: SessionUid,
    /// Which request.
    pub approval: ApprovalRef,
    /// Yes or no.
    pub approved: bool,
    /// Why.
    pub reason: String,
    /// Provenance of the decision.
    pub identity: Option<IdentityRef>,
    /// Digest of the call that the person was shown.
    pub digest: Option<String>,
}

/// A recorded decision.
#[derive(Debug, Clone)]
pub struct Approved {
    /// The session afterwards.
    pub session: Session,
    /// The decision's record.
    pub decision: LogRecord,
}

/// How an unknown effect is resolved.
#[derive(Debug, Clone)]
pub enum Resolution {
    /// It happened, with this result.
    Result(Box<ToolResult>),
    /// It did not happen, or failed.
    Failed(String),
    /// Run it again under its key.
    Retry,
}

/// A person's word on an effect whose outcome nobody knows.
#[derive(Debug, Clone)]
pub struct ResolveRequest {
    /// The session.
    pub session: SessionUid,
    /// The execution.
    pub execution_id: ExecutionId,
    /// The call.
    pub tool_call_id: String,
    /// What to do.
    pub resolution: Resolution,
}

/// Children to make.
#[derive(Debug, Clone)]
pub struct ForkRequest {
    /// The parent.
    pub session: SessionUid,
    /// Where; 0 or less means the head.
    pub at_seq: i64,
    /// How many; 0 or less means 1, at most 128.
    pub count: i32,
    /// Labels of the children.
    pub labels: BTreeMap<String, String>,
    /// Names of the children: none, or one each.
    pub child_names: Vec<String>,
    /// Must be absent: a fork has no identity of its own.
    pub identity: Option<IdentityRef>,
}

/// Why a turn is cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CancelReason {
    /// A person asked.
    #[default]
    User,
    /// It took too long.
    Timeout,
    /// The host had to.
    Internal,
}

impl CancelReason {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "USER",
            Self::Timeout => "TIMEOUT",
            Self::Internal => "INTERNAL",
        }
    }
}

/// A turn to cancel.
#[derive(Debug, Clone)]
pub struct CancelRequest {
    /// The session.
    pub session: SessionUid,
    /// Its latest execution.
    pub execution_id: ExecutionId,
    /// Why.
    pub reason: CancelReason,
}

/// A stream of updates of a turn.
pub type ExecStream = BoxStream<'static, Result<ExecUpdate, SessionsError>>;

/// The sessions service. Embedded and remote are the same to its users.
///
/// Every method checks the form of its request first, then looks the session
/// up and authorises in one step, then acts; on an error nothing was changed
/// unless its outcome is `Unknown`.
#[async_trait]
pub trait Sessions: fmt::Debug + Send + Sync + 'static {
    /// Creates a session; no compute is started.
    async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<Session, SessionsError>;

    /// One session.
    async fn get(&self, caller: &Caller, session: &SessionUid) -> Result<Session, SessionsError>;

    /// A page of sessions.
    async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage, SessionsError>;

    /// The host that has a session at hand, where many hosts serve one store and
    /// this one knows; of itself it tells nothing of whether there is such a
    /// session. `None` otherwise.
    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        let _ = session;
        None
    }

    /// Why a session does or does not move.
    async fn describe(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<DescribeReport, SessionsError>;

    /// Runs a turn. The turn belongs to the host: dropping the stream detaches
    /// from it once its start is durable.
    async fn exec(
        &self,
        caller: &Caller,
        request: ExecRequest,
    ) -> Result<ExecStream, SessionsError>;

    /// Brings a session back and finishes its interrupted turn, if it has one.
    /// The last update is the session afterwards.
    async fn resume(
        &self,
        caller: &Caller,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError>;

    /// Records after a position, then live, until the caller goes away.
    async fn follow(
        &self,
        caller: &Caller,
        request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError>;

    /// Stored records.
    async fn replay(
        &self,
        caller: &Caller,
        request: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError>;

    /// Decides a pending request. Does not resume.
    async fn approve(
        &self,
        caller: &Caller,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError>;

    /// Settles an effect whose outcome nobody knows.
    async fn resolve(
        &self,
        caller: &Caller,
        request: ResolveRequest,
    ) -> Result<Session, SessionsError>;

    /// Frees the session's compute.
    async fn suspend(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<Session, SessionsError>;

    /// Makes children that share the journal up to a position.
    async fn fork(
        &self,
        caller: &Caller,
        request: ForkRequest,
    ) -> Result<Vec<Session>, SessionsError>;

    /// Cancels the latest turn.
    async fn cancel(
        &self,
        caller: &Caller,
        request: CancelRequest,
    ) -> Result<Session, SessionsError>;

    /// Records the intent to delete.
    async fn delete(&self, caller: &Caller, session: &SessionUid)
    -> Result<Session, SessionsError>;
}

/// What a sessions service reports: a documented condition with its context.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SessionsError {
    condition: Condition,
    message: String,
    outcome: Outcome,
    session: Option<SessionUid>,
    #[source]
    source: Option<Cause>,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
struct Cause(SharedError);

impl SessionsError {
    /// An error that changed nothing.
    #[must_use]
    pub fn new(condition: Condition, message: impl Into<String>) -> Self {
        Self {
            condition,
            message: message.into(),
            outcome: Outcome::NotApplied,
            session: None,
            source: None,
        }
    }

    /// The error of a classified cause: its condition by code, its text, its outcome.
    #[must_use]
    pub fn because(error: SharedError) -> Self {
        let condition = Condition::from_code(error.code()).unwrap_or(match error.kind() {
            ErrorKind::NotFound => Condition::SessionNotFound,
            ErrorKind::InvalidInput => Condition::InvalidArgument,
            ErrorKind::LimitExceeded => Condition::ValueTooLarge,
            ErrorKind::Unavailable => Condition::Unavailable,
            ErrorKind::Corrupt => Condition::Corrupt,
            ErrorKind::Cancelled => Condition::Cancelled,
            ErrorKind::Deadline => Condition::DeadlineExceeded,
            _ => Condition::Internal,
        });
        let mut this = Self::new(condition, crate::error::report(&*error));
        this.outcome = error.outcome();
        this
    }

    /// Names the session.
    #[must_use]
    pub fn on(mut self, session: &SessionUid) -> Self {
        self.session = Some(session.clone());
        self
    }

    /// Sets the outcome.
    #[must_use]
    pub const fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// Sets the cause, whose text must not be in the message.
    #[must_use]
    pub fn with_source(mut self, source: SharedError) -> Self {
        self.source = Some(Cause(source));
        self
    }

    /// The condition.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        self.condition
    }

    /// The session, if one was named.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionUid> {
        self.session.as_ref()
    }
}

impl Classify for SessionsError {
    fn kind(&self) -> ErrorKind {
        self.condition.kind()
    }

    fn code(&self) -> &'static str {
        self.condition.code()
    }

    fn outcome(&self) -> Outcome {
        self.outcome
    }
}
