//! Many clients of one turn.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring::api::{ExecRequest, FollowRequest, FollowUpdate, Seq, Sessions as _};
use mainspring_testkit::SeededRng;

use crate::world::{SMALL, World, caller, done, exec, follow, named, turn, watched};

/// Clients that ask for the same turn at the same time.
const CLIENTS: u64 = 50;

/// Connections that they share.
const CONNECTIONS: u64 = 10;

/// Steps of the turn.
const STEPS: u32 = 12;

/// All of them ask; the line is cut again and again, also before they have
/// their first answer.
async fn all_ask(world: &World, request: ExecRequest, seed: u64) {
    let what = format!("seed {seed}");
    let mut rng = SeededRng::new(seed);
    let mut clients = Vec::new();
    for client in 0..CONNECTIONS {
        clients.push(world.client(seed * 100 + client).await);
    }
    let ask =
        |client| exec(&clients[usize::try_from(client % CONNECTIONS).unwrap()], request.clone());
    let turns: Vec<_> = (0..CLIENTS).map(ask).collect();
    for _ in 0..STEPS {
        world.cut_within(60_000, &mut rng).await;
        world.ledger.release(1);
    }
    let mut given = Vec::new();
    for turn in turns {
        given.push(done(turn, &what).await);
    }
    let session = given[0].session.clone().unwrap();
    let journal = world.journal(&session).await;
    for given in given {
        assert_eq!(given.session.as_ref(), Some(&session), "{what}");
        assert_eq!(given.records, journal, "{what}");
    }
    world.assert_one_turn(&session, STEPS, &what).await;
}

#[tokio::test(start_paused = true)]
async fn fifty_calls_with_one_execution_id_make_one_turn() {
    let world = World::new().await;
    let session = world.session().await;
    all_ask(&world, named(&session, STEPS, SMALL), 1).await;
}

#[tokio::test(start_paused = true)]
async fn fifty_calls_with_one_key_make_one_session_and_one_turn() {
    let world = World::new().await;
    let key = Some("the-same".to_owned());
    let request = ExecRequest { idempotency_key: key, ..turn(None, STEPS, SMALL) };
    all_ask(&world, request, 2).await;
}

/// Clients that read nothing hold up neither the turn nor who reads beside
/// them, on the same connection or another; and they have lost nothing.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_holds_up_nobody() {
    let world = World::new().await;
    let session = world.session().await;
    let (lazy, eager) = (world.client(1).await, world.client(2).await);
    // Far more than every window and buffer on the way.
    let (steps, bytes) = (24, 1 << 20);
    let request = named(&session, steps, bytes);
    let unread = lazy.sessions.exec(&caller(), request.clone()).await.unwrap();
    let from = FollowRequest { session: session.clone(), after_seq: Seq::ZERO };
    let unfollowed = lazy.sessions.follow(&caller(), from).await.unwrap();
    let readers = [
        exec(&lazy, request.clone()),
        exec(&eager, request),
        follow(&lazy, &session).await,
        follow(&eager, &session).await,
    ];
    world.ledger.release(steps as usize);
    let mut given = Vec::new();
    for reader in readers {
        given.push(done(reader, "a reader").await.records);
    }
    let journal = Arc::new(world.journal(&session).await);
    for given in given {
        assert_eq!(given, *journal);
    }
    assert_eq!(watched(unread).await.records, *journal);
    let records = unfollowed.filter_map(async |update| match update.unwrap() {
        FollowUpdate::Record(record) => Some((record.seq.get(), record.hash.to_string())),
        _ => None,
    });
    let records: Vec<_> = records.take(journal.len()).collect().await;
    assert_eq!(records, *journal);
    world.assert_one_turn(&session, steps, "unread").await;
    assert_eq!((lazy.notices.attempts(), eager.notices.attempts()), (0, 0));
}
