//! A service over a log in memory, with a harness that does what its turn's
//! configuration says, and tools and compute that write down what is asked.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    Address, AppendId, ApprovalPolicy, ApprovalRef, ApproveRequest, Approved, Authorizer, Caller,
    CancelReason, CancelRequest, Clock, ComputeState, ComputeStatus, CreateRequest, Descriptor,
    EventBody, EventSink, ExecRequest, ExecUpdate, Fence, Fidelity, Harness, HarnessError,
    InProcess, Incarnation, LifecycleKind, LogRecord, Mediation, Message, OsEntropy, Outcome,
    RequestId, ResultCode, ResumeRequest, Runtime, RuntimeCapabilities, RuntimeError, Seq, Session,
    SessionHistory, SessionSpec, SessionUid, Sessions as _, SessionsError, Signal, SnapshotRef,
    Start, Timestamp, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope, async_trait,
};
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::{
    EventLog, Holder, ImportRecord, ImportRow, KvOptions, KvStore, Level, LogError, MemoryEngine,
    NewSession, ReadLimit, StoredRecord,
};
use mainspring_harness::EchoModel;
use mainspring_placement::{Connectors, Harnesses, Placer, PlacerOptions};
use mainspring_sessions::{ExecStateProjection, Service, ServiceOptions};
use mainspring_testkit::{HookedLog, LogCall, LogHook};
use tokio::time::Instant;

/// Does the steps of its configuration: `gate ID`, `try ID`, `tool ID NAME`,
/// `out TEXT`, `fail TEXT`.
#[derive(Debug, Default)]
struct Scripted;

#[async_trait]
impl Harness for Scripted {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "scripted".to_owned(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let script = String::from_utf8_lossy(&start.config).into_owned();
        for step in script.split(", ").filter(|step| !step.is_empty()) {
            let words: Vec<&str> = step.split(' ').collect();
            match words[..] {
                ["out", text] => sink.output(text.to_owned()).await?,
                ["gate", id] => {
                    let result = sink.tool_call(call(id, "deploy", Mediation::RequiresApproval));
                    let result = result.await?;
                    let reason = result.decision.map(|decision| decision.reason);
                    let word = match result.code {
                        ResultCode::ApprovalDenied => "denied",
                        ResultCode::ExecutorError => "failed",
                        ResultCode::Unspecified => "done",
                    };
                    sink.output(format!("{id} {word} {}", reason.unwrap_or_default())).await?;
                }
                // Passes over the park.
                ["try", id] => {
                    let called = call(id, "deploy", Mediation::RequiresApproval);
                    let _ = sink.tool_call(called).await;
                }
                ["fail", what] => return Err(HarnessError::failed(what)),
                ["tool", id, name] => {
                    let called = call(id, name, Mediation::ControllerMediated);
                    sink.tool_call(called).await?;
                }
                _ => return Err(HarnessError::failed(format!("what is {step:?}?"))),
            }
        }
        Ok(())
    }
}

fn call(id: &str, tool: &str, mediation: Mediation) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        tool: tool.to_owned(),
        mediation,
        idempotency_key: format!("key-{id}"),
        ..ToolCall::default()
    }
}

/// Counts effects by key. The tool `slow` waits until it is let go.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    started: Mutex<Vec<String>>,
    done: Mutex<Vec<String>>,
    pub(crate) go: Signal<()>,
    pub(crate) entered: Signal<()>,
    pub(crate) repeatable: AtomicBool,
}

impl Tools {
    /// The keys of calls that were started, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }

    /// The keys of calls that came to their end.
    pub(crate) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

#[async_trait]
impl ToolExecutor for Tools {
    async fn execute(&self, _scope: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        self.started.lock().unwrap().push(call.idempotency_key.clone());
        if call.tool == "slow" {
            self.entered.set(());
            self.go.wait().await;
        }
        if call.tool == "lost" {
            let message = "the answer was lost".to_owned();
            return Err(ToolError { message, outcome: Outcome::Unknown, source: None });
        }
        self.done.lock().unwrap().push(call.idempotency_key.clone());
        Ok(ToolResult::default())
    }

    fn is_repeatable(&self, _tool: &str) -> bool {
        self.repeatable.load(Ordering::Relaxed)
    }

    fn offers(&self, _: &str) -> bool {
        true
    }
}

/// Runs the harness in process and writes down what it is asked.
#[derive(Debug, Default)]
pub(crate) struct Compute {
    calls: Mutex<Vec<&'static str>>,
    pub(crate) no_snapshot: AtomicBool,
    /// Whether a snapshot waits for `go`, once it has begun.
    pub(crate) slow_snapshot: AtomicBool,
    pub(crate) capturing: Signal<()>,
    pub(crate) go: Signal<()>,
}

impl Compute {
    fn note(&self, what: &'static str) {
        self.calls.lock().unwrap().push(what);
    }

    /// What it was asked since the last time.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

#[async_trait]
impl Runtime for Compute {
    fn name(&self) -> &'static str {
        "test"
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities::default()
    }

    async fn create(
        &self,
        _spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("create");
        Ok(incarnation())
    }

    async fn snapshot(
        &self,
        uid: &SessionUid,
        _head: Seq,
        _fidelity: Fidelity,
    ) -> Result<SnapshotRef, RuntimeError> {
        self.note("snapshot");
        if self.slow_snapshot.load(Ordering::Relaxed) {
            self.capturing.set(());
            self.go.wait().await;
        }
        if self.no_snapshot.load(Ordering::Relaxed) {
            return Err(RuntimeError::Unsupported { runtime: "test", what: "a snapshot" });
        }
        Ok(SnapshotRef { local: uid.to_string(), ..SnapshotRef::default() })
    }

    async fn restore(
        &self,
        _from: &SnapshotRef,
        _spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("restore");
        Ok(incarnation())
    }

    async fn fork(
        &self,
        _from: &SnapshotRef,
        _child: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("fork");
        Ok(incarnation())
    }

    async fn stop(&self, _uid: &SessionUid) -> Result<(), RuntimeError> {
        self.note("stop");
        Ok(())
    }

    async fn status(&self, _uid: &SessionUid) -> Result<ComputeStatus, RuntimeError> {
        let (instance, reason) = (String::new(), String::new());
        Ok(ComputeStatus { state: ComputeState::None, instance, reason })
    }

    async fn list(&self) -> Result<Vec<SessionUid>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
}

fn incarnation() -> Incarnation {
    Incarnation {
        address: Address::InProcess(InProcess::harness(Arc::new(Scripted))),
        worker: String::new(),
        compute_instance: String::new(),
        fence: Fence::NONE,
        live_describer: false,
    }
}

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
    pub(crate) ttl: Option<Duration>,
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
            ttl: None,
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
        let mut harnesses = Harnesses::new(placers.next().unwrap());
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
        })
    }

    fn placer(&self, name: &str, holder: &Holder) -> Arc<Placer> {
        Placer::new(PlacerOptions {
            name: name.to_owned(),
            runtime: Arc::clone(&self.compute) as _,
            connector: Arc::new(Connectors::in_process()),
            model: Arc::new(EchoModel),
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

/// Does something right after one of the reads that follow.
#[derive(Default)]
pub(crate) struct AfterRead(Mutex<Option<(usize, Step)>>);

type Step = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for AfterRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AfterRead")
    }
}

impl AfterRead {
    /// After the `nth` read from now, before its answer is seen.
    pub(crate) fn arm(&self, nth: usize, does: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap() = Some((nth, Box::pin(does)));
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }

    fn step(&self) -> Option<Step> {
        let mut armed = self.0.lock().unwrap();
        let (left, _) = armed.as_mut()?;
        *left -= 1;
        if *left == 0 { armed.take().map(|(_, does)| does) } else { None }
    }
}

impl LogHook for AfterRead {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        let step = if call == LogCall::Read { self.step() } else { None };
        let answer = run.await;
        if let Some(step) = step {
            step.await;
        }
        answer
    }
}

pub(crate) const IDLE: Duration = Duration::from_secs(300);

fn kind(record: &LogRecord) -> &'static str {
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
