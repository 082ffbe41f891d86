//! Family I: the state of an approval.

use mainspring_api::{Condition, EventBody, LifecycleKind, Seq};
use mainspring_controller::{ApprovalState, ControllerError, approve, inspect_approval};

use crate::support::gates::{Asked, CALL, TOOL, deploying, gate_ref, gate_turn};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, gated, mediated};

async fn state(session: &Fixture, through: i64) -> Option<ApprovalState> {
    let before = session.row().await;
    let state = inspect_approval(&session.journal(), through).await.unwrap();
    assert_eq!(session.row().await, before, "it only reads");
    state
}

/// The positions of call, request, decision and receipt.
fn positions(state: &ApprovalState) -> [Option<u64>; 4] {
    let seq =
        |record: &Option<mainspring_api::LogRecord>| record.as_ref().map(|record| record.seq.get());
    let call = Some(state.call_seq.get());
    [call, seq(&state.request), seq(&state.decision), seq(&state.receipt)]
}

/// The positions that a turn of `records` records has, the gate's call at 3.
fn expected(records: u64) -> [Option<u64>; 4] {
    [3, 4, 5, 6].map(|seq| (seq <= records).then_some(seq))
}

/// At each prefix the state has exactly the records that are there, and is completed only at the end.
async fn i01_phases(session: Fixture) {
    for approved in [true, false] {
        let session = Fixture::open(session.cell).await;
        let id = execution(1);
        for (number, event) in (1..).zip(gate_turn(&id, 1, approved)) {
            session.append([event]).await;
            let Some(state) = state(&session, 0).await else {
                assert!(number < 3, "a gate at {number}");
                continue;
            };
            let records = session.records().await;
            assert_eq!(positions(&state), expected(number), "{number}");
            for record in [&state.request, &state.decision, &state.receipt].into_iter().flatten() {
                let stored = &records[record.seq.get() as usize - 1];
                assert_eq!(*record, stored.to_record().unwrap());
            }
            assert_eq!(state.completed, number == 7);
            assert_eq!((state.inherited, state.head), (false, session.head().await));
            assert_eq!((state.execution, state.call), (id.clone(), gated(CALL, TOOL)));
            assert_eq!(state.invocation.unwrap().input_count, Some(1));
        }
        assert_eq!(session.head().await.seq.get(), 7);
    }
}

/// A turn without a start has a state without an invocation.
async fn a_turn_without_a_start_has_no_invocation(session: Fixture) {
    let id = execution(1);
    session.append(gate_turn(&id, 0, true).into_iter().skip(1).take(3)).await;
    let state = state(&session, 0).await.unwrap();
    assert_eq!((state.invocation, state.call_seq), (None, Seq::new(2)));
}

/// A bound shows the state as it was, at the head that it was at; a bad bound is refused.
async fn i02_bound(session: Fixture) {
    session.append(gate_turn(&execution(1), 1, true)).await;
    let records = session.records().await;
    for bound in 1..=7 {
        let state = state(&session, bound as i64).await;
        assert_eq!(state.is_some(), bound >= 3);
        let Some(state) = state else { continue };
        assert_eq!(positions(&state), expected(bound));
        assert_eq!((state.head, state.completed), (raw::head_at(&records, bound), bound == 7));
    }
    for bound in [-1, i64::MIN, 8, i64::MAX] {
        let error = inspect_approval(&session.journal(), bound).await.unwrap_err();
        assert_eq!(error.condition(), Condition::InvalidExecutionLog, "{bound}: {error:?}");
    }
    // What comes after the bound is neither selected nor validated.
    let ill_formed = Fixture::open(session.cell).await;
    let id = execution(1);
    ill_formed.append(gate_turn(&id, 1, true).into_iter().take(4)).await;
    ill_formed.append([raw::approval_request(&id, CALL)]).await;
    ill_formed.append(raw::echo_turn(&execution(2), "new")).await;
    assert_eq!(positions(&state(&ill_formed, 4).await.unwrap()), expected(4));
    assert!(inspect_approval(&ill_formed.journal(), 5).await.is_err());
    assert_eq!(state(&ill_formed, 0).await, None, "the latest turn has no gate");
}

/// The latest turn counts, whether an older one has a gate or not; of it, its last gate.
async fn i03_newer_ungated_execution(session: Fixture) {
    assert_eq!(state(&session, 0).await, None);
    session.append(gate_turn(&execution(1), 1, true)).await;
    session.append(raw::echo_turn(&execution(2), "new").into_iter().take(1)).await;
    assert_eq!(state(&session, 0).await, None);

    let open = Fixture::open(session.cell).await;
    open.append(gate_turn(&execution(1), 1, true).into_iter().take(4)).await;
    open.append(raw::echo_turn(&execution(2), "new")).await;
    // A late record of the older turn does not make it the latest.
    open.append([raw::error(&execution(1), "late")]).await;
    assert_eq!(state(&open, 0).await, None);
    let late = open.place(deploying()).await;
    let refused = Asked::Approve.refused(&open, &late, &gate_ref(&execution(1), 1), "late").await;
    assert_eq!(refused.condition(), Condition::InvalidApprovalDecision);

    let two = Fixture::open(session.cell).await;
    let id = execution(1);
    two.append(gate_turn(&id, 1, true).into_iter().take(6)).await;
    two.append([raw::tool_call(&id, gated("c2", TOOL)), raw::approval_request(&id, "c2")]).await;
    let last = state(&two, 0).await.unwrap();
    assert_eq!(positions(&last), [Some(7), Some(8), None, None]);
    two.append([raw::tool_result(&id, raw::reported("c3"))]).await;
    assert!(inspect_approval(&two.journal(), 0).await.is_err(), "within the open gate");
}

/// Ungated calls before and after a gate change nothing of its state.
async fn ungated_calls_beside_a_gate_are_not_looked_at(session: Fixture) {
    let id = execution(1);
    let mut events = gate_turn(&id, 3, true);
    for (at, call) in [(2, "c0"), (8, "c0")] {
        events.insert(at, raw::tool_result(&id, raw::reported(call)));
        events.insert(at, raw::tool_call(&id, mediated(call, "look")));
    }
    session.append(events).await;
    assert_eq!(session.kinds().await, "ES IN TC TR TC AQ AR TR TC TR END");
    let found = state(&session, 0).await.unwrap();
    assert_eq!(positions(&found), [Some(5), Some(6), Some(7), Some(8)]);
}

/// What is ill-formed in another turn stands in no inspection's way.
async fn an_unrelated_ill_formed_turn_is_not_looked_at(session: Fixture) {
    session.append([raw::start(&execution(9), None), raw::end(&execution(9))]).await;
    let id = execution(1);
    session.append(gate_turn(&id, 3, true).into_iter().take(4)).await;
    assert_eq!(positions(&state(&session, 0).await.unwrap()), [Some(5), Some(6), None, None]);
    let decision = session.decision(&gate_ref(&id, 3), true, "because");
    approve(&session.journal(), decision).await.unwrap();
}

/// A gate that a fork copied is inherited, also once a receipt landed, and nobody can decide it.
async fn i07_inherited(session: Fixture) {
    let id = execution(1);
    session.append(gate_turn(&id, 1, true).into_iter().take(5)).await;
    let child = session.fork(4, "child").await.unwrap();
    let inherited = state(&child, 0).await.unwrap();
    assert_eq!(positions(&inherited), expected(4));
    assert!(inherited.inherited && !inherited.completed);
    assert!(!state(&session, 0).await.unwrap().inherited);
    let placed = child.place(deploying()).await;
    let refused = Asked::Approve.refused(&child, &placed, &gate_ref(&id, 1), "inherited").await;
    assert!(matches!(refused, ControllerError::InvalidApprovalDecision(_)), "{refused:?}");

    let received = session.fork(5, "received").await.unwrap();
    received.append(gate_turn(&id, 1, true).into_iter().skip(5)).await;
    let closed = state(&received, 0).await.unwrap();
    assert_eq!(positions(&closed), [Some(3), Some(4), Some(5), Some(7)]);
    assert!(closed.inherited && closed.completed);
    // A gate of the child's own is not inherited.
    received.append(gate_turn(&execution(2), 9, true).into_iter().take(4)).await;
    assert!(!state(&received, 0).await.unwrap().inherited);
}

/// Errors and lifecycle records may stand anywhere within a gate.
async fn i05_errors_and_lifecycle_within_a_gate_are_fine(session: Fixture) {
    let id = execution(1);
    let between = || {
        let suspend = raw::lifecycle(LifecycleKind::Suspend);
        let lifecycle = mainspring_api::Event::of(EventBody::Lifecycle(Some(suspend)));
        [raw::error(&id, "again"), lifecycle]
    };
    let [start, input, call, ..] = &gate_turn(&id, 1, true)[..] else { panic!() };
    session.append([start.clone(), input.clone(), call.clone()]).await;
    session.append(between()).await;
    session.append([raw::approval_request(&id, CALL)]).await;
    session.append(between()).await;
    assert_eq!(positions(&state(&session, 0).await.unwrap()), [Some(3), Some(6), None, None]);
    session.append([raw::approval_result(&id, CALL, false, 6)]).await;
    session.append(between()).await;
    assert_eq!(positions(&state(&session, 0).await.unwrap()), [Some(3), Some(6), Some(9), None]);
    let placed = session.place(deploying()).await;
    session.resume(&placed).await.result.unwrap();
    assert_eq!(positions(&state(&session, 0).await.unwrap())[3], Some(12));
    session.replay_check(&placed, 1, &[]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn i01_phases;
        #[test] fn a_turn_without_a_start_has_no_invocation;
        #[test] fn i02_bound;
        #[test] fn i03_newer_ungated_execution;
        #[test] fn ungated_calls_beside_a_gate_are_not_looked_at;
        #[test] fn an_unrelated_ill_formed_turn_is_not_looked_at;
        #[test] fn i05_errors_and_lifecycle_within_a_gate_are_fine;
        #[test] fn i07_inherited;
    }
}
