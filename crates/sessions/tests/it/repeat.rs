//! Calls that are made again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use mainspring_api::{
    Caller, CallerIdentity, Classify as _, Condition, CreateRequest, ExecRequest, ExecState,
    ExecutionId, ForkRequest, Message, Outcome, SessionUid, Sessions as _, Signal,
};
use mainspring_eventlog::{Level, ListQuery};
use mainspring_sessions::Service;
use mainspring_testkit::HookedLog;

use crate::doubles::Gatekeeper;
use crate::support::{Drive as _, Shown, World, caller, shown, turn};

const ID: &str = "0123456789abcdef";

fn id(text: &str) -> ExecutionId {
    ExecutionId::chosen(text).unwrap()
}

/// A turn under a chosen id.
pub(crate) fn once(session: &SessionUid, script: &str) -> ExecRequest {
    ExecRequest { execution_id: Some(id(ID)), ..turn(session, script) }
}

fn keyed(session: Option<&SessionUid>, key: &str, script: &str) -> ExecRequest {
    ExecRequest {
        session: session.cloned(),
        inputs: vec![Message::user("go")],
        config: script.to_owned().into(),
        idempotency_key: Some(key.to_owned()),
        ..ExecRequest::default()
    }
}

async fn exec(service: &Service, request: ExecRequest) -> Shown {
    shown(service.exec(&caller(), request).await).await
}

#[track_caller]
fn refused(shown: &Shown, condition: Condition) -> String {
    assert!(shown.sessions.is_empty() && shown.records.is_empty(), "it is told at once");
    let error = shown.error.as_ref().expect("it is refused");
    assert_eq!(error.condition(), condition, "{error}");
    error.to_string()
}

async fn sessions(world: &World) -> usize {
    let query = ListQuery { project: "default".to_owned(), page_size: 500, ..ListQuery::default() };
    world.log.list(query, Level::Strict).await.unwrap().rows.len()
}

/// The same key and request give the same session, whatever has become of it;
/// another request under the key harms nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b36_a_key_creates_one_session() {
    let world = World::new();
    let service = world.service();
    let request = |name: &str| CreateRequest {
        name: name.to_owned(),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        idempotency_key: Some("key-1".to_owned()),
        ..CreateRequest::default()
    };
    let calls = (0..20).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.create(&caller(), request("one")).await.unwrap() })
    });
    let mut uids = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        uids.push(call.await.unwrap().uid);
    }
    uids.dedup();
    let [uid] = &uids[..] else { panic!("{uids:?}") };
    assert!(uid.as_str().starts_with("sess-") && uid.as_str().len() == 29, "{uid}");
    service.run(uid, "out x").await;
    let again = world.service().create(&caller(), request("one")).await.unwrap();
    assert_eq!((&again.uid, again.exec_state), (uid, ExecState::Completed), "as it is by now");

    let other = service.create(&caller(), request("two")).await.unwrap_err();
    assert_eq!(other.condition(), Condition::AlreadyExists);
    assert_eq!(service.get(&caller(), uid).await.unwrap().name, "one");
    let identity = CallerIdentity { issuer: "idp".to_owned(), subject: "alice".to_owned() };
    let alice = Caller { identity: Some(identity), ..caller() };
    let hers = service.create(&alice, request("one")).await.unwrap();
    assert_ne!(hers.uid, *uid, "keys are a caller's own");
    assert_eq!(sessions(&world).await, 2);
    service.drain();
    assert_eq!(service.create(&caller(), request("one")).await.unwrap().uid, *uid);
}

/// However many ask for one execution at once: it is begun once, and all see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_calls_of_one_id_are_one_turn() {
    for round in 0..4 {
        let world = World::new();
        let service = world.service();
        let session = service.created().await;
        if round % 2 == 0 {
            // Ends at once: some come only then.
            assert!(world.tools.go.set(()));
        }
        let calls = (0..50).map(|_| {
            let (service, session) = (service.clone(), session.clone());
            tokio::spawn(async move { exec(&service, once(&session, "tool c1 slow, out x")).await })
        });
        let calls: Vec<_> = calls.collect();
        world.tools.entered.wait().await;
        world.tools.go.set(());
        let records = {
            service.idle().await;
            world.records(&session).await
        };
        for call in calls {
            let shown = call.await.unwrap();
            assert_eq!(shown.last().uid, session, "the session comes first");
            assert_eq!(shown.kinds(), "ES IN TC TR OUT END");
            for (seen, record) in shown.records.iter().zip(&records) {
                assert_eq!(
                    (seen.seq, seen.hash, &seen.event),
                    (record.seq, record.hash, &record.event)
                );
            }
        }
        assert_eq!(world.journal(&session).await, "ES IN TC TR OUT END");
        assert_eq!(world.tools.started(), ["key-c1"]);
        assert_eq!(world.fence(&session).await, 1);
    }
}

/// What is over is told from its journal: nothing is run for it, not even by a
/// host that drains or knows it from the journal alone.
#[tokio::test(start_paused = true)]
async fn an_ended_execution_is_shown_again() {
    for (script, journal, condition) in [
        ("out a, out b", "ES IN OUT OUT END", None),
        ("out a, fail own", "ES IN OUT ERR", Some(Condition::HarnessFailed)),
    ] {
        let world = World::new();
        let session = world.service().created().await;
        let first = exec(&world.service(), once(&session, script)).await;
        world.compute.calls();
        let next = world.service();
        next.drain();
        let past =
            ExecRequest { deadline_unix: 1, expected_last_seq: Some(0), ..once(&session, script) };
        for request in [once(&session, script), past] {
            let again = exec(&next, request).await;
            assert_eq!(again.kinds(), journal);
            assert_eq!(again.records.len(), first.records.len());
            let told = again.error.map(|error| (error.condition(), error.outcome()));
            assert_eq!(told, condition.map(|condition| (condition, Outcome::Applied)));
        }
        // Also when it is not the latest any more.
        world.service().run(&session, "out x").await;
        let again = exec(&world.service(), once(&session, script)).await;
        assert_eq!(again.kinds(), journal);
        assert_eq!(again.error.map(|error| error.condition()), condition);
        assert_eq!(world.compute.calls(), ["create"]);
        assert_eq!(world.fence(&session).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_execution_says_so_again() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    exec(&service, once(&session, "gate c1")).await;
    service.canceled(&session).await.unwrap();
    let again = exec(&service, once(&session, "gate c1")).await;
    assert_eq!(again.kinds(), "ES IN TC AQ SUSPEND AR TR CANCELED");
    let error = again.error.unwrap();
    assert_eq!((error.condition(), error.outcome()), (Condition::Cancelled, Outcome::Applied));
    assert_eq!(error.to_string(), "canceled: USER");
    // One that was abandoned for another turn has no end to tell.
    let cut = world.cut(&session, 2).await;
    service.run(&cut, "out x").await;
    let again = exec(&service, once(&cut, "gate c1")).await;
    assert_eq!(again.kinds(), "ES IN");
    assert_eq!(again.error.unwrap().condition(), Condition::FailedPrecondition);
    assert_eq!(world.journal(&cut).await, "ES IN ES IN OUT END");
}

/// Whatever differs, and wherever the first one stands.
#[tokio::test(start_paused = true)]
async fn a_used_id_is_refused_for_another_turn() {
    let world = World::new();
    let service = world.service();
    let done = service.created().await;
    exec(&service, once(&done, "out x")).await;
    let old = service.created().await;
    exec(&service, once(&old, "out x")).await;
    service.run(&old, "out y").await;
    let open = world.cut(&done, 2).await;
    let running = service.created().await;
    let watched = service.exec(&caller(), once(&running, "tool c1 slow")).await.unwrap();
    world.tools.entered.wait().await;
    for session in [&done, &old, &open, &running] {
        let script = if *session == running { "tool c1 slow" } else { "out x" };
        let same = once(session, script);
        let before = world.records(session).await;
        for other in [
            ExecRequest { inputs: vec![Message::user("stop")], ..same.clone() },
            ExecRequest { inputs: Vec::new(), ..same.clone() },
            ExecRequest { config: "out z".into(), ..same.clone() },
            ExecRequest { resume_from_seq: 1, ..same.clone() },
            ExecRequest { harness: "other".to_owned(), ..same.clone() },
        ] {
            let message = refused(&exec(&service, other).await, Condition::AlreadyExists);
            assert!(message.contains(ID), "{message}");
        }
        assert_eq!(world.records(session).await, before);
    }
    // On another host: its default is another harness.
    let third = world.service_of("third");
    refused(&exec(&third, once(&done, "out x")).await, Condition::AlreadyExists);
    assert!(world.tools.go.set(()));
    drop(watched);
    service.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_inherited_id_is_taken() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    exec(&service, once(&session, "out x")).await;
    for (at_seq, journal) in [(0, "ES IN OUT END FORK"), (2, "ES IN FORK")] {
        let fork = ForkRequest {
            session: session.clone(),
            at_seq,
            count: 1,
            labels: Default::default(),
            child_names: Vec::new(),
            identity: None,
        };
        let child = service.fork(&caller(), fork).await.unwrap().remove(0).uid;
        let message =
            refused(&exec(&service, once(&child, "out x")).await, Condition::AlreadyExists);
        assert!(message.contains("inherited"), "{message}");
        assert_eq!(world.journal(&child).await, journal);
    }
}

/// A turn that its host left is gone on with, and shown from its start.
#[tokio::test(start_paused = true)]
async fn an_interrupted_execution_is_resumed_by_its_id() {
    let world = World::new();
    let first = world.service();
    let session = first.created().await;
    let request = once(&session, "out a, out b");
    exec(&first, request.clone()).await;
    let cut = world.cut(&session, 3).await;
    let request = ExecRequest { session: Some(cut.clone()), ..request };
    let again = exec(&world.service(), request.clone()).await;
    assert_eq!(again.kinds(), "ES IN OUT OUT END RESUME");
    assert_eq!(again.last().exec_state, ExecState::Completed);
    assert_eq!(again.sessions.len(), 2, "first and last");
    assert_eq!(exec(&world.service(), request).await.kinds(), "ES IN OUT OUT END");
    // Not where somebody must say first what became of a call.
    let unknown = first.created().await;
    let shown = exec(&first, once(&unknown, "tool c1 lost")).await;
    assert!(shown.error.is_some());
    let calls =
        world.journal(&unknown).await.split(' ').take_while(|kind| *kind != "TC").count() + 1;
    let cut = world.cut(&unknown, calls).await;
    let shown = exec(&first, once(&cut, "tool c1 lost")).await;
    assert_eq!(shown.kinds(), "ES IN TC");
    assert_eq!(shown.error.unwrap().condition(), Condition::UnansweredToolCall);
    assert_eq!(world.tools.started(), ["key-c1"]);
}

/// A call that asks again while the turn waits sees that it waits; after the
/// decision it goes on with it.
#[tokio::test(start_paused = true)]
async fn a_parked_execution_is_shown_and_then_gone_on_with() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let request = once(&session, "gate c1");
    let first = exec(&service, request.clone()).await;
    let approval = first.last().pending_approval.clone().unwrap();
    world.compute.calls();
    let again = exec(&service, request.clone()).await;
    assert_eq!(again.kinds(), first.kinds());
    assert_eq!(again.last().pending_approval, Some(approval.clone()));
    assert!(world.compute.calls().is_empty());
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    service.decided(&session, &approval, true).await.unwrap();
    let calls = (0..10).map(|_| {
        let (service, request) = (service.clone(), request.clone());
        tokio::spawn(async move { exec(&service, request).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let shown = call.await.unwrap();
        assert!(
            shown.kinds().starts_with("ES IN TC AQ SUSPEND AR TR OUT END"),
            "{}",
            shown.kinds()
        );
        assert!(shown.error.is_none());
    }
    assert_eq!(world.tools.done(), ["key-c1"]);
}

/// A call that resumes can be joined by one that names the execution.
#[tokio::test(start_paused = true)]
async fn a_resumed_turn_is_joined_by_its_id() {
    let world = World::new();
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let service = world.service();
    let session = service.created().await;
    assert!(world.tools.go.set(()));
    exec(&service, once(&session, "tool c1 slow, out x")).await;
    let cut = world.cut(&session, 3).await;
    let world = World { tools: Arc::default(), ..world };
    world.tools.repeatable.store(true, Ordering::Relaxed);
    let service = world.service();
    let resuming = {
        let (service, cut) = (service.clone(), cut.clone());
        tokio::spawn(async move { service.resumed(&cut).await })
    };
    world.tools.entered.wait().await;
    let joined = service.exec(&caller(), once(&cut, "tool c1 slow, out x")).await;
    assert!(world.tools.go.set(()));
    assert_eq!(shown(joined).await.kinds(), "ES IN TC TR OUT END RESUME");
    assert_eq!(resuming.await.unwrap().kinds(), "TR OUT END RESUME", "what it recorded itself");
}

/// A key names the execution on its session, and the session that is created for it.
#[tokio::test(start_paused = true)]
async fn a_key_names_session_and_execution() {
    let world = World::new();
    let service = world.service();
    let first = exec(&service, keyed(None, "key-1", "out x")).await;
    let session = first.last().uid.clone();
    let execution = first.records[0].event.execution_id.clone().unwrap();
    assert!(ExecutionId::chosen(execution.as_str()).is_ok(), "{execution}");
    for request in [keyed(None, "key-1", "out x"), keyed(Some(&session), "key-1", "out x")] {
        let again = exec(&world.service(), request).await;
        assert_eq!((&again.last().uid, again.kinds().as_str()), (&session, "ES IN OUT END"));
        assert_eq!(again.records[0].event.execution_id, Some(execution.clone()));
    }
    let other = exec(&service, keyed(None, "key-1", "out y")).await;
    refused(&other, Condition::AlreadyExists);
    let other = exec(&service, keyed(Some(&session), "key-2", "out x")).await;
    assert_eq!(other.kinds(), "ES IN OUT END");
    assert_ne!(other.records[0].event.execution_id, Some(execution.clone()));
    let elsewhere = service.created().await;
    let other = exec(&service, keyed(Some(&elsewhere), "key-1", "out x")).await;
    assert_ne!(other.records[0].event.execution_id, Some(execution), "it is the session's own");
    assert_eq!(sessions(&world).await, 2);
}

/// A call that is only starting its turn is joined, too: it is given up when
/// the last one who waits for it goes.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_starting_is_joined() {
    for both_leave in [false, true] {
        let plain = World::new();
        let log = HookedLog::with_hook(Arc::clone(&plain.log), Gatekeeper::default());
        let log = Arc::new(log);
        let world = World { log: Arc::clone(&log) as _, ..plain };
        let service = world.service();
        let session = service.created().await;
        let first = service.exec(&caller(), once(&session, "out x")).await.unwrap();
        log.hook().asked.wait().await;
        let second = service.exec(&caller(), once(&session, "out x")).await.unwrap();
        refused(&exec(&service, once(&session, "out y")).await, Condition::AlreadyExists);
        let busy = service.run(&session, "out x").await;
        refused(&busy, Condition::SessionBusy);
        drop(first);
        let second = (!both_leave).then_some(second);
        assert!(log.hook().go.set(()));
        match second {
            Some(second) => assert_eq!(shown(Ok(second)).await.kinds(), "ES IN OUT END"),
            None => {
                // It was left by all, and asked for again at once.
                let third = exec(&service, once(&session, "out x")).await;
                assert_eq!(third.kinds(), "ES IN OUT END");
            }
        }
        service.idle().await;
        assert_eq!(world.journal(&session).await, "ES IN OUT END");
    }
}

/// Between the lease and the turn there is nothing to join yet: it is waited for.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_just_won_is_waited_for() {
    let (world, log) = World::new().stepping();
    let service = world.service();
    let session = service.created().await;
    let (reached, go) = (Signal::default(), Signal::default());
    let step = {
        let (reached, go) = (reached.clone(), go.clone());
        async move {
            reached.set(());
            go.wait().await;
        }
    };
    // The row, the execution, and the row again under the lease.
    log.hook().arm(3, step);
    let call = |service: &Service| {
        let (service, session) = (service.clone(), session.clone());
        tokio::spawn(async move { exec(&service, once(&session, "out x")).await })
    };
    let first = call(&service);
    reached.wait().await;
    let second = call(&service);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!second.is_finished(), "it waits");
    assert!(go.set(()));
    for shown in [first.await.unwrap(), second.await.unwrap()] {
        assert_eq!(shown.last().uid, session);
        assert_eq!(shown.kinds(), "ES IN OUT END");
    }
    // Not for good.
    let other = service.created().await;
    let reached = Signal::default();
    let step = reached.clone();
    log.hook().arm(3, async move {
        step.set(());
        std::future::pending::<()>().await;
    });
    let request = once(&other, "out x");
    let stuck = tokio::spawn({
        let (service, request) = (service.clone(), request.clone());
        async move { exec(&service, request).await }
    });
    reached.wait().await;
    refused(&exec(&service, request).await, Condition::SessionBusy);
    stuck.abort();
}

/// A turn that began and ended between a call's look and its lease is shown.
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_late_sees_the_turn_that_was() {
    let plain = World::new();
    let (world, log) = plain.stepping();
    let session = plain.service().created().await;
    let faster = {
        let (service, session) = (plain.service(), session.clone());
        async move {
            assert_eq!(exec(&service, once(&session, "out x")).await.kinds(), "ES IN OUT END");
        }
    };
    log.hook().arm(2, faster);
    let late = exec(&world.service(), once(&session, "out x")).await;
    assert!(log.hook().is_done());
    assert_eq!(late.last().uid, session);
    assert_eq!(late.kinds(), "ES IN OUT END");
    assert_eq!(plain.journal(&session).await, "ES IN OUT END");
}

/// Who joins sees at once what was recorded before.
#[tokio::test(start_paused = true)]
async fn who_joins_is_not_kept_waiting_for_the_next_record() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let _first = service.exec(&caller(), once(&session, "tool c1 slow")).await.unwrap();
    world.tools.entered.wait().await;
    let mut joined = service.exec(&caller(), once(&session, "tool c1 slow")).await.unwrap();
    for _ in 0..4 {
        let next = tokio::time::timeout(std::time::Duration::from_secs(1), joined.next());
        next.await.expect("it is there").unwrap().unwrap();
    }
    assert!(world.tools.go.set(()));
    assert_eq!(joined.count().await, 2, "the receipt and the end");
}
