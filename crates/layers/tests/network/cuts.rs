//! Cuts at any byte, delays, and lines that are down for a while.

use std::time::Duration;

use mainspring::api::{ResumeRequest, Sessions as _};
use mainspring_testkit::{Line, SeededRng};
use tokio::time::Instant;

use crate::world::{SMALL, World, caller, done, exec, follow, named, watched};

/// Turns, each with cuts of its own.
const SEEDS: u64 = 10;

/// Cuts in each turn.
const CUTS: u32 = 20;

/// Steps that the turn makes between two cuts.
const STEPS: u32 = 2;

/// Bytes of the server, over all clients, before the next cut.
const BYTES_MAX: usize = 20_000;

/// Cuts one turn wherever the seed says, while it is run, attached to and
/// followed over `line`. Gives the deltas and the gaps that followers saw.
async fn cut(world: &World, seed: u64, line: impl Fn(&mut SeededRng) -> Line) -> (u32, u32) {
    let what = format!("seed {seed}");
    let mut rng = SeededRng::new(seed);
    let session = world.session().await;
    let steps = STEPS * (CUTS + 1);
    let request = named(&session, steps, SMALL);
    let mut clients = Vec::new();
    for client in 0..5 {
        clients.push(world.client(seed * 10 + client).await);
    }
    let mut turns = vec![exec(&clients[0], request.clone())];
    let followers = [follow(&clients[1], &session).await, follow(&clients[2], &session).await];
    for number in 0..CUTS {
        if number % 8 == 3 {
            // They begin wherever the turn and its cuts are.
            turns.push(exec(&clients[3], request.clone()));
            turns.push(exec(&clients[4], request.clone()));
        }
        world.proxy.set(line(&mut rng));
        world.ledger.release(STEPS as usize);
        world.cut_within(BYTES_MAX, &mut rng).await;
    }
    world.proxy.set(Line::Open);
    world.ledger.release(STEPS as usize);
    let mut given = Vec::new();
    for turn in turns {
        let turn = done(turn, &what).await;
        assert_eq!(turn.sessions, 1, "{what}: the session comes once");
        given.push(turn.records);
    }
    let (mut deltas, mut gaps) = (0, 0);
    for follower in followers {
        let follower = done(follower, &what).await;
        deltas += follower.deltas;
        gaps += follower.gaps;
        given.push(follower.records);
    }
    let journal = world.journal(&session).await;
    for given in given {
        assert_eq!(given, journal, "{what}");
    }
    world.assert_one_turn(&session, steps, &what).await;
    let attempts: usize = clients.iter().map(|client| client.notices.attempts()).sum();
    assert!(attempts >= CUTS as usize, "{what}: only {attempts} connections were lost");
    (deltas, gaps)
}

#[tokio::test(start_paused = true)]
async fn two_hundred_random_cuts_leave_no_gap_and_no_double() {
    let world = World::new().await;
    let (mut deltas, mut gaps) = (0, 0);
    for seed in 0..SEEDS {
        let seen = cut(&world, seed, |_| Line::Open).await;
        (deltas, gaps) = (deltas + seen.0, gaps + seen.1);
    }
    assert!(deltas > 100 && gaps > 100, "{deltas} deltas, {gaps} gaps");
}

#[tokio::test(start_paused = true)]
async fn a_slow_line_that_is_cut_leaves_no_gap_and_no_double() {
    let world = World::new().await;
    for seed in 100..102 {
        cut(&world, seed, |rng| Line::Slow(Duration::from_millis(rng.next_u64() % 500))).await;
    }
}

/// A resume has no id to be sent again under, and goes on all the same.
#[tokio::test(start_paused = true)]
async fn a_resumed_turn_that_is_cut_leaves_no_gap_and_no_double() {
    let mut cut = 0;
    for seed in 200..200 + SEEDS {
        let what = format!("seed {seed}");
        let mut rng = SeededRng::new(seed);
        let world = World::new().await;
        let session = world.session().await;
        let steps = STEPS * CUTS;
        let begun = exec(&world.client(seed).await, named(&session, steps, SMALL));
        world.ledger.release(3);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let world = world.next().await;
        begun.abort();
        let client = world.client(seed).await;
        let before = client.sessions.get(&caller(), &session).await.unwrap().last_seq.get();
        let request = ResumeRequest { session: session.clone(), approval_ttl: None };
        let sessions = client.sessions.clone();
        let resumed = tokio::spawn(async move {
            watched(sessions.resume(&caller(), request).await.unwrap()).await
        });
        // Once it has begun: what cannot be begun fails.
        world.ledger.release(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..CUTS / 2 {
            world.ledger.release(STEPS as usize);
            world.cut_within(BYTES_MAX / 8, &mut rng).await;
        }
        world.ledger.release((steps * 2) as usize);
        let given = done(resumed, &what).await;
        let journal = world.journal(&session).await;
        let skipped = usize::try_from(before).unwrap();
        // That it was resumed comes behind its end, and may be missed.
        let shown = skipped + given.records.len();
        assert!(shown + 1 >= journal.len(), "{what}: {shown} of {}", journal.len());
        assert_eq!(given.records, journal[skipped..shown], "{what}");
        assert_eq!(given.sessions, 1, "{what}: the session comes last");
        world.assert_one_turn(&session, steps, &what).await;
        cut += client.notices.attempts();
    }
    assert!(cut >= 100, "only {cut} connections were lost");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_down_for_a_while_is_tried_until_it_is_back() {
    let world = World::new().await;
    let session = world.session().await;
    let clients = [world.client(1).await, world.client(2).await];
    let follower = follow(&clients[1], &session).await;
    let turn = exec(&clients[0], named(&session, 8, SMALL));
    world.ledger.release(4);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.proxy.set(Line::Down);
    world.proxy.cut();
    // The turn does not wait for anybody.
    world.ledger.release(4);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!turn.is_finished() && !follower.is_finished());
    assert_eq!(world.ledger.of(&session).len(), 8);
    for client in &clients {
        let attempts = client.notices.attempts();
        assert!((6..40).contains(&attempts), "{attempts} attempts in two minutes");
    }
    world.proxy.set(Line::Open);
    let back = Instant::now();
    let given = [done(turn, "exec").await.records, done(follower, "follow").await.records];
    // The longest pause between two attempts, and some.
    assert!(back.elapsed() < Duration::from_secs(15), "{:?}", back.elapsed());
    let journal = world.journal(&session).await;
    assert_eq!(given, [journal.clone(), journal]);
    world.assert_one_turn(&session, 8, "down").await;
}
