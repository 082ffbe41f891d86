//! Delete.

use mainspring_api::{CancelReason, Condition, DeletionState, ListRequest};

use super::support::{Shown, fork_of, kinds, range, refused, refuses, turn, until};
use super::{Setup, Subject};

/// "append LIFECYCLE_DELETE ... and set PENDING in the same transaction; return the Session. A repeat returns the
/// current Session, no new record."
pub async fn a_delete_is_recorded_once<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let deleted = world.me.delete(&session).await.unwrap();
    assert_eq!(deleted.deletion_state, DeletionState::Pending);
    assert_eq!(deleted.last_seq.get(), 5);
    assert_eq!(world.journal(&session).await, "ES IN OUT END DELETE");
    let again = world.me.delete(&session).await.unwrap();
    assert_eq!(again, world.me.get(&session).await.unwrap());
    assert_eq!(world.journal(&session).await, "ES IN OUT END DELETE");
}

/// "While PENDING: Exec, Resume, Suspend, Fork, Approve, Cancel -> FAILED_PRECONDITION; Get, List, Replay work and
/// report the state."
pub async fn a_deleted_session_is_read_only<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let execution = world.execution(&session).await;
    world.me.delete(&session).await.unwrap();
    let me = &world.me;
    let gone = Condition::SessionDeleted;
    refuses(me.exec(turn(&session, "out a")).await, gone);
    assert_eq!(me.resume(&session).await.failed().condition(), gone);
    refused(me.suspend(&session).await, gone);
    refused(me.fork(fork_of(&session)).await, gone);
    refused(me.approve(&session, &approval, true).await, gone);
    refused(me.cancel(&session, &execution, CancelReason::User).await, gone);
    let row = me.get(&session).await.unwrap();
    assert_eq!(row.deletion_state, DeletionState::Pending);
    let listed = me.list(ListRequest::default()).await.unwrap().sessions;
    assert_eq!(listed, [row]);
    let records = me.replay(range(&session, 0, 0)).await.unwrap();
    assert_eq!(kinds(&records), "ES IN TC AQ SUSPEND DELETE");
}

/// "If a turn runs in this process it is cancelled first and the delete waits for it"
pub async fn a_running_turn_is_cancelled_first<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let mut stream = world.me.exec(turn(&session, "out a, hold here, out b")).await.unwrap();
    until(&mut stream, "OUT").await;
    let deleted = world.me.delete(&session).await.unwrap();
    assert_eq!(deleted.deletion_state, DeletionState::Pending);
    assert_eq!(world.journal(&session).await, "ES IN OUT CANCELED DELETE");
    let rest = Shown::of(Ok(stream)).await;
    assert_eq!(rest.failed().condition(), Condition::Cancelled);
}

/// A session that never had a turn can be deleted, too.
pub async fn an_empty_session_is_deleted<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    world.me.delete(&session).await.unwrap();
    assert_eq!(world.journal(&session).await, "DELETE");
    refuses(world.me.exec(turn(&session, "out a")).await, Condition::SessionDeleted);
}
