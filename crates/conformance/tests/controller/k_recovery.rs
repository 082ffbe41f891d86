//! Family K: a gated call from its decision on.

use mainspring_api::{
    ApprovalRef, Classify as _, EventBody, HarnessError, Part, ResultCode, ToolCall, ToolResult,
};
use mainspring_controller::{ApprovedRetry, Controller, Options, Resumed};

use crate::support::raw::{self, execution};
use crate::support::{
    Answers, Fixture, Placed, Probe, TestTools, driven, gated, mediated, parked, refused,
    sink_error,
};

const DENIED: &str = "Tool execution denied by approval decision.";

/// A session with an executor whose first turn is parked, and a harness that keeps its answers.
async fn park(session: Fixture) -> (Fixture, Placed, Answers, ApprovalRef) {
    let session = session.with_tools();
    let answers = Answers::default();
    let probe = session.place_agreed(Probe::answered([gated("c1", "pay")], &answers)).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    answers.take();
    (session, probe, answers, park)
}

async fn recorded_result(session: &Fixture, seq: usize) -> ToolResult {
    match session.events().await.remove(seq - 1).body {
        EventBody::ToolResult(Some(result)) => result,
        other => panic!("not a result: {other:?}"),
    }
}

/// The transient decision that the harness is given beside a receipt.
#[track_caller]
fn decision(result: &ToolResult) -> (bool, String, i64) {
    let decision = result.decision.clone().expect("the decision comes with the receipt");
    assert_eq!(decision.tool_call_id, "c1");
    (decision.approved, decision.reason, decision.request_seq)
}

/// An approved call is run once, under its own key, and its receipt binds request and decision.
async fn k08_approved(session: Fixture) {
    let (session, probe, answers, park) = park(session).await;
    let decided = session.decide(&park, true, "looks right").await.unwrap();
    assert_eq!(decided.seq.get(), 5);
    let controller = session.controller().await;
    driven(controller.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert_eq!((session.executor().calls(), controller.tool_invocations()), (1, 1));
    assert_eq!(session.executor().attempts(), [(session.uid.clone(), gated("c1", "pay"))]);
    let expected = ToolResult {
        id: "c1".to_owned(),
        approval_request_seq: 4,
        approval_decision_seq: 5,
        ..TestTools::answer(&gated("c1", "pay"))
    };
    assert_eq!(recorded_result(&session, 6).await, expected);
    for replays in [false, true] {
        if replays {
            session.replay_check(&probe, 1, &["done"]).await;
        }
        let given = answers.result();
        assert_eq!(decision(&given), (true, "looks right".to_owned(), 4));
        assert_eq!(ToolResult { decision: None, ..given }, expected);
    }
}

/// A denied call is not run; its receipt is a fixed text, and the reason reaches the harness alone.
async fn k09_denied(session: Fixture) {
    let (session, probe, answers, park) = park(session).await;
    session.decide(&park, false, "too expensive").await.unwrap();
    let controller = session.controller().await;
    driven(controller.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert_eq!((session.executor().calls(), controller.tool_invocations()), (0, 0));
    let expected = ToolResult {
        id: "c1".to_owned(),
        is_error: true,
        error: DENIED.to_owned(),
        content: vec![Part::Text(DENIED.to_owned())],
        code: ResultCode::ApprovalDenied,
        approval_request_seq: 4,
        approval_decision_seq: 5,
        ..ToolResult::default()
    };
    assert_eq!(recorded_result(&session, 6).await, expected);
    for replays in [false, true] {
        if replays {
            session.replay_check(&probe, 1, &["done"]).await;
        }
        let given = answers.result();
        assert_eq!(decision(&given), (false, "too expensive".to_owned(), 4));
        assert_eq!(ToolResult { decision: None, ..given }, expected);
    }
}

/// A denial needs no executor.
async fn k09_denied_without_executor(session: Fixture) {
    let (session, probe, _, park) = park(session).await;
    session.decide(&park, false, "").await.unwrap();
    driven(session.without_tools().resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
}

/// The failure of an approved call's executor is its receipt: it counts, the harness is told, and it is not tried again.
async fn k10_approved_executor_fails(session: Fixture) {
    let (session, probe, answers, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    session.executor().fail(1);
    let gives_up = Probe::new(|_, sink| async move {
        sink.tool_call(gated("c1", "pay")).await?;
        Err(HarnessError::failed("later"))
    });
    let gives_up = session.place_agreed(gives_up).await;
    let controller = session.controller().await;
    let Resumed { resumed, result } = controller.resume(&gives_up.harness, None).await;
    assert!(resumed && result.is_err());
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR ERR");
    assert_eq!((session.executor().calls(), controller.tool_invocations()), (1, 1));
    let receipt = recorded_result(&session, 6).await;
    assert_eq!((receipt.is_error, receipt.code), (true, ResultCode::ExecutorError));
    assert!(receipt.error.contains("out of order"), "{receipt:?}");
    assert_eq!((receipt.approval_request_seq, receipt.approval_decision_seq), (4, 5));
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR ERR OUT END");
    assert_eq!(session.executor().calls(), 1);
    assert_eq!(ToolResult { decision: None, ..answers.result() }, receipt);
    session.replay_check(&probe, 1, &["done"]).await;
}

/// An approved call without an executor stops the turn, also if that is swallowed, and leaves it as it is for one that has it.
async fn k11_approved_no_executor(session: Fixture) {
    let (session, probe, _, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    let head = session.head().await;
    let controller = session.without_tools().controller().await;
    let Resumed { resumed, result } = controller.resume(&probe.harness, None).await;
    assert!(resumed);
    assert_eq!(sink_error(&result.unwrap_err()).code(), "missing_tool_executor");
    assert_eq!((session.head().await, controller.tool_invocations()), (head, 0));
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert_eq!(session.executor().calls(), 1);
}

/// The same, with a harness that swallows it and goes on.
async fn k11_swallowed(session: Fixture) {
    let (session, _, _, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    let head = session.head().await;
    let probe = session
        .place_agreed(Probe::new(|_, sink| async move {
            for _ in 0..2 {
                let _ = sink.tool_call(gated("c1", "pay")).await;
            }
            let _ = sink.output("went on".to_owned()).await;
            Ok(())
        }))
        .await;
    let Resumed { resumed, result } = session.without_tools().resume(&probe).await;
    assert!(resumed);
    assert_eq!(result.unwrap_err().code(), "missing_tool_executor");
    assert_eq!(session.head().await, head);
}

/// A host that dies while the approved tool runs.
async fn dies_in_tool(session: &Fixture, probe: &Placed, retry: ApprovedRetry) {
    let called = session.executor().hang();
    let controller = with_retry(session, retry).await;
    tokio::select! {
        ended = controller.resume(&probe.harness, None) => panic!("it cannot end: {ended:?}"),
        () = called.notified() => {}
    }
    session.executor().recover();
}

async fn with_retry(session: &Fixture, approved_retry: ApprovedRetry) -> Controller {
    let options = Options { approved_retry, ..session.options() };
    Controller::new(session.journal(), options).await.unwrap()
}

/// An approved call is run although its tool is undeclared, and, as the contract says, again after a crash in it.
async fn k12_declaration_is_ignored(session: Fixture) {
    let (session, probe, _, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    dies_in_tool(&session, &probe, ApprovedRetry::Always).await;
    assert_eq!(session.kinds().await, "ES IN TC AQ AR");
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert_eq!(session.executor().ledger(), ["key-c1", "key-c1"]);
    assert!(session.executor().consulted().is_empty());
    session.replay_check(&probe, 1, &["done"]).await;
}

/// Under the stricter rule a second start of an undeclared tool is refused as unknown; a declared one is run again.
async fn k12b_declared_only(session: Fixture) {
    let (session, probe, _, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    dies_in_tool(&session, &probe, ApprovedRetry::DeclaredOnly).await;
    let (head, runs, describes) = (session.head().await, probe.runs(), probe.describes());
    for _ in 0..2 {
        let controller = with_retry(&session, ApprovedRetry::DeclaredOnly).await;
        let error = refused(controller.resume(&probe.harness, None).await);
        assert_eq!(error.code(), "unanswered_tool_call");
        assert_eq!((probe.runs(), probe.describes()), (runs, describes));
        assert_eq!((session.head().await, session.executor().calls()), (head, 1));
    }
    session.executor().declare("pay");
    let controller = with_retry(&session, ApprovedRetry::DeclaredOnly).await;
    driven(controller.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert_eq!(
        (session.executor().calls(), session.executor().ledger()),
        (2, vec!["key-c1".to_owned()])
    );
    session.replay_check(&probe, 1, &["done"]).await;
}

/// Its first start needs no declaration.
async fn k12b_first_start(session: Fixture) {
    let (session, probe, _, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    let controller = with_retry(&session, ApprovedRetry::DeclaredOnly).await;
    driven(controller.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert!(session.executor().consulted().is_empty());
    assert_eq!(session.executor().calls(), 1);
    let note = session.records().await.remove(2).notes;
    assert!(note.contains_key("started"), "the start is noted beside the intent: {note:?}");
}

/// Every field that only the host may set, and a result that sets it.
fn forged() -> [(&'static str, ToolResult); 4] {
    let result = || raw::reported("c1");
    let decision = mainspring_api::ApprovalResult {
        tool_call_id: "c1".to_owned(),
        approved: true,
        ..mainspring_api::ApprovalResult::default()
    };
    [
        ("decision", ToolResult { decision: Some(decision), ..result() }),
        ("request", ToolResult { approval_request_seq: 4, ..result() }),
        ("decided", ToolResult { approval_decision_seq: 5, ..result() }),
        ("code", ToolResult { code: ResultCode::ApprovalDenied, is_error: true, ..result() }),
    ]
}

/// A report with a field that only the host may set is refused, and nothing of it is recorded.
async fn k13_forged_reports(session: Fixture) {
    for (field, forged) in forged() {
        let session = Fixture::open(session.cell).await;
        let probe = Probe::new(move |_, sink| {
            let forged = forged.clone();
            async move {
                sink.report(forged).await?;
                Ok(())
            }
        });
        let probe = session.place_agreed(probe).await;
        let error = session.exec(&probe, &["hello"]).await.unwrap_err();
        let words = "receipt fields that only the host may set";
        assert!(error.to_string().contains(words), "{field}: {error}");
        assert_eq!(session.kinds().await, "ES IN ERR", "{field}");
    }
}

/// An ordinary reply with such a field is refused: the tool was run, and no result is recorded.
async fn k13_forged_replies(session: Fixture) {
    for (field, forged) in forged() {
        let session = Fixture::open(session.cell).await.with_tools();
        session.executor().respond(move |_| {
            let forged = forged.clone();
            async move { Ok(forged) }
        });
        let probe = session.place_agreed(Probe::calling([mediated("c1", "search")])).await;
        let error = session.exec(&probe, &["hello"]).await.unwrap_err();
        assert_eq!(sink_error(&error).code(), "approval_receipt_report", "{field}");
        assert_eq!(session.kinds().await, "ES IN TC ERR", "{field}");
    }
}

/// In process a forged report or reply is no more than a refused call: the harness may go on.
async fn k13_forgeries_are_not_sticky(session: Fixture) {
    for (_, forged) in forged() {
        let session = Fixture::open(session.cell).await.with_tools();
        let reply = forged.clone();
        session.executor().respond(move |_| {
            let reply = reply.clone();
            async move { Ok(reply) }
        });
        let probe = Probe::new(move |_, sink| {
            let forged = forged.clone();
            async move {
                let refused = "approval_receipt_report";
                assert_eq!(sink.report(forged).await.unwrap_err().code(), refused);
                let called = sink.tool_call(mediated("c1", "search")).await.unwrap_err();
                // A replay has no result to judge.
                assert!([refused, "tool_result_missing"].contains(&called.code()));
                sink.output("went on".to_owned()).await?;
                Ok(())
            }
        });
        let probe = session.place_agreed(probe).await;
        session.exec(&probe, &["hello"]).await.unwrap();
        assert_eq!(session.kinds().await, "ES IN TC OUT END");
        session.replay_check(&probe, 1, &["went on"]).await;
    }
}

/// A report in the name of a gated call fails the turn, whatever the harness makes of it.
async fn k13_report_of_a_gate(session: Fixture) {
    let (session, _, _, park) = park(session).await;
    session.decide(&park, true, "").await.unwrap();
    let probe = Probe::new(|_, sink| async move {
        sink.tool_call(gated("c1", "pay")).await?;
        let _ = sink.report(raw::reported("c1")).await;
        let _ = sink.output("went on".to_owned()).await;
        Ok(())
    });
    let probe = session.place_agreed(probe).await;
    let error = session.resume(&probe).await.result.unwrap_err();
    assert_eq!(error.code(), "approval_receipt_report");
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR ERR");
    // Where something else is recorded it is a divergence, with that as its cause.
    session.append([raw::output(&execution_of(&park), "went on")]).await;
    let error = session.resume(&probe).await.result.unwrap_err();
    assert_eq!(error.code(), "replay_diverged");
    assert!(error.is(mainspring_api::Condition::ApprovalReceiptReport));
}

fn execution_of(park: &ApprovalRef) -> mainspring_api::ExecutionId {
    mainspring_api::ExecutionId::new(&park.execution_id).unwrap()
}

/// What an approved call's executor says of receipts is overwritten by what the host knows.
async fn k13_forged_replies_of_an_approved_call(session: Fixture) {
    for (field, forged) in forged() {
        let session = Fixture::open(session.cell).await;
        let (session, probe, _, park) = park(session).await;
        session.decide(&park, true, "").await.unwrap();
        let is_error = forged.is_error;
        session.executor().respond(move |_| {
            let forged = forged.clone();
            async move { Ok(forged) }
        });
        driven(session.resume(&probe).await);
        let receipt = recorded_result(&session, 6).await;
        let code = if is_error { ResultCode::ExecutorError } else { ResultCode::Unspecified };
        assert_eq!((receipt.code, receipt.is_error), (code, is_error), "{field}");
        assert_eq!((receipt.approval_request_seq, receipt.approval_decision_seq), (4, 5));
        session.replay_check(&probe, 1, &["done"]).await;
    }
}

/// A gate that was refused when it was recorded is refused again, before the call that is recorded next, and leaves nothing.
async fn k14_historical_rejection(session: Fixture) {
    let id = execution(1);
    let result = ToolResult { id: "c2".to_owned(), ..ToolResult::default() };
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    session.append([raw::tool_call(&id, mediated("c2", "search"))]).await;
    session.append([raw::tool_result(&id, result), raw::output(&id, "done")]).await;
    let answers = Answers::default();
    let calls: [ToolCall; 2] = [gated("c1", "pay"), mediated("c2", "search")];
    let probe = session.place_agreed(Probe::handling(calls, &answers)).await;
    // At a cut the same is met in the prefix.
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC TR OUT END");
    assert_eq!(answers.codes(), ["approval_unavailable", "ok"]);
    session.replay_check(&probe, 1, &["done"]).await;
    assert_eq!(answers.codes(), ["approval_unavailable", "ok"]);
}

matrix! {
    run:
    everywhere {
        #[test] fn k08_approved;
        #[test] fn k09_denied;
        #[test] fn k09_denied_without_executor;
        #[test] fn k10_approved_executor_fails;
        #[test] fn k11_approved_no_executor;
        #[test] fn k11_swallowed;
        #[test] fn k12_declaration_is_ignored;
        #[test] fn k12b_declared_only;
        #[test] fn k12b_first_start;
        #[test] fn k13_forged_reports;
        #[test] fn k13_forged_replies;
        #[test] fn k13_report_of_a_gate;
        #[test] fn k13_forged_replies_of_an_approved_call;
        #[test] fn k14_historical_rejection;
    }
    in_process {
        #[test] fn k13_forgeries_are_not_sticky;
    }
}
