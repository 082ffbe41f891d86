//! Turns, their watchers, forks and exports.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    Caller, Classify as _, Condition, CreateRequest, Descriptor, EventSink, ExecRequest, ExecState,
    ExecUpdate, ExportRequest, ForkRequest, Harness, HarnessError, Head, ListRequest, Message,
    Operations as _, OsEntropy, Outcome, RequestId, Runtime, Seq, Session, Sessions as _,
    SessionsError, Signal, Start, SystemClock, async_trait,
};
use mainspring_controller::ApprovedRetry;
use mainspring_eventlog::{EventLog, Holder, KvOptions, KvStore, MemoryEngine};
use mainspring_harness::EchoModel;
use mainspring_placement::{Connectors, Harnesses, Placer, PlacerOptions};
use mainspring_runtime_local::LocalRuntime;
use mainspring_sessions::{ExecStateProjection, Service, ServiceOptions};
use mainspring_testkit::{CutMode, CutStore};

/// Says as many things as its config tells, then waits to be let go.
#[derive(Debug, Default)]
struct Talker {
    hold: Option<Signal<()>>,
}

#[async_trait]
impl Harness for Talker {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "talker".to_owned(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let count: usize = String::from_utf8_lossy(&start.config).parse().unwrap_or(0);
        for n in 0..count {
            sink.output(n.to_string()).await?;
        }
        if let Some(hold) = &self.hold {
            hold.wait().await;
        }
        Ok(())
    }
}

fn log() -> Arc<dyn EventLog> {
    Arc::new(KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap())
}

fn service(log: Arc<dyn EventLog>, harness: Talker) -> Service {
    let runtime: Arc<dyn Runtime> =
        Arc::new(LocalRuntime::builder().built_in("talker", Arc::new(harness)).build().unwrap());
    let placer = Placer::new(PlacerOptions {
        name: "talker".to_owned(),
        runtime,
        connector: Arc::new(Connectors::in_process()),
        model: Arc::new(EchoModel),
        policy: None,
        tools: None,
        approved_retry: ApprovedRetry::DeclaredOnly,
        descriptor_id: String::new(),
        holder: Holder { id: "t".to_owned(), name: "t".to_owned() },
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
    });
    Service::new(ServiceOptions {
        log,
        harnesses: Harnesses::new(placer),
        project: "default".to_owned(),
        holder: Holder { id: "t".to_owned(), name: "t".to_owned() },
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        idle: Duration::from_secs(300),
        exec_state: ExecStateProjection::default(),
        authorizer: None,
        approval_ttl: None,
        approval_policy: None,
        reclaim: None,
    })
}

fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("t").unwrap())
}

async fn created(service: &Service) -> Session {
    service.create(&caller(), CreateRequest::default()).await.unwrap()
}

fn turn(session: &Session, outputs: usize) -> ExecRequest {
    ExecRequest {
        session: Some(session.uid.clone()),
        inputs: vec![Message::user("go")],
        config: outputs.to_string().into(),
        ..ExecRequest::default()
    }
}

async fn positions(
    stream: impl futures_util::Stream<Item = Result<ExecUpdate, SessionsError>>,
) -> Vec<u64> {
    let updates: Vec<_> = stream.collect().await;
    let records = updates.into_iter().filter_map(|update| match update.unwrap() {
        ExecUpdate::Record(record) => Some(record.seq.get()),
        _ => None,
    });
    records.collect()
}

/// A watcher that reads nothing until the turn is over still gets each record once.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_lags_misses_nothing() {
    let service = service(log(), Talker::default());
    let session = created(&service).await;
    let stream = service.exec(&caller(), turn(&session, 2_000)).await.unwrap();
    service.idle().await;
    assert_eq!(positions(stream).await, (1..=2_003).collect::<Vec<_>>());
}

/// A stream ends with its own turn, whatever follows on the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_its_own_turn_alone() {
    let service = service(log(), Talker::default());
    let session = created(&service).await;
    let first = service.exec(&caller(), turn(&session, 1_000)).await.unwrap();
    service.idle().await;
    let second = service.exec(&caller(), turn(&session, 1)).await.unwrap();
    service.idle().await;
    assert_eq!(positions(first).await.last(), Some(&1_003));
    assert_eq!(positions(second).await, [1_004, 1_005, 1_006, 1_007]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_session_is_busy_running_and_can_be_forked() {
    let hold = Signal::default();
    let service = service(log(), Talker { hold: Some(hold.clone()) });
    let session = created(&service).await;
    let mut stream = service.exec(&caller(), turn(&session, 1)).await.unwrap();
    for _ in 0..4 {
        stream.next().await.unwrap().unwrap();
    }
    let busy = service.exec(&caller(), turn(&session, 0)).await.err().unwrap();
    assert_eq!(busy.condition(), Condition::SessionBusy);
    assert_eq!(busy.outcome(), Outcome::NotApplied);
    let seen = service.get(&caller(), &session.uid).await.unwrap();
    assert_eq!(seen.exec_state, ExecState::Running);
    let fork = ForkRequest {
        session: session.uid.clone(),
        at_seq: 2,
        count: 2,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    };
    let children = service.fork(&caller(), fork).await.unwrap();
    assert_eq!(children.len(), 2);
    hold.set(());
    assert_eq!(positions(stream).await, [4], "the parent's turn ran on");
    let done = service.get(&caller(), &session.uid).await.unwrap();
    assert_eq!(done.exec_state, ExecState::Completed);
}

/// A reply that the log lost is settled, not passed on.
#[tokio::test(start_paused = true)]
async fn lost_replies_are_settled() {
    for cut in ["after-create-1", "after-mint-1", "after-append-1", "after-append-3"] {
        let log = log();
        let faulty = CutStore::new(Arc::clone(&log), cut.parse().unwrap(), CutMode::Error);
        let service = service(Arc::new(faulty), Talker::default());
        let session = created(&service).await;
        let stream = service.exec(&caller(), turn(&session, 2)).await.unwrap();
        assert_eq!(positions(stream).await, [1, 2, 3, 4, 5], "{cut}");
        let all = service.list(&caller(), ListRequest::default()).await.unwrap();
        assert_eq!(all.sessions.len(), 1, "{cut}");
    }
}

#[tokio::test]
async fn a_draining_host_starts_nothing() {
    let service = service(log(), Talker::default());
    let session = created(&service).await;
    service.drain();
    let refused = service.exec(&caller(), turn(&session, 0)).await.err().unwrap();
    assert_eq!(refused.condition(), Condition::Draining);
    let refused = service.create(&caller(), CreateRequest::default()).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::Draining);
    service.get(&caller(), &session.uid).await.unwrap();
}

#[tokio::test]
async fn an_export_begins_after_any_record_that_the_journal_passes_through() {
    let service = service(log(), Talker::default());
    let session = created(&service).await;
    let updates = service.exec(&caller(), turn(&session, 3)).await.unwrap();
    updates.for_each(|_| async {}).await;
    let export = async |after| {
        let request = ExportRequest { session: session.uid.clone(), after };
        let lines = service.export(&caller(), request).await?;
        Ok::<_, SessionsError>(lines.map(Result::unwrap).collect::<Vec<_>>().await)
    };
    let whole = export(Head::EMPTY).await.unwrap();
    let mut verifier = mainspring_eventlog::export::LineVerifier::default();
    for at in 0..whole.len() {
        assert_eq!(export(verifier.records_head()).await.unwrap(), whole[at..], "after {at}");
        verifier.push(&whole[at]).unwrap();
    }
    let head = verifier.records_head();
    assert_eq!(export(head).await.unwrap().len(), 1, "the head alone");
    let hash = head.hash.unwrap();
    let last = head.seq;
    for at in [Seq::new(1), Seq::new(last.get() - 1), last.next(), Seq::new(1_000)] {
        let error = export(Head::at(at, hash)).await.unwrap_err();
        assert_eq!(error.condition(), Condition::Conflict, "{at}");
    }
}
