//! Deleting sessions, and purging what was deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    Classify as _, Condition, CreateRequest, DeletionState, ExecState, ExecutionId, ExportRequest,
    FollowRequest, ForkRequest, Operations as _, Outcome, ReplayRequest, Resolution,
    ResolveRequest, Session, SessionUid, Sessions as _, SessionsError, VerifyRequest,
};
use mainspring_eventlog::{
    EventLog, KvOptions, KvStore, Level, LogError, Mark, MemoryEngine, Purge,
};
use mainspring_sessions::{Reclaim, Service};
use mainspring_testkit::{HookedLog, LogCall, LogHook, sample};
use tokio::time::Instant;

use crate::support::{Drive, IDLE, Shown, World, caller};

async fn deleted(service: &Service, session: &SessionUid) -> Result<Session, SessionsError> {
    service.delete(&caller(), session).await
}

fn fork_of(session: &SessionUid, at_seq: i64) -> ForkRequest {
    ForkRequest {
        session: session.clone(),
        at_seq,
        count: 1,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    }
}

async fn running(world: &World, service: &Service) -> (SessionUid, tokio::task::JoinHandle<Shown>) {
    let session = service.created().await;
    let (inner, uid) = (service.clone(), session.clone());
    let watching = tokio::spawn(async move { inner.run(&uid, "tool c1 slow, out x").await });
    world.tools.entered.wait().await;
    (session, watching)
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_one_record_under_a_fence_of_its_own() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a").await;
    world.compute.calls();
    let fence = world.fence(&session).await;
    let first = deleted(&service, &session).await.unwrap();
    assert_eq!(first.deletion_state, DeletionState::Pending);
    assert_eq!((first.last_seq.get(), first.exec_state), (5, ExecState::Completed));
    assert_eq!(world.journal(&session).await, "ES IN OUT END DELETE");
    assert_eq!(world.fence(&session).await, fence + 1);
    assert_eq!(world.compute.calls(), ["stop"], "its compute is freed");
    // Again, here and elsewhere: the same session, and nothing new.
    for host in [&service, &world.service()] {
        assert_eq!(deleted(host, &session).await.unwrap(), first);
    }
    assert_eq!(world.fence(&session).await, fence + 1);
    let unknown = deleted(&service, &sample::session("nobody")).await.unwrap_err();
    assert_eq!(unknown.condition(), Condition::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn an_empty_session_is_deleted() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    deleted(&service, &session).await.unwrap();
    assert_eq!(world.journal(&session).await, "DELETE");
}

/// Many may ask at once: one record is made, and all are told the same.
#[tokio::test(flavor = "multi_thread")]
async fn many_deletes_are_one() {
    let world = World::new();
    let hosts = [world.service(), world.service()];
    let session = hosts[0].created().await;
    let all = (0..16).map(|n| deleted(&hosts[n % 2], &session));
    for one in futures_util::future::join_all(all).await {
        match one {
            Ok(session) => assert_eq!(session.deletion_state, DeletionState::Pending),
            // The other host was faster.
            Err(error) => assert!(
                matches!(error.condition(), Condition::Conflict | Condition::Fenced),
                "{error}"
            ),
        }
    }
    assert_eq!(world.journal(&session).await, "DELETE");
}

/// What would change it or run it is refused by name; what reads it works.
#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_read_and_nothing_else() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    deleted(&service, &session).await.unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND DELETE");
    let resolve = ResolveRequest {
        session: session.clone(),
        execution_id: ExecutionId::new(&approval.execution_id).unwrap(),
        tool_call_id: "c1".to_owned(),
        resolution: Resolution::Retry,
    };
    let refused = [
        service.run(&session, "out x").await.error.unwrap(),
        service.resumed(&session).await.error.unwrap(),
        service.suspend(&caller(), &session).await.unwrap_err(),
        service.fork(&caller(), fork_of(&session, 2)).await.unwrap_err(),
        service.decided(&session, &approval, true).await.unwrap_err(),
        service.canceled(&session).await.unwrap_err(),
        service.resolve(&caller(), resolve).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.condition(), Condition::SessionDeleted, "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    let got = service.get(&caller(), &session).await.unwrap();
    assert_eq!(got.deletion_state, DeletionState::Pending);
    let listed = service.list(&caller(), Default::default()).await.unwrap().sessions;
    assert_eq!(listed, [got]);
    let replay = ReplayRequest { session: session.clone(), from_seq: 0, to_seq: 0, verify: true };
    assert_eq!(service.replay(&caller(), replay).await.unwrap().count().await, 6);
    let verify = VerifyRequest { session: session.clone(), expect_head: None };
    assert!(service.verify(&caller(), verify).await.unwrap().all(async |s| s.is_ok()).await);
    let export = ExportRequest { session: session.clone(), after: Default::default() };
    assert_eq!(service.export(&caller(), export).await.unwrap().count().await, 7);
    assert!(world.tools.started().is_empty());
}

/// The turn that runs here is cancelled first, and waited for.
#[tokio::test(start_paused = true)]
async fn a_delete_cancels_the_turn_that_runs_here() {
    let world = World::new();
    let service = world.service();
    let (session, watching) = running(&world, &service).await;
    let gone = deleted(&service, &session).await.unwrap();
    assert_eq!(gone.exec_state, ExecState::Canceled);
    assert_eq!(world.journal(&session).await, "ES IN TC CANCELED DELETE");
    assert_eq!(watching.await.unwrap().error.unwrap().condition(), Condition::Cancelled);
}

/// Whoever asked may go away: it is deleted all the same.
#[tokio::test(start_paused = true)]
async fn a_delete_outlives_its_call() {
    let world = World::new();
    let service = world.service();
    let (session, watching) = running(&world, &service).await;
    let mut delete = Box::pin(deleted(&service, &session));
    let polled = tokio::time::timeout(Duration::from_millis(1), &mut delete).await;
    assert!(polled.is_err());
    drop(delete);
    service.idle().await;
    assert_eq!(world.journal(&session).await, "ES IN TC CANCELED DELETE");
    watching.await.unwrap();
}

/// A turn that does not end although it was told is not deleted under.
#[tokio::test(start_paused = true)]
async fn a_delete_waits_no_longer_than_its_bound() {
    let world = World::new();
    let service = world.service();
    world.compute.slow_snapshot.store(true, Ordering::Relaxed);
    let session = service.created().await;
    let (inner, uid) = (service.clone(), session.clone());
    let watching = tokio::spawn(async move { inner.run(&uid, "gate c1").await });
    world.compute.capturing.wait().await;
    let begun = Instant::now();
    let late = deleted(&service, &session).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    assert_eq!(late.condition(), Condition::DeadlineExceeded);
    assert_eq!(late.outcome(), Outcome::Unknown);
    assert!(world.compute.go.set(()));
    watching.await.unwrap();
    deleted(&service, &session).await.unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND DELETE");
}

/// The turn of another host loses its writer.
#[tokio::test(start_paused = true)]
async fn a_delete_takes_the_fence_from_another_host() {
    let world = World::new();
    let (here, there) = (world.service(), world.service());
    let (session, watching) = running(&world, &there).await;
    let gone = deleted(&here, &session).await.unwrap();
    assert_eq!(gone.deletion_state, DeletionState::Pending);
    assert!(world.tools.go.set(()));
    let error = watching.await.unwrap().error.unwrap();
    assert!(matches!(error.condition(), Condition::Fenced | Condition::Conflict), "{error}");
    assert_eq!(world.journal(&session).await, "ES IN TC DELETE");
    // Its compute goes when it is idle.
    tokio::time::sleep(IDLE * 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_prefix_with_a_deletion_is_not_forked() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out a").await;
    let child = service.fork(&caller(), fork_of(&session, 4)).await.unwrap().remove(0).uid;
    deleted(&service, &session).await.unwrap();
    for at in [0, 4, 5] {
        let refused = service.fork(&caller(), fork_of(&session, at)).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::SessionDeleted);
    }
    // What was forked before goes on, and is not deleted.
    assert_eq!(service.run(&child, "out b").await.kinds(), "ES IN OUT END");
    let child = service.fork(&caller(), fork_of(&child, 4)).await.unwrap().remove(0);
    assert_eq!(child.deletion_state, DeletionState::Active);
}

const RETENTION: Duration = Duration::from_secs(3_600);

/// A host whose reclaimer runs.
fn reclaiming(world: &World) -> Service {
    let reclaim = Some(Reclaim { retention: RETENTION });
    let service = World { reclaim, ..world.clone() }.service();
    service.reclaim_deleted().unwrap();
    service
}

async fn is_purged(world: &World, session: &SessionUid) -> bool {
    world.log.get(session, Level::Strict).await.unwrap().purged
}

/// Clocks of rows are the store's: here they are the service's, too.
fn world_of_one_clock() -> World {
    let world = World::new();
    let options = KvOptions { clock: Arc::clone(&world.clock) as _, ..KvOptions::default() };
    let log = KvStore::open(MemoryEngine::default(), options).unwrap();
    World { log: Arc::new(log), ..world }
}

#[tokio::test(start_paused = true)]
async fn without_a_retention_a_session_is_purged_when_it_is_deleted() {
    let world = world_of_one_clock();
    let reclaim = Some(Reclaim { retention: Duration::ZERO });
    let service = World { reclaim, ..world.clone() }.service();
    service.reclaim_deleted().unwrap();
    // The reclaimer has nothing to do, and rests.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for _ in 0..2 {
        let session = service.created().await;
        deleted(&service, &session).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(is_purged(&world, &session).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_purged_after_its_retention() {
    let world = world_of_one_clock();
    let service = world.service();
    let (session, other) = (service.created().await, service.created().await);
    service.run(&session, "out a").await;
    let child = service.fork(&caller(), fork_of(&session, 3)).await.unwrap().remove(0).uid;
    deleted(&service, &session).await.unwrap();
    let service = reclaiming(&world);
    tokio::time::sleep(RETENTION - Duration::from_secs(1)).await;
    assert!(!is_purged(&world, &session).await, "not yet");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(is_purged(&world, &session).await);
    assert!(!is_purged(&world, &other).await && !is_purged(&world, &child).await);
    let row = world.log.get(&session, Level::Strict).await.unwrap();
    assert_eq!(row.view.head.seq.get(), 5, "the tombstone says what it was");
    assert_eq!(world.journal(&child).await, "ES IN OUT FORK", "forks keep what they show");
    assert!(world.log.marked(Mark::Deleted, None, 10).await.unwrap().is_empty());

    // A purged session answers by name, before a stream begins.
    let (from_seq, to_seq, verify) = (9, 0, false);
    let replay = ReplayRequest { session: session.clone(), from_seq, to_seq, verify };
    let export = ExportRequest { session: session.clone(), after: Default::default() };
    let verify = VerifyRequest { session: session.clone(), expect_head: None };
    let follow = FollowRequest { session: session.clone(), after_seq: row.view.head.seq };
    for error in [
        service.replay(&caller(), replay).await.err(),
        service.export(&caller(), export).await.err(),
        service.verify(&caller(), verify).await.err(),
        service.follow(&caller(), follow).await.err(),
    ] {
        assert_eq!(error.unwrap().condition(), Condition::SessionDeleted);
    }
    let got = service.get(&caller(), &session).await.unwrap();
    assert_eq!(got.deletion_state, DeletionState::Pending);
    assert_eq!(deleted(&service, &session).await.unwrap(), got);
    // The next one is found, too.
    deleted(&service, &other).await.unwrap();
    tokio::time::sleep(RETENTION + Duration::from_secs(601)).await;
    assert!(is_purged(&world, &other).await);
}

#[tokio::test(start_paused = true)]
async fn without_a_retention_nothing_is_purged() {
    let world = world_of_one_clock();
    let service = world.service();
    let session = service.created().await;
    deleted(&service, &session).await.unwrap();
    service.reclaim_deleted().unwrap();
    tokio::time::sleep(RETENTION * 1_000).await;
    assert!(!is_purged(&world, &session).await);
    // A host that drains purges nothing more.
    let draining = reclaiming(&world);
    draining.drain();
    tokio::time::sleep(RETENTION).await;
    assert!(!is_purged(&world, &session).await);
}

/// Cannot purge.
#[derive(Debug)]
struct Keeps;

impl LogHook for Keeps {
    async fn around<T: Send>(
        &self,
        _: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        run.await
    }

    fn purge<'a>(&'a self, _: &'a dyn EventLog) -> Option<&'a dyn Purge> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_purge_refuses_a_retention_by_name() {
    let sound = World::new();
    let log = Arc::new(HookedLog::with_hook(Arc::clone(&sound.log), Keeps));
    let world = World { log, ..sound };
    world.service().check_reclaim().unwrap();
    let reclaim = Some(Reclaim { retention: RETENTION });
    let service = World { reclaim, ..world }.service();
    for refused in [service.check_reclaim(), service.reclaim_deleted()] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.condition(), Condition::Unimplemented);
        assert!(refused.to_string().contains("purge"), "{refused}");
    }
}

/// A key whose session was deleted answers so, before and after it is purged.
#[tokio::test(start_paused = true)]
async fn a_key_of_a_deleted_session_says_so() {
    let world = world_of_one_clock();
    let service = world.service();
    let request = || CreateRequest {
        name: "one".to_owned(),
        idempotency_key: Some("key-1".to_owned()),
        ..CreateRequest::default()
    };
    let session = service.create(&caller(), request()).await.unwrap().uid;
    deleted(&service, &session).await.unwrap();
    let gone = service.create(&caller(), request()).await.unwrap_err();
    assert_eq!(gone.condition(), Condition::SessionDeleted);
    let service = reclaiming(&world);
    tokio::time::sleep(RETENTION + Duration::from_secs(1)).await;
    assert!(is_purged(&world, &session).await);
    let gone = service.create(&caller(), request()).await.unwrap_err();
    assert_eq!(gone.condition(), Condition::SessionDeleted);
}
