//! The numbered cases of placement that need neither a service nor a wire.

use std::time::Duration;

use mainspring_api::{
    Capabilities, Classify as _, ConnectError, EventSink, Harness, HarnessConnection, HarnessError,
    LifecycleKind, Resumability, Start,
};
use mainspring_controller::{Controller, Options};
use mainspring_eventlog::{ReadLimit, SessionView, StartView};
use mainspring_placement::{Harnesses, can_place};
use mainspring_testkit::{HookedLog, LogCall, LogHook};
use tokio::time::Instant;

use super::*;

/// Describes itself, or does not, and fails in its run as it is told.
#[derive(Debug, Clone, Copy, Default)]
struct Moody {
    describes: Describes,
    runs: Runs,
}

#[derive(Debug, Clone, Copy, Default)]
enum Describes {
    #[default]
    Well,
    Never,
    Unavailable,
    Late,
    Badly,
}

#[derive(Debug, Clone, Copy, Default)]
enum Runs {
    #[default]
    Well,
    Unavailable,
    Late,
    Panics,
}

fn unavailable() -> HarnessError {
    HarnessError::Unavailable { message: "gone".to_owned() }
}

fn late() -> HarnessError {
    HarnessError::Deadline { message: "late".to_owned() }
}

#[async_trait]
impl Harness for Moody {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        match self.describes {
            Describes::Well => Ok(Descriptor { id: "moody".to_owned(), ..Descriptor::default() }),
            Describes::Never => std::future::pending().await,
            Describes::Unavailable => Err(unavailable()),
            Describes::Late => Err(late()),
            Describes::Badly => Err(HarnessError::failed("no")),
        }
    }

    async fn run(&self, _start: Start, _sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        match self.runs {
            Runs::Well => Ok(()),
            Runs::Unavailable => Err(unavailable()),
            Runs::Late => Err(late()),
            Runs::Panics => panic!("as it was told"),
        }
    }
}

/// A harness that needs memory, on a runtime that has none.
fn memory_harness() -> Descriptor {
    let capabilities = Capabilities {
        resumability: Resumability::RequiresMemorySnapshot,
        ..Capabilities::default()
    };
    Descriptor { id: "memory".to_owned(), capabilities, ..Descriptor::default() }
}

/// The kinds of a session's records, and the fences that they were written under.
async fn records(f: &Fixture) -> (String, Vec<u64>) {
    let (log, uid) = (f.journal.log(), f.journal.uid());
    let page = log.read(uid, Seq::new(1), ReadLimit::default(), Level::Strict).await.unwrap();
    let kinds = page.iter().map(|record| match record.event().unwrap().body {
        EventBody::ExecutionStart(_) => "ES",
        EventBody::Input(_) => "IN",
        EventBody::ModelCall(_) => "MC",
        EventBody::Output(_) => "OUT",
        EventBody::End(_) => "END",
        EventBody::Error(_) => "ERR",
        EventBody::Lifecycle(Some(body)) if body.kind == LifecycleKind::Suspend => "SUSPEND",
        EventBody::Lifecycle(Some(body)) if body.kind == LifecycleKind::Resume => "RESUME",
        _ => "?",
    });
    let kinds = kinds.collect::<Vec<_>>().join(" ");
    (kinds, page.iter().map(|record| record.fence.get()).collect())
}

impl Fixture {
    async fn suspend(&self) -> Result<(), PlacementError> {
        let uid = self.journal.uid();
        let lease = self.guard.try_acquire(uid, Operation::Suspend, Timestamp::default()).unwrap();
        self.placer.suspend(&lease, &self.journal, call()).await.map(drop)
    }

    async fn resume(&self) -> Result<(), PlacementError> {
        let uid = self.journal.uid();
        let lease = self.guard.try_acquire(uid, Operation::Resume, Timestamp::default()).unwrap();
        self.placer.resume(&lease, &self.journal, call()).await
    }
}

#[test]
fn u01_only_a_memory_harness_without_memory_snapshots_cannot_be_placed() {
    for resumability in [Resumability::StatelessReplay, Resumability::RequiresMemorySnapshot] {
        for memory_snapshot in [false, true] {
            // What else either side can do changes nothing.
            for other in [false, true] {
                let harness = Capabilities {
                    resumability,
                    fork_safe: other,
                    requires_gpu: other,
                    streaming: other,
                    reasoning_replay: other,
                };
                let runtime = RuntimeCapabilities {
                    memory_snapshot,
                    cow_fork: other,
                    attest: other,
                    gpu_state: other,
                };
                let fits = resumability == Resumability::StatelessReplay || memory_snapshot;
                assert_eq!(can_place(&harness, &runtime), fits, "{resumability:?}");
            }
        }
    }
}

#[tokio::test]
async fn u02_an_unplaceable_harness_that_is_known_starts_no_compute() {
    let setup = Setup { probe: Some(memory_harness()), ..Setup::default() };
    let f = fixture_from(Counter::new(), setup).await;
    let refused = f.exec(hello(), call()).await;
    assert!(matches!(refused, Err(PlacementError::Unplaceable { .. })), "{refused:?}");
    assert!(f.runtime.calls().is_empty());
    assert_eq!(f.row().await, (0, 0), "neither record nor fence");
}

#[tokio::test]
async fn u03_a_foreign_harness_is_not_judged_by_what_it_can_do() {
    for known in [true, false] {
        let probe = known.then(memory_harness);
        let descriptor_id = "expected".to_owned();
        let setup = Setup { probe, descriptor_id, ..Setup::default() };
        let f = fixture_from(Counter::new(), setup).await;
        let refused = f.exec(hello(), call()).await;
        let Err(PlacementError::DescriptorMismatch { expected, .. }) = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(expected, "expected");
        assert_eq!(f.row().await, (0, 0));
    }
}

/// Whose fault it is that nothing is known of the harness.
#[tokio::test(start_paused = true)]
async fn u04_a_harness_that_does_not_describe_itself() {
    const SECOND: Duration = Duration::from_secs(1);
    for (describes, goes_after, ends_after, condition, took) in [
        (Describes::Never, Some(2), None, Condition::Cancelled, 2),
        (Describes::Never, None, Some(3), Condition::DeadlineExceeded, 3),
        (Describes::Never, None, None, Condition::HarnessUnavailable, 10),
        (Describes::Never, None, Some(60), Condition::HarnessUnavailable, 10),
        (Describes::Unavailable, None, None, Condition::HarnessUnavailable, 0),
        (Describes::Late, None, None, Condition::HarnessUnavailable, 0),
        (Describes::Badly, None, None, Condition::HarnessDescribeFailed, 0),
    ] {
        let f = fixture(Moody { describes, ..Moody::default() }).await;
        let begun = Instant::now();
        let call = Call { deadline: ends_after.map(|s| begun + SECOND * s), ..call() };
        let gone = call.gone.clone();
        let leaves = async {
            if let Some(seconds) = goes_after {
                tokio::time::sleep(SECOND * seconds).await;
                gone.set(());
            }
        };
        let (refused, ()) = tokio::join!(f.exec(hello(), call), leaves);
        let refused = refused.unwrap_err();
        assert_eq!(refused.condition(), condition, "{describes:?}: {refused}");
        assert_eq!(begun.elapsed().as_secs(), took, "{describes:?}");
        let has_cause = std::error::Error::source(&refused).is_some();
        let is_callers = matches!(condition, Condition::Cancelled | Condition::DeadlineExceeded);
        assert_eq!(has_cause, !is_callers, "the harness's error is no cause of the caller's");
        assert_eq!(f.row().await, (0, 0));
    }
}

/// The controller's own question, where nothing was placed: the harness's failure is told as such.
#[tokio::test(start_paused = true)]
async fn u04_a_controller_that_has_to_ask() {
    for describes in [Describes::Never, Describes::Unavailable, Describes::Late, Describes::Badly] {
        let f = fixture(Echo).await;
        let options = Options::new(Arc::new(EchoModel));
        let controller = Controller::new(f.journal.clone(), options).await.unwrap();
        let harness: Arc<dyn Harness> = Arc::new(Moody { describes, ..Moody::default() });
        let refused = controller.exec(&harness, hello()).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::HarnessDescribeFailed, "{describes:?}");
        assert_eq!(f.row().await.0, 0);
    }
}

/// A turn that was cut by the same errors has failed: it is no call that may be
/// made again as it is.
#[tokio::test]
async fn u04_the_same_errors_of_a_run_are_failed_turns() {
    for runs in [Runs::Unavailable, Runs::Late] {
        let f = fixture(Moody { runs, ..Moody::default() }).await;
        let failed = f.exec(hello(), call()).await.unwrap_err();
        assert_eq!(failed.condition(), Condition::HarnessFailed, "{runs:?}");
        assert_eq!(failed.kind(), mainspring_api::ErrorKind::Internal);
        assert_eq!(records(&f).await.0, "ES IN ERR");
    }
}

#[tokio::test]
async fn u05_a_turn_is_written_under_the_fence_that_was_acquired_for_it() {
    let f = fixture(Echo).await;
    f.exec(hello(), call()).await.unwrap();
    f.exec(hello(), call()).await.unwrap();
    let (kinds, fences) = records(&f).await;
    assert_eq!(kinds, "ES IN MC OUT END ES IN MC OUT END");
    assert_eq!(fences, [[1; 5], [2; 5]].concat());
    assert_eq!(f.row().await, (10, 2));
}

/// Fails as long as it is told to.
#[derive(Debug, Default)]
struct Unreachable(AtomicBool);

#[async_trait]
impl HarnessConnector for Unreachable {
    async fn connect(&self, incarnation: &Incarnation) -> Result<HarnessConnection, ConnectError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(ConnectError::Unavailable { message: "nobody".to_owned() });
        }
        Connectors::in_process().connect(incarnation).await
    }
}

/// Compute that was started stays its session's, for the next turn.
#[tokio::test]
async fn u06_compute_that_cannot_be_reached_is_kept() {
    let connector = Arc::new(Unreachable::default());
    let setup = Setup { connector: Arc::clone(&connector) as _, ..Setup::default() };
    let f = fixture_from(Echo, setup).await;
    connector.0.store(true, Ordering::Relaxed);
    let refused = f.exec(hello(), call()).await;
    assert!(matches!(refused, Err(PlacementError::Connect(_))), "{refused:?}");
    assert_eq!(f.runtime.calls(), ["create s"], "and not stopped");
    assert_eq!(f.row().await, (0, 0), "neither record nor fence");
    connector.0.store(false, Ordering::Relaxed);
    f.exec(hello(), call()).await.unwrap();
}

#[tokio::test]
async fn u08_a_lease_is_freed_however_its_turn_ends() {
    for (runs, journal) in
        [(Runs::Well, "ES IN END"), (Runs::Unavailable, "ES IN ERR"), (Runs::Panics, "ES IN ERR")]
    {
        let f = fixture(Moody { runs, ..Moody::default() }).await;
        let _ = f.exec(hello(), call()).await;
        assert!(f.guard.is_empty(), "{runs:?}");
        assert_eq!(records(&f).await.0, journal);
        let _ = f.exec(hello(), call()).await;
        assert_eq!(records(&f).await.0, format!("{journal} {journal}"), "it is usable again");
    }
    // Also where the task itself dies.
    let f = fixture(Echo).await;
    let lease = f.guard.try_acquire(f.journal.uid(), Operation::Exec, Timestamp::default());
    let lease = lease.unwrap();
    let died = tokio::spawn(async move {
        let _lease = lease;
        panic!("as it was told");
    });
    assert!(died.await.unwrap_err().is_panic());
    assert!(f.guard.is_empty());
}

#[tokio::test]
async fn u09_a_session_is_suspended_and_brought_back_from_what_was_captured() {
    let f = fixture(Echo).await;
    f.exec(hello(), call()).await.unwrap();
    f.suspend().await.unwrap();
    f.resume().await.unwrap();
    f.exec(hello(), call()).await.unwrap();
    let (kinds, fences) = records(&f).await;
    assert_eq!(kinds, "ES IN MC OUT END SUSPEND RESUME ES IN MC OUT END");
    assert_eq!(fences, [1, 1, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4]);
    let row = f.journal.log().get(f.journal.uid(), Level::Committed).await.unwrap();
    let captured = row.view.last_suspend.unwrap().snapshot;
    let calls = f.runtime.calls();
    let restored = format!("restore {} as s", captured.local);
    assert_eq!(calls, ["create s", "snapshot s", &restored, "create s", "create s"]);
}

/// Fails the calls of one kind, without doing them.
#[derive(Debug, Default)]
struct Fails(Mutex<Option<Which>>);

type Which = fn(LogCall) -> bool;

impl LogHook for Fails {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        let fails = *self.0.lock().unwrap();
        match fails.is_some_and(|fails| fails(call)) {
            true => Err(LogError::Unavailable {
                message: "as it was told".to_owned(),
                outcome: mainspring_api::Outcome::NotApplied,
                source: None,
            }),
            false => run.await,
        }
    }
}

/// The stateless tier: a capture may be taken again.
#[tokio::test]
async fn u10_a_suspend_that_fails_records_nothing_and_can_be_repeated() {
    let inner: Arc<dyn EventLog> =
        Arc::new(KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap());
    let log = Arc::new(HookedLog::with_hook(inner, Fails::default()));
    let f = fixture_from(Echo, Setup { log: Arc::clone(&log) as _, ..Setup::default() }).await;
    f.exec(hello(), call()).await.unwrap();
    f.runtime.calls();
    let is_mint: Which = |call| call == LogCall::Mint;
    let is_append: Which = |call| matches!(call, LogCall::Append(_));
    for (fails, calls, condition) in [
        (Some(is_mint), 0, Condition::Unavailable),
        (Some(is_append), 1, Condition::Unavailable),
        (None, 1, Condition::RuntimeUnsupported),
    ] {
        *log.hook().0.lock().unwrap() = fails;
        f.runtime.no_snapshot.store(fails.is_none(), Ordering::Relaxed);
        let failed = f.suspend().await.unwrap_err();
        assert_eq!(failed.condition(), condition, "{failed}");
        *log.hook().0.lock().unwrap() = None;
        assert_eq!(f.runtime.calls(), vec!["snapshot s"; calls], "it was not stopped");
        assert_eq!(records(&f).await.0, "ES IN MC OUT END");
        assert!(f.guard.is_empty());
    }
    f.runtime.no_snapshot.store(false, Ordering::Relaxed);
    f.suspend().await.unwrap();
    assert_eq!(records(&f).await.0, "ES IN MC OUT END SUSPEND");
}

#[tokio::test]
async fn u22_names_route_to_placers_and_a_recorded_one_to_no_other() {
    let f = fixture(Echo).await;
    let another = |name: &str| {
        let connector = Arc::new(Connectors::in_process());
        placer(name, &f.runtime, connector, String::new(), None)
    };
    let harnesses = Harnesses::new(Arc::clone(&f.placer));
    harnesses.add(another("b")).unwrap();
    let taken = harnesses.add(another("b"));
    assert!(matches!(taken, Err(PlacementError::HarnessExists(name)) if name == "b"));
    assert_eq!(harnesses.find("").unwrap().name(), "h", "the default is always there");
    assert_eq!(harnesses.find("b").unwrap().name(), "b");
    let unknown = harnesses.find("c").unwrap_err();
    assert_eq!(unknown.condition(), Condition::UnknownHarness);
    assert!(unknown.to_string().contains("served are: b, h"), "{unknown}");

    f.exec(hello(), call()).await.unwrap();
    let row = f.journal.log().get(f.journal.uid(), Level::Committed).await.unwrap();
    let open = |recorded: &str| {
        let mut view: SessionView = row.view.clone();
        let latest = view.latest.as_mut().unwrap();
        latest.end = None;
        let start = latest.start.take().unwrap();
        latest.start = Some(StartView { harness: recorded.to_owned(), ..start });
        view
    };
    assert_eq!(harnesses.find_recorded(&open("b"), "h").unwrap().name(), "b");
    assert_eq!(harnesses.find_recorded(&open(""), "b").unwrap().name(), "b", "an old journal");
    let unserved = harnesses.find_recorded(&open("c"), "h").unwrap_err();
    assert_eq!(unserved.condition(), Condition::RecordedHarnessNotServed);
    let unserved = harnesses.find_recorded(&open(""), "c").unwrap_err();
    assert_eq!(unserved.condition(), Condition::UnknownHarness, "never the default");
    assert_eq!(harnesses.find_recorded(&row.view, "b").unwrap().name(), "b", "nothing is open");
}

/// Two executions of one id could not be told apart.
#[tokio::test]
async fn an_id_that_the_journal_has_is_not_used_again() {
    let f = fixture(Echo).await;
    let id = ExecutionId::new("00000000000000aa").unwrap();
    let turn = || Turn { execution_id: Some(id.clone()), ..hello() };
    f.exec(turn(), call()).await.unwrap();
    for _ in 0..2 {
        let refused = f.exec(turn(), call()).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::AlreadyExists);
        assert!(refused.to_string().contains(id.as_str()), "{refused}");
        f.exec(hello(), call()).await.unwrap();
    }
    assert_eq!(f.row().await.0, 15);
}
