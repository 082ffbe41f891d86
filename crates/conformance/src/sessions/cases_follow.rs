//! Following a session.

use futures_util::StreamExt as _;
use mainspring_api::{Condition, FollowUpdate, LogRecord, SessionUid};

use super::support::{Shown, kinds, positions, refuses, turn, until};
use super::{Client, Setup, Subject};

/// Follows after a position until a record of a kind has come; all records.
pub(super) async fn followed_to(
    client: &Client,
    session: &SessionUid,
    after: u64,
    wanted: &str,
) -> Vec<LogRecord> {
    let mut stream = client.follow(session, after).await.unwrap();
    let mut records = Vec::new();
    while let Some(update) = stream.next().await {
        if let FollowUpdate::Record(record) = update.unwrap() {
            records.push(*record);
            if kinds(&records[records.len() - 1..]) == wanted {
                return records;
            }
        }
    }
    panic!("the stream ended before {wanted}: {}", kinds(&records))
}

/// "follow (stream: records, deltas, explicit gaps, heartbeats)": what is there first, then what comes.
pub async fn a_follower_gets_what_was_and_what_comes<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let me = world.me.clone();
    let watched = session.clone();
    let following = tokio::spawn(async move { followed_to(&me, &watched, 2, "ERR").await });
    let shown = world.me.run(&session, "out b, fail c").await;
    assert_eq!(shown.kinds(), "ES IN OUT ERR");
    let records = following.await.unwrap();
    assert_eq!(positions(&records), [3, 4, 5, 6, 7, 8]);
    let stored = world.records(&session).await;
    assert!(records.iter().zip(&stored[2..]).all(|(a, b)| a.hash == b.hash && a.event == b.event));
}

/// A follower of a turn gets its deltas, too, from when it came.
pub async fn a_follower_gets_deltas<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let mut running = world.me.exec(turn(&session, "hold here, model x")).await.unwrap();
    until(&mut running, "IN").await;
    let mut stream = world.me.follow(&session, 0).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert!(matches!(first, FollowUpdate::Record(record) if record.seq.get() == 1));
    world.holds.let_go("here");
    let mut text = String::new();
    loop {
        match stream.next().await.unwrap().unwrap() {
            FollowUpdate::Delta(delta) => text.push_str(&delta.chunk),
            FollowUpdate::DeltaGap => text.push('?'),
            FollowUpdate::Record(record) if kinds(&[(*record).clone()]) == "END" => break,
            _ => {}
        }
    }
    assert!(text == "I heard x" || text.contains('?'), "{text}");
    Shown::of(Ok(running)).await.ok();
}

/// A session that waits shows where it stands, then stays silent; the stream stays open.
pub async fn b25_a_parked_session_is_followed_in_silence<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", out b").await;
    let records = followed_to(&world.me, &session, 0, "SUSPEND").await;
    assert_eq!(kinds(&records), "ES IN TC AQ SUSPEND");
    let mut stream = world.me.follow(&session, 5).await.unwrap();
    world.me.approve(&session, &approval, true).await.unwrap();
    let Some(Ok(FollowUpdate::Record(decision))) = stream.next().await else {
        panic!("the decision is the next that happens")
    };
    assert_eq!(decision.seq.get(), 6);
}

/// A cursor beyond the head is another session's, or forged.
pub async fn b19_a_cursor_beyond_the_head_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    refuses(world.me.follow(&session, 5).await, Condition::InvalidArgument);
    refuses(world.me.follow(&session, u64::from(u32::MAX)).await, Condition::InvalidArgument);
}
