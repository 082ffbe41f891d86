//! Lines on which nothing comes, and nobody says so.

use std::time::Duration;

use mainspring::layers::{Notice, RECONNECT_MAX};
use mainspring_testkit::Line;
use tokio::time::Instant;

use crate::world::{Client, HEARTBEAT, SMALL, World, done, exec, follow, named};

/// Three signs of life that did not come, and one that was under way.
const NOTICED: Duration = HEARTBEAT.saturating_mul(4);

fn assert_noticed(client: &Client, since: Instant) {
    let noticed = client.notices.first_loss().expect("it was noticed").duration_since(since);
    assert!(noticed >= HEARTBEAT * 2 && noticed <= NOTICED, "after {noticed:?}");
}

/// The connections stand still for good: only a new one helps.
#[tokio::test(start_paused = true)]
async fn a_connection_that_froze_is_noticed_and_left_for_a_new_one() {
    let world = World::new().await;
    let session = world.session().await;
    let clients = [world.client(1).await, world.client(2).await];
    let follower = follow(&clients[1], &session).await;
    let turn = exec(&clients[0], named(&session, 6, SMALL));
    world.ledger.release(3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.proxy.connections(), 2);
    world.proxy.freeze();
    let frozen = Instant::now();
    world.ledger.release(3);
    let given = [done(turn, "exec").await.records, done(follower, "follow").await.records];
    for client in &clients {
        assert_noticed(client, frozen);
    }
    // Not one wait more on the old connection.
    assert!(frozen.elapsed() <= NOTICED + HEARTBEAT, "{:?}", frozen.elapsed());
    assert_eq!(world.proxy.connections(), 4);
    let journal = world.journal(&session).await;
    assert_eq!(given, [journal.clone(), journal]);
    world.assert_one_turn(&session, 6, "frozen").await;
}

/// Nothing passes on any connection, for longer than it takes to notice.
#[tokio::test(start_paused = true)]
async fn a_line_that_stalls_is_noticed_and_gone_on_with_when_it_is_back() {
    let world = World::new().await;
    let session = world.session().await;
    let clients = [world.client(1).await, world.client(2).await];
    let follower = follow(&clients[1], &session).await;
    let turn = exec(&clients[0], named(&session, 6, SMALL));
    world.ledger.release(3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.proxy.set(Line::Stalled);
    let stalled = Instant::now();
    world.ledger.release(3);
    tokio::time::sleep(HEARTBEAT * 12).await;
    assert!(!turn.is_finished() && !follower.is_finished());
    for client in &clients {
        assert_noticed(client, stalled);
        assert!(client.notices.attempts() > 1, "it was tried again meanwhile");
    }
    world.proxy.set(Line::Open);
    let given = [done(turn, "exec").await.records, done(follower, "follow").await.records];
    let journal = world.journal(&session).await;
    assert_eq!(given, [journal.clone(), journal]);
    world.assert_one_turn(&session, 6, "stalled").await;
}

/// A turn without a word for ten minutes is alive: its host says so.
#[tokio::test(start_paused = true)]
async fn a_silent_turn_keeps_its_connection() {
    let world = World::new().await;
    let session = world.session().await;
    let client = world.client(1).await;
    let turn = exec(&client, named(&session, 2, SMALL));
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.ledger.release(2);
    let given = done(turn, "exec").await.records;
    assert_eq!(given, world.journal(&session).await);
    assert_eq!((client.notices.attempts(), world.proxy.connections()), (0, 1));
}

/// Whoever is connected is not lost, however long nothing comes: only the time
/// without a connection counts.
#[tokio::test(start_paused = true)]
async fn cuts_far_apart_do_not_add_up_while_a_turn_is_silent() {
    let world = World::new().await;
    let session = world.session().await;
    let clients = [world.client(1).await, world.client(2).await];
    let follower = follow(&clients[1], &session).await;
    let turn = exec(&clients[0], named(&session, 2, SMALL));
    for _ in 0..4 {
        tokio::time::sleep(RECONNECT_MAX).await;
        world.proxy.cut();
    }
    tokio::time::sleep(RECONNECT_MAX).await;
    for client in &clients {
        assert_eq!(client.notices.last(), Some(Notice::Reconnected), "it is told at once");
    }
    world.ledger.release(2);
    let given = [done(turn, "exec").await.records, done(follower, "follow").await.records];
    let journal = world.journal(&session).await;
    assert_eq!(given, [journal.clone(), journal]);
    world.assert_one_turn(&session, 2, "far apart").await;
}
