//! What the cases share.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    ApprovalRef, ApproveRequest, Approved, Caller, CancelReason, CancelRequest, Classify as _,
    Condition, CreateRequest, Delta, EndState, EventBody, ExecRequest, ExecStream, ExecUpdate,
    ExecutionId, FollowRequest, FollowUpdate, ForkRequest, LifecycleKind, ListRequest, LogRecord,
    Message, Outcome, ReplayRequest, ResumeRequest, Seq, Session, SessionUid, SessionsError,
    method,
};
use mainspring_eventlog::{EventLog, Level, SessionRow};
use mainspring_testkit::read_all;

use super::parts::{Holds, Parrot, Policy, Script, Tools};
use super::{Client, Parts, Subject};

/// A service, what it stands on, and somebody who uses it.
#[derive(Debug)]
pub struct World<S> {
    pub(super) subject: S,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) holds: Holds,
    pub(super) tools: Tools,
    /// `alice`.
    pub(super) me: Client,
}

impl<S: Subject> World<S> {
    pub(super) async fn open(log: Arc<dyn EventLog>, policy: Option<Policy>) -> Self {
        let holds = Holds::default();
        let tools = Tools { holds: holds.clone(), ..Tools::default() };
        let script = Arc::new(Script::with(holds.clone()));
        let parts = Parts {
            log: Arc::clone(&log),
            harnesses: vec![("script", script.clone()), ("other", script)],
            model: Arc::new(Parrot),
            tools: Arc::new(tools.clone()),
            authorizer: policy.map(|policy| Arc::new(policy) as _),
        };
        let subject = S::open(parts).await;
        let me = subject.client("alice").await;
        Self { subject, log, holds, tools, me }
    }

    /// The service as somebody else sees it.
    pub(super) async fn client(&self, who: &'static str) -> Client {
        self.subject.client(who).await
    }

    /// The kinds of a session's records.
    pub(super) async fn journal(&self, session: &SessionUid) -> String {
        kinds(&self.records(session).await)
    }

    pub(super) async fn records(&self, session: &SessionUid) -> Vec<LogRecord> {
        let stored = read_all(&*self.log, session).await.unwrap();
        stored.iter().map(|record| record.to_record().unwrap()).collect()
    }

    pub(super) async fn row(&self, session: &SessionUid) -> SessionRow {
        self.log.get(session, Level::Strict).await.unwrap()
    }

    /// How many sessions there are.
    pub(super) async fn count(&self) -> usize {
        let query = mainspring_eventlog::ListQuery {
            project: "default".to_owned(),
            page_size: 500,
            ..Default::default()
        };
        self.log.list(query, Level::Strict).await.unwrap().rows.len()
    }

    /// The execution that a session's last turn is.
    pub(super) async fn execution(&self, session: &SessionUid) -> ExecutionId {
        self.row(session).await.view.latest.expect("it has a turn").id
    }
}

/// The kinds of records, in short.
pub(super) fn kinds(records: &[LogRecord]) -> String {
    records.iter().map(kind).collect::<Vec<_>>().join(" ")
}

fn kind(record: &LogRecord) -> &'static str {
    match &record.event.body {
        EventBody::ExecutionStart(_) => "ES",
        EventBody::Input(_) => "IN",
        EventBody::ModelCall(_) => "MC",
        EventBody::Output(_) => "OUT",
        EventBody::ToolCall(_) => "TC",
        EventBody::ToolResult(_) => "TR",
        EventBody::ApprovalRequest(_) => "AQ",
        EventBody::ApprovalResult(_) => "AR",
        EventBody::Error(_) => "ERR",
        EventBody::End(Some(end)) if end.state == EndState::Canceled.name() => "CANCELED",
        EventBody::End(Some(end)) if end.state == EndState::Failed.name() => "FAILED",
        EventBody::End(_) => "END",
        EventBody::Lifecycle(Some(body)) => match body.kind {
            LifecycleKind::Suspend => "SUSPEND",
            LifecycleKind::Resume => "RESUME",
            LifecycleKind::Fork => "FORK",
            LifecycleKind::Delete => "DELETE",
            _ => "LC",
        },
        _ => "?",
    }
}

/// What a stream showed, until it ended or failed.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) updates: Vec<ExecUpdate>,
    pub(super) error: Option<SessionsError>,
}

impl Shown {
    pub(super) async fn of(stream: Result<ExecStream, SessionsError>) -> Self {
        let mut shown = Self::default();
        let mut stream = match stream {
            Ok(stream) => stream,
            Err(error) => return Self { error: Some(error), ..shown },
        };
        while let Some(update) = stream.next().await {
            match update {
                Ok(update) => shown.updates.push(update),
                Err(error) => shown.error = Some(error),
            }
        }
        shown
    }

    pub(super) fn records(&self) -> Vec<LogRecord> {
        let records = self.updates.iter().filter_map(|update| match update {
            ExecUpdate::Record(record) => Some((**record).clone()),
            _ => None,
        });
        records.collect()
    }

    pub(super) fn sessions(&self) -> Vec<Session> {
        let sessions = self.updates.iter().filter_map(|update| match update {
            ExecUpdate::Session(session) => Some((**session).clone()),
            _ => None,
        });
        sessions.collect()
    }

    pub(super) fn deltas(&self) -> Vec<Delta> {
        let deltas = self.updates.iter().filter_map(|update| match update {
            ExecUpdate::Delta(delta) => Some(delta.clone()),
            _ => None,
        });
        deltas.collect()
    }

    pub(super) fn kinds(&self) -> String {
        kinds(&self.records())
    }

    /// The stream, which must have ended well.
    #[track_caller]
    pub(super) fn ok(self) -> Self {
        assert!(self.error.is_none(), "{:?}", self.error);
        self
    }

    /// Why the stream failed.
    #[track_caller]
    pub(super) fn failed(&self) -> &SessionsError {
        self.error.as_ref().expect("the stream fails")
    }
}

/// Reads a stream up to and with the first record of a kind.
pub(super) async fn until(stream: &mut ExecStream, wanted: &str) -> LogRecord {
    loop {
        match stream.next().await.expect("the stream goes on").unwrap() {
            ExecUpdate::Record(record) if kind(&record) == wanted => return *record,
            _ => {}
        }
    }
}

#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(
    result: Result<T, SessionsError>,
    condition: Condition,
) -> SessionsError {
    let error = result.expect_err("it is refused");
    assert_eq!(error.condition(), condition, "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    error
}

/// As [`refused`], of what cannot be shown.
#[track_caller]
pub(super) fn refuses<T>(result: Result<T, SessionsError>, condition: Condition) -> SessionsError {
    refused(result.map(drop), condition)
}

pub(super) fn unknown() -> SessionUid {
    SessionUid::new("sess-0123456789abcdef01234567").expect("it is a uid")
}

impl Client {
    pub(super) fn as_caller(&self, method: &'static str) -> Caller {
        (self.caller)(self.who, method)
    }

    pub(super) async fn create(&self, request: CreateRequest) -> Result<Session, SessionsError> {
        self.sessions.create(&self.as_caller(method::CREATE_SESSION), request).await
    }

    /// A new session of nothing in particular.
    pub(super) async fn created(&self) -> SessionUid {
        self.create(CreateRequest::default()).await.unwrap().uid
    }

    pub(super) async fn get(&self, session: &SessionUid) -> Result<Session, SessionsError> {
        self.sessions.get(&self.as_caller(method::GET_SESSION), session).await
    }

    pub(super) async fn list(
        &self,
        request: ListRequest,
    ) -> Result<mainspring_api::ListPage, SessionsError> {
        self.sessions.list(&self.as_caller(method::LIST_SESSIONS), request).await
    }

    pub(super) async fn exec(&self, request: ExecRequest) -> Result<ExecStream, SessionsError> {
        self.sessions.exec(&self.as_caller(method::EXEC), request).await
    }

    /// A turn that is watched to its end.
    pub(super) async fn run(&self, session: &SessionUid, script: &str) -> Shown {
        Shown::of(self.exec(turn(session, script)).await).await
    }

    /// A turn that has ended well, on a session of its own.
    pub(super) async fn ran(&self, script: &str) -> SessionUid {
        let session = self.created().await;
        self.run(&session, script).await.ok();
        session
    }

    /// A session whose turn waits for the approval of `c1`.
    pub(super) async fn parked(&self, rest: &str) -> (SessionUid, ApprovalRef) {
        let session = self.created().await;
        let shown = self.run(&session, &format!("gate c1{rest}")).await.ok();
        let last = shown.sessions().pop().expect("a parked turn shows its session last");
        (session, last.pending_approval.expect("it waits"))
    }

    pub(super) async fn approve(
        &self,
        session: &SessionUid,
        approval: &ApprovalRef,
        approved: bool,
    ) -> Result<Approved, SessionsError> {
        let request = decision(session, approval, approved);
        self.sessions.approve(&self.as_caller(method::APPROVE), request).await
    }

    pub(super) async fn resume(&self, session: &SessionUid) -> Shown {
        let request = ResumeRequest { session: session.clone(), approval_ttl: None };
        let caller = self.as_caller(method::RESUME_STREAM);
        Shown::of(self.sessions.resume(&caller, request).await).await
    }

    pub(super) async fn suspend(&self, session: &SessionUid) -> Result<Session, SessionsError> {
        self.sessions.suspend(&self.as_caller(method::SUSPEND), session).await
    }

    pub(super) async fn fork(&self, request: ForkRequest) -> Result<Vec<Session>, SessionsError> {
        self.sessions.fork(&self.as_caller(method::FORK), request).await
    }

    pub(super) async fn cancel(
        &self,
        session: &SessionUid,
        execution: &ExecutionId,
        reason: CancelReason,
    ) -> Result<Session, SessionsError> {
        let request =
            CancelRequest { session: session.clone(), execution_id: execution.clone(), reason };
        self.sessions.cancel(&self.as_caller(method::CANCEL), request).await
    }

    pub(super) async fn delete(&self, session: &SessionUid) -> Result<Session, SessionsError> {
        self.sessions.delete(&self.as_caller(method::DELETE_SESSION), session).await
    }

    /// All stored records of a range.
    pub(super) async fn replay(
        &self,
        request: ReplayRequest,
    ) -> Result<Vec<LogRecord>, SessionsError> {
        let caller = self.as_caller(method::REPLAY);
        let mut stream = self.sessions.replay(&caller, request).await?;
        let mut records = Vec::new();
        while let Some(record) = stream.next().await {
            records.push(record?);
        }
        Ok(records)
    }

    pub(super) async fn follow(
        &self,
        session: &SessionUid,
        after: u64,
    ) -> Result<
        mainspring_api::BoxStream<'static, Result<FollowUpdate, SessionsError>>,
        SessionsError,
    > {
        let request = FollowRequest { session: session.clone(), after_seq: Seq::new(after) };
        self.sessions.follow(&self.as_caller(method::FOLLOW), request).await
    }
}

pub(super) fn turn(session: &SessionUid, script: &str) -> ExecRequest {
    ExecRequest {
        session: Some(session.clone()),
        inputs: vec![Message::user("go")],
        config: script.to_owned().into(),
        ..ExecRequest::default()
    }
}

pub(super) fn decision(
    session: &SessionUid,
    approval: &ApprovalRef,
    approved: bool,
) -> ApproveRequest {
    ApproveRequest {
        session: session.clone(),
        approval: approval.clone(),
        approved,
        reason: "because".to_owned(),
        identity: None,
        digest: None,
    }
}

pub(super) fn fork_of(session: &SessionUid) -> ForkRequest {
    ForkRequest {
        session: session.clone(),
        at_seq: 0,
        count: 0,
        labels: BTreeMap::new(),
        child_names: Vec::new(),
        identity: None,
    }
}

pub(super) fn range(session: &SessionUid, from_seq: i64, to_seq: i64) -> ReplayRequest {
    ReplayRequest { session: session.clone(), from_seq, to_seq, verify: false }
}

pub(super) fn positions(records: &[LogRecord]) -> Vec<u64> {
    records.iter().map(|record| record.seq.get()).collect()
}
