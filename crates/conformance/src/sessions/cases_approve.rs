//! Approve.

use mainspring_api::{
    ApprovalRef, ApproveRequest, Condition, EventBody, ExecState, IdentityRef, method,
};

use super::support::{decision, fork_of, refused, unknown, until};
use super::{Setup, Subject};

/// "Commits one APPROVAL_RESULT (reason, request_seq, `Event.actor` = identity) and nothing else."
pub async fn a_decision_is_one_record<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", out b").await;
    let identity = IdentityRef { principal: "ann".to_owned(), ..IdentityRef::default() };
    let request =
        ApproveRequest { identity: Some(identity.clone()), ..decision(&session, &approval, true) };
    let caller = world.me.as_caller(method::APPROVE);
    let approved = world.me.sessions.approve(&caller, request).await.unwrap();
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR");
    assert_eq!(approved.decision.seq.get(), 6);
    assert_eq!(approved.decision.event.actor, Some(identity));
    let EventBody::ApprovalResult(Some(result)) = &approved.decision.event.body else {
        panic!("a decision")
    };
    assert_eq!((&*result.reason, result.request_seq), ("because", 4));
    assert_eq!(approved.session.last_seq.get(), 6);
    assert_eq!(approved.session.pending_approval, None);
    assert!(world.tools.keys.lock().unwrap().is_empty(), "nothing is run yet");
}

/// "Required: session, execution_id, tool_call_id, request_seq > 0"
pub async fn a_decision_names_its_request<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let invalid = Condition::InvalidArgument;
    let with = |change: fn(&mut ApprovalRef)| {
        let mut approval = approval.clone();
        change(&mut approval);
        approval
    };
    for approval in [
        with(|approval| approval.execution_id.clear()),
        with(|approval| approval.tool_call_id.clear()),
        with(|approval| approval.request_seq = 0),
        with(|approval| approval.request_seq = -4),
    ] {
        refused(world.me.approve(&session, &approval, true).await, invalid);
    }
    // The form is checked before the session is looked for.
    let nameless = with(|approval| approval.tool_call_id.clear());
    refused(world.me.approve(&unknown(), &nameless, true).await, invalid);
    refused(world.me.approve(&unknown(), &approval, true).await, Condition::SessionNotFound);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

/// "Exact retry ... returns the original record, even after a receipt or later turns, without a new fence."
pub async fn the_same_decision_again_answers_the_same<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", out b").await;
    let first = world.me.approve(&session, &approval, true).await.unwrap();
    let fence = world.row(&session).await.fence;
    let again = world.me.approve(&session, &approval, true).await.unwrap();
    assert_eq!(again.decision.hash, first.decision.hash);
    assert_eq!(world.row(&session).await.fence, fence);
    world.me.resume(&session).await.ok();
    world.me.run(&session, "out c").await.ok();
    let again = world.me.approve(&session, &approval, true).await.unwrap();
    assert_eq!(again.decision.hash, first.decision.hash);
}

/// "Anything else about a decided, stale, inherited, superseded or unknown request: FAILED_PRECONDITION."
pub async fn another_decision_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let refuse = Condition::InvalidApprovalDecision;
    for unknown in [
        ApprovalRef { execution_id: "00000000000000aa".to_owned(), ..approval.clone() },
        ApprovalRef { tool_call_id: "c2".to_owned(), ..approval.clone() },
        ApprovalRef { request_seq: 3, ..approval.clone() },
    ] {
        refused(world.me.approve(&session, &unknown, true).await, refuse);
    }
    let child = world.me.fork(fork_of(&session)).await.unwrap().remove(0);
    assert!(world.me.approve(&child.uid, &approval, true).await.is_err(), "it is inherited");
    world.me.approve(&session, &approval, true).await.unwrap();
    refused(world.me.approve(&session, &approval, false).await, refuse);
    let mut other = decision(&session, &approval, true);
    other.reason = "another".to_owned();
    let caller = world.me.as_caller(method::APPROVE);
    refused(world.me.sessions.approve(&caller, other).await, refuse);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR");
}

/// A decision binds to the call that was shown.
pub async fn a_decision_with_another_digest_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let mut other = decision(&session, &approval, true);
    other.digest = Some("sha256:00".to_owned());
    let caller = world.me.as_caller(method::APPROVE);
    refused(world.me.sessions.approve(&caller, other).await, Condition::InvalidApprovalDecision);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
    assert_eq!(world.me.get(&session).await.unwrap().exec_state, ExecState::Awaiting);
}

/// "Busy, conflict, fenced: ABORTED."
pub async fn a_decision_does_not_wait_for_a_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", hold here").await;
    world.me.approve(&session, &approval, true).await.unwrap();
    let request = mainspring_api::ResumeRequest { session: session.clone(), approval_ttl: None };
    let caller = world.me.as_caller(method::RESUME_STREAM);
    let mut stream = world.me.sessions.resume(&caller, request).await.unwrap();
    until(&mut stream, "TR").await;
    refused(world.me.approve(&session, &approval, true).await, Condition::SessionBusy);
    world.holds.let_go("here");
}
