//! What placement asks of a runtime, and in which order.

mod cases;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mainspring_api::{
    Address, AppendId, CancelReason, ComputeState, ComputeStatus, Condition, Descriptor, Event,
    EventBody, ExecutionId, ExecutionStart, Fence, Fidelity, HarnessConnector, Head, InProcess,
    Incarnation, Mediation, Message, ModelPolicy, OsEntropy, Runtime, RuntimeCapabilities,
    RuntimeError, Seq, SessionHistory, SessionSpec, SessionUid, SnapshotRef, SystemClock,
    Timestamp, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope, async_trait,
};
use mainspring_controller::{ApprovedRetry, ControllerError, Expected, Journal, Turn, TurnStop};
use mainspring_eventlog::{
    Batch, EventLog, Holder, KvOptions, KvStore, Level, LogError, MemoryEngine, NewRecord,
    NewSession,
};
use mainspring_harness::{Counter, Echo, EchoModel};
use mainspring_placement::{
    Call, Connectors, Guard, Operation, PlacementError, Placer, PlacerOptions,
};

/// Runs one harness in process, knows no descriptor, and writes down what it is asked.
#[derive(Debug)]
struct Recording {
    harness: Arc<dyn mainspring_api::Harness>,
    calls: Mutex<Vec<String>>,
    probe: Option<Descriptor>,
    no_snapshot: AtomicBool,
}

impl Recording {
    fn note(&self, what: &str, uid: &SessionUid) {
        let uid = if uid.as_str().starts_with("probe-") { "probe" } else { uid.as_str() };
        self.calls.lock().unwrap().push(format!("{what} {uid}"));
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

#[async_trait]
impl Runtime for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities::default()
    }

    async fn probe(&self, _spec: &SessionSpec) -> Result<Option<Descriptor>, RuntimeError> {
        Ok(self.probe.clone())
    }

    async fn create(
        &self,
        spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("create", spec.uid.as_ref().unwrap());
        Ok(Incarnation {
            address: Address::InProcess(InProcess::harness(Arc::clone(&self.harness))),
            worker: String::new(),
            compute_instance: String::new(),
            fence: mainspring_api::Fence::NONE,
            live_describer: false,
        })
    }

    async fn snapshot(
        &self,
        uid: &SessionUid,
        _head: Seq,
        _fidelity: Fidelity,
    ) -> Result<SnapshotRef, RuntimeError> {
        self.note("snapshot", uid);
        if self.no_snapshot.load(Ordering::Relaxed) {
            return Err(RuntimeError::Unsupported { runtime: "recording", what: "a snapshot" });
        }
        Ok(SnapshotRef { local: uid.to_string(), ..SnapshotRef::default() })
    }

    async fn restore(
        &self,
        from: &SnapshotRef,
        spec: &SessionSpec,
        history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note(&format!("restore {} as", from.local), spec.uid.as_ref().unwrap());
        self.create(spec, history).await
    }

    async fn fork(
        &self,
        _from: &SnapshotRef,
        child: &SessionSpec,
        history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.create(child, history).await
    }

    async fn stop(&self, uid: &SessionUid) -> Result<(), RuntimeError> {
        self.note("stop", uid);
        Ok(())
    }

    async fn status(&self, _uid: &SessionUid) -> Result<ComputeStatus, RuntimeError> {
        Ok(ComputeStatus {
            state: ComputeState::None,
            instance: String::new(),
            reason: String::new(),
        })
    }

    async fn list(&self) -> Result<Vec<SessionUid>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
}

struct Fixture {
    runtime: Arc<Recording>,
    placer: Arc<Placer>,
    journal: Journal,
    guard: Guard,
}

async fn fixture(harness: impl mainspring_api::Harness) -> Fixture {
    fixture_of(harness, "").await
}

/// A session whose model is `model`, under a policy of two.
async fn fixture_of(harness: impl mainspring_api::Harness, model: &str) -> Fixture {
    fixture_with(harness, model, None).await
}

async fn fixture_with(
    harness: impl mainspring_api::Harness,
    model: &str,
    tools: Option<Arc<dyn ToolExecutor>>,
) -> Fixture {
    fixture_from(harness, Setup { model: model.to_owned(), tools, ..Setup::default() }).await
}

/// What a fixture is made of beside its harness.
struct Setup {
    log: Arc<dyn EventLog>,
    model: String,
    tools: Option<Arc<dyn ToolExecutor>>,
    connector: Arc<dyn HarnessConnector>,
    descriptor_id: String,
    /// What the runtime knows of the harness without compute.
    probe: Option<Descriptor>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            log: Arc::new(KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap()),
            model: String::new(),
            tools: None,
            connector: Arc::new(Connectors::in_process()),
            descriptor_id: String::new(),
            probe: None,
        }
    }
}

async fn fixture_from(harness: impl mainspring_api::Harness, setup: Setup) -> Fixture {
    let Setup { log, model, tools, connector, descriptor_id, probe } = setup;
    let uid = SessionUid::new("s").unwrap();
    let id = AppendId::random(&OsEntropy);
    let session = NewSession { model, ..NewSession::bare(uid.clone(), "default") };
    log.create(id, session).await.unwrap();
    let (calls, no_snapshot) = Default::default();
    let runtime = Arc::new(Recording { harness: Arc::new(harness), calls, probe, no_snapshot });
    let placer = placer("h", &runtime, connector, descriptor_id, tools);
    Fixture { runtime, placer, journal: Journal::new(log, uid), guard: Guard::default() }
}

fn placer(
    name: &str,
    runtime: &Arc<Recording>,
    connector: Arc<dyn HarnessConnector>,
    descriptor_id: String,
    tools: Option<Arc<dyn ToolExecutor>>,
) -> Arc<Placer> {
    Placer::new(PlacerOptions {
        name: name.to_owned(),
        runtime: Arc::clone(runtime) as _,
        connector,
        model: Arc::new(EchoModel),
        policy: Some(ModelPolicy {
            default: "echo".to_owned(),
            allowed: ["echo".to_owned(), "large".to_owned()].into(),
        }),
        tools,
        approved_retry: ApprovedRetry::DeclaredOnly,
        descriptor_id,
        holder: Holder { id: "x".to_owned(), name: "x".to_owned() },
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
    })
}

fn call() -> Call {
    Call::default()
}

impl Fixture {
    async fn exec(&self, turn: Turn, call: Call) -> Result<(), PlacementError> {
        let uid = self.journal.uid();
        let lease = self.guard.try_acquire(uid, Operation::Exec, Timestamp::default()).unwrap();
        self.placer.exec(&lease, &self.journal, turn, call).await.map(drop)
    }

    /// Position of the last record, and the fence.
    async fn row(&self) -> (u64, u64) {
        let row = self.journal.log().get(self.journal.uid(), Level::Committed).await.unwrap();
        (row.view.head.seq.get(), row.fence.fence.get())
    }
}

fn hello() -> Turn {
    Turn::new(vec![Message::user("hello")])
}

/// A fork asks whether its harness can be placed while the parent's turn runs on.
#[tokio::test]
async fn admission_touches_no_compute_of_the_session() {
    let f = fixture(Echo).await;
    f.placer.admit(&f.journal, &call()).await.unwrap();
    assert_eq!(f.runtime.calls(), ["create probe", "stop probe"]);
    f.placer.admit(&f.journal, &call()).await.unwrap();
    assert!(f.runtime.calls().is_empty(), "it is known by now");
    assert_eq!(f.row().await, (0, 0));
}

#[tokio::test]
async fn a_turn_that_expects_another_head_costs_nothing() {
    let f = fixture(Echo).await;
    let turn = Turn { expected: Expected::Seq(Seq::new(3)), ..hello() };
    let refused = f.exec(turn, call()).await;
    let conflict = ControllerError::Log(LogError::Conflict {
        expected: mainspring_api::Head { seq: Seq::new(3), hash: None },
        head: mainspring_api::Head::EMPTY,
    });
    assert_eq!(refused.unwrap_err().to_string(), conflict.to_string());
    assert!(f.runtime.calls().is_empty());
    assert_eq!(f.row().await, (0, 0), "neither record nor fence");
}

#[tokio::test]
async fn an_unplaceable_harness_leaves_neither_record_nor_fence() {
    let f = fixture(Counter::new()).await;
    for _ in 0..2 {
        let refused = f.exec(hello(), call()).await;
        assert!(matches!(refused, Err(PlacementError::Unplaceable { .. })), "{refused:?}");
        assert_eq!(f.row().await, (0, 0));
    }
    assert_eq!(f.runtime.calls(), ["create s"], "the second time it is known before");
}

#[tokio::test]
async fn a_caller_that_is_gone_gets_no_turn() {
    let f = fixture(Echo).await;
    let call = call();
    call.gone.set(());
    let refused = f.exec(hello(), call).await;
    assert!(
        matches!(refused, Err(PlacementError::AdmissionInterrupted { out_of_time: false })),
        "{refused:?}"
    );
    assert_eq!(f.row().await, (0, 0));
    assert!(f.guard.is_empty());
}

#[tokio::test]
async fn a_turn_a_suspend_and_a_resume_record_in_order() {
    let f = fixture(Echo).await;
    f.exec(hello(), call()).await.unwrap();
    let uid = f.journal.uid();
    let lease = f.guard.try_acquire(uid, Operation::Suspend, Timestamp::default()).unwrap();
    f.placer.suspend(&lease, &f.journal, call()).await.unwrap();
    f.placer.resume(&lease, &f.journal, call()).await.unwrap();
    assert_eq!(f.runtime.calls(), ["create s", "snapshot s", "restore s as s", "create s"]);
    assert_eq!(f.row().await, (7, 3), "one fence each");
}

/// The session's model is the default of its turns, where the policy allows it.
#[tokio::test]
async fn a_turn_asks_for_its_sessions_model() {
    for (model, recorded) in [("", "echo"), ("large", "large")] {
        let f = fixture_of(Echo, model).await;
        f.exec(hello(), call()).await.unwrap();
        let row = f.journal.log().get(f.journal.uid(), Level::Committed).await.unwrap();
        assert_eq!(row.view.latest.unwrap().start.unwrap().model, recorded);
    }
    let f = fixture_of(Echo, "huge").await;
    let refused = f.exec(hello(), call()).await.unwrap_err();
    assert!(
        matches!(&refused, PlacementError::Controller(ControllerError::ModelNotAllowed(_))),
        "{refused}"
    );
    assert_eq!(f.row().await.0, 0, "nothing was recorded");
}

/// A host that goes down begins no turn that waits for its compute.
#[tokio::test]
async fn a_turn_that_is_stopped_before_it_begins_records_nothing() {
    for (stop, condition) in [
        (TurnStop::Interrupt, Condition::Draining),
        (TurnStop::Cancel(CancelReason::User), Condition::Cancelled),
    ] {
        let f = fixture(Echo).await;
        let call = call();
        call.stop.set(stop);
        let refused = f.exec(hello(), call).await.unwrap_err();
        assert_eq!(refused.condition(), condition);
        assert_eq!(f.row().await, (0, 0));
    }
}

/// Has tools of which nobody knows whether they may be repeated.
#[derive(Debug)]
struct Unrepeatable;

#[async_trait]
impl ToolExecutor for Unrepeatable {
    async fn execute(&self, _: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        panic!("{} was run", call.tool);
    }

    fn is_repeatable(&self, _: &str) -> bool {
        false
    }

    fn offers(&self, _: &str) -> bool {
        true
    }
}

/// The journal alone says that a call's outcome is unknown: no compute is brought back for that.
#[tokio::test]
async fn an_unknown_outcome_is_told_before_any_compute_is_touched() {
    let f = fixture_with(Echo, "", Some(Arc::new(Unrepeatable))).await;
    let id = ExecutionId::new("00000000000000aa").unwrap();
    let start = ExecutionStart { input_count: Some(0), ..ExecutionStart::default() };
    let call_of = ToolCall {
        id: "c1".to_owned(),
        tool: "mail".to_owned(),
        args: None,
        mediation: Mediation::ControllerMediated,
        idempotency_key: "k1".to_owned(),
    };
    let records = [EventBody::ExecutionStart(Some(start)), EventBody::ToolCall(Some(call_of))]
        .map(|body| NewRecord::from(Event::in_execution(&id, body)));
    let batch = Batch::link(Head::EMPTY, records.into()).unwrap();
    let (log, uid) = (f.journal.log(), f.journal.uid());
    log.append(uid, AppendId::random(&OsEntropy), Fence::NONE, &batch).await.unwrap();
    let lease = f.guard.try_acquire(uid, Operation::Resume, Timestamp::default()).unwrap();
    let refused = f.placer.resume(&lease, &f.journal, call()).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::UnansweredToolCall);
    assert!(f.runtime.calls().is_empty());
    assert_eq!(f.row().await, (2, 0), "neither record nor fence");
}
