//! A sessions service in memory that remembers what it was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    ApprovalRef, ApproveRequest, Approved, BoxStream, Caller, CancelRequest, Classify as _,
    ComputeState, Condition, CreateRequest, DeletionState, Delta, DescribeReport, Event, EventBody,
    ExecRequest, ExecState, ExecStream, ExecUpdate, ExecutionId, Fence, FollowRequest,
    FollowUpdate, ForkRequest, Hash, LastError, ListPage, ListRequest, LogRecord, Message, Outcome,
    ReplayRequest, RequestId, ResolveRequest, ResumeRequest, Seq, Session, SessionUid, Sessions,
    SessionsError, Standing, Timestamp, WarmHost, async_trait,
};
use tokio::sync::Notify;

pub(crate) fn uid(text: &str) -> SessionUid {
    SessionUid::new(text).unwrap()
}

pub(crate) fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("request-1").unwrap())
}

pub(crate) fn session(text: &str) -> Session {
    Session {
        uid: uid(text),
        project: "default".to_owned(),
        name: "n".to_owned(),
        harness: "echo".to_owned(),
        model: String::new(),
        version: 1,
        create_time: Timestamp { seconds: 10, nanos: 11 },
        update_time: Timestamp { seconds: 12, nanos: 13 },
        exec_state: ExecState::Completed,
        compute_state: ComputeState::Live,
        deletion_state: DeletionState::Active,
        pending_approval: Some(ApprovalRef {
            execution_id: "e".to_owned(),
            tool_call_id: "t".to_owned(),
            request_seq: 3,
        }),
        last_seq: Seq::new(4),
        parent_uid: None,
        fork_seq: Seq::ZERO,
        identity: None,
        origin: None,
        labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        annotations: BTreeMap::new(),
        owner: None,
        fault: None,
    }
}

pub(crate) fn record(seq: u64, text: &str) -> LogRecord {
    LogRecord {
        seq: Seq::new(seq),
        prev_hash: (seq > 1).then(|| Hash::new([1; 32])),
        hash: Hash::new([2; 32]),
        fence: Fence::new(1),
        event: Event::of(EventBody::Input(Some(Message::user(text)))),
        notes: BTreeMap::from([("commit_time".to_owned(), "now".to_owned())]),
    }
}

pub(crate) fn delta(chunk: &str, done: bool) -> Delta {
    Delta {
        execution_id: ExecutionId::new("e").unwrap(),
        part_index: 0,
        chunk: chunk.to_owned(),
        done,
    }
}

pub(crate) const FAULT: &str = "seq 3: 100 % \u{e9}\n";

pub(crate) fn report(text: &str) -> DescribeReport {
    DescribeReport {
        session: Session { fault: Some(FAULT.to_owned()), ..session(text) },
        standing: Standing::Damaged,
        summary: "its journal is ill-formed".to_owned(),
        execution_id: Some(ExecutionId::new("e").unwrap()),
        holder: None,
        running: None,
        open_call: None,
        last_error: Some(LastError { seq: Seq::new(2), code: 13, message: "m".to_owned() }),
        durability: None,
        warm_host: None,
        next_commands: vec!["verify".to_owned()],
    }
}

#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) seen: Mutex<Vec<String>>,
    pub(crate) callers: Mutex<Vec<Caller>>,
    /// Notified when a stream of a hanging turn is dropped.
    pub(crate) detached: Arc<Notify>,
}

struct Detach(Arc<Notify>);

impl Drop for Detach {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Fake {
    fn note(&self, caller: &Caller, request: impl std::fmt::Debug) {
        let line = format!("{} {} {request:?}", caller.method, caller.request_id.as_str());
        self.seen.lock().unwrap().push(line);
        self.callers.lock().unwrap().push(caller.clone());
    }

    pub(crate) fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

/// A request that is named after a condition meets it.
fn fail_as_named(name: &str) -> Result<(), SessionsError> {
    let (code, outcome) = match name.strip_suffix("?") {
        Some(code) => (code, Outcome::Unknown),
        None => (name, Outcome::NotApplied),
    };
    match Condition::from_code(code) {
        None => Ok(()),
        Some(condition) => Err(SessionsError::new(condition, format!("about {code}"))
            .with_outcome(outcome)
            .on(&uid("sess-1"))),
    }
}

#[async_trait]
impl Sessions for Fake {
    async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<Session, SessionsError> {
        self.note(caller, &request);
        fail_as_named(&request.name)?;
        Ok(session("sess-1"))
    }

    async fn get(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        self.note(caller, uid);
        if uid.as_str() == "unknown" {
            let error = SessionsError::new(Condition::SessionNotFound, "no such session");
            return Err(error.on(uid));
        }
        let fault = (uid.as_str() == "faulty").then(|| FAULT.to_owned());
        Ok(Session { fault, ..session(uid.as_str()) })
    }

    async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage, SessionsError> {
        self.note(caller, &request);
        Ok(ListPage {
            sessions: vec![session("sess-1"), session("sess-2")],
            next_page_token: "next".to_owned(),
        })
    }

    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        let address = session.as_str().strip_prefix("warm-at-")?;
        let (name, address) = ("näme".to_owned(), address.to_owned());
        Some(WarmHost { name, address, is_here: false })
    }

    async fn describe(
        &self,
        caller: &Caller,
        uid: &SessionUid,
    ) -> Result<DescribeReport, SessionsError> {
        self.note(caller, uid);
        fail_as_named(uid.as_str())?;
        Ok(report(uid.as_str()))
    }

    async fn exec(
        &self,
        caller: &Caller,
        request: ExecRequest,
    ) -> Result<ExecStream, SessionsError> {
        self.note(caller, &request);
        fail_as_named(&request.harness)?;
        if request.harness == "never-begins" {
            std::future::pending::<()>().await;
        }
        let mut updates = vec![Ok(ExecUpdate::Session(Box::new(session("sess-1"))))];
        match request.harness.as_str() {
            "late" => updates.push(Err(SessionsError::new(Condition::Conflict, "head moved"))),
            "hang" => {
                let detach = Detach(Arc::clone(&self.detached));
                let never = stream::unfold(detach, |detach| async move {
                    std::future::pending::<()>().await;
                    drop(detach);
                    None
                });
                return Ok(Box::pin(stream::iter(updates).chain(never)));
            }
            _ => {
                updates.push(Ok(ExecUpdate::Delta(delta("he", false))));
                updates.push(Ok(ExecUpdate::Delta(delta("", true))));
                let text = request.inputs.first().map(Message::plain_text);
                let record = record(1, &text.unwrap_or_default());
                updates.push(Ok(ExecUpdate::Record(Box::new(record))));
            }
        }
        Ok(Box::pin(stream::iter(updates)))
    }

    async fn resume(
        &self,
        caller: &Caller,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        self.note(caller, &request);
        if request.session.as_str() == "never-begins" {
            std::future::pending::<()>().await;
        }
        let record = || Ok(ExecUpdate::Record(Box::new(record(1, "x"))));
        let done = |text: &str| Ok(ExecUpdate::Session(Box::new(session(text))));
        if request.session.as_str() == "hang" {
            return Ok(Box::pin(stream::iter([record()]).chain(stream::pending())));
        }
        let updates = match request.session.as_str() {
            "broken" => vec![record()],
            "fails" => {
                vec![record(), Err(SessionsError::new(Condition::HarnessMismatch, "another"))]
            }
            other => vec![done("early"), record(), done(other)],
        };
        Ok(Box::pin(stream::iter(updates)))
    }

    async fn follow(
        &self,
        caller: &Caller,
        request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        self.note(caller, &request);
        fail_as_named(request.session.as_str())?;
        let updates = stream::iter([
            Ok(FollowUpdate::Record(Box::new(record(5, "a")))),
            Ok(FollowUpdate::Delta(delta("he", false))),
            Ok(FollowUpdate::DeltaGap),
            Ok(FollowUpdate::Heartbeat),
        ]);
        Ok(match request.session.as_str() {
            "hang" => Box::pin(updates.chain(stream::pending())),
            _ => {
                let end = SessionsError::new(Condition::Unauthenticated, "the token expired");
                Box::pin(updates.chain(stream::iter([Err(end)])))
            }
        })
    }

    async fn replay(
        &self,
        caller: &Caller,
        request: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        self.note(caller, &request);
        let mut records = vec![Ok(record(1, "a")), Ok(record(2, "b"))];
        if request.session.as_str() == "hang" {
            return Ok(Box::pin(stream::iter(records).chain(stream::pending())));
        }
        if request.verify {
            records
                .push(Err(SessionsError::new(Condition::JournalTampered, "seq 3 does not hold")));
        }
        Ok(Box::pin(stream::iter(records)))
    }

    async fn approve(
        &self,
        caller: &Caller,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        self.note(caller, &request);
        Ok(Approved { session: session("sess-1"), decision: record(9, "d") })
    }

    async fn resolve(
        &self,
        caller: &Caller,
        request: ResolveRequest,
    ) -> Result<Session, SessionsError> {
        self.note(caller, &request);
        fail_as_named(&request.tool_call_id)?;
        if request.session.as_str() == "unknown" {
            let error = SessionsError::new(Condition::SessionNotFound, "no such session");
            return Err(error.on(&request.session));
        }
        Ok(session(request.session.as_str()))
    }

    async fn suspend(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        self.note(caller, uid);
        Ok(session(uid.as_str()))
    }

    async fn fork(
        &self,
        caller: &Caller,
        request: ForkRequest,
    ) -> Result<Vec<Session>, SessionsError> {
        self.note(caller, &request);
        if request.identity.is_some() {
            let text = "a fork has no identity";
            return Err(SessionsError::new(Condition::InvalidArgument, text));
        }
        Ok(vec![session("child-1"), session("child-2")])
    }

    async fn cancel(
        &self,
        caller: &Caller,
        request: CancelRequest,
    ) -> Result<Session, SessionsError> {
        self.note(caller, &request);
        Err(SessionsError::new(Condition::Unimplemented, "not yet"))
    }

    async fn delete(&self, caller: &Caller, uid: &SessionUid) -> Result<Session, SessionsError> {
        self.note(caller, uid);
        Err(SessionsError::new(Condition::Unimplemented, "not yet"))
    }
}

#[track_caller]
pub(crate) fn assert_condition(error: &SessionsError, condition: Condition) {
    assert_eq!(error.condition(), condition, "{error}");
    assert_eq!(error.code(), condition.code());
}
