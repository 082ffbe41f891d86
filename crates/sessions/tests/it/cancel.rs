//! Cancelling, in every state that a turn can be in.

use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, CancelReason, CancelRequest, Classify as _, Condition, EventBody, ExecState,
    ExecutionId, ForkRequest, LogRecord, OsEntropy, Outcome, SessionUid, Sessions as _,
    SessionsError,
};
use mainspring_eventlog::{Level, mint_any};
use mainspring_sessions::Service;
use tokio::time::Instant;

use crate::support::{Drive as _, World, caller, turn};

fn receipt(records: &[LogRecord]) -> String {
    let found = records.iter().find_map(|record| match &record.event.body {
        EventBody::ToolResult(Some(result)) => Some(result.error.clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// The table of what is recorded, by where the turn stands.
#[tokio::test(start_paused = true)]
async fn each_open_state_is_closed_in_one_step() {
    let world = World::new();
    let service = world.service();
    let (asked, approval) = service.parked("").await;
    service.decided(&asked, &approval, true).await.unwrap();
    let (refused, approval) = service.parked("").await;
    service.decided(&refused, &approval, false).await.unwrap();
    let failed = service.created().await;
    service.run(&failed, "out a, fail own").await;
    for (session, count, journal, says) in [
        (&failed, 4, "ES IN OUT ERR CANCELED", ""),
        (&failed, 3, "ES IN OUT CANCELED", ""),
        (&asked, 2, "ES IN CANCELED", ""),
        (&asked, 3, "ES IN TC AQ AR TR CANCELED", "Tool execution denied"),
        (&asked, 4, "ES IN TC AQ AR TR CANCELED", "Tool execution denied"),
        (&asked, 5, "ES IN TC AQ SUSPEND AR TR CANCELED", "Tool execution denied"),
        (&asked, 6, "ES IN TC AQ SUSPEND AR TR CANCELED", "canceled; no start of the tool"),
        (&refused, 6, "ES IN TC AQ SUSPEND AR TR CANCELED", "Tool execution denied"),
    ] {
        let session = world.cut(session, count).await;
        let fence = world.fence(&session).await;
        let canceled = service.canceled(&session).await;
        assert_eq!(canceled.unwrap().exec_state, ExecState::Canceled);
        assert_eq!(world.journal(&session).await, journal);
        let records = world.records(&session).await;
        assert!(receipt(&records).starts_with(says), "{count}: {}", receipt(&records));
        assert_eq!(world.fence(&session).await, fence + 1, "{count}");
        // Once is enough, and twice does nothing.
        service.canceled(&session).await.unwrap();
        assert_eq!(world.records(&session).await, records);
        assert_eq!(world.fence(&session).await, fence + 1);
        assert_eq!(service.run(&session, "out x").await.last().uid, session, "it goes on");
    }
    assert!(world.tools.started().is_empty(), "nothing was run");
}

/// An end would be ill-formed evidence where inputs are missing: a new turn
/// abandons such a one.
#[tokio::test(start_paused = true)]
async fn a_turn_without_its_inputs_is_not_ended() {
    let world = World::new();
    let service = world.service();
    let (asked, _) = service.parked("").await;
    let session = world.cut(&asked, 1).await;
    let refused = service.canceled(&session).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::IncompleteInvocation);
    assert_eq!(world.journal(&session).await, "ES");
    assert_eq!(service.run(&session, "out x").await.kinds(), "ES IN OUT END");
}

/// An approved call that may have been started is closed as unknown.
#[tokio::test(start_paused = true)]
async fn an_approved_call_that_was_started_is_closed_as_unknown() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    service.decided(&session, &approval, true).await.unwrap();
    let row = world.log.get(&session, Level::Strict).await.unwrap();
    let holder = mainspring_eventlog::Holder { id: "x".to_owned(), name: "x".to_owned() };
    let id = || AppendId::random(&OsEntropy);
    let fence = mint_any(&*world.log, &session, id, holder).await.unwrap();
    let call = row.view.open_gate().unwrap().1.call;
    world.log.annotate(&session, call, fence, "started", "1").await.unwrap();
    service.canceled(&session).await.unwrap();
    let records = world.records(&session).await;
    assert!(receipt(&records).contains("its outcome is unknown"), "{}", receipt(&records));
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR CANCELED");
}

#[tokio::test(start_paused = true)]
async fn an_inherited_gate_is_not_closed() {
    let world = World::new();
    let service = world.service();
    let (session, _) = service.parked("").await;
    let fork = ForkRequest {
        session,
        at_seq: 4,
        count: 1,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    };
    let child = service.fork(&caller(), fork).await.unwrap().remove(0).uid;
    let refused = service.canceled(&child).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InheritedToolIntent);
    assert_eq!(world.journal(&child).await, "ES IN TC AQ FORK");
}

#[tokio::test(start_paused = true)]
async fn only_the_latest_open_turn_can_be_cancelled() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let first = service.run(&session, "out x").await;
    let first = first.records[0].event.execution_id.clone().unwrap();
    let cancel = async |execution_id: ExecutionId| {
        let (session, reason) = (session.clone(), CancelReason::User);
        let request = CancelRequest { session, execution_id, reason };
        service.cancel(&caller(), request).await.unwrap_err()
    };
    let ended = cancel(first.clone()).await;
    assert_eq!(ended.condition(), Condition::FailedPrecondition);
    assert!(ended.to_string().contains("COMPLETED"), "{ended}");
    service.run(&session, "out x").await;
    for execution in [first, ExecutionId::new("0123456789abcdef").unwrap()] {
        let refused = cancel(execution).await;
        assert_eq!(refused.condition(), Condition::FailedPrecondition);
        assert!(refused.to_string().contains("not the session's latest"), "{refused}");
    }
    assert_eq!(world.journal(&session).await, "ES IN OUT END ES IN OUT END");
    assert_eq!(world.fence(&session).await, 2);
}

/// The host gave up on it: that is a failure.
#[tokio::test(start_paused = true)]
async fn what_the_host_had_to_end_has_failed() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let request = CancelRequest {
        session: session.clone(),
        execution_id: ExecutionId::new(&approval.execution_id).unwrap(),
        reason: CancelReason::Internal,
    };
    // Asking again, for whatever reason, finds it ended.
    for reason in [CancelReason::Internal, CancelReason::Internal, CancelReason::User] {
        let request = CancelRequest { reason, ..request.clone() };
        let failed = service.cancel(&caller(), request).await.unwrap();
        assert_eq!(failed.exec_state, ExecState::Failed);
        assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR FAILED");
    }
}

/// A turn that waits inside of the tool `slow`, and the stream of it.
async fn inside_a_tool(
    world: &World,
    service: &Service,
    script: &str,
) -> (SessionUid, tokio::task::JoinHandle<crate::support::Shown>) {
    let session = service.created().await;
    let (inner, uid, script) = (service.clone(), session.clone(), script.to_owned());
    let watching = tokio::spawn(async move { inner.run(&uid, &script).await });
    world.tools.entered.wait().await;
    (session, watching)
}

/// A tool in flight has its grace; then its intent stays without a receipt.
#[tokio::test(start_paused = true)]
async fn a_turn_inside_a_tool_is_cancelled_after_a_grace() {
    let world = World::new();
    let service = world.service();
    let (session, watching) = inside_a_tool(&world, &service, "tool c1 slow, out x").await;
    let begun = Instant::now();
    let canceled = service.canceled(&session).await.unwrap();
    assert!(begun.elapsed() >= mainspring_controller::EFFECT_GRACE);
    assert_eq!(canceled.exec_state, ExecState::Canceled);
    assert_eq!(world.journal(&session).await, "ES IN TC CANCELED");
    let shown = watching.await.unwrap();
    let error = shown.error.as_ref().unwrap();
    assert_eq!(error.condition(), Condition::Cancelled);
    assert_eq!(error.outcome(), Outcome::Applied);
    assert_eq!(shown.kinds(), "ES IN TC CANCELED", "the end comes before the error");
    assert!(world.tools.done().is_empty());
}

/// What comes within its grace is recorded.
#[tokio::test(start_paused = true)]
async fn a_tool_that_answers_within_its_grace_has_its_receipt() {
    let world = World::new();
    let service = world.service();
    let (session, watching) = inside_a_tool(&world, &service, "tool c1 slow, out x").await;
    let (canceled, ()) =
        tokio::join!(service.canceled(&session), async { assert!(world.tools.go.set(())) });
    canceled.unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC TR CANCELED");
    watching.await.unwrap();
}

/// Whoever asked may go away: it is cancelled all the same.
#[tokio::test(start_paused = true)]
async fn a_cancel_outlives_its_call() {
    let world = World::new();
    let service = world.service();
    let (session, watching) = inside_a_tool(&world, &service, "tool c1 slow, out x").await;
    let mut cancel = Box::pin(service.canceled(&session));
    let polled = tokio::time::timeout(std::time::Duration::from_millis(1), &mut cancel).await;
    assert!(polled.is_err());
    drop(cancel);
    service.idle().await;
    assert_eq!(world.journal(&session).await, "ES IN TC CANCELED");
    watching.await.unwrap();
}

/// A request that was recorded first wins: its turn parks, and is then closed.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_meets_a_park_closes_the_gate() {
    let world = World::new();
    let service = world.service();
    world.compute.slow_snapshot.store(true, Ordering::Relaxed);
    let session = service.created().await;
    let (inner, uid) = (service.clone(), session.clone());
    let watching = tokio::spawn(async move { inner.run(&uid, "out a, gate c1").await });
    world.compute.capturing.wait().await;
    assert_eq!(world.journal(&session).await, "ES IN OUT TC AQ");
    let (canceled, ()) = tokio::join!(service.canceled(&session), async {
        tokio::time::sleep(std::time::Duration::from_secs(8)).await;
        assert_eq!(world.journal(&session).await, "ES IN OUT TC AQ", "it waits for the turn");
        assert!(world.compute.go.set(()));
    });
    assert_eq!(canceled.unwrap().exec_state, ExecState::Canceled);
    assert_eq!(world.journal(&session).await, "ES IN OUT TC AQ SUSPEND AR TR CANCELED");
    let shown = watching.await.unwrap();
    assert_eq!(shown.kinds(), "ES IN OUT TC AQ SUSPEND");
    assert_eq!(shown.last().exec_state, ExecState::Awaiting, "as it was when it parked");
    assert!(world.tools.started().is_empty());
}

/// A turn that does not end although it was told stays told.
#[tokio::test(start_paused = true)]
async fn a_cancel_waits_no_longer_than_its_bound() {
    let world = World::new();
    let service = world.service();
    world.compute.slow_snapshot.store(true, Ordering::Relaxed);
    let session = service.created().await;
    let (inner, uid) = (service.clone(), session.clone());
    let watching = tokio::spawn(async move { inner.run(&uid, "gate c1").await });
    world.compute.capturing.wait().await;
    let late = service.canceled(&session).await.unwrap_err();
    assert_eq!(late.condition(), Condition::DeadlineExceeded);
    assert_eq!(late.outcome(), Outcome::Unknown);
    assert!(world.compute.go.set(()));
    watching.await.unwrap();
    service.canceled(&session).await.unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR CANCELED");
}

/// A suspend that is under way is waited for.
#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_a_short_operation() {
    let world = World::new();
    let service = world.service();
    let (session, _) = service.parked("").await;
    world.compute.slow_snapshot.store(true, Ordering::Relaxed);
    let (inner, uid) = (service.clone(), session.clone());
    let suspending = tokio::spawn(async move { inner.suspend(&caller(), &uid).await });
    world.compute.capturing.wait().await;
    let busy = service.canceled(&session).await.unwrap_err();
    assert_eq!(busy.condition(), Condition::SessionBusy, "the wait is bounded");
    let (canceled, ()) = tokio::join!(service.canceled(&session), async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert!(world.compute.go.set(()));
    });
    canceled.unwrap();
    suspending.await.unwrap().unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND SUSPEND AR TR CANCELED");
}

/// Wherever a cancel meets a turn, the session leaves RUNNING and takes the next turn.
#[tokio::test(flavor = "multi_thread")]
async fn b22_a_cancelled_session_takes_the_next_turn() {
    let world = World::new();
    let service = world.service();
    let script = (0..40).map(|n| format!("out {n}, tool c{n} quick")).collect::<Vec<_>>();
    let script = script.join(", ");
    for records in 0..50 {
        let session = service.created().await;
        let mut stream = service.exec(&caller(), turn(&session, &script)).await.unwrap();
        // The session comes first, and then its start and inputs.
        for _ in 0..records + 3 {
            stream.next().await.unwrap().unwrap();
        }
        let canceled = service.canceled(&session).await;
        let state = service.get(&caller(), &session).await.unwrap().exec_state;
        match canceled {
            Ok(session) => assert_eq!(session.exec_state, ExecState::Canceled),
            // The turn was faster.
            Err(error) => {
                assert_eq!(error.condition(), Condition::FailedPrecondition, "{error}");
                assert_eq!(state, ExecState::Completed);
            }
        }
        let next = service.run(&session, "out x").await;
        assert_eq!(next.kinds(), "ES IN OUT END", "{records}");
    }
}

/// Many may ask at once: one end is recorded, and all are told the same.
#[tokio::test(start_paused = true)]
async fn many_cancels_are_one() {
    let world = World::new();
    let service = world.service();
    let (session, watching) = inside_a_tool(&world, &service, "tool c1 slow, out x").await;
    let all = (0..8).map(|_| service.canceled(&session));
    let all: Vec<Result<_, SessionsError>> = futures_util::future::join_all(all).await;
    assert!(all.iter().all(|one| one.as_ref().is_ok_and(|s| s.exec_state == ExecState::Canceled)));
    assert_eq!(world.journal(&session).await, "ES IN TC CANCELED");
    watching.await.unwrap();
}

/// A turn that another host drives is taken over and ended; that host's next
/// record is refused.
#[tokio::test(start_paused = true)]
async fn a_turn_of_another_host_is_taken_over() {
    let world = World::new();
    let (here, there) = (world.service(), world.service());
    let (session, watching) = inside_a_tool(&world, &there, "tool c1 slow, out x").await;
    let canceled = here.canceled(&session).await.unwrap();
    assert_eq!(canceled.exec_state, ExecState::Canceled);
    assert!(world.tools.go.set(()));
    let error = watching.await.unwrap().error.unwrap();
    assert!(matches!(error.condition(), Condition::Fenced | Condition::Conflict), "{error}");
    assert_eq!(world.journal(&session).await, "ES IN TC CANCELED");
}

/// A lease that a short operation holds is waited for; the turn of another
/// execution is not.
#[tokio::test(start_paused = true)]
async fn another_turn_is_not_waited_for() {
    let world = World::new();
    let service = world.service();
    let (asked, _) = service.parked("").await;
    let old = world.cut(&asked, 2).await;
    let row = world.log.get(&old, Level::Strict).await.unwrap();
    let old_execution = row.view.latest.unwrap().id;
    // A new turn abandons the old one.
    let (inner, uid) = (service.clone(), old.clone());
    let watching = tokio::spawn(async move { inner.run(&uid, "tool c1 slow").await });
    world.tools.entered.wait().await;
    let request = CancelRequest {
        session: old.clone(),
        execution_id: old_execution,
        reason: CancelReason::User,
    };
    let refused = service.cancel(&caller(), request).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::FailedPrecondition);
    assert!(world.tools.go.set(()));
    assert_eq!(watching.await.unwrap().kinds(), "ES IN TC TR END");
}
