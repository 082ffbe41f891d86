//! Family J: decisions that are recorded.

use std::sync::Arc;

use mainspring_api::{Condition, Decision, EventBody, IdentityRef};
use mainspring_controller::{Approval, approve, inspect_approval};
use mainspring_eventlog::tool_call_digest;
use mainspring_testkit::ManualClock;

use crate::support::gates::{Asked, CALL, TOOL, deploying, gate_ref, gate_turn, unnoted};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe, gated, parked};

fn ada() -> IdentityRef {
    IdentityRef {
        principal: "ada".to_owned(),
        issuer: "https://idp".to_owned(),
        subject: "7".to_owned(),
    }
}

/// A decision's record is at the head, with time and identity; neither harness nor tool is touched.
async fn j01_new_decision(session: Fixture) {
    let session = session.with_tools();
    let placed = session.place(deploying()).await;
    let park = parked(session.exec(&placed, &["hello"]).await);
    assert_eq!((session.kinds().await.as_str(), park.request_seq), ("ES IN TC AQ", 4));
    let (before, calls) = (session.row().await, (placed.runs(), placed.describes()));
    let clock = Arc::new(ManualClock::at_unix(1_800_000_000));
    let request = Approval {
        decision: Decision { approved: true, reason: "checked".to_owned(), identity: Some(ada()) },
        clock: Arc::clone(&clock) as Arc<_>,
        ..session.decision(&park, true, "")
    };
    session.watcher.take();
    let record = approve(&session.journal(), request).await.unwrap();
    assert_eq!(record.seq, before.view.head.seq.next());
    assert_eq!(record.event.actor, Some(ada()));
    assert_eq!(record.event.ts.map(|ts| ts.seconds), Some(1_800_000_000));
    let EventBody::ApprovalResult(Some(body)) = &record.event.body else { panic!("{record:?}") };
    assert_eq!(
        (body.tool_call_id.as_str(), body.approved, body.reason.as_str(), body.request_seq),
        (CALL, true, "checked", 4)
    );
    assert_eq!(session.fence().await.get(), before.fence.fence.get() + 1, "f=1");
    assert_eq!(session.kinds().await, "ES IN TC AQ AR");
    assert_eq!(unnoted(session.records().await[4].to_record().unwrap()), record);
    assert_eq!(session.watcher.take().len(), 1);
    assert_eq!((placed.runs(), placed.describes()), calls);
    assert_eq!((session.model.calls(), session.executor().calls()), (0, 0));
    let state = inspect_approval(&session.journal(), 0).await.unwrap().unwrap();
    assert_eq!(state.decision.map(unnoted), Some(record));
}

/// An identity that says nothing is recorded as none, and is the same as none.
async fn j02_an_empty_identity_is_none(session: Fixture) {
    session.append(gate_turn(&execution(1), 1, true).into_iter().take(4)).await;
    let with = |identity| {
        let base = session.decision(&gate_ref(&execution(1), 1), false, "no");
        Approval { decision: Decision { identity, ..base.decision.clone() }, ..base }
    };
    let empty = with(Some(IdentityRef::default()));
    let first = approve(&session.journal(), empty.clone()).await.unwrap();
    assert_eq!(first.event.actor, None);
    let before = session.row().await;
    for again in [with(None), empty] {
        assert_eq!(unnoted(approve(&session.journal(), again).await.unwrap()), first);
    }
    assert_eq!(session.row().await, before);
    let error = approve(&session.journal(), with(Some(ada()))).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidApprovalDecision);
    assert_eq!(session.row().await, before);
}

/// At each stage: the same decision answers the same record, another one is refused; both write nothing.
async fn judged(session: &Fixture, placed: &Placed, approved: bool, stage: &str) {
    let approval = gate_ref(&execution(1), 1);
    let before = session.row().await;
    let recorded = session.records().await[4].to_record().unwrap();
    let same = session.decision(&approval, approved, "checked");
    for _ in 0..2 {
        assert_eq!(approve(&session.journal(), same.clone()).await.unwrap(), recorded, "{stage}");
    }
    let changed = |decision| Approval { decision, ..same.clone() };
    let given = || same.decision.clone();
    for (what, other) in [
        ("approved", changed(Decision { approved: !approved, ..given() })),
        ("reason", changed(Decision { reason: "else".to_owned(), ..given() })),
        ("no reason", changed(Decision { reason: String::new(), ..given() })),
        ("identity", changed(Decision { identity: Some(ada()), ..given() })),
        ("no identity", changed(Decision { identity: None, ..given() })),
        ("digest", Approval { digest: Some("sha256:00".to_owned()), ..same.clone() }),
    ] {
        let error = approve(&session.journal(), other).await.unwrap_err();
        let condition = Condition::InvalidApprovalDecision;
        assert_eq!(error.condition(), condition, "{stage}: {what}: {error:?}");
    }
    assert_eq!(session.row().await, before, "{stage}: f=0, a=0");
    assert_eq!(placed.runs(), 0, "{stage}");
}

/// The exact repetition answers the original, also after the receipt and after newer turns.
async fn j02_exact_retry(session: Fixture) {
    for approved in [true, false] {
        let session = Fixture::open(session.cell).await.with_tools();
        let idle = session.place(deploying()).await;
        session.append(gate_turn(&execution(1), 1, true).into_iter().take(4)).await;
        let first = session.decide(&gate_ref(&execution(1), 1), approved, "checked").await.unwrap();
        assert_eq!(first.seq.get(), 5);
        judged(&session, &idle, approved, "decided").await;
        let placed = session.place(deploying()).await;
        session.resume(&placed).await.result.unwrap();
        assert_eq!(session.kinds().await, "ES IN TC AQ AR TR END");
        judged(&session, &idle, approved, "ended").await;
        let echo = session.place(Probe::echo()).await;
        session.exec(&echo, &["new"]).await.unwrap();
        judged(&session, &idle, approved, "after a newer turn").await;
        parked(session.exec(&placed, &["newer"]).await);
        judged(&session, &idle, approved, "while a newer turn waits").await;
    }
}

/// The same between the receipt and the end.
async fn j03_changed_retry(session: Fixture) {
    let id = execution(1);
    session.append(gate_turn(&id, 1, true).into_iter().take(4)).await;
    let idle = session.place(deploying()).await;
    session.decide(&gate_ref(&id, 1), true, "checked").await.unwrap();
    judged(&session, &idle, true, "decided").await;
    session.append(gate_turn(&id, 1, true).into_iter().skip(5).take(1)).await;
    judged(&session, &idle, true, "received").await;
    session.append([raw::output(&id, "and on")]).await;
    judged(&session, &idle, true, "with more after it").await;
}

/// A decision may name the digest of the call that was shown; one of another call is refused.
async fn a_digest_binds_to_the_recorded_call(session: Fixture) {
    let id = execution(1);
    session.append(gate_turn(&id, 1, true).into_iter().take(3)).await;
    // A request that was repaired after failed attempts.
    session.append([raw::error(&id, "again"), raw::approval_request(&id, CALL)]).await;
    let approval = mainspring_api::ApprovalRef { request_seq: 5, ..gate_ref(&id, 1) };
    let with = |digest: &str| Approval {
        digest: Some(digest.to_owned()),
        ..session.decision(&approval, true, "checked")
    };
    let right = tool_call_digest(&gated(CALL, TOOL)).unwrap();
    let before = session.row().await;
    for other in [gated("c2", TOOL), gated(CALL, "destroy")] {
        let error = approve(&session.journal(), with(&tool_call_digest(&other).unwrap())).await;
        assert_eq!(error.unwrap_err().condition(), Condition::InvalidApprovalDecision);
    }
    for wrong in ["", "sha256:", &right.to_uppercase(), &right[7..]] {
        let error = approve(&session.journal(), with(wrong)).await.unwrap_err();
        assert_eq!(error.condition(), Condition::InvalidApprovalDecision, "{wrong}");
    }
    assert_eq!(session.row().await, before);
    let first = approve(&session.journal(), with(&right)).await.unwrap();
    assert_eq!(unnoted(approve(&session.journal(), with(&right)).await.unwrap()), first);
    let error = approve(&session.journal(), with("sha256:00")).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidApprovalDecision);
    assert_eq!(session.kinds().await, "ES IN TC ERR AQ AR");
}

/// Evidence that does not hold is told as that, and not as a bad decision.
async fn j06_corrupt_evidence(session: Fixture) {
    let id = execution(1);
    let turn = |count| gate_turn(&id, 1, true).into_iter().take(count);
    let twice = turn(4).chain([raw::approval_request(&id, CALL)]);
    let decided_twice = turn(5).chain([raw::approval_result(&id, CALL, false, 4)]);
    let ended_open = turn(4).chain([raw::end(&id)]);
    let idless = turn(4).chain([raw::idless(raw::output(&id, "whose?"))]);
    let all: [(&str, Vec<_>); 4] = [
        ("two requests", twice.collect()),
        ("two decisions", decided_twice.collect()),
        ("ended while open", ended_open.collect()),
        ("a record without an id", idless.collect()),
    ];
    for (what, events) in all {
        let session = Fixture::open(session.cell).await;
        session.append(events).await;
        let placed = session.place(deploying()).await;
        // Also when the request that is named does not exist.
        for request_seq in [4, 5, 99] {
            let named = mainspring_api::ApprovalRef { request_seq, ..gate_ref(&id, 1) };
            let error = Asked::Approve.refused(&session, &placed, &named, what).await;
            assert_eq!(error.condition(), Condition::InvalidExecutionLog, "{what}: {error:?}");
        }
    }
}

matrix! {
    run:
    everywhere {
        #[test] fn j01_new_decision;
        #[test] fn j02_an_empty_identity_is_none;
        #[test] fn j02_exact_retry;
        #[test] fn j03_changed_retry;
        #[test] fn a_digest_binds_to_the_recorded_call;
        #[test] fn j06_corrupt_evidence;
    }
}
