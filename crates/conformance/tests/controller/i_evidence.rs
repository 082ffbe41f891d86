//! Family I: evidence of approvals that does not hold.

use mainspring_api::{Condition, Event, EventBody, ResultCode, ToolCall, Usage};
use mainspring_controller::{ControllerError, inspect_approval};

use crate::support::gates::{Asked, CALL, TOOL, deploying, gate_ref, gate_turn};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, gated, mediated};

/// Every operation refuses a journal of these events with `condition` at `bad_seq`.
async fn refused(
    cell: &Fixture,
    what: &str,
    events: Vec<Event>,
    bad_seq: u64,
    condition: Condition,
) {
    let session = Fixture::open(cell.cell).await.with_tools();
    session.append(events).await;
    let placed = session.place(deploying()).await;
    let approval = gate_ref(&execution(1), 1);
    for asked in Asked::OF_EVIDENCE {
        let error = asked.refused(&session, &placed, &approval, what).await;
        assert_eq!(error.condition(), condition, "{what}: {asked:?}: {error:?}");
        let seq = match &error {
            ControllerError::InvalidExecutionLog { seq, .. } => Some(*seq),
            ControllerError::ReplayDiverged(divergence) => divergence.seq,
            _ => None,
        };
        assert_eq!(seq.map(|seq| seq.get()), Some(bad_seq), "{what}: {asked:?}: {error:?}");
    }
}

/// The same, and once more with an end after it.
async fn refused_open_and_ended(
    cell: &Fixture,
    what: &str,
    events: Vec<Event>,
    bad_seq: u64,
    condition: Condition,
) {
    refused(cell, what, events.clone(), bad_seq, condition).await;
    let ended = events.into_iter().chain([raw::end(&execution(1))]).collect();
    refused(cell, &format!("{what}, ended"), ended, bad_seq, condition).await;
}

/// The first `count` records of an approved gate's turn, then `more`.
fn after(count: usize, more: impl IntoIterator<Item = Event>) -> Vec<Event> {
    gate_turn(&execution(1), 1, true).into_iter().take(count).chain(more).collect()
}

/// Evidence of the right shape that is of another call, request or decision diverges.
async fn i04_wrong_tuples(session: Fixture) {
    let id = execution(1);
    let ok = (ResultCode::Unspecified, false);
    let receipt = |call, seqs| raw::receipt(&id, call, ok, seqs);
    for (what, bad_seq, events) in [
        ("request of another call", 4, after(3, [raw::approval_request(&id, "c2")])),
        ("decision of another call", 5, after(4, [raw::approval_result(&id, "c2", true, 4)])),
        ("decision of an earlier seq", 5, after(4, [raw::approval_result(&id, CALL, true, 3)])),
        ("decision of no seq", 5, after(4, [raw::approval_result(&id, CALL, true, 0)])),
        ("decision of a later seq", 5, after(4, [raw::approval_result(&id, CALL, true, 5)])),
        ("receipt of another call", 6, after(5, [receipt("c2", (4, 5))])),
        ("receipt of no call", 6, after(5, [receipt("", (4, 5))])),
        ("receipt of another request", 6, after(5, [receipt(CALL, (3, 5))])),
        ("receipt of no request", 6, after(5, [receipt(CALL, (0, 5))])),
        ("receipt of another decision", 6, after(5, [receipt(CALL, (4, 4))])),
        ("receipt of no decision", 6, after(5, [receipt(CALL, (4, 0))])),
        ("receipt that a harness reported", 6, after(5, [receipt(CALL, (0, 0))])),
    ] {
        let condition = Condition::ReplayDiverged;
        refused_open_and_ended(&session, what, events, bad_seq, condition).await;
    }
}

/// Evidence that is missing, double, out of order or has no body is ill-formed.
async fn i05_structure(session: Fixture) {
    let id = execution(1);
    let of = |body| Event::in_execution(&id, body);
    let request = || raw::approval_request(&id, CALL);
    let decision = || raw::approval_result(&id, CALL, true, 4);
    let receipt = || raw::receipt(&id, CALL, (ResultCode::Unspecified, false), (4, 5));
    for (what, bad_seq, events) in [
        ("second request", 5, after(4, [request()])),
        ("second request, decided", 6, after(5, [request()])),
        ("decision before the request", 4, after(3, [decision(), request()])),
        ("second decision", 6, after(5, [decision()])),
        ("second receipt", 7, after(6, [receipt()])),
        ("receipt before the decision", 5, after(4, [receipt()])),
        ("receipt before the request", 4, after(3, [receipt()])),
        ("request without a body", 4, after(3, [of(EventBody::ApprovalRequest(None))])),
        ("decision without a body", 5, after(4, [of(EventBody::ApprovalResult(None))])),
        ("receipt without a body", 6, after(5, [of(EventBody::ToolResult(None))])),
        ("request after the receipt", 7, after(6, [request()])),
        ("decision after the receipt", 7, after(6, [decision()])),
    ] {
        let condition = Condition::InvalidExecutionLog;
        refused_open_and_ended(&session, what, events, bad_seq, condition).await;
    }
}

/// No other effect, and no end, stands between a gated call and its receipt.
async fn i05_effects_within_an_open_gate(session: Fixture) {
    let id = execution(1);
    let effects: [(&str, Event); 7] = [
        ("model call", raw::model_call(&id, "hello")),
        ("output", raw::output(&id, "said")),
        ("usage", raw::usage(&id, Usage::default())),
        ("ungated call", raw::tool_call(&id, mediated("c2", "look"))),
        ("gated call", raw::tool_call(&id, gated("c2", TOOL))),
        ("call without a body", Event::in_execution(&id, EventBody::ToolCall(None))),
        ("end", raw::end(&id)),
    ];
    for records in [3, 4, 5] {
        for (what, effect) in &effects {
            let what = format!("{what} after {records} records");
            let events = after(records, [effect.clone()]);
            let (bad_seq, condition) = (records as u64 + 1, Condition::InvalidExecutionLog);
            refused(&session, &what, events, bad_seq, condition).await;
        }
        // One input more is declared, so that its count is in order.
        let mut events = after(records, [raw::input(&id, "late")]);
        events[0] = raw::start(&id, Some(2));
        let (bad_seq, condition) = (records as u64 + 1, Condition::InvalidExecutionLog);
        let mut session = Fixture::open(session.cell).await.with_tools();
        session.append(events).await;
        let error = inspect_approval(&session.journal(), 0).await.unwrap_err();
        assert!(
            matches!(&error, ControllerError::InvalidExecutionLog { seq, .. }
                if seq.get() == bad_seq),
            "{error:?}"
        );
        session.tools = None;
        let placed = session.place(deploying()).await;
        for asked in Asked::OF_EVIDENCE {
            let approval = gate_ref(&id, 1);
            let error = asked.refused(&session, &placed, &approval, "late input").await;
            assert_eq!(error.condition(), condition, "{asked:?}: {error:?}");
        }
    }
}

/// A gated call has an id and a key, and its id is no other call's.
async fn i05_identity_of_gated_calls(session: Fixture) {
    let id = execution(1);
    let call = |call: ToolCall| raw::tool_call(&id, call);
    let unnamed = ToolCall { id: String::new(), ..gated(CALL, TOOL) };
    let keyless = ToolCall { idempotency_key: String::new(), ..gated(CALL, TOOL) };
    let result = |of| raw::tool_result(&id, raw::reported(of));
    let after_ungated =
        after(2, [call(mediated(CALL, "look")), result(CALL), call(gated(CALL, TOOL))]);
    for (what, bad_seq, events) in [
        ("gated call without an id", 3, after(2, [call(unnamed)])),
        ("gated call with an ungated one's id", 5, after_ungated),
        ("gated call with a gated one's id", 7, after(6, [call(gated(CALL, TOOL))])),
        ("ungated call with a gated one's id", 7, after(6, [call(mediated(CALL, "look"))])),
        ("result of a gated call, once more", 7, after(6, [result(CALL)])),
    ] {
        let condition = Condition::InvalidExecutionLog;
        refused_open_and_ended(&session, what, events, bad_seq, condition).await;
    }
    let session = Fixture::open(session.cell).await;
    session.append(after(2, [call(keyless)])).await;
    let placed = session.place(deploying()).await;
    for asked in Asked::OF_EVIDENCE {
        let error = asked.refused(&session, &placed, &gate_ref(&id, 1), "no key").await;
        assert_eq!(error.condition(), Condition::InvalidExecutionLog, "{asked:?}: {error:?}");
        assert!(error.is(Condition::MissingIdempotencyKey), "{asked:?}: {error:?}");
    }
}

/// An ill-formed gate of an older turn, finished or not, is found by a replay.
async fn a_replay_checks_every_gate(session: Fixture) {
    for ended in [false, true] {
        let session = Fixture::open(session.cell).await;
        let id = execution(1);
        session.append(after(4, [raw::approval_request(&id, CALL)])).await;
        if ended {
            session.append([raw::end(&id)]).await;
        }
        session.append(raw::echo_turn(&execution(2), "hello")).await;
        let placed = session.place(deploying()).await;
        let error = Asked::Replay.refused(&session, &placed, &gate_ref(&id, 1), "older").await;
        assert_eq!(error.condition(), Condition::InvalidExecutionLog, "{ended}: {error:?}");
    }
}

/// Of all combinations of decision, failure and code, exactly three are receipts.
async fn i06_receipt_status_matrix(session: Fixture) {
    let id = execution(1);
    let codes = [ResultCode::Unspecified, ResultCode::ApprovalDenied, ResultCode::ExecutorError];
    let legal = [
        (false, true, ResultCode::ApprovalDenied),
        (true, false, ResultCode::Unspecified),
        (true, true, ResultCode::ExecutorError),
    ];
    let mut passed = 0;
    for (approved, is_error, code) in [true, false]
        .into_iter()
        .flat_map(|approved| [true, false].map(|is_error| (approved, is_error)))
        .flat_map(|(approved, is_error)| codes.map(|code| (approved, is_error, code)))
    {
        let what = format!("{:?}", (approved, is_error, code));
        let mut events = gate_turn(&id, 1, approved);
        events[5] = raw::receipt(&id, CALL, (code, is_error), (4, 5));
        if !legal.contains(&(approved, is_error, code)) {
            let condition = Condition::ReplayDiverged;
            refused(&session, &what, events[..6].to_vec(), 6, condition).await;
            refused(&session, &what, events, 6, condition).await;
            continue;
        }
        passed += 1;
        let session = Fixture::open(session.cell).await;
        session.append(events).await;
        let state = inspect_approval(&session.journal(), 0).await.unwrap().unwrap();
        assert_eq!(state.receipt.unwrap().seq.get(), 6, "{what}");
        let placed = session.place(deploying()).await;
        session.replay_check(&placed, 1, &[]).await;
        assert!(!session.resume(&placed).await.resumed);
        let echo = session.place(crate::support::Probe::echo()).await;
        session.exec(&echo, &["more"]).await.unwrap();
    }
    assert_eq!(passed, legal.len());
}

matrix! {
    run:
    everywhere {
        #[test] fn i04_wrong_tuples;
        #[test] fn i05_structure;
        #[test] fn i05_effects_within_an_open_gate;
        #[test] fn i05_identity_of_gated_calls;
        #[test] fn a_replay_checks_every_gate;
        #[test] fn i06_receipt_status_matrix;
    }
}
