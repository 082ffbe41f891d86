//! Family M: forks at, inside and after tool calls and gates.

use mainspring_api::{Condition, Event};
use mainspring_controller::ControllerError;

use crate::support::gates::{CALL, TOOL, deploying, gate_ref, gate_turn};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe, mediated};

/// A turn that was cut after its call.
fn called() -> Vec<Event> {
    let id = execution(1);
    let call = raw::tool_call(&id, mediated(CALL, TOOL));
    vec![raw::start(&id, Some(1)), raw::input(&id, "hello"), call]
}

/// Calls the tool, then says so.
fn calling() -> Probe {
    Probe::new(|_, sink| async move {
        sink.tool_call(mediated(CALL, TOOL)).await?;
        sink.output("called".to_owned()).await?;
        Ok(())
    })
}

/// A resume of the child is refused at `seq` with nothing run, described or appended; a new turn is not.
async fn inherits_intent(child: &Fixture, placed: &Placed, seq: u64, what: &str) {
    let (head, asked) = (child.head().await, (placed.runs(), placed.describes()));
    let calls = || child.tools.as_ref().map(|tools| tools.calls());
    let calls_before = calls();
    for _ in 0..2 {
        let resumed = child.resume(placed).await;
        assert!(!resumed.resumed, "{what}");
        match resumed.result {
            Err(error @ ControllerError::InheritedToolIntent(at)) if at.get() == seq => {
                assert!(error.is(Condition::InvalidExecutionLog), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert_eq!((child.head().await, placed.runs(), placed.describes()), (head, asked.0, asked.1));
    assert_eq!(child.model.calls(), 0, "{what}");
    assert_eq!(calls(), calls_before, "{what}");
}

async fn new_turn(child: &Fixture, what: &str) {
    let echo = child.place(Probe::echo()).await;
    child.exec(&echo, &["new"]).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert!(child.kinds().await.ends_with("ES IN MC OUT END"), "{what}");
    child.replay_check(&echo, 1, &["echo:new"]).await;
    assert!(!child.resume(&echo).await.resumed, "{what}");
}

/// A call without a result is driven in no child, whatever its executor declares; a new turn may begin.
async fn m04_fork_at_unanswered_call(session: Fixture) {
    session.append(called()).await;
    for what in ["declared", "undeclared", "no executor"] {
        let mut parent = session.clone();
        if what != "no executor" {
            parent = parent.with_tools();
        }
        if what == "declared" {
            parent.executor().declare(TOOL);
        }
        let name = what.replace(' ', "-");
        let child = parent.fork(3, &format!("child-{name}")).await.unwrap();
        let placed = child.place(calling()).await;
        inherits_intent(&child, &placed, 3, what).await;
        let grandchild = child.fork(4, &format!("grandchild-{name}")).await.unwrap();
        inherits_intent(&grandchild, &placed, 3, what).await;
        new_turn(&child, what).await;
        new_turn(&grandchild, what).await;
    }
    // The parent's own call is not inherited.
    let parent = session.with_tools();
    parent.executor().declare(TOOL);
    let placed = parent.place(calling()).await;
    parent.resume(&placed).await.result.unwrap();
    assert_eq!(
        (parent.kinds().await.as_str(), parent.executor().calls()),
        ("ES IN TC TR OUT END", 1)
    );
}

/// A call without a result that is not the last effect is inherited as well.
async fn m04_a_call_before_other_effects(session: Fixture) {
    let id = execution(1);
    session.append(called()).await;
    session.append([raw::output(&id, "carried on"), raw::error(&id, "failed")]).await;
    let child = session.clone().with_tools().fork(5, "child").await.unwrap();
    let placed = child.place(calling()).await;
    inherits_intent(&child, &placed, 3, "not trailing").await;
    // What the child itself goes on with does not resolve it.
    child.append([raw::output(&id, "more")]).await;
    inherits_intent(&child, &placed, 3, "not trailing, with more").await;
    new_turn(&child, "not trailing").await;

    // Errors between the call and the fork change nothing.
    let failed = Fixture::open(session.cell).await.with_tools();
    failed.append(called()).await;
    failed.append([raw::error(&id, "failed")]).await;
    let child = failed.fork(4, "child").await.unwrap();
    inherits_intent(&child, &placed, 3, "an error after it").await;
}

/// A result after the marker resolves the call, and the child goes on with it.
async fn m04_a_result_after_the_marker(session: Fixture) {
    let id = execution(1);
    session.append(called()).await;
    let child = session.with_tools().fork(3, "child").await.unwrap();
    child.append([raw::tool_result(&id, raw::reported(CALL))]).await;
    let placed = child.place(calling()).await;
    let resumed = child.resume(&placed).await;
    assert!(resumed.resumed);
    resumed.result.unwrap();
    assert_eq!(child.kinds().await, "ES IN TC LC:FORK TR OUT END");
    assert_eq!(child.executor().calls(), 0);
    child.replay_check(&placed, 1, &["called"]).await;
}

/// A call that the child itself made after the fork is not inherited.
async fn m04_a_call_of_the_child_is_its_own(session: Fixture) {
    session.append(called().into_iter().take(2)).await;
    let child = session.with_tools().fork(2, "child").await.unwrap();
    child.append(called().into_iter().skip(2)).await;
    child.executor().declare(TOOL);
    let placed = child.place(calling()).await;
    child.resume(&placed).await.result.unwrap();
    assert_eq!(child.kinds().await, "ES IN LC:FORK TC TR OUT END");
    let scope = child.executor().attempts()[0].0.clone();
    assert_eq!(scope, child.uid, "in its own namespace");
}

/// A gate without a receipt is carried out in no child, decided or not; a new turn may begin.
async fn m05_fork_inside_a_gate(session: Fixture) {
    let session = session.with_tools();
    session.executor().declare(TOOL);
    for approved in [true, false] {
        let mut parent = Fixture::open(session.cell).await;
        parent.tools.clone_from(&session.tools);
        parent.append(gate_turn(&execution(1), 1, approved).into_iter().take(5)).await;
        let placed = parent.place(deploying()).await;
        for at in [3, 4, 5] {
            let what = format!("approved {approved}, at {at}");
            let child = parent.fork(at, &format!("child-{at}")).await.unwrap();
            inherits_intent(&child, &placed, 3, &what).await;
            let park = child.controller().await.park_again().await.unwrap_err();
            assert_eq!(park.condition(), Condition::InheritedToolIntent, "{what}");
            let grandchild = child.fork(at + 1, &format!("grandchild-{at}")).await.unwrap();
            inherits_intent(&grandchild, &placed, 3, &what).await;
            new_turn(&child, &what).await;
            new_turn(&grandchild, &what).await;
        }
        // The parent is as it was, and goes on.
        assert_eq!(parent.kinds().await, "ES IN TC AQ AR");
        parent.resume(&placed).await.result.unwrap();
        assert_eq!(parent.kinds().await, "ES IN TC AQ AR TR END");
    }
    assert_eq!(session.executor().calls(), 1, "the approved one, by the parent");
}

/// A fork after the receipt serves it: nothing is run or asked again.
async fn a_fork_after_a_receipt_goes_on(session: Fixture) {
    for (approved, at) in [(true, 6), (false, 6), (true, 7), (false, 7)] {
        let parent = Fixture::open(session.cell).await.with_tools();
        parent.append(gate_turn(&execution(1), 1, approved)).await;
        let child = parent.fork(at, "child").await.unwrap();
        let placed = child.place(deploying()).await;
        let resumed = child.resume(&placed).await;
        assert_eq!(resumed.resumed, at == 6);
        resumed.result.unwrap();
        assert_eq!(child.executor().calls(), 0);
        child.replay_check(&placed, 1, &[]).await;
        // The decision that was copied with it is answered, and no other.
        let before = child.row().await;
        let error = child.decide(&gate_ref(&execution(1), 1), !approved, "because").await;
        assert_eq!(error.unwrap_err().condition(), Condition::InvalidApprovalDecision);
        assert_eq!(child.row().await, before);
        new_turn_beside(&child).await;
    }
}

async fn new_turn_beside(child: &Fixture) {
    let echo = child.place(Probe::echo()).await;
    child.exec(&echo, &["new"]).await.unwrap();
    assert!(child.kinds().await.ends_with("ES IN MC OUT END"));
}

matrix! {
    run:
    everywhere {
        #[test] fn m04_fork_at_unanswered_call;
        #[test] fn m04_a_call_before_other_effects;
        #[test] fn m04_a_result_after_the_marker;
        #[test] fn m04_a_call_of_the_child_is_its_own;
        #[test] fn m05_fork_inside_a_gate;
        #[test] fn a_fork_after_a_receipt_goes_on;
    }
}
