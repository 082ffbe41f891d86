//! Parking on an approval, deciding, and going on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    ApprovalRef, ApproveRequest, Classify as _, ComputeState, Condition, EventBody, ExecRequest,
    ExecState, ExecutionId, ForkRequest, IdentityRef, Outcome, Resolution, ResolveRequest,
    Sessions as _,
};
use mainspring_eventlog::tool_call_digest;

use crate::support::{Drive as _, World, caller, shown, turn};

/// The turn parks, its compute is freed under its own fence, and the stream
/// ends well with the session that waits.
#[tokio::test(start_paused = true)]
async fn u14_a_parked_turn_is_handed_over() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let parked = service.run(&session, "gate c1").await;
    assert_eq!(parked.kinds(), "ES IN TC AQ SUSPEND");
    assert_eq!(parked.sessions.len(), 2, "before, and after");
    let last = parked.last();
    assert_eq!(last.exec_state, ExecState::Awaiting);
    assert_eq!(last.compute_state, ComputeState::Cold);
    let approval = last.pending_approval.as_ref().unwrap();
    assert_eq!((approval.tool_call_id.as_str(), approval.request_seq), ("c1", 4));
    assert_eq!(world.compute.calls(), ["create", "snapshot"]);
    assert_eq!(world.fence(&session).await, 1);
    assert!(parked.records.iter().all(|record| record.fence.get() == 1));
    assert!(world.tools.started().is_empty());
}

/// A failure of the hand-over is told; the request stays, and a suspend makes up for it.
#[tokio::test(start_paused = true)]
async fn u14_a_failed_hand_over_is_no_park() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    world.compute.no_snapshot.store(true, Ordering::Relaxed);
    let failed = service.run(&session, "gate c1").await;
    assert_eq!(failed.error.unwrap().condition(), Condition::RuntimeUnsupported);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ");
    world.compute.no_snapshot.store(false, Ordering::Relaxed);
    service.suspend(&caller(), &session).await.unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

#[tokio::test(start_paused = true)]
async fn u13_a_turn_that_waits_is_not_placed() {
    let world = World::new();
    let service = world.service();
    let (session, _) = service.parked("").await;
    world.compute.calls();
    for _ in 0..2 {
        let again = service.resumed(&session).await;
        assert_eq!(again.kinds(), "");
        assert_eq!(again.last().exec_state, ExecState::Awaiting);
    }
    // Also where nobody serves its harness.
    let stranger = world.service_of("stranger");
    assert_eq!(stranger.resumed(&session).await.last().exec_state, ExecState::Awaiting);
    let refused = service.run(&session, "out x").await.error.unwrap();
    assert_eq!(refused.condition(), Condition::ApprovalBlocked);
    assert_eq!(world.compute.calls(), [""; 0]);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    assert_eq!(world.fence(&session).await, 1);
}

/// A gate that was cut right after its intent gets its request, under one
/// fence, and no compute.
#[tokio::test(start_paused = true)]
async fn u13_a_request_that_is_missing_is_recorded() {
    let world = World::new();
    let service = world.service();
    let (asked, _) = service.parked("").await;
    let session = world.cut(&asked, 3).await;
    let fence = world.fence(&session).await;
    world.compute.calls();
    for kinds in ["AQ", ""] {
        let parked = service.resumed(&session).await;
        assert_eq!(parked.kinds(), kinds);
        assert_eq!(parked.last().exec_state, ExecState::Awaiting);
    }
    assert_eq!(world.compute.calls(), [""; 0]);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ");
    assert_eq!(world.fence(&session).await, fence + 1);
}

/// A failure beside a park is told, and not hidden by it; a park that the
/// harness passes over is one all the same.
#[tokio::test(start_paused = true)]
async fn u14_what_a_harness_makes_of_its_park() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let failed = service.run(&session, "try c1, fail own").await;
    assert_eq!(failed.error.unwrap().condition(), Condition::HarnessFailed);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ", "it is no park, and has no error");
    let session = service.created().await;
    let parked = service.run(&session, "try c1").await;
    assert_eq!(parked.last().exec_state, ExecState::Awaiting);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

/// A turn that was cut is finished under one fence, and that it was is recorded.
#[tokio::test(start_paused = true)]
async fn u11_a_cut_turn_is_resumed() {
    let world = World::new();
    let service = world.service();
    let whole = service.created().await;
    service.run(&whole, "out a, out b").await;
    let session = world.cut(&whole, 3).await;
    let fence = world.fence(&session).await;
    assert_eq!(service.resumed(&session).await.kinds(), "OUT END RESUME");
    assert_eq!(world.fence(&session).await, fence + 1);
}

#[tokio::test(start_paused = true)]
async fn u12_a_resume_that_fails_is_not_recorded_as_one() {
    let world = World::new();
    let service = world.service();
    let whole = service.created().await;
    service.run(&whole, "out a, fail always").await;
    let failed = service.resumed(&whole).await;
    assert_eq!(failed.error.unwrap().condition(), Condition::HarnessFailed);
    assert_eq!(world.journal(&whole).await, "ES IN OUT ERR ERR");
}

/// An exec without inputs goes on with a gated turn.
#[tokio::test(start_paused = true)]
async fn an_exec_without_inputs_recovers_a_gated_turn() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let empty = |expected| ExecRequest {
        inputs: Vec::new(),
        expected_last_seq: expected,
        ..turn(&session, "")
    };
    let waits = shown(service.exec(&caller(), empty(None)).await).await;
    assert_eq!((waits.sessions.len(), waits.kinds().as_str()), (2, ""));
    service.decided(&session, &approval, true).await.unwrap();
    let conflict = shown(service.exec(&caller(), empty(Some(2))).await).await;
    assert_eq!(conflict.error.unwrap().condition(), Condition::Conflict);
    let done = shown(service.exec(&caller(), empty(Some(6))).await).await;
    assert_eq!(done.kinds(), "TR OUT END RESUME");
    assert_eq!(done.last().exec_state, ExecState::Completed);
}

#[tokio::test(start_paused = true)]
async fn u15_a_decided_turn_goes_on() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let approved = service.decided(&session, &approval, true).await.unwrap();
    assert_eq!(approved.decision.seq.get(), 6);
    assert_eq!(approved.session.exec_state, ExecState::Running, "it can be resumed");
    assert_eq!(approved.session.pending_approval, None);
    assert!(world.tools.started().is_empty(), "a decision runs nothing");
    let resumed = service.resumed(&session).await;
    assert_eq!(resumed.kinds(), "TR OUT END RESUME");
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR TR OUT END RESUME");
    assert_eq!(world.compute.calls(), ["create", "snapshot", "restore"]);
    assert_eq!(world.tools.done(), ["key-c1"]);
    assert_eq!(world.fence(&session).await, 3, "one for the turn, the decision, the resume");
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_is_never_run() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    service.decided(&session, &approval, false).await.unwrap();
    let resumed = service.resumed(&session).await;
    assert_eq!(resumed.last().exec_state, ExecState::Completed);
    let EventBody::Output(Some(said)) = &resumed.records[1].event.body else { panic!() };
    assert_eq!(said.plain_text(), "c1 denied because");
    assert!(world.tools.started().is_empty());
}

/// Every park of a turn is seen, and each answered by itself.
#[tokio::test(start_paused = true)]
async fn b28_a_turn_may_ask_twice() {
    let world = World::new();
    let service = world.service();
    let (session, first) = service.parked(", gate c2").await;
    service.decided(&session, &first, true).await.unwrap();
    let again = service.resumed(&session).await;
    assert_eq!(again.kinds(), "TR OUT TC AQ SUSPEND", "no RESUME");
    let second = again.last().pending_approval.clone().unwrap();
    assert_eq!(second.tool_call_id, "c2");
    service.decided(&session, &second, false).await.unwrap();
    let done = service.resumed(&session).await;
    assert_eq!(done.kinds(), "TR OUT END RESUME");
    assert_eq!(world.tools.done(), ["key-c1"]);
    assert_eq!(
        world.journal(&session).await,
        "ES IN TC AQ SUSPEND AR TR OUT TC AQ SUSPEND AR TR OUT END RESUME"
    );
}

/// A client that goes away while its turn parks leaves nothing behind that
/// would stand in another one's way.
#[tokio::test(start_paused = true)]
async fn b12_nobody_holds_a_parked_session() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let mut stream = service.exec(&caller(), turn(&session, "gate c1")).await.unwrap();
    // The session, and its start: from here on the turn is the host's.
    stream.next().await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    service.idle().await;
    let waits = service.get(&caller(), &session).await.unwrap();
    assert_eq!(waits.exec_state, ExecState::Awaiting);
    let approval = waits.pending_approval.unwrap();
    service.decided(&session, &approval, true).await.unwrap();
    assert_eq!(service.resumed(&session).await.last().exec_state, ExecState::Completed);
    assert_eq!(world.tools.done(), ["key-c1"]);
}

/// A parked turn is as durable as the rest: another host finishes it, once.
#[tokio::test(start_paused = true)]
async fn b13_another_host_decides_and_finishes() {
    let world = World::new();
    let first = world.service();
    let (session, approval) = first.parked("").await;
    drop(first);
    let second = world.service();
    let waits = second.get(&caller(), &session).await.unwrap();
    assert_eq!(waits.pending_approval.as_ref(), Some(&approval));
    second.decided(&session, &approval, true).await.unwrap();
    drop(second);
    let third = world.service();
    assert_eq!(third.resumed(&session).await.last().exec_state, ExecState::Completed);
    third.resumed(&session).await;
    assert_eq!(world.tools.done(), ["key-c1"], "once, under its own key");
}

/// Without anybody there the turn parks; it never runs by itself.
#[tokio::test(start_paused = true)]
async fn b40_nobody_watching_is_no_consent() {
    let world = World::new();
    let service = world.service();
    let session = service.created().await;
    let mut stream = service.exec(&caller(), turn(&session, "gate c1")).await.unwrap();
    stream.next().await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    service.idle().await;
    tokio::time::sleep(Duration::from_secs(7 * 86_400)).await;
    service.resumed(&session).await;
    assert!(world.tools.started().is_empty());
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_made_once_and_repeats_itself() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let first = service.decided(&session, &approval, true).await.unwrap();
    let again = service.decided(&session, &approval, true).await.unwrap();
    assert_eq!(first.decision.hash, again.decision.hash);
    let other = service.decided(&session, &approval, false).await.unwrap_err();
    assert_eq!(other.condition(), Condition::InvalidApprovalDecision);
    service.resumed(&session).await;
    let later = service.decided(&session, &approval, true).await.unwrap();
    assert_eq!(again.decision, later.decision, "also after the receipt");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_fits_nothing_is_refused() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let fence = world.fence(&session).await;
    let other = |change: &dyn Fn(&mut ApprovalRef)| {
        let mut approval = approval.clone();
        change(&mut approval);
        approval
    };
    for (approval, condition) in [
        (other(&|a| a.execution_id.clear()), Condition::InvalidArgument),
        (other(&|a| a.tool_call_id.clear()), Condition::InvalidArgument),
        (other(&|a| a.request_seq = 0), Condition::InvalidArgument),
        (other(&|a| a.request_seq = -4), Condition::InvalidArgument),
        (other(&|a| a.request_seq = 3), Condition::InvalidApprovalDecision),
        (other(&|a| a.request_seq = 400), Condition::InvalidApprovalDecision),
        (other(&|a| a.tool_call_id = "c2".to_owned()), Condition::InvalidApprovalDecision),
        (other(&|a| a.execution_id = "0".repeat(16)), Condition::InvalidApprovalDecision),
    ] {
        let refused = service.decided(&session, &approval, true).await.unwrap_err();
        assert_eq!(refused.condition(), condition, "{approval:?}");
    }
    let nobody = mainspring_api::SessionUid::new("sess-0").unwrap();
    let refused = service.decided(&nobody, &approval, true).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::SessionNotFound);
    // A fork inherits the request and cannot decide it.
    let fork = ForkRequest {
        session: session.clone(),
        at_seq: 4,
        count: 1,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    };
    let child = service.fork(&caller(), fork).await.unwrap().remove(0);
    let refused = service.decided(&child.uid, &approval, true).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InvalidApprovalDecision);
    world.compute.calls();
    let refused = service.resumed(&child.uid).await.error.unwrap();
    assert_eq!(refused.condition(), Condition::InheritedToolIntent);
    assert_eq!(world.compute.calls(), [""; 0]);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    assert_eq!(world.fence(&session).await, fence, "none was minted");
}

/// What a person was shown is what is decided about, and who it was is kept.
#[tokio::test(start_paused = true)]
async fn a_decision_binds_to_the_call_that_was_shown() {
    let world = World::new();
    let service = world.service();
    let (session, approval) = service.parked("").await;
    let EventBody::ToolCall(Some(call)) = &world.records(&session).await[2].event.body else {
        panic!()
    };
    let identity = IdentityRef {
        principal: "ann".to_owned(),
        issuer: "i".to_owned(),
        subject: "s".to_owned(),
    };
    let request = |digest: String| ApproveRequest {
        session: session.clone(),
        approval: approval.clone(),
        approved: true,
        reason: String::new(),
        identity: Some(identity.clone()),
        digest: Some(digest),
    };
    let wrong = request(format!("sha256:{}", "0".repeat(64)));
    let refused = service.approve(&caller(), wrong).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InvalidApprovalDecision);
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    let right = request(tool_call_digest(call).unwrap());
    let approved = service.approve(&caller(), right).await.unwrap();
    assert_eq!(approved.decision.event.actor, Some(identity));
}

/// A call whose outcome nobody knows waits for a person's word.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_resolved_by_a_person() {
    let world = World::new();
    let service = world.service();
    for (resolution, journal, runs) in [
        (Resolution::Result(Box::default()), "ES IN TC ERR TR OUT END RESUME", 1),
        (Resolution::Failed("no".to_owned()), "ES IN TC ERR TR OUT END RESUME", 1),
        (Resolution::Retry, "ES IN TC ERR ERR", 2),
    ] {
        let session = service.created().await;
        let before = world.tools.started().len();
        let failed = service.run(&session, "tool c1 lost, out x").await;
        assert!(failed.error.is_some());
        let refused = service.resumed(&session).await.error.unwrap();
        assert_eq!(refused.condition(), Condition::UnansweredToolCall);
        let request = |call: &str| ResolveRequest {
            session: session.clone(),
            execution_id: ExecutionId::new(
                failed.records[0].event.execution_id.as_ref().unwrap().as_str(),
            )
            .unwrap(),
            tool_call_id: call.to_owned(),
            resolution: resolution.clone(),
        };
        let other = service.resolve(&caller(), request("c2")).await.unwrap_err();
        assert_eq!(other.condition(), Condition::FailedPrecondition);
        let empty = service.resolve(&caller(), request("")).await.unwrap_err();
        assert_eq!(empty.condition(), Condition::InvalidArgument);
        let resolved = service.resolve(&caller(), request("c1")).await.unwrap();
        assert_eq!(resolved.uid, session);
        service.resumed(&session).await;
        assert_eq!(world.journal(&session).await, journal, "{resolution:?}");
        assert_eq!(world.tools.started().len() - before, runs, "{resolution:?}");
    }
    let parked = service.parked("").await;
    let request = ResolveRequest {
        session: parked.0,
        execution_id: ExecutionId::new(&parked.1.execution_id).unwrap(),
        tool_call_id: "c1".to_owned(),
        resolution: Resolution::Result(Box::default()),
    };
    let refused = service.resolve(&caller(), request).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::FailedPrecondition, "it waits for a decision");
}
