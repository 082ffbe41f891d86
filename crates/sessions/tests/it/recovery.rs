//! Turns that their host left open, and turns that another host drives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, CancelReason, CancelRequest, Condition, CreateRequest, EventBody, ExecRequest,
    ExecState, ExecStream, ExecUpdate, ExecutionId, Operations as _, OsEntropy, Resolution,
    ResolveRequest, ResumeRequest, SessionUid, Sessions as _, VerifyRequest,
};
use mainspring_eventlog::{Holder, mint_any};
use mainspring_sessions::{ExecStateProjection, Service};
use tokio::time::Instant;

use crate::alive::Shared;
use crate::support::{Drive as _, World, caller, shown, turn};

/// Begins a turn and reads its stream until it calls a tool.
pub(crate) async fn inside(service: &Service, request: ExecRequest) -> ExecStream {
    let mut stream = service.exec(&caller(), request).await.unwrap();
    while let Some(update) = stream.next().await {
        if let ExecUpdate::Record(record) = update.unwrap()
            && matches!(record.event.body, EventBody::ToolCall(_))
        {
            return stream;
        }
    }
    panic!("it calls none");
}

fn resolve(session: &SessionUid, execution_id: &ExecutionId) -> ResolveRequest {
    ResolveRequest {
        session: session.clone(),
        execution_id: execution_id.clone(),
        tool_call_id: "c1".to_owned(),
        resolution: Resolution::Failed("no".to_owned()),
    }
}

pub(crate) async fn is_whole(service: &Service, session: &SessionUid) -> bool {
    let request = VerifyRequest { session: session.clone(), expect_head: None };
    let steps = service.verify(&caller(), request).await.unwrap();
    steps.all(|step| std::future::ready(step.is_ok())).await
}

/// What another live host drives is busy, by that host's name; nothing is done
/// to it. When the host is dead its turn is taken over, and its writer loses.
#[tokio::test(start_paused = true)]
async fn b3_a_turn_of_another_live_host_is_busy() {
    let shared = Shared::new();
    let (world, alive) = (&shared.world, &shared.alive);
    let (a, b) = (world.service_by("scripted", "a"), world.service_by("scripted", "b"));
    alive.set("a", true);
    let session = a.created().await;
    let chosen = ExecutionId::chosen("0123456789abcdef").unwrap();
    let once =
        ExecRequest { execution_id: Some(chosen.clone()), ..turn(&session, "tool c1 slow, out x") };
    let watched = inside(&a, once.clone()).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let before = world.records(&session).await;
    world.compute.calls();
    let resume = ResumeRequest { session: session.clone(), approval_ttl: None };
    let failed = async |request| shown(b.exec(&caller(), request).await).await.error.unwrap();
    let approval = mainspring_api::ApprovalRef {
        execution_id: chosen.to_string(),
        tool_call_id: "c1".to_owned(),
        request_seq: 4,
    };
    for error in [
        failed(turn(&session, "out y")).await,
        failed(once.clone()).await,
        shown(b.resume(&caller(), resume).await).await.error.unwrap(),
        b.suspend(&caller(), &session).await.unwrap_err(),
        b.resolve(&caller(), resolve(&session, &chosen)).await.unwrap_err(),
        b.decided(&session, &approval, true).await.unwrap_err(),
    ] {
        assert_eq!(error.condition(), Condition::SessionBusy, "{error}");
        let text = error.to_string();
        assert!(text.contains("test/a") && text.contains("7 s"), "{text}");
        assert!(text.contains(chosen.as_str()), "{text}");
    }
    assert_eq!(b.resume_interrupted().await.unwrap().left, 1);
    assert_eq!(world.records(&session).await, before);
    assert_eq!(world.fence(&session).await, 1);
    assert!(world.compute.calls().is_empty());

    alive.set("a", false);
    assert_eq!(b.run(&session, "out y").await.kinds(), "ES IN OUT END", "it is abandoned");
    assert!(world.tools.go.set(()));
    let lost = shown(Ok(watched)).await;
    let condition = lost.error.unwrap().condition();
    assert!(matches!(condition, Condition::Fenced | Condition::Conflict), "{condition:?}");
    assert_eq!(world.journal(&session).await, "ES IN TC ES IN OUT END");
    assert!(is_whole(&b, &session).await);
}

/// The same where both resume, on a store that says nothing of who is alive.
#[tokio::test(start_paused = true)]
async fn b3_the_older_of_two_resumes_loses() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let a = world.service_by("scripted", "a");
    let session = a.created().await;
    let watched = inside(&a, turn(&session, "tool c1 slow, out x")).await;
    let b = world.service_by("scripted", "b");
    let second = tokio::spawn({
        let (b, session) = (b.clone(), session.clone());
        async move { b.resumed(&session).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.tools.go.set(()));
    let resumed = second.await.unwrap();
    assert_eq!(resumed.last().exec_state, ExecState::Completed);
    let condition = shown(Ok(watched)).await.error.unwrap().condition();
    assert!(matches!(condition, Condition::Fenced | Condition::Conflict), "{condition:?}");
    assert_eq!(world.journal(&session).await, "ES IN TC TR OUT END RESUME");
    assert!(is_whole(&b, &session).await);
}

/// A live host may be cancelled, and holds nothing that waits or has failed.
#[tokio::test(start_paused = true)]
async fn a_live_host_keeps_nobody_from_what_it_does_not_drive() {
    let shared = Shared::new();
    let (world, alive) = (&shared.world, &shared.alive);
    let (a, b) = (world.service_by("scripted", "a"), world.service_by("scripted", "b"));
    alive.set("a", true);
    let (parked, approval) = a.parked("").await;
    assert!(b.resumed(&parked).await.last().pending_approval.is_some());
    let (decided, other) = a.parked("").await;
    a.decided(&decided, &other, true).await.unwrap();
    assert_eq!(b.resumed(&decided).await.last().exec_state, ExecState::Completed);
    b.decided(&parked, &approval, false).await.unwrap();
    alive.set("b", true);
    assert_eq!(a.resumed(&parked).await.last().exec_state, ExecState::Completed);
    let failed = a.created().await;
    a.run(&failed, "out a, fail own").await;
    assert_eq!(b.run(&failed, "out x").await.kinds(), "ES IN OUT END");
    let running = a.created().await;
    let watched = inside(&a, turn(&running, "tool c1 slow, out x")).await;
    let row = world.log.get(&running, mainspring_eventlog::Level::Strict).await.unwrap();
    let request = CancelRequest {
        session: running.clone(),
        execution_id: row.view.latest.unwrap().id,
        reason: CancelReason::User,
    };
    let canceled = b.cancel(&caller(), request).await.unwrap();
    assert_eq!(canceled.exec_state, ExecState::Canceled);
    assert_eq!(b.run(&running, "out x").await.kinds(), "ES IN OUT END");
    assert!(world.tools.go.set(()));
    assert!(shown(Ok(watched)).await.error.is_some());
}

/// Leaves turns open on sessions of these projects, as a host that is stopped does.
async fn left_open(world: &World, projects: &[&str], count: usize) -> Vec<SessionUid> {
    let host = world.service_by("scripted", "first");
    let (mut sessions, mut streams) = (Vec::new(), Vec::new());
    for n in 0..count {
        let project = projects[n % projects.len()].to_owned();
        let create = CreateRequest { project, ..CreateRequest::default() };
        let session = host.create(&caller(), create).await.unwrap().uid;
        streams.push(inside(&host, turn(&session, "tool c1 slow, out x")).await);
        sessions.push(session);
    }
    host.interrupt();
    host.idle().await;
    drop(streams);
    sessions
}

/// All of them, in every project, over many pages; what waits is left alone.
#[tokio::test(start_paused = true)]
async fn a_host_finishes_what_the_last_one_left() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let sessions = left_open(&world, &["default", "other", ""], 330).await;
    let next = world.service_by("scripted", "second");
    let (parked, _) = next.parked("").await;
    let failed = next.created().await;
    next.run(&failed, "fail own").await;
    assert!(world.tools.go.set(()));
    world.compute.calls();
    let done = next.resume_interrupted().await.unwrap();
    assert_eq!((done.resumed, done.refused, done.left), (330, 0, 0));
    for session in &sessions {
        assert_eq!(world.journal(session).await, "ES IN TC TR OUT END RESUME");
    }
    assert_eq!(world.journal(&parked).await, "ES IN TC AQ SUSPEND");
    assert_eq!(world.journal(&failed).await, "ES IN ERR");
    let again = next.resume_interrupted().await.unwrap();
    assert_eq!((again.resumed, again.refused, again.left), (0, 0, 0));
}

/// A turn that takes long holds up no other, in whatever page that is.
#[tokio::test(start_paused = true)]
async fn a_slow_turn_holds_up_no_other_recovery() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let host = world.service_by("scripted", "first");
    let mut slow = host.created().await;
    let mut quick = Vec::new();
    for n in 0..260 {
        let session = host.created().await;
        let script = if n == 255 { "tool c1 slow" } else { "gate c1" };
        if n == 255 {
            drop(inside(&host, turn(&session, script)).await);
            slow = session;
        } else {
            let parked = host.run(&session, script).await;
            let approval = parked.last().pending_approval.clone().unwrap();
            host.decided(&session, &approval, true).await.unwrap();
            quick.push(session);
        }
    }
    host.interrupt();
    host.idle().await;
    // Newest first: the slow one is on the first page.
    let next = world.service_by("scripted", "second");
    let recovery = tokio::spawn({
        let next = next.clone();
        async move { next.resume_interrupted().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    for session in &quick {
        assert!(world.journal(session).await.ends_with("AR TR OUT END RESUME"));
    }
    assert_eq!(world.journal(&slow).await, "ES IN TC");
    assert!(world.tools.go.set(()));
    assert_eq!(recovery.await.unwrap().resumed, 260);
}

/// A decision that nobody has acted on is acted on.
#[tokio::test(start_paused = true)]
async fn a_decided_turn_is_finished_at_the_next_start() {
    let world = World::new();
    let first = world.service_by("scripted", "first");
    let (session, approval) = first.parked("").await;
    first.decided(&session, &approval, true).await.unwrap();
    drop(first);
    let done = world.service_by("scripted", "second").resume_interrupted().await.unwrap();
    assert_eq!(done.resumed, 1);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR OUT END RESUME");
}

/// A harness that comes up after its host is waited for, a bounded time.
#[tokio::test(start_paused = true)]
async fn a_turn_whose_compute_is_not_up_yet_is_tried_again() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let sessions = left_open(&world, &["default"], 2).await;
    assert!(world.tools.go.set(()));
    world.compute.not_up.store(5, Ordering::Relaxed);
    let done = world.service_by("scripted", "second").resume_interrupted().await.unwrap();
    assert_eq!((done.resumed, done.refused, done.left), (2, 0, 0));
    for session in &sessions {
        assert!(world.journal(session).await.contains("END"));
    }
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let open = left_open(&world, &["default"], 1).await;
    world.compute.not_up.store(usize::MAX, Ordering::Relaxed);
    let next = world.service_by("scripted", "third");
    let begun = Instant::now();
    let done = next.resume_interrupted().await.unwrap();
    assert_eq!((done.resumed, done.refused, done.left), (0, 1, 0));
    assert!(begun.elapsed() > Duration::from_secs(100));
    // A drain ends the waiting.
    let (waiting, begun) = (next.clone(), Instant::now());
    let waiting = tokio::spawn(async move { waiting.resume_interrupted().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(10)).await;
    next.drain();
    assert_eq!(waiting.await.unwrap().refused, 1);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(!world.journal(&open[0]).await.contains("END"));
}

/// A call that nobody knows the outcome of stays for a person; an import was
/// never driven by any host; one that is drained begins nothing.
#[tokio::test(start_paused = true)]
async fn what_a_host_may_not_finish_is_left_as_it_is() {
    let world = World::new();
    let sessions = left_open(&world, &["default"], 2).await;
    let imported = world.cut(&sessions[0], 2).await;
    let next = world.service_by("scripted", "second");
    world.compute.calls();
    let done = next.resume_interrupted().await.unwrap();
    assert_eq!((done.resumed, done.refused, done.left), (0, 2, 1));
    for session in &sessions {
        assert_eq!(world.journal(session).await, "ES IN TC");
        assert_eq!(world.fence(session).await, 1);
    }
    assert_eq!(world.journal(&imported).await, "ES IN");
    assert!(world.compute.calls().is_empty());
    world.tools.repeatable.store(true, Ordering::Relaxed);
    next.drain();
    let done = next.resume_interrupted().await.unwrap();
    assert_eq!((done.resumed, done.refused, done.left), (0, 0, 0));
    assert_eq!(world.journal(&sessions[0]).await, "ES IN TC");
}

/// A turn that a client begins, or goes on with, as the host looks for open
/// ones is entered once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b35_recovery_enters_no_turn_twice() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    assert!(world.tools.go.set(()));
    let whole = world.service().created().await;
    world.service().run(&whole, "tool c1 slow, out x").await;
    for round in 0..20 {
        // Its host has died inside the tool.
        let session = world.cut(&whole, 3).await;
        let holder = Holder { id: "dead".to_owned(), name: "dead".to_owned() };
        let id = || AppendId::random(&OsEntropy);
        mint_any(&*world.log, &session, id, holder).await.unwrap();
        let world = World { tools: Arc::default(), ..world.clone() };
        world.tools.repeatable.store(true, Ordering::Relaxed);
        assert!(world.tools.go.set(()));
        let next = world.service_by("scripted", "second");
        let clients = (0..4).map(|client| {
            let (next, session) = (next.clone(), session.clone());
            tokio::spawn(async move {
                match (round + client) % 2 {
                    0 => next.resumed(&session).await,
                    _ => next.run(&session, "tool c2 slow, out y").await,
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        let (first, second) = tokio::join!(next.resume_interrupted(), next.resume_interrupted());
        for client in clients {
            let error = client.await.unwrap().error;
            assert!(
                error.as_ref().is_none_or(|e| e.condition() == Condition::SessionBusy),
                "{error:?}"
            );
        }
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.resumed + second.resumed <= 1, "{first:?} {second:?}");
        assert_eq!(first.refused + second.refused, 0, "{first:?} {second:?}");
        next.idle().await;
        let started = world.tools.started();
        let of = |key| started.iter().filter(|started| *started == key).count();
        assert!(of("key-c1") <= 1, "once at most: {started:?}");
        let journal = world.journal(&session).await;
        let begun = journal.split(' ').filter(|kind| *kind == "ES").count() - 1;
        assert_eq!(of("key-c2"), begun, "each new turn once");
        assert!(is_whole(&next, &session).await);
    }
}

/// What a client has finished by the time that it comes up is left as it is.
#[tokio::test(start_paused = true)]
async fn b35_recovery_leaves_what_was_finished_meanwhile() {
    let plain = World::new();
    plain.tools.repeatable.store(true, Ordering::Relaxed);
    let (world, log) = plain.stepping();
    let session = left_open(&plain, &["default"], 1).await.remove(0);
    assert!(plain.tools.go.set(()));
    let client = {
        let (service, session) = (plain.service_by("scripted", "client"), session.clone());
        async move { drop(service.resumed(&session).await.last().uid.clone()) }
    };
    // The first read is the list.
    log.hook().arm(1, client);
    let done = world.service_by("scripted", "second").resume_interrupted().await.unwrap();
    assert!(log.hook().is_done());
    assert_eq!((done.resumed, done.refused, done.left), (0, 0, 1));
    assert_eq!(world.journal(&session).await, "ES IN TC TR OUT END RESUME");
    assert_eq!(world.tools.started().len(), 2);
}

/// A host may be told to speak of turns as the reference does.
#[tokio::test(start_paused = true)]
async fn the_reference_knows_three_states() {
    let world = World::new();
    let reference = World { exec_state: ExecStateProjection::Reference, ..world.clone() };
    let (ours, theirs) = (world.service(), reference.service());
    let fresh = ours.created().await;
    let (parked, _) = ours.parked("").await;
    let failed = ours.created().await;
    ours.run(&failed, "fail own").await;
    let canceled = ours.created().await;
    ours.run(&canceled, "gate c1").await;
    ours.canceled(&canceled).await.unwrap();
    let open = world.cut(&failed, 2).await;
    for (session, derived, told) in [
        (&fresh, ExecState::Pending, ExecState::Pending),
        (&parked, ExecState::Awaiting, ExecState::Awaiting),
        (&failed, ExecState::Failed, ExecState::Completed),
        (&canceled, ExecState::Canceled, ExecState::Completed),
        (&open, ExecState::Running, ExecState::Completed),
    ] {
        assert_eq!(ours.get(&caller(), session).await.unwrap().exec_state, derived);
        assert_eq!(theirs.get(&caller(), session).await.unwrap().exec_state, told);
    }
    let request = turn(&fresh, "tool c1 slow");
    let watched = inside(&theirs, request).await;
    assert_eq!(theirs.get(&caller(), &fresh).await.unwrap().exec_state, ExecState::Completed);
    assert!(world.tools.go.set(()));
    shown(Ok(watched)).await;
}
