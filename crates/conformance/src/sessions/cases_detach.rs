//! What losing a client's stream does to its turn.

use mainspring_api::{CancelReason, ExecRequest, ExecState, OnDisconnect};

use super::support::{turn, until};
use super::{Setup, Subject};

/// "losing the stream or the call's own time limit detaches and the turn goes on"
pub async fn a_lost_stream_does_not_end_its_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let mut stream = world.me.exec(turn(&session, "out a, hold here, out b")).await.unwrap();
    until(&mut stream, "OUT").await;
    world.holds.entered("here").await;
    drop(stream);
    assert_eq!(world.me.get(&session).await.unwrap().exec_state, ExecState::Running);
    world.holds.let_go("here");
    super::cases_follow::followed_to(&world.me, &session, 0, "END").await;
    assert_eq!(world.journal(&session).await, "ES IN OUT OUT END");
}

/// "`x-on-disconnect: cancel` metadata asks for the reference's way"
pub async fn a_stream_lost_cancels_when_that_was_asked_for<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest {
        on_disconnect: OnDisconnect::Cancel,
        ..turn(&session, "out a, hold here, out b")
    };
    let mut stream = world.me.exec(request).await.unwrap();
    until(&mut stream, "OUT").await;
    world.holds.entered("here").await;
    drop(stream);
    super::cases_follow::followed_to(&world.me, &session, 0, "CANCELED").await;
    assert_eq!(world.journal(&session).await, "ES IN OUT CANCELED");
    assert_eq!(world.me.get(&session).await.unwrap().exec_state, ExecState::Canceled);
    // A record is seen a moment before its turn's lease goes; a cancel waits for that.
    let execution = world.execution(&session).await;
    world.me.cancel(&session, &execution, CancelReason::User).await.unwrap();
    world.me.run(&session, "out c").await.ok();
}

/// A stream that is read to its end cancels nothing.
pub async fn a_stream_read_to_its_end_is_not_lost<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { on_disconnect: OnDisconnect::Cancel, ..turn(&session, "out a") };
    let shown = super::support::Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(shown.kinds(), "ES IN OUT END");
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
}
