//! A service over a log in memory, and what tests do to it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, ApprovalPolicy, ApprovalRef, ApproveRequest, Approved, Authorizer, Caller,
    CancelReason, CancelRequest, Clock, CreateRequest, EventBody, ExecRequest, ExecUpdate,
    LifecycleKind, LogRecord, Message, ModelProvider, OsEntropy, RequestId, ResumeRequest, Seq,
    Session, SessionUid, Sessions as _, SessionsError, Timestamp, async_trait,
};
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::{
    EventLog, Holder, ImportRecord, ImportRow, KvOptions, KvStore, Level, MemoryEngine, NewSession,
    ReadLimit, StoredRecord,
};
use mainspring_harness::EchoModel;
use mainspring_placement::{Connectors, Harnesses, Placer, PlacerOptions};
use mainspring_sessions::{ExecStateProjection, Reclaim, Service, ServiceOptions};
use mainspring_testkit::HookedLog;
use tokio::time::Instant;

use crate::doubles::{AfterRead, Compute, Tools};

/// Wall time that goes as the runtime's, which tests hold and move.
#[derive(Debug)]
pub(crate) struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let passed = self.0.elapsed();
        Timestamp {
            seconds: 1_700_000_000 + i64::try_from(passed.as_secs()).unwrap(),
            nanos: passed.subsec_nanos(),
        }
    }
}

/// One store, and services over it.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) compute: Arc<Compute>,
    pub(crate) model: Arc<dyn ModelProvider>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) reclaim: Option<Reclaim>,
    pub(crate) policy: Option<Arc<dyn ApprovalPolicy>>,
    pub(crate) clock: Arc<PausedClock>,
    pub(crate) exec_state: ExecStateProjection,
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(PausedClock(Instant::now()));
        let options = KvOptions { clock: Arc::clone(&clock) as _, ..KvOptions::default() };
        Self {
            log: Arc::new(KvStore::open(MemoryEngine::default(), options).unwrap()),
            tools: Arc::default(),
            compute: Arc::default(),
            model: Arc::new(EchoModel),
            ttl: None,
            reclaim: None,
            policy: None,
            clock,
            exec_state: ExecStateProjection::default(),
            authorizer: None,
        }
    }

    /// The same store, with a step between reads.
    pub(crate) fn stepping(&self) -> (Self, Arc<HookedLog<AfterRead>>) {
        let log = Arc::new(HookedLog::with_hook(Arc::clone(&self.log), AfterRead::default()));
        (Self { log: Arc::clone(&log) as _, ..self.clone() }, log)
    }

    /// A host on this store.
    pub(crate) fn service(&self) -> Service {
        self.service_of("scripted")
    }

    /// A host that serves the harness under a name of its own.
    pub(crate) fn service_of(&self, name: &str) -> Service {
        self.service_by(name, &format!("h{name}"))
    }

    /// A host of its own, with this harness.
    pub(crate) fn service_by(&self, name: &str, holder: &str) -> Service {
        self.service_with(&[name], holder)
    }

    /// A host of its own that serves the harness under several names, of which
    /// the first is the default.
    pub(crate) fn service_with(&self, names: &[&str], holder: &str) -> Service {
        let holder = Holder { id: holder.to_owned(), name: format!("test/{holder}") };
        let mut placers = names.iter().map(|name| self.placer(name, &holder));
        let harnesses = Harnesses::new(placers.next().unwrap());
        placers.for_each(|placer| harnesses.add(placer).unwrap());
        Service::new(ServiceOptions {
            log: Arc::clone(&self.log),
            harnesses,
            project: "default".to_owned(),
            holder,
            clock: Arc::clone(&self.clock) as _,
            entropy: Arc::new(OsEntropy),
            idle: IDLE,
            exec_state: self.exec_state,
            authorizer: self.authorizer.clone(),
            approval_ttl: self.ttl,
            approval_policy: self.policy.clone(),
            reclaim: self.reclaim,
        })
    }

    fn placer(&self, name: &str, holder: &Holder) -> Arc<Placer> {
        Placer::new(PlacerOptions {
            name: name.to_owned(),
            runtime: Arc::clone(&self.compute) as _,
            connector: Arc::new(Connectors::in_process()),
            model: Arc::clone(&self.model),
            policy: None,
            tools: Some(Arc::clone(&self.tools) as _),
            approved_retry: ApprovedRetry::DeclaredOnly,
            descriptor_id: String::new(),
            holder: holder.clone(),
            clock: Arc::clone(&self.clock) as _,
            entropy: Arc::new(OsEntropy),
        })
    }

    /// Every record of a session.
    pub(crate) async fn records(&self, session: &SessionUid) -> Vec<LogRecord> {
        let limit = ReadLimit::default();
        let page = self.log.read(session, Seq::new(1), limit, Level::Strict).await.unwrap();
        page.iter().map(StoredRecord::to_record).collect::<Result<_, _>>().unwrap()
    }

    /// The kinds of a session's records.
    pub(crate) async fn journal(&self, session: &SessionUid) -> String {
        let records = self.records(session).await;
        records.iter().map(kind).collect::<Vec<_>>().join(" ")
    }

    /// A session of the first `count` records of another: as if its host had died there.
    pub(crate) async fn cut(&self, session: &SessionUid, count: usize) -> SessionUid {
        let uid = SessionUid::random(&OsEntropy);
        let limit = ReadLimit { records: count, ..ReadLimit::default() };
        let page = self.log.read(session, Seq::new(1), limit, Level::Strict).await.unwrap();
        let records: Vec<_> =
            page.into_iter().map(|record| Ok(ImportRecord::Record(record))).collect();
        let session = NewSession::bare(uid.clone(), "default");
        let row = ImportRow { session, create_time: None, parent: None };
        let records = Box::pin(futures_util::stream::iter(records));
        self.log.import(AppendId::random(&OsEntropy), row, records).await.unwrap();
        uid
    }

    /// The fence in force.
    pub(crate) async fn fence(&self, session: &SessionUid) -> u64 {
        self.log.get(session, Level::Strict).await.unwrap().fence.fence.get()
    }
}

pub(crate) const IDLE: Duration = Duration::from_secs(300);

pub(crate) fn kind(record: &LogRecord) -> &'static str {
    match &record.event.body {
        EventBody::ExecutionStart(_) => "ES",
        EventBody::Input(_) => "IN",
        EventBody::Output(_) => "OUT",
        EventBody::ToolCall(_) => "TC",
        EventBody::ToolResult(_) => "TR",
        EventBody::ApprovalRequest(_) => "AQ",
        EventBody::ApprovalResult(_) => "AR",
        EventBody::Error(_) => "ERR",
        EventBody::End(Some(end)) if end.state == "CANCELED" => "CANCELED",
        EventBody::End(Some(end)) if end.state == "FAILED" => "FAILED",
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

pub(crate) fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("t").unwrap())
}

/// What a stream showed.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) records: Vec<LogRecord>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) error: Option<SessionsError>,
}

impl Shown {
    pub(crate) fn kinds(&self) -> String {
        self.records.iter().map(kind).collect::<Vec<_>>().join(" ")
    }

    /// The last session, of a stream that ended well.
    #[track_caller]
    pub(crate) fn last(&self) -> &Session {
        assert!(self.error.is_none(), "{:?}", self.error);
        self.sessions.last().expect("a session was shown")
    }
}

pub(crate) async fn shown(stream: Result<mainspring_api::ExecStream, SessionsError>) -> Shown {
    let mut shown = Shown::default();
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => return Shown { error: Some(error), ..shown },
    };
    while let Some(update) = stream.next().await {
        match update {
            Ok(ExecUpdate::Session(session)) => shown.sessions.push(*session),
            Ok(ExecUpdate::Record(record)) => shown.records.push(*record),
            Ok(ExecUpdate::Delta(_)) => {}
            Err(error) => shown.error = Some(error),
        }
    }
    shown
}

pub(crate) fn turn(session: &SessionUid, script: &str) -> ExecRequest {
    ExecRequest {
        session: Some(session.clone()),
        inputs: vec![Message::user("go")],
        config: script.to_owned().into(),
        ..ExecRequest::default()
    }
}

/// What tests do to a service.
#[async_trait]
pub(crate) trait Drive {
    async fn created(&self) -> SessionUid;
    async fn run(&self, session: &SessionUid, script: &str) -> Shown;
    async fn resumed(&self, session: &SessionUid) -> Shown;
    /// A new session that is parked on the gate `c1`, with the rest of its script.
    async fn parked(&self, rest: &str) -> (SessionUid, ApprovalRef);
    async fn decided(
        &self,
        session: &SessionUid,
        approval: &ApprovalRef,
        approved: bool,
    ) -> Result<Approved, SessionsError>;
    async fn canceled(&self, session: &SessionUid) -> Result<Session, SessionsError>;
}

#[async_trait]
impl Drive for Service {
    async fn created(&self) -> SessionUid {
        self.create(&caller(), CreateRequest::default()).await.unwrap().uid
    }

    async fn run(&self, session: &SessionUid, script: &str) -> Shown {
        shown(self.exec(&caller(), turn(session, script)).await).await
    }

    async fn resumed(&self, session: &SessionUid) -> Shown {
        let request = ResumeRequest { session: session.clone(), approval_ttl: None };
        shown(self.resume(&caller(), request).await).await
    }

    async fn parked(&self, rest: &str) -> (SessionUid, ApprovalRef) {
        let session = self.created().await;
        let shown = self.run(&session, &format!("gate c1{rest}")).await;
        let approval = shown.last().pending_approval.clone().expect("it is parked");
        (session, approval)
    }

    async fn decided(
        &self,
        session: &SessionUid,
        approval: &ApprovalRef,
        approved: bool,
    ) -> Result<Approved, SessionsError> {
        let request = ApproveRequest {
            session: session.clone(),
            approval: approval.clone(),
            approved,
            reason: "because".to_owned(),
            identity: None,
            digest: None,
        };
        self.approve(&caller(), request).await
    }

    async fn canceled(&self, session: &SessionUid) -> Result<Session, SessionsError> {
        let row = self.log().get(session, Level::Strict).await.unwrap();
        let request = CancelRequest {
            session: session.clone(),
            execution_id: row.view.latest.expect("it has a turn").id,
            reason: CancelReason::User,
        };
        self.cancel(&caller(), request).await
    }
}
