//! Replay: stored records.

use mainspring_api::{Condition, ReplayRequest};

use super::support::{kinds, positions, range, refused, turn, until};
use super::{Setup, Subject};

/// "`from_seq` <= 0 -> 1; `to_seq` 0 -> head; inclusive."
pub async fn a_replay_has_its_range<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a, out b").await;
    for (from, to, expected) in [
        (0, 0, &[1, 2, 3, 4, 5][..]),
        (-7, 0, &[1, 2, 3, 4, 5]),
        (2, 4, &[2, 3, 4]),
        (5, 5, &[5]),
        (4, 99, &[4, 5]),
        (6, 0, &[]),
        (4, 2, &[]),
    ] {
        let records = world.me.replay(range(&session, from, to)).await.unwrap();
        assert_eq!(positions(&records), expected, "{from}..={to}");
    }
    let records = world.me.replay(range(&session, 0, 0)).await.unwrap();
    let stored = world.records(&session).await;
    assert!(records.iter().zip(&stored).all(|(a, b)| a.hash == b.hash
        && a.prev_hash == b.prev_hash
        && a.fence == b.fence
        && a.event == b.event));
}

/// "takes no guard"
pub async fn a_replay_does_not_wait_for_a_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let mut running = world.me.exec(turn(&session, "out a, hold here")).await.unwrap();
    until(&mut running, "OUT").await;
    let records = world.me.replay(range(&session, 0, 0)).await.unwrap();
    assert_eq!(kinds(&records), "ES IN OUT");
    world.holds.let_go("here");
}

/// A range that cannot be is refused.
pub async fn a_negative_end_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    refused(world.me.replay(range(&session, 0, -1)).await, Condition::InvalidArgument);
}

/// "`x-verify: 1` metadata asks the server to verify first"
pub async fn a_replay_can_verify_first<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let request = ReplayRequest { verify: true, ..range(&session, 3, 0) };
    assert_eq!(positions(&world.me.replay(request).await.unwrap()), [3, 4]);
}
