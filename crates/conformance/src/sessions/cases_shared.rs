//! Rules that all methods share: what is checked first, one driver at a time,
//! and which harness a turn runs on.

use mainspring_api::{Condition, CreateRequest, ExecRequest};

use super::support::{Shown, fork_of, refused, refuses, turn, unknown, until};
use super::{Setup, Subject};

/// "Exec, Suspend, Resume and Approve on one session share one per-session guard across all harnesses of a host:
/// overlap -> ABORTED at once, no queueing, nothing changed."
pub async fn an_overlap_is_busy_and_changes_nothing<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (me, session) = (&world.me, world.me.created().await);
    let mut running = me.exec(turn(&session, "hold here, out done")).await.unwrap();
    until(&mut running, "IN").await;
    world.holds.entered("here").await;
    let before = world.records(&session).await.len();
    refuses(me.exec(turn(&session, "")).await, Condition::SessionBusy);
    let other = ExecRequest { harness: "other".to_owned(), ..turn(&session, "") };
    refuses(me.exec(other).await, Condition::SessionBusy);
    let resumed = me.resume(&session).await;
    assert_eq!(resumed.failed().condition(), Condition::SessionBusy);
    refused(me.suspend(&session).await, Condition::SessionBusy);
    assert_eq!(world.records(&session).await.len(), before);
    world.holds.let_go("here");
    let rest = Shown::of(Ok(running)).await.ok();
    assert_eq!(rest.kinds(), "OUT END");
}

/// "A stateless Fork takes none: it reads a prefix, and the parent's turn may run on."
pub async fn a_fork_does_not_wait_for_a_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (me, session) = (&world.me, world.me.created().await);
    let mut running = me.exec(turn(&session, "out a, hold here")).await.unwrap();
    until(&mut running, "OUT").await;
    let children = me.fork(fork_of(&session)).await.unwrap();
    assert_eq!(world.journal(&children[0].uid).await, "ES IN OUT FORK");
    world.holds.let_go("here");
    assert_eq!(Shown::of(Ok(running)).await.ok().kinds(), "END");
}

/// "A name the host does not serve -> INVALID_ARGUMENT listing the served names."
pub async fn an_unknown_harness_is_refused_with_those_served<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { harness: "nobody".to_owned(), ..turn(&session, "") };
    let error = refuses(world.me.exec(request).await, Condition::UnknownHarness);
    let text = error.to_string();
    assert!(text.contains("script") && text.contains("other"), "{text}");
    assert_eq!(world.journal(&session).await, "");
}

/// "otherwise it applies to this turn only and must be served"
pub async fn another_harness_is_for_its_turn_only<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let request = ExecRequest { harness: "other".to_owned(), ..turn(&session, "out b") };
    Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(world.me.get(&session).await.unwrap().harness, "");
    let row = world.row(&session).await;
    assert_eq!(row.view.latest.unwrap().start.unwrap().harness, "other");
    world.me.run(&session, "out c").await.ok();
    let row = world.row(&session).await;
    assert_eq!(row.view.latest.unwrap().start.unwrap().harness, "script");
}

/// "With an unknown session the unknown override is reported first (INVALID_ARGUMENT before NOT_FOUND)."
pub async fn an_unknown_override_comes_before_an_unknown_session<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let request = ExecRequest { harness: "nobody".to_owned(), ..turn(&unknown(), "") };
    refuses(world.me.exec(request).await, Condition::UnknownHarness);
}

/// A session's own harness is the one that it was created with.
pub async fn a_turn_runs_on_the_stored_harness<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let create = CreateRequest { harness: "other".to_owned(), ..CreateRequest::default() };
    let session = world.me.create(create).await.unwrap().uid;
    world.me.run(&session, "out a").await.ok();
    let row = world.row(&session).await;
    assert_eq!(row.view.latest.unwrap().start.unwrap().harness, "other");
}

/// "unknown ... session NOT_FOUND", by every method that names one.
pub async fn an_unknown_session_is_not_found<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (me, session) = (&world.me, unknown());
    let missing = Condition::SessionNotFound;
    refused(me.get(&session).await, missing);
    refuses(me.exec(turn(&session, "")).await, missing);
    assert_eq!(me.resume(&session).await.failed().condition(), missing);
    refused(me.suspend(&session).await, missing);
    refused(me.fork(fork_of(&session)).await, missing);
    refused(me.delete(&session).await, missing);
    refused(me.replay(super::support::range(&session, 0, 0)).await, missing);
    let follow = me.follow(&session, 0).await;
    refuses(follow, missing);
    assert_eq!(world.count().await, 0, "nothing was created");
}
