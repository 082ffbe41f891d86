//! A host that goes down, and compute that is released.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mainspring_api::{Classify as _, Condition, ExecState, Outcome, SessionUid, Sessions as _};
use mainspring_sessions::Service;

use crate::support::{Drive as _, IDLE, World, caller};

async fn inside_a_tool(
    world: &World,
    service: &Service,
    session: &SessionUid,
) -> tokio::task::JoinHandle<crate::support::Shown> {
    let (service, session) = (service.clone(), session.clone());
    let turn = tokio::spawn(async move { service.run(&session, "tool c1 slow, out x").await });
    world.tools.entered.wait().await;
    turn
}

/// A turn that was interrupted has neither an end nor an error, and goes on
/// where it was.
#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_is_resumed() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let service = world.service();
    let session = service.created().await;
    let watching = inside_a_tool(&world, &service, &session).await;
    service.drain();
    assert!(
        tokio::time::timeout(Duration::from_secs(30), service.idle()).await.is_err(),
        "draining alone waits"
    );
    service.interrupt();
    tokio::time::timeout(Duration::from_secs(10), service.idle()).await.unwrap();
    let shown = watching.await.unwrap();
    let error = shown.error.unwrap();
    assert_eq!(error.condition(), Condition::Interrupted);
    assert_eq!(error.outcome(), Outcome::Applied);
    assert_eq!(world.journal(&session).await, "ES IN TC");
    assert!(world.tools.go.set(()));
    let next = world.service();
    let resumed = next.resumed(&session).await;
    assert_eq!(resumed.last().exec_state, ExecState::Completed);
    assert_eq!(world.journal(&session).await, "ES IN TC TR OUT END RESUME");
    assert_eq!(world.tools.done(), ["key-c1"]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_interrupted_starts_nothing() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    service.interrupt();
    let refused = service.run(&session, "out x").await.error.unwrap();
    assert_eq!(refused.condition(), Condition::Draining);
    assert_eq!(service.resumed(&session).await.error.unwrap().condition(), Condition::Draining);
    // What runs nothing is still done.
    service.decided(&session, &approval, true).await.unwrap();
    service.canceled(&session).await.unwrap();
}

/// Idle compute is released, but not from under a turn that waits in a tool.
#[tokio::test(start_paused = true)]
async fn b33_idle_release_takes_no_running_turn() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    service.run(&session, "out x").await;
    world.compute.calls();
    let watching = inside_a_tool(&world, &service, &session).await;
    tokio::time::sleep(10 * IDLE).await;
    assert_eq!(world.compute.calls(), ["create"], "it was not stopped");
    assert_eq!(service.get(&caller(), &session).await.unwrap().exec_state, ExecState::Running);
    assert!(world.tools.go.set(()));
    assert_eq!(watching.await.unwrap().kinds(), "ES IN TC TR OUT END");
    tokio::time::sleep(2 * IDLE).await;
    assert_eq!(world.compute.calls(), ["stop"]);
    // What parked is cold, and keeps what it would be brought back from.
    let (_, _) = service.parked("").await;
    tokio::time::sleep(2 * IDLE).await;
    assert_eq!(world.compute.calls(), ["create", "snapshot"]);
}
