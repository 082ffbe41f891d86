//! Cancel.

use mainspring_api::{CancelReason, Condition, ExecState, ExecutionId};

use super::support::{Shown, refused, turn, unknown, until};
use super::{Setup, Subject};

/// "Running in this process: signal, taken at the next effect boundary, wait until it has ended" and "END is the turn's
/// last record. Returns the Session."
pub async fn a_running_turn_is_cancelled<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let mut stream = world.me.exec(turn(&session, "out a, hold here, out b")).await.unwrap();
    until(&mut stream, "OUT").await;
    let execution = world.execution(&session).await;
    let canceled = world.me.cancel(&session, &execution, CancelReason::User).await.unwrap();
    assert_eq!(canceled.exec_state, ExecState::Canceled);
    assert_eq!(world.journal(&session).await, "ES IN OUT CANCELED");
    let shown = Shown::of(Ok(stream)).await;
    assert_eq!(shown.kinds(), "CANCELED");
    assert_eq!(shown.failed().condition(), Condition::Cancelled);
    world.me.run(&session, "out c").await.ok();
}

/// "OK when it was cancelled already"
pub async fn a_cancel_again_is_ok<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, _) = world.me.parked("").await;
    let execution = world.execution(&session).await;
    world.me.cancel(&session, &execution, CancelReason::Timeout).await.unwrap();
    let before = world.records(&session).await.len();
    let again = world.me.cancel(&session, &execution, CancelReason::User).await.unwrap();
    assert_eq!(again.exec_state, ExecState::Canceled);
    assert_eq!(world.records(&session).await.len(), before);
}

/// "which closes an open gate of the execution first ... `TC AQ`: `AR TR END`"
pub async fn a_parked_turn_is_closed_first<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, _) = world.me.parked("").await;
    let execution = world.execution(&session).await;
    let canceled = world.me.cancel(&session, &execution, CancelReason::User).await.unwrap();
    assert_eq!(canceled.pending_approval, None);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR CANCELED");
    world.me.run(&session, "out c").await.ok();
}

/// "State CANCELED, or FAILED for reason INTERNAL."
pub async fn what_the_host_had_to_end_has_failed<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, _) = world.me.parked("").await;
    let execution = world.execution(&session).await;
    let failed = world.me.cancel(&session, &execution, CancelReason::Internal).await.unwrap();
    assert_eq!(failed.exec_state, ExecState::Failed);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR FAILED");
}

/// "The execution must be the session's latest and without END, else FAILED_PRECONDITION"
pub async fn only_the_latest_open_turn_is_cancelled<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let ended = world.execution(&session).await;
    let other = ExecutionId::chosen("00000000000000aa").unwrap();
    for execution in [&ended, &other] {
        let error = world.me.cancel(&session, execution, CancelReason::User).await;
        refused(error, Condition::FailedPrecondition);
    }
    let missing = world.me.cancel(&unknown(), &other, CancelReason::User).await;
    refused(missing, Condition::SessionNotFound);
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
}

/// Cancel does not wait for the guard: another turn on the session is left alone.
pub async fn another_turn_is_not_cancelled<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let ended = world.execution(&session).await;
    let mut stream = world.me.exec(turn(&session, "hold here, out b")).await.unwrap();
    until(&mut stream, "IN").await;
    assert!(world.me.cancel(&session, &ended, CancelReason::User).await.is_err());
    world.holds.let_go("here");
    Shown::of(Ok(stream)).await.ok();
}
