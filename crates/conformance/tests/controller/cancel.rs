//! Ending a turn from outside of its run: every state that it may be in.

use std::sync::Arc;

use mainspring_api::{
    CancelReason, Classify as _, EndState, Event, EventBody, HarnessEnd, Head, OsEntropy,
    ResultCode, Seq, SystemClock, ToolResult,
};
use mainspring_controller::{
    Cancellation, ControllerError, cancel, inspect_approval, resume_invocation,
};
use mainspring_testkit::sample;

use crate::support::raw::{self, execution};
use crate::support::{Fixture, Probe, gated, mediated};

fn cancellation(session: &Fixture, reason: CancelReason) -> Cancellation {
    Cancellation {
        execution: execution(1),
        reason,
        holder: sample::holder("canceler"),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        observer: Arc::clone(&session.watcher) as Arc<_>,
    }
}

async fn canceling(session: &Fixture) -> Result<Head, ControllerError> {
    cancel(&session.journal(), &cancellation(session, CancelReason::User)).await
}

/// A turn that asked the model, with `rest` after its input.
async fn turn_with(session: &Fixture, rest: impl IntoIterator<Item = Event>) -> Fixture {
    let session = Fixture::open(session.cell).await.with_tools();
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    session.append(rest).await;
    session
}

/// A gated call and what followed it: request, decision.
fn gate(records: usize, approved: bool) -> Vec<Event> {
    let id = execution(1);
    let events = [
        raw::tool_call(&id, gated("c1", "pay")),
        raw::approval_request(&id, "c1"),
        raw::approval_result(&id, "c1", approved, 4),
    ];
    events.into_iter().take(records).collect()
}

fn end(event: &Event) -> HarnessEnd {
    match &event.body {
        EventBody::End(Some(end)) => end.clone(),
        other => panic!("not an end: {other:?}"),
    }
}

/// Evidence that every later operation accepts: approvals, resume, a new turn, replay.
async fn goes_on(session: &Fixture) {
    inspect_approval(&session.journal(), 0).await.unwrap();
    assert_eq!(resume_invocation(&session.journal()).await.unwrap(), None);
    let echo = session.place(Probe::echo()).await;
    let head = session.head().await;
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!(session.controller().await.park_again().await.unwrap(), None);
    assert_eq!(session.head().await, head);
    session.replay_check(&echo, 0, &[]).await;
    let before = session.kinds().await;
    session.exec(&echo, &["next"]).await.unwrap();
    assert_eq!(session.kinds().await, format!("{before} ES IN MC OUT END"));
    session.replay_check(&echo, 1, &["echo:next"]).await;
    if let Some(tools) = &session.tools {
        assert_eq!(tools.calls(), 0, "the call of a canceled turn is not run");
    }
}

/// Cancels, and checks what is recorded then, and that it is well formed.
async fn canceled(session: &Fixture, expected: &str) -> Vec<Event> {
    let head = canceling(session).await.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.head().await), (expected, head));
    let events = session.events().await;
    assert!(events.iter().all(|event| event.execution_id == Some(execution(1))));
    let end = end(events.last().unwrap());
    assert_eq!(end.end_state(), Some(EndState::Canceled));
    goes_on(session).await;
    events
}

fn receipt(events: &[Event], seq: usize) -> ToolResult {
    match &events[seq - 1].body {
        EventBody::ToolResult(Some(result)) => result.clone(),
        other => panic!("not a receipt: {other:?}"),
    }
}

/// Without an open gate the end is all: after a start, an intent, a completion, a failure, an unanswered call, a receipt.
async fn cancel_without_a_gate(session: Fixture) {
    let id = execution(1);
    let call = raw::tool_call(&id, mediated("c1", "search"));
    let answered = raw::tool_result(&id, raw::reported("c1"));
    let denied = (ResultCode::ApprovalDenied, true);
    let mut received = gate(3, false);
    received.push(raw::receipt(&id, "c1", denied, (4, 5)));
    let rows: [(Vec<Event>, &str); 7] = [
        (vec![], "ES IN END"),
        (vec![raw::model_call(&id, "hello")], "ES IN MC END"),
        (vec![raw::model_call(&id, "hello"), raw::output(&id, "x")], "ES IN MC OUT END"),
        (vec![raw::model_call(&id, "hello"), raw::error(&id, "x")], "ES IN MC ERR END"),
        (vec![call.clone()], "ES IN TC END"),
        (vec![call, answered], "ES IN TC TR END"),
        (received, "ES IN TC AQ AR TR END"),
    ];
    for (rest, expected) in rows {
        let session = turn_with(&session, rest).await;
        canceled(&session, expected).await;
    }
}

/// A turn that lacks inputs can be ended too.
async fn cancel_of_an_incomplete_invocation(session: Fixture) {
    session.append([raw::start(&execution(1), Some(2)), raw::input(&execution(1), "one")]).await;
    let error = canceling(&session).await;
    // An end with fewer inputs than declared would make every later operation refuse the journal.
    assert!(error.is_err(), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN");
}

/// An undecided gate is denied first, by the host, and its request is recorded if it is missing.
async fn cancel_of_an_undecided_gate(session: Fixture) {
    for records in [1, 2] {
        let session = turn_with(&session, gate(records, false)).await;
        let events = canceled(&session, "ES IN TC AQ AR TR END").await;
        let EventBody::ApprovalResult(Some(decision)) = &events[4].body else { panic!() };
        assert_eq!((decision.approved, decision.reason.as_str()), (false, "canceled"));
        assert_eq!((decision.tool_call_id.as_str(), decision.request_seq), ("c1", 4));
        let actor = events[4].actor.clone().expect("a decision names who made it");
        assert!(!actor.principal.is_empty() && events[4].ts.is_some());
        let receipt = receipt(&events, 6);
        assert_eq!((receipt.code, receipt.is_error), (ResultCode::ApprovalDenied, true));
        assert_eq!((receipt.approval_request_seq, receipt.approval_decision_seq), (4, 5));
        assert!(!receipt.error.contains("canceled"), "the fixed text: {receipt:?}");
    }
}

/// A denied gate gets its receipt.
async fn cancel_of_a_denied_gate(session: Fixture) {
    let session = turn_with(&session, gate(3, false)).await;
    let events = canceled(&session, "ES IN TC AQ AR TR END").await;
    let receipt = receipt(&events, 6);
    assert_eq!((receipt.code, receipt.is_error), (ResultCode::ApprovalDenied, true));
}

/// An approved gate gets a receipt of failure, which says unknown only if the start was noted.
async fn cancel_of_an_approved_gate(session: Fixture) {
    for started in [false, true] {
        let session = turn_with(&session, gate(3, true)).await;
        if started {
            let fence = session.take_over().await;
            session.log.annotate(&session.uid, Seq::new(3), fence, "started", "1").await.unwrap();
        }
        let events = canceled(&session, "ES IN TC AQ AR TR END").await;
        let receipt = receipt(&events, 6);
        assert_eq!((receipt.code, receipt.is_error), (ResultCode::ExecutorError, true));
        assert_eq!((receipt.approval_request_seq, receipt.approval_decision_seq), (4, 5));
        assert!(receipt.error.contains("canceled"), "{receipt:?}");
        assert_eq!(receipt.error.contains("unknown"), started, "{receipt:?}");
    }
}

/// A gate that a fork copied is not the child's to close; nothing is recorded.
async fn cancel_of_an_inherited_gate(session: Fixture) {
    for records in 1..=3 {
        let parent = turn_with(&session, gate(records, true)).await;
        let child = parent.fork(2 + records as u64, "child").await.unwrap();
        let (head, fence) = (child.head().await, child.fence().await);
        let error = canceling(&child).await.unwrap_err();
        assert_eq!(error.code(), "inherited_tool_intent");
        assert_eq!(error.kind(), mainspring_api::ErrorKind::Precondition);
        assert_eq!((child.head().await, child.fence().await), (head, fence));
    }
}

/// An unanswered call that a fork copied does not keep its turn from being ended.
async fn cancel_of_an_inherited_call(session: Fixture) {
    let call = raw::tool_call(&execution(1), mediated("c1", "search"));
    let parent = turn_with(&session, [call]).await;
    let child = parent.fork(3, "child").await.unwrap();
    canceling(&child).await.unwrap();
    assert_eq!(child.kinds().await, "ES IN TC LC:FORK END");
    goes_on(&child).await;
    assert_eq!(parent.kinds().await, "ES IN TC");
}

/// Only the latest turn can be cancelled, and only while it has not ended otherwise.
async fn cancel_of_another_turn(session: Fixture) {
    let refused = async |session: &Fixture, request: &Cancellation| {
        let (head, fence) = (session.head().await, session.fence().await);
        let error = cancel(&session.journal(), request).await.unwrap_err();
        assert!(matches!(error, ControllerError::Precondition(_)), "{error:?}");
        assert_eq!((session.head().await, session.fence().await), (head, fence));
    };
    let request = cancellation(&session, CancelReason::User);
    refused(&session, &request).await;
    let older = turn_with(&session, []).await;
    older.append(raw::echo_turn(&execution(2), "newer").into_iter().take(3)).await;
    refused(&older, &request).await;
    let unknown = Cancellation { execution: execution(7), ..request.clone() };
    refused(&older, &unknown).await;
    let ended = turn_with(&session, [raw::end(&execution(1))]).await;
    refused(&ended, &request).await;
}

/// Cancelling again does nothing, whatever the reasons are; a later turn makes it too late.
async fn cancel_twice(session: Fixture) {
    let reasons = [CancelReason::User, CancelReason::Timeout, CancelReason::Internal];
    for first in reasons {
        let session = turn_with(&session, gate(2, false)).await;
        let request = cancellation(&session, first);
        let head = cancel(&session.journal(), &request).await.unwrap();
        let fence = session.fence().await;
        for second in reasons {
            let request = cancellation(&session, second);
            assert_eq!(cancel(&session.journal(), &request).await.unwrap(), head, "{first:?}");
        }
        assert_eq!((session.head().await, session.fence().await), (head, fence));
        goes_on(&session).await;
        cancel(&session.journal(), &request).await.unwrap_err();
    }
}

/// A host that gives up says so: the turn is failed, not canceled.
async fn cancel_for_reasons(session: Fixture) {
    for (reason, state) in [
        (CancelReason::User, EndState::Canceled),
        (CancelReason::Timeout, EndState::Canceled),
        (CancelReason::Internal, EndState::Failed),
    ] {
        let session = turn_with(&session, []).await;
        cancel(&session.journal(), &cancellation(&session, reason)).await.unwrap();
        let end = end(session.events().await.last().unwrap());
        assert_eq!(end.end_state(), Some(state));
        let words = end.error.expect("it says why").description;
        assert!(words.to_lowercase().contains(&reason.name().to_lowercase()), "{words}");
        goes_on(&session).await;
    }
}

/// Whoever drives the turn elsewhere is superseded, and leaves no mark after the end.
async fn cancel_of_a_turn_that_is_driven_elsewhere(session: Fixture) {
    let other = session.clone();
    let probe = Probe::new(move |start, sink| {
        let other = other.clone();
        async move {
            let execution = start.execution_id.clone();
            let request = Cancellation { execution, ..cancellation(&other, CancelReason::User) };
            cancel(&other.journal(), &request).await.unwrap();
            let _ = sink.output("too late".to_owned()).await;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert!(matches!(error.code(), "fenced" | "conflict"), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN END");
    goes_on(&session).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn cancel_of_a_turn_that_is_driven_elsewhere;
    }
    in_process {
        #[test] fn cancel_without_a_gate;
        #[test] fn cancel_of_an_incomplete_invocation;
        #[test] fn cancel_of_an_undecided_gate;
        #[test] fn cancel_of_a_denied_gate;
        #[test] fn cancel_of_an_approved_gate;
        #[test] fn cancel_of_an_inherited_gate;
        #[test] fn cancel_of_an_inherited_call;
        #[test] fn cancel_of_another_turn;
        #[test] fn cancel_twice;
        #[test] fn cancel_for_reasons;
    }
}
