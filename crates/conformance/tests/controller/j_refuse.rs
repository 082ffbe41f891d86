//! Family J: decisions that are refused.

use std::sync::Arc;

use mainspring_api::{ApprovalRef, Condition, Event};
use mainspring_controller::{ControllerError, approve};
use mainspring_eventlog::LogError;

use crate::support::between::{Before, Between};
use crate::support::gates::{Asked, CALL, TOOL, deploying, gate_ref, gate_turn, unnoted};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, gated};

fn open_gate() -> Vec<Event> {
    gate_turn(&execution(1), 1, true).into_iter().take(4).collect()
}

async fn refused(session: &Fixture, approval: &ApprovalRef, what: &str) {
    let placed = session.place(deploying()).await;
    let error = Asked::Approve.refused(session, &placed, approval, what).await;
    assert!(matches!(error, ControllerError::InvalidApprovalDecision(_)), "{what}: {error:?}");
}

/// A tuple that is incomplete, or names no request of this session, decides nothing.
async fn j04_bad_tuples(session: Fixture) {
    session.append(raw::echo_turn(&execution(9), "old")).await;
    let id = execution(1);
    session.append(gate_turn(&id, 6, true).into_iter().take(4)).await;
    let right = gate_ref(&id, 6);
    let of = |execution: &str, call: &str, request_seq: i64| ApprovalRef {
        execution_id: execution.to_owned(),
        tool_call_id: call.to_owned(),
        request_seq,
    };
    let (run, other) = (id.to_string(), execution(9).to_string());
    for (what, approval) in [
        ("unknown execution", of("00000000000000ff", CALL, 9)),
        ("another turn", of(&other, CALL, 9)),
        ("no such call", of(&run, "c2", 9)),
        ("no call", of(&run, "", 9)),
        ("seq 0", of(&run, CALL, 0)),
        ("negative seq", of(&run, CALL, -9)),
        ("the least seq", of(&run, CALL, i64::MIN)),
        ("the call's seq", of(&run, CALL, 8)),
        ("the input's seq", of(&run, CALL, 7)),
        ("another turn's seq", of(&run, CALL, 4)),
        ("seq beyond the head", of(&run, CALL, 10)),
        ("the greatest seq", of(&run, CALL, i64::MAX)),
    ] {
        refused(&session, &approval, what).await;
    }
    let before = session.row().await;
    let unnamed = of("", CALL, 9);
    let error = session.decide(&unnamed, true, "").await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidApprovalDecision);
    assert_eq!(session.row().await, before);
    // Nothing of this closed the gate.
    session.decide(&right, true, "").await.unwrap();
    assert!(session.kinds().await.ends_with("ES IN TC AQ AR"));
}

/// A gate without a request has nothing that could be decided.
async fn j04_a_call_without_a_request(session: Fixture) {
    session.append(open_gate().into_iter().take(3)).await;
    for request_seq in [3, 4] {
        let approval = ApprovalRef { request_seq, ..gate_ref(&execution(1), 1) };
        refused(&session, &approval, "no request yet").await;
    }
    let empty = Fixture::open(session.cell).await;
    refused(&empty, &gate_ref(&execution(1), 1), "empty journal").await;
}

/// A request that a fork copied, or a newer turn left behind, is not decided any more.
async fn j04_inherited_or_superseded(session: Fixture) {
    session.append(open_gate()).await;
    let child = session.fork(4, "child").await.unwrap();
    refused(&child, &gate_ref(&execution(1), 1), "inherited").await;
    let grandchild = child.fork(5, "grandchild").await.unwrap();
    refused(&grandchild, &gate_ref(&execution(1), 1), "inherited twice").await;
    session.append(raw::echo_turn(&execution(2), "new").into_iter().take(2)).await;
    refused(&session, &gate_ref(&execution(1), 1), "superseded by a turn").await;
    session.append(raw::echo_turn(&execution(2), "new").into_iter().skip(2)).await;
    refused(&session, &gate_ref(&execution(1), 1), "superseded by a completed turn").await;
}

/// A newer gate of the same turn leaves only the recorded decision of the older one.
async fn j04_superseded_by_a_newer_gate(session: Fixture) {
    let id = execution(1);
    session.append(gate_turn(&id, 1, true).into_iter().take(4)).await;
    let first = session.decide(&gate_ref(&id, 1), true, "checked").await.unwrap();
    session.append(gate_turn(&id, 1, true).into_iter().skip(5).take(1)).await;
    session
        .append([raw::tool_call(&id, gated("c2", TOOL)), raw::approval_request(&id, "c2")])
        .await;
    refused(&session, &gate_ref(&id, 1), "decided otherwise, and superseded").await;
    let crossed = ApprovalRef { request_seq: 8, ..gate_ref(&id, 1) };
    refused(&session, &crossed, "the older call with the newer request").await;
    let again = session.decide(&gate_ref(&id, 1), true, "checked").await.unwrap();
    assert_eq!(unnoted(again), first);
    let newer = ApprovalRef { tool_call_id: "c2".to_owned(), ..crossed };
    session.decide(&newer, false, "").await.unwrap();
}

/// A turn that has ended or was cancelled is decided by nobody.
async fn j04_completed_or_cancelled(session: Fixture) {
    session.append(gate_turn(&execution(1), 1, false)).await;
    refused(&session, &gate_ref(&execution(1), 1), "completed").await;
    for records in [4, 5] {
        let cancelled = Fixture::open(session.cell).await;
        let turn = gate_turn(&execution(1), 1, true);
        cancelled.append(turn.into_iter().take(records)).await;
        let placed = cancelled.place(deploying()).await;
        Asked::Cancel.of(&cancelled, &placed, &gate_ref(&execution(1), 1)).await.unwrap();
        assert_eq!(cancelled.kinds().await, "ES IN TC AQ AR TR END");
        // The raw decision's reason is the same; it has no identity.
        refused(&cancelled, &gate_ref(&execution(1), 1), "cancelled").await;
        assert_eq!(cancelled.head().await.seq.get(), 7);
    }
}

/// A writer that comes between the look and the decision makes it a conflict, and the decision is absent.
async fn j05_race(session: Fixture) {
    for before in [Before::Mint, Before::Append] {
        let session = Fixture::open(session.cell).await;
        session.append(open_gate()).await;
        let fence = session.fence().await;
        let other = session.clone();
        let log = Between::over(Arc::clone(&session.log), before, move || {
            let other = other.clone();
            async move { other.append([raw::error(&execution(1), "first")]).await }
        });
        let raced = session.through(log);
        let error = raced.decide(&gate_ref(&execution(1), 1), true, "").await.unwrap_err();
        assert!(matches!(error, ControllerError::Log(LogError::Conflict { .. })), "{error:?}");
        assert_eq!(session.kinds().await, "ES IN TC AQ ERR");
        let minted = session.fence().await.get() - fence.get();
        assert_eq!(minted, u64::from(before == Before::Append), "{before:?}");
        // Looked at again, it can be decided.
        raced.decide(&gate_ref(&execution(1), 1), true, "").await.unwrap();
        assert_eq!(session.kinds().await, "ES IN TC AQ ERR AR");
    }
}

/// A newer fence between the two makes it fenced or moved, and the decision is absent.
async fn j05_a_newer_fence(session: Fixture) {
    for (before, condition) in
        [(Before::Mint, Condition::Conflict), (Before::Append, Condition::Fenced)]
    {
        let session = Fixture::open(session.cell).await;
        session.append(open_gate()).await;
        let other = session.clone();
        let log = Between::over(Arc::clone(&session.log), before, move || {
            let other = other.clone();
            async move {
                other.take_over().await;
            }
        });
        let raced = session.through(log);
        let decision = raced.decision(&gate_ref(&execution(1), 1), true, "");
        let error = approve(&raced.journal(), decision).await.unwrap_err();
        assert_eq!(error.condition(), condition, "{before:?}: {error:?}");
        assert_eq!(session.kinds().await, "ES IN TC AQ");
    }
}

/// Two people who decide at once: one decision is recorded, the other is told so.
async fn j05_two_decisions_at_once(session: Fixture) {
    session.append(open_gate()).await;
    let approval = gate_ref(&execution(1), 1);
    let (yes, no) =
        tokio::join!(session.decide(&approval, true, "a"), session.decide(&approval, false, "b"));
    assert_eq!(session.kinds().await, "ES IN TC AQ AR", "{yes:?} {no:?}");
    let (recorded, refused) = match (yes, no) {
        (Ok(record), Err(error)) | (Err(error), Ok(record)) => (record, error),
        other => panic!("{other:?}"),
    };
    assert_eq!(recorded.seq.get(), 5);
    let told = [Condition::Conflict, Condition::Fenced, Condition::InvalidApprovalDecision];
    assert!(told.contains(&refused.condition()), "{refused:?}");
}

matrix! {
    run:
    everywhere {
        #[test] fn j04_bad_tuples;
        #[test] fn j04_a_call_without_a_request;
        #[test] fn j04_inherited_or_superseded;
        #[test] fn j04_superseded_by_a_newer_gate;
        #[test] fn j04_completed_or_cancelled;
        #[test] fn j05_race;
        #[test] fn j05_a_newer_fence;
        #[test] fn j05_two_decisions_at_once;
    }
}
