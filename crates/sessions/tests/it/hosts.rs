//! Many hosts over one store: what becomes of the turns of one that dies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mainspring_api::{
    AppendId, CancelReason, CancelRequest, Condition, ExecState, ExecStream, Message, ModelError,
    ModelProvider, ModelReply, ModelRequest, OsEntropy, SessionUid, Sessions as _, Usage,
    async_trait,
};
use mainspring_eventlog::{Holder, Level, mint_any};
use mainspring_sessions::Service;

use crate::alive::{SILENCE, Shared, within};
use crate::recovery::{inside, is_whole};
use crate::support::{Drive as _, World, caller, shown, turn};

const SECOND: Duration = Duration::from_secs(1);

/// Who holds the fence of a session.
async fn holder(world: &World, session: &SessionUid) -> String {
    world.log.get(session, Level::Strict).await.unwrap().fence.holder.unwrap().id
}

/// A turn of a host that then is killed, inside a tool that waits for good.
async fn killed(shared: &Shared, host: &Service, name: &str) -> (SessionUid, ExecStream) {
    let session = host.created().await;
    let watched = inside(host, turn(&session, "tool c1 slow, out x")).await;
    shared.alive.kill(name);
    (session, watched)
}

#[tokio::test(start_paused = true)]
async fn a_killed_hosts_turn_is_resumed_by_a_survivor_within_five_seconds() {
    // Wherever in its round the survivor is.
    for offset in [0, 250, 500, 750, 990] {
        let shared = Shared::new();
        let world = &shared.world;
        let (a, b) = (shared.host("a").await, shared.survivor("b").await);
        tokio::time::sleep(30 * SECOND + Duration::from_millis(offset)).await;
        let (session, watched) = killed(&shared, &a, "a").await;
        let took = within(5 * SECOND, async || holder(world, &session).await == "b").await;
        assert!(took >= SILENCE, "while it was thought alive: {took:?}");
        assert!(world.tools.go.set(()));
        within(SECOND, async || world.journal(&session).await.ends_with("RESUME")).await;
        assert_eq!(world.journal(&session).await, "ES IN TC TR OUT END RESUME");
        // It was not dead after all, and learns that it has lost the turn.
        let lost = shown(Ok(watched)).await.error.unwrap().condition();
        assert!(matches!(lost, Condition::Fenced | Condition::Conflict), "{lost:?}");
        assert!(is_whole(&b, &session).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_after_the_death_finds_the_turn_too() {
    let shared = Shared::new();
    let a = shared.host("a").await;
    let (session, _watched) = killed(&shared, &a, "a").await;
    tokio::time::sleep(60 * SECOND).await;
    let _b = shared.survivor("b").await;
    // It has never heard of that host, and waits for it a moment.
    let took = within(5 * SECOND, async || holder(&shared.world, &session).await == "b").await;
    assert!(took >= SILENCE, "{took:?}");
}

/// Answers after a minute.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl ModelProvider for Slow {
    async fn complete(&self, _: &ModelRequest) -> Result<ModelReply, ModelError> {
        tokio::time::sleep(60 * SECOND).await;
        Ok(ModelReply { message: Message::assistant("slow"), usage: Usage::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_turn_in_a_long_model_call_is_never_taken() {
    let mut shared = Shared::new();
    shared.world.model = Arc::new(Slow);
    let (a, _b) = (shared.host("a").await, shared.survivor("b").await);
    let session = a.created().await;
    let run = a.run(&session, "ask, out x").await;
    assert!(run.error.is_none(), "{:?}", run.error);
    assert_eq!(shared.world.fence(&session).await, 1);
    assert!(!shared.world.journal(&session).await.contains("RESUME"));
}

/// Both ask for the fence before either has it.
#[tokio::test(start_paused = true)]
async fn of_two_survivors_one_resumes_a_dead_hosts_turn() {
    let shared = Shared::new();
    let world = &shared.world;
    let a = shared.host("a").await;
    let (session, _watched) = killed(&shared, &a, "a").await;
    shared.log.hook().mints_at_once.store(2, Ordering::Relaxed);
    let (b, c) = (shared.survivor("b").await, shared.survivor("c").await);
    within(10 * SECOND, async || world.tools.started().len() == 2).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(world.fence(&session).await, 2, "one fence was minted");
    assert_eq!(world.tools.started(), ["key-c1", "key-c1"], "the dead host's and one more");
    assert!(world.tools.go.set(()));
    within(SECOND, async || world.journal(&session).await.ends_with("RESUME")).await;
    assert_eq!(world.journal(&session).await, "ES IN TC TR OUT END RESUME");
    b.idle().await;
    c.idle().await;
    assert!(is_whole(&c, &session).await);
}

#[tokio::test(start_paused = true)]
async fn of_two_calls_that_resume_a_dead_hosts_turn_one_is_told_that_it_moved() {
    let shared = Shared::new();
    let a = shared.host("a").await;
    let (session, _watched) = killed(&shared, &a, "a").await;
    tokio::time::sleep(SILENCE).await;
    let (b, c) = (shared.host("b").await, shared.host("c").await);
    shared.log.hook().mints_at_once.store(2, Ordering::Relaxed);
    assert!(shared.world.tools.go.set(()));
    let (first, second) = tokio::join!(b.resumed(&session), c.resumed(&session));
    let errors: Vec<_> = [first.error, second.error].into_iter().flatten().collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].condition(), Condition::Conflict, "{}", errors[0]);
    assert_eq!(shared.world.journal(&session).await, "ES IN TC TR OUT END RESUME");
}

/// A third host has taken the turn while this one was looking at it.
#[tokio::test(start_paused = true)]
async fn a_turn_that_another_host_took_meanwhile_is_not_taken_from_it() {
    let shared = Shared::new();
    let a = shared.host("a").await;
    let (session, _watched) = killed(&shared, &a, "a").await;
    tokio::time::sleep(SILENCE).await;
    let (stepping, log) = shared.world.stepping();
    let b = stepping.service_by("scripted", "b");
    let _c = shared.host("c").await;
    let (inner, uid) = (Arc::clone(&shared.world.log), session.clone());
    // The third read is the one under the lease.
    log.hook().arm(3, async move {
        let holder = Holder { id: "c".to_owned(), name: "test/c".to_owned() };
        mint_any(&*inner, &uid, || AppendId::random(&OsEntropy), holder).await.unwrap();
    });
    let resumed = tokio::time::timeout(60 * SECOND, b.resumed(&session)).await;
    let error = resumed.expect("it is told at once").error.unwrap();
    assert!(log.hook().is_done());
    assert_eq!(error.condition(), Condition::SessionBusy, "{error}");
    assert_eq!(holder(&shared.world, &session).await, "c");
}

#[tokio::test(start_paused = true)]
async fn a_session_parks_on_one_host_is_approved_on_another_and_resumed_on_a_third() {
    let shared = Shared::new();
    let a = shared.host("a").await;
    let (b, c) = (shared.host("b").await, shared.host("c").await);
    let (session, approval) = a.parked(", out x").await;
    shared.alive.set("a", false);
    drop(a);
    b.decided(&session, &approval, true).await.unwrap();
    assert_eq!(holder(&shared.world, &session).await, "b");
    assert_eq!(c.resumed(&session).await.last().exec_state, ExecState::Completed);
    assert_eq!(holder(&shared.world, &session).await, "c");
    let journal = shared.world.journal(&session).await;
    assert_eq!(journal, "ES IN TC AQ SUSPEND AR TR OUT OUT END RESUME");
}

/// Who decided has died before anybody went on.
#[tokio::test(start_paused = true)]
async fn a_decision_of_a_host_that_died_is_acted_on() {
    let shared = Shared::new();
    let (a, b) = (shared.host("a").await, shared.host("b").await);
    let (session, approval) = a.parked("").await;
    let _c = shared.survivor("c").await;
    b.decided(&session, &approval, true).await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert!(shared.world.journal(&session).await.ends_with("AR"), "a live host's to resume");
    shared.alive.kill("b");
    within(5 * SECOND, async || shared.world.journal(&session).await.ends_with("RESUME")).await;
    assert_eq!(holder(&shared.world, &session).await, "c");
}

/// Whoever parked it kept its time.
#[tokio::test(start_paused = true)]
async fn a_request_of_a_host_that_died_expires_on_another() {
    let mut shared = Shared::new();
    shared.world.ttl = Some(60 * SECOND);
    let (a, b) = (shared.host("a").await, shared.survivor("b").await);
    b.watch_approvals();
    tokio::time::sleep(SECOND).await;
    let (session, _) = a.parked("").await;
    drop(a);
    shared.alive.kill("a");
    let bound = 400 * SECOND;
    within(bound, async || shared.world.journal(&session).await.ends_with("RESUME")).await;
    assert_eq!(holder(&shared.world, &session).await, "b");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_on_another_host_ends_the_turn_and_its_caller_is_told() {
    let shared = Shared::new();
    let world = &shared.world;
    let (a, b) = (shared.survivor("a").await, shared.survivor("b").await);
    let session = a.created().await;
    let watched = inside(&a, turn(&session, "tool c1 slow, out x")).await;
    let row = world.log.get(&session, Level::Strict).await.unwrap();
    let request = CancelRequest {
        session: session.clone(),
        execution_id: row.view.latest.unwrap().id,
        reason: CancelReason::User,
    };
    let canceled = b.cancel(&caller(), request).await.unwrap();
    assert_eq!(canceled.exec_state, ExecState::Canceled);
    assert!(world.tools.go.set(()));
    let error = shown(Ok(watched)).await.error.expect("its turn is not its own any more");
    let known = [Condition::Fenced, Condition::Conflict];
    assert!(known.contains(&error.condition()), "{error}");
    tokio::time::timeout(SECOND, a.idle()).await.expect("nothing of it runs on");
    assert_eq!(a.get(&caller(), &session).await.unwrap().exec_state, ExecState::Canceled);
    assert_eq!(a.run(&session, "out y").await.kinds(), "ES IN OUT END");
}

/// A host that does not even hear itself cannot tell who is dead.
#[tokio::test(start_paused = true)]
async fn a_host_that_hears_nobody_takes_nothing() {
    let shared = Shared::new();
    let (a, _b) = (shared.host("a").await, shared.survivor("b").await);
    tokio::time::sleep(5 * SECOND).await;
    shared.alive.set("b", false);
    let (session, _watched) = killed(&shared, &a, "a").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(holder(&shared.world, &session).await, "a");
    // What it hears first may be old: it waits for the others anew.
    shared.alive.set("b", true);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(holder(&shared.world, &session).await, "a");
    within(5 * SECOND, async || holder(&shared.world, &session).await == "b").await;
}

/// As a store tells it that has no line to the others: by an error.
#[tokio::test(start_paused = true)]
async fn a_host_that_could_not_ask_waits_for_the_others_anew() {
    let shared = Shared::new();
    let (a, _b) = (shared.host("a").await, shared.survivor("b").await);
    let session = a.created().await;
    let _watched = inside(&a, turn(&session, "tool c1 slow, out x")).await;
    tokio::time::sleep(5 * SECOND).await;
    shared.alive.deaf.store(true, Ordering::Relaxed);
    shared.alive.set("a", false);
    tokio::time::sleep(60 * SECOND).await;
    shared.alive.deaf.store(false, Ordering::Relaxed);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(holder(&shared.world, &session).await, "a");
    within(5 * SECOND, async || holder(&shared.world, &session).await == "b").await;
}

/// Its own clock went on while it stood still, and the others' signs wait unread.
#[tokio::test(start_paused = true)]
async fn a_host_that_stood_still_listens_before_it_takes() {
    let shared = Shared::new();
    let (a, _b) = (shared.host("a").await, shared.survivor("b").await);
    let session = a.created().await;
    let _watched = inside(&a, turn(&session, "tool c1 slow, out x")).await;
    tokio::time::sleep(5 * SECOND).await;
    shared.alive.set("a", false);
    tokio::time::advance(10 * SECOND).await;
    tokio::time::sleep(2 * SECOND).await;
    shared.alive.set("a", true);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(holder(&shared.world, &session).await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_seen_is_looked_after_each_second_though_looks_are_rare() {
    let shared = Shared::new();
    let (a, _b) = (shared.host("a").await, shared.survivor("b").await);
    let session = a.created().await;
    let _watched = inside(&a, turn(&session, "tool c1 slow, out x")).await;
    let hook = shared.log.hook();
    hook.read_takes.store(2, Ordering::Relaxed);
    tokio::time::sleep(60 * SECOND).await;
    let before = hook.reads.load(Ordering::Relaxed);
    within(30 * SECOND, async || hook.reads.load(Ordering::Relaxed) > before).await;
    // It has just begun to look, and rests for a while then.
    tokio::time::sleep(3 * SECOND).await;
    hook.read_takes.store(0, Ordering::Relaxed);
    shared.alive.kill("a");
    within(5 * SECOND, async || holder(&shared.world, &session).await == "b").await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_cannot_be_reached_yet_is_taken_over_later() {
    let shared = Shared::new();
    let (a, _b) = (shared.host("a").await, shared.survivor("b").await);
    let (session, _watched) = killed(&shared, &a, "a").await;
    shared.world.compute.not_up.store(3, Ordering::Relaxed);
    within(30 * SECOND, async || holder(&shared.world, &session).await == "b").await;
    assert_eq!(shared.world.compute.not_up.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_may_not_be_finished_is_refused_once() {
    let shared = Shared::new();
    let world = &shared.world;
    let (a, b) = (shared.host("a").await, shared.survivor("b").await);
    world.tools.repeatable.store(false, Ordering::Relaxed);
    let (session, _watched) = killed(&shared, &a, "a").await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(holder(world, &session).await, "a", "nobody knows what became of its call");
    let reads = shared.log.hook().reads.load(Ordering::Relaxed);
    tokio::time::sleep(60 * SECOND).await;
    let more = shared.log.hook().reads.load(Ordering::Relaxed) - reads;
    assert!(more <= 61, "nothing but the looks: {more}");
    drop(b);
}

/// With nothing open, a round is one look into the index; where a look takes
/// long, it is made more rarely.
#[tokio::test(start_paused = true)]
async fn looks_for_open_turns_take_a_tenth_of_the_time_at_most() {
    let shared = Shared::new();
    let _b = shared.survivor("b").await;
    let counted = async |seconds: u32| {
        let before = shared.log.hook().reads.load(Ordering::Relaxed);
        tokio::time::sleep(seconds * SECOND).await;
        shared.log.hook().reads.load(Ordering::Relaxed) - before
    };
    let quick = counted(100).await;
    assert!((99..=101).contains(&quick), "{quick}");
    shared.log.hook().read_takes.store(2, Ordering::Relaxed);
    tokio::time::sleep(60 * SECOND).await;
    let slow = counted(200).await;
    assert!((8..=11).contains(&slow), "{slow}");
    shared.log.hook().read_takes.store(60, Ordering::Relaxed);
    tokio::time::sleep(200 * SECOND).await;
    let slowest = counted(900).await;
    assert!((9..=11).contains(&slowest), "not more than half a minute apart: {slowest}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_announce_itself_says_so() {
    let shared = Shared::new();
    shared.alive.refuses.store(true, Ordering::Relaxed);
    let host = shared.world.service_by("scripted", "a");
    let refused = host.announce().await.unwrap_err();
    assert_eq!(refused.condition(), Condition::Unavailable, "{refused}");
    assert!(refused.to_string().contains("announce"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_drains_takes_nothing_over() {
    let shared = Shared::new();
    let (a, b) = (shared.host("a").await, shared.survivor("b").await);
    tokio::time::sleep(5 * SECOND).await;
    b.drain();
    let (session, _watched) = killed(&shared, &a, "a").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(holder(&shared.world, &session).await, "a");
}
