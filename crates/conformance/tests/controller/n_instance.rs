//! Family N: the compute that holds a session's memory.

use std::sync::Arc;

use mainspring_api::{Condition, Event, EventBody, ExecutionId, ExecutionStart, Seq};
use mainspring_controller::{
    Controller, ControllerError, InstanceOf, Options, fork_marker, latest_compute_instance,
};
use mainspring_eventlog::NewSession;
use mainspring_testkit::sample;

use crate::support::gates::{deploying, gate_ref, gate_turn};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe, parked, turn};

/// A controller on this compute, for turns that count so. It takes over the fence in force.
async fn on(session: &Fixture, instance: &str, instance_of: InstanceOf) -> Controller {
    let options = Options {
        compute_instance: instance.to_owned(),
        instance_of,
        fence: Some(session.fence().await),
        ..session.options()
    };
    Controller::new(session.journal(), options).await.unwrap()
}

/// A start on `instance` of a turn of `harness`, without inputs.
fn start_on(id: &ExecutionId, harness: &str, instance: &str) -> Event {
    let body = ExecutionStart {
        input_count: Some(0),
        harness: harness.to_owned(),
        compute_instance: instance.to_owned(),
        ..ExecutionStart::default()
    };
    Event::in_execution(id, EventBody::ExecutionStart(Some(body)))
}

/// Neither a new turn, a resume nor a park by compute `instance` is let on the session.
async fn lost(
    session: &Fixture,
    placed: &Placed,
    (instance, instance_of): (&str, InstanceOf),
    (recorded, at): (&str, u64),
    what: &str,
) {
    let before = (session.row().await, placed.runs(), placed.describes(), session.model.calls());
    let controller = on(session, instance, instance_of).await;
    let resumed = controller.resume(&placed.harness, None).await;
    assert!(!resumed.resumed, "{what}");
    let executed = controller.exec(&placed.harness, turn(&["more"])).await.map(drop);
    let again = controller.park_again().await.map(drop);
    let open_gate = session.row().await.view.open_gate().is_some();
    for (operation, result) in [("resume", resumed.result), ("exec", executed), ("park", again)] {
        match result {
            // An open gate refuses a new turn first, on whatever compute.
            Err(ControllerError::ApprovalBlocked(_)) if open_gate && operation == "exec" => {}
            Err(ControllerError::MemoryStateLost { recorded: found, seq, actual }) => {
                assert_eq!((found.as_str(), seq.get(), actual.as_str()), (recorded, at, instance));
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    let after = (session.row().await, placed.runs(), placed.describes(), session.model.calls());
    assert_eq!(after, before, "{what}");
}

/// A turn records the compute that runs it; without one the field is left out.
async fn n01_recorded(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let controller = on(&session, "i-1", InstanceOf::Anyone).await;
    controller.exec(&echo.harness, turn(&["hello"])).await.unwrap();
    let events = session.events().await;
    let EventBody::ExecutionStart(Some(start)) = &events[0].body else { panic!() };
    assert_eq!(start.compute_instance, "i-1");
    session.exec(&echo, &["hello"]).await.unwrap();
    let records = session.records().await;
    let text = |index: usize| String::from_utf8(records[index].canonical.to_vec()).unwrap();
    assert!(text(0).contains("\"compute_instance\":\"i-1\""), "{}", text(0));
    assert!(!text(5).contains("compute_instance"), "{}", text(5));
    session.replay_check(&echo, 2, &["echo:hello", "echo:hello"]).await;

    let latest = latest_compute_instance;
    let (journal, row) = (session.journal(), session.row().await);
    let found = latest(&journal, &row, &InstanceOf::Anyone).await.unwrap();
    assert_eq!(found, Some(("i-1".to_owned(), Seq::new(1))));
}

/// Other compute is refused for an interrupted, a parked and a completed turn; the same, or none, is not.
async fn n02_different(session: Fixture) {
    let id = execution(1);
    for (what, records) in [("interrupted", 2), ("parked", 4), ("decided", 5), ("completed", 7)] {
        let session = Fixture::open(session.cell).await.with_tools();
        let mut events = gate_turn(&id, 1, true);
        let EventBody::ExecutionStart(Some(start)) = &mut events[0].body else { panic!() };
        start.compute_instance = "i-1".to_owned();
        session.append(events.into_iter().take(records)).await;
        let placed = session.place(deploying()).await;
        lost(&session, &placed, ("i-2", InstanceOf::Anyone), ("i-1", 1), what).await;
        lost(&session, &placed, ("I-1", InstanceOf::Anyone), ("i-1", 1), what).await;
        let same = on(&session, "i-1", InstanceOf::Anyone).await;
        let resumed = same.resume(&placed.harness, None).await;
        assert_eq!(resumed.resumed, what != "completed", "{what}: {:?}", resumed.result);
        match what {
            // An interrupted one makes its call now, and parks on it.
            "interrupted" | "parked" => assert_eq!(parked(resumed.result), gate_ref(&id, 1)),
            _ => resumed.result.unwrap(),
        }
        // A controller that has no instance compares none.
        session.replay(&placed).await.unwrap();
        assert!(session.controller().await.park_again().await.is_ok(), "{what}");
    }
}

/// A journal that records no instance takes any, and records it.
async fn nothing_recorded_takes_any(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    let controller = on(&session, "i-7", InstanceOf::Anyone).await;
    controller.exec(&echo.harness, turn(&["two"])).await.unwrap();
    lost(&session, &echo, ("i-8", InstanceOf::Anyone), ("i-7", 6), "then it counts").await;
}

/// Turns of another harness are passed over: an older turn of its own is what counts.
async fn n03_other_harness_turns_skipped(session: Fixture) {
    for (number, harness, instance) in
        [(1, "agent", "i-1"), (2, "other", "i-2"), (3, "agent", ""), (4, "other", "i-3")]
    {
        let id = execution(number);
        session.append([start_on(&id, harness, instance), raw::end(&id)]).await;
    }
    let placed = session.place(Probe::saying(&["said"]).named("agent", "")).await;
    let agent = || InstanceOf::Harness("agent".to_owned());
    lost(&session, &placed, ("i-3", agent()), ("i-1", 1), "the other's instance").await;
    lost(&session, &placed, ("i-1", InstanceOf::Anyone), ("i-3", 7), "anyone's").await;
    let other = InstanceOf::Harness("other".to_owned());
    lost(&session, &placed, ("i-2", other), ("i-3", 7), "its latest").await;
    let third = on(&session, "i-9", InstanceOf::Harness("third".to_owned())).await;
    assert!(!third.resume(&placed.harness, None).await.resumed, "a third has none recorded");
    let own = on(&session, "i-1", agent()).await;
    own.exec(&placed.harness, turn(&[])).await.unwrap();
    assert_eq!(session.outputs().await, ["said"]);

    // A turn that names no harness is everyone's.
    let id = execution(6);
    session.append([start_on(&id, "", "i-5"), raw::end(&id)]).await;
    let seq = session.head().await.seq.get() - 1;
    lost(&session, &placed, ("i-1", agent()), ("i-5", seq), "of no harness").await;
}

/// A child is on the compute that its marker names, not on its parent's.
async fn n04_fork_marker(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let parent = on(&session, "i-1", InstanceOf::Anyone).await;
    parent.exec(&echo.harness, turn(&["one"])).await.unwrap();
    let child = session.session(&sample::session("clone"));
    let new = NewSession::bare(child.uid.clone(), "default");
    let marker = fork_marker(Seq::new(5), "clone-1");
    let at = session.head().await;
    session.log.fork(sample::fresh_id(), &session.uid, at, vec![(new, marker)]).await.unwrap();
    let recorded = ("clone-1", 6);
    lost(&child, &echo, ("i-1", InstanceOf::Anyone), recorded, "the parent's").await;
    lost(&child, &echo, ("clone-2", InstanceOf::Anyone), recorded, "another clone").await;
    // A marker is of every harness.
    let third = InstanceOf::Harness("third".to_owned());
    lost(&child, &echo, ("clone-2", third), recorded, "of any harness").await;
    let clone = on(&child, "clone-1", InstanceOf::Anyone).await;
    clone.exec(&echo.harness, turn(&["two"])).await.unwrap();
    child.replay_check(&echo, 2, &["echo:one", "echo:two"]).await;

    // A marker without an instance forgets the parent's.
    let plain = session.fork(5, "plain").await.unwrap();
    let anywhere = on(&plain, "i-9", InstanceOf::Anyone).await;
    anywhere.exec(&echo.harness, turn(&["two"])).await.unwrap();
    lost(&plain, &echo, ("i-1", InstanceOf::Anyone), ("i-9", 7), "its own now").await;
}

/// A turn of another host that lands between the look and the start makes the start a conflict.
async fn n05_concurrent_turn(session: Fixture) {
    let id = execution(1);
    session.append([start_on(&id, "", "i-1"), raw::end(&id)]).await;
    let other = Arc::new(session.clone());
    let sneaking = Probe::saying(&["said"]).describing(move || {
        let other = Arc::clone(&other);
        async move {
            // A describe comes after the look and before the start.
            if other.head().await.seq == Seq::new(2) {
                let id = execution(2);
                other.append([start_on(&id, "", "i-2"), raw::end(&id)]).await;
            }
            Ok(mainspring_api::Descriptor { id: "probe".to_owned(), ..Default::default() })
        }
    });
    let placed = session.place(sneaking).await;
    let controller = on(&session, "i-1", InstanceOf::Anyone).await;
    let error = controller.exec(&placed.harness, turn(&[])).await.unwrap_err();
    assert_eq!(error.condition(), Condition::Conflict, "{error:?}");
    assert_eq!((placed.runs(), session.kinds().await.as_str()), (0, "ES END ES END"));
    let error = controller.exec(&placed.harness, turn(&[])).await.unwrap_err();
    assert_eq!(error.condition(), Condition::MemoryStateLost, "{error:?}");
}

matrix! {
    run:
    everywhere {
        #[test] fn n01_recorded;
        #[test] fn n02_different;
        #[test] fn nothing_recorded_takes_any;
        #[test] fn n03_other_harness_turns_skipped;
        #[test] fn n04_fork_marker;
        #[test] fn n05_concurrent_turn;
    }
}
