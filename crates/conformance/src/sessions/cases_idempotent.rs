//! Calls that may be sent again: a keyed create, and an exec with a chosen id.

use mainspring_api::{Classify as _, Condition, CreateRequest, ExecRequest, ExecutionId, Message};

use super::support::{Shown, fork_of, positions, refused, refuses, turn, until};
use super::{Setup, Subject};

fn keyed(name: &str) -> CreateRequest {
    CreateRequest {
        name: name.to_owned(),
        idempotency_key: Some("key-1".to_owned()),
        ..CreateRequest::default()
    }
}

fn id(text: &str) -> Option<ExecutionId> {
    Some(ExecutionId::chosen(text).unwrap())
}

/// "same caller, same key, same request bytes -> the first answer, for as long as the session exists"
pub async fn a_keyed_create_again_is_the_same_session<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let first = world.me.create(keyed("a")).await.unwrap();
    let again = world.me.create(keyed("a")).await.unwrap();
    assert_eq!(first.uid, again.uid);
    world.me.run(&first.uid, "out a").await.ok();
    assert_eq!(world.me.create(keyed("a")).await.unwrap().uid, first.uid);
    assert_eq!(world.count().await, 1);
}

/// "same key, other bytes -> ALREADY_EXISTS"
pub async fn b36_a_key_names_one_request<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let first = world.me.create(keyed("a")).await.unwrap();
    refused(world.me.create(keyed("b")).await, Condition::AlreadyExists);
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let labelled = CreateRequest { labels, ..keyed("a") };
    refused(world.me.create(labelled).await, Condition::AlreadyExists);
    assert_eq!(world.me.get(&first.uid).await.unwrap().name, "a");
    assert_eq!(world.count().await, 1);
}

/// "A keyed create derives the uid from caller and key": another caller's key is another.
pub async fn a_key_belongs_to_its_caller<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let mine = world.me.create(keyed("a")).await.unwrap();
    let bob = world.client("bob").await;
    let theirs = bob.create(keyed("a")).await.unwrap();
    assert_ne!(mine.uid, theirs.uid);
}

/// "The same again with equal inputs, config and harness attaches to that execution ... its records, then live, then
/// its status"
pub async fn an_exec_again_shows_its_turn_again<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { execution_id: id("00000000000000aa"), ..turn(&session, "out a") };
    let first = Shown::of(world.me.exec(request.clone()).await).await.ok();
    let again = Shown::of(world.me.exec(request.clone()).await).await.ok();
    assert_eq!(positions(&first.records()), positions(&again.records()));
    assert_eq!(again.sessions().len(), 1);
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
    assert_eq!(world.execution(&session).await.as_str(), "00000000000000aa");
    // Also after a later turn.
    world.me.run(&session, "out b").await.ok();
    let again = Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(positions(&again.records()), [1, 2, 3, 4]);
}

/// "also while it runs"
pub async fn an_exec_again_joins_a_running_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest {
        execution_id: id("00000000000000aa"),
        ..turn(&session, "out a, hold here, out b")
    };
    let mut first = world.me.exec(request.clone()).await.unwrap();
    until(&mut first, "OUT").await;
    world.holds.entered("here").await;
    let mut second = world.me.exec(request).await.unwrap();
    until(&mut second, "OUT").await;
    world.holds.let_go("here");
    assert_eq!(Shown::of(Ok(first)).await.ok().kinds(), "OUT END");
    assert_eq!(Shown::of(Ok(second)).await.ok().kinds(), "OUT END");
    assert_eq!(world.journal(&session).await, "ES IN OUT OUT END");
}

/// A turn that failed, and one that waits, answer again as they did.
pub async fn an_exec_again_has_the_same_status<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let failed = world.me.created().await;
    let request = ExecRequest { execution_id: id("00000000000000aa"), ..turn(&failed, "gate c1") };
    let first = Shown::of(world.me.exec(request.clone()).await).await.ok();
    let again = Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(again.kinds(), "ES IN TC AQ SUSPEND");
    let waiting = |shown: &Shown| shown.sessions().pop().unwrap().pending_approval;
    assert!(waiting(&first).is_some());
    assert_eq!(waiting(&first), waiting(&again));
}

/// "with other inputs ... it is `AlreadyExists`"
pub async fn an_id_names_one_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { execution_id: id("00000000000000aa"), ..turn(&session, "out a") };
    Shown::of(world.me.exec(request.clone()).await).await.ok();
    let taken = Condition::AlreadyExists;
    let inputs = vec![Message::user("another")];
    refuses(world.me.exec(ExecRequest { inputs, ..request.clone() }).await, taken);
    let config = "out b".into();
    refuses(world.me.exec(ExecRequest { config, ..request.clone() }).await, taken);
    let harness = "other".to_owned();
    refuses(world.me.exec(ExecRequest { harness, ..request.clone() }).await, taken);
    world.me.run(&session, "out c").await.ok();
    let inputs = Vec::new();
    refuses(world.me.exec(ExecRequest { inputs, ..request }).await, taken);
    assert_eq!(world.journal(&session).await, "ES IN OUT END ES IN OUT END");
}

/// "or an id that an inherited execution has"
pub async fn an_inherited_id_is_taken<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { execution_id: id("00000000000000aa"), ..turn(&session, "out a") };
    Shown::of(world.me.exec(request.clone()).await).await.ok();
    let child = world.me.fork(fork_of(&session)).await.unwrap().remove(0);
    let inherited = ExecRequest { session: Some(child.uid.clone()), ..request };
    refuses(world.me.exec(inherited).await, Condition::AlreadyExists);
    assert_eq!(world.journal(&child.uid).await, "ES IN OUT END FORK");
}

/// "`x-idempotency-key`, from which the id is derived (first 8 bytes of SHA-256 over session uid and key)"
pub async fn a_keyed_exec_is_one_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let key = Some("turn-1".to_owned());
    let request = ExecRequest { idempotency_key: key, ..turn(&session, "out a") };
    Shown::of(world.me.exec(request.clone()).await).await.ok();
    Shown::of(world.me.exec(request.clone()).await).await.ok();
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
    let other = ExecRequest { idempotency_key: Some("turn-2".to_owned()), ..request };
    Shown::of(world.me.exec(other).await).await.ok();
    assert_eq!(world.journal(&session).await, "ES IN OUT END ES IN OUT END");
}

/// "On auto-create the key also names the session."
pub async fn a_keyed_exec_creates_one_session<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let request = ExecRequest {
        inputs: vec![Message::user("go")],
        config: "out a".into(),
        idempotency_key: Some("whole-1".to_owned()),
        ..ExecRequest::default()
    };
    let first = Shown::of(world.me.exec(request.clone()).await).await.ok();
    let again = Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(first.sessions()[0].uid, again.sessions()[0].uid);
    assert_eq!(positions(&again.records()), [1, 2, 3, 4]);
    assert_eq!(world.count().await, 1);
}

/// Fifty calls with one execution id make one turn, and each of them sees all of it.
pub async fn fifty_execs_with_one_id_are_one_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest {
        execution_id: id("00000000000000aa"),
        ..turn(&session, "out a, tool t1 add, model x, out b")
    };
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let (me, request) = (world.me.clone(), request.clone());
            tokio::spawn(async move { Shown::of(me.exec(request).await).await })
        })
        .collect();
    for call in calls {
        let shown = call.await.unwrap();
        assert!(shown.error.is_none(), "{:?} {}", shown.error, shown.kinds());
        assert_eq!(shown.kinds(), "ES IN OUT TC TR MC OUT OUT END");
    }
    assert_eq!(world.journal(&session).await, "ES IN OUT TC TR MC OUT OUT END");
    assert_eq!(*world.tools.keys.lock().unwrap(), ["key-t1"]);
}

/// A failed turn is told again, not run again.
pub async fn a_failed_turn_is_not_run_again<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request =
        ExecRequest { execution_id: id("00000000000000aa"), ..turn(&session, "tool t1 add") };
    Shown::of(world.me.exec(request.clone()).await).await.ok();
    let again = Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(again.kinds(), "ES IN TC TR END");
    assert_eq!(world.tools.keys.lock().unwrap().len(), 1);
    let malformed = world.me.exec(turn(&session, "fail x")).await;
    let shown = Shown::of(malformed).await;
    assert_eq!(shown.failed().code(), Condition::HarnessFailed.code());
}
