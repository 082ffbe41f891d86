//! Family F: a turn that was cut around a tool call, and what may be repeated.

use std::sync::Arc;

use mainspring_api::{
    Classify as _, Divergence, Event, Json, Outcome, SinkError, ToolCall, ToolError, ToolResult,
};
use mainspring_controller::ControllerError;

use crate::support::raw::{self, execution};
use crate::support::{
    Answers, Fixture, Placed, Probe, TestTools, driven, mediated, refused, sink_error,
};

/// A turn that was cut after the intent of this call.
fn cut(call: ToolCall) -> Vec<Event> {
    let id = execution(1);
    vec![raw::start(&id, Some(1)), raw::input(&id, "hello"), raw::tool_call(&id, call)]
}

fn recorded() -> ToolCall {
    mediated("c1", "search")
}

fn recorded_result() -> ToolResult {
    ToolResult { id: "c1".to_owned(), ..TestTools::answer(&recorded()) }
}

/// The session with that cut, an executor, and a harness that makes the same call.
async fn cut_after_call(session: Fixture) -> (Fixture, Placed) {
    let session = session.with_tools();
    session.append(cut(recorded())).await;
    let probe = session.place_agreed(Probe::calling([recorded()])).await;
    (session, probe)
}

/// A trailing call of a declared tool is run once, with the id, the key and the arguments that are recorded.
async fn f01_trailing_call_declared(session: Fixture) {
    let session = session.with_tools();
    let numbered = |number| ToolCall {
        args: Some([("n".to_owned(), Json::Number(number))].into()),
        ..recorded()
    };
    session.append(cut(numbered(0.0))).await;
    session.executor().declare("search");
    let probe = session.place_agreed(Probe::calling([numbered(-0.0)])).await;
    let controller = session.controller().await;
    driven(controller.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC TR END");
    assert_eq!((session.executor().calls(), controller.tool_invocations()), (1, 1));
    let (scope, called) = session.executor().attempts().remove(0);
    assert_eq!((scope, &called), (session.uid.clone(), &numbered(0.0)));
    let Json::Number(number) = called.args.unwrap()["n"] else { panic!("not a number") };
    assert!(number.is_sign_positive(), "the recorded one, not the harness's");
    assert!(session.events().await.iter().all(|event| event.execution_id == Some(execution(1))));
    session.replay_check(&probe, 1, &[]).await;
}

/// What is refused asks nobody and writes nothing; once the tool is declared the turn is finished.
async fn refused_until_declared(session: Fixture) {
    let (session, probe) = cut_after_call(session).await;
    let head = session.head().await;
    for _ in 0..2 {
        let error = refused(session.resume(&probe).await);
        match &error {
            ControllerError::UnansweredToolCall { seq, call_id } => {
                assert_eq!((seq.get(), call_id.as_str()), (3, "c1"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(error.code(), "unanswered_tool_call");
        assert_eq!((probe.runs(), probe.describes(), session.executor().calls()), (0, 0, 0));
        assert_eq!((session.head().await, session.watcher.take()), (head, Vec::new()));
    }
    session.executor().declare("search");
    driven(session.resume(&probe).await);
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC TR END", 1)
    );
}

/// A trailing call of an undeclared tool has an unknown outcome: nothing is run until the tool is declared.
async fn f02_undeclared(session: Fixture) {
    refused_until_declared(session).await;
}

/// Declarations of other tools say nothing of this one.
async fn f03_no_declaration_of_this_tool(session: Fixture) {
    let session = session.with_tools();
    for other in ["", "searc", "search2", "Search", "c1"] {
        session.executor().declare(other);
    }
    session.append(cut(recorded())).await;
    let probe = session.place_agreed(Probe::calling([recorded()])).await;
    let error = refused(session.resume(&probe).await);
    assert_eq!((error.code(), probe.runs()), ("unanswered_tool_call", 0));
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN TC", 0));
}

/// Without an executor the turn is run, and its call fails; a later host with one goes on.
async fn f04_no_executor(session: Fixture) {
    let with_tools = session.with_tools();
    let session = with_tools.without_tools();
    session.append(cut(recorded())).await;
    let probe = session.place_agreed(Probe::calling([recorded()])).await;
    let resumed = session.resume(&probe).await;
    assert!(resumed.resumed);
    let error = resumed.result.unwrap_err();
    assert_eq!((sink_error(&error).code(), probe.runs()), ("missing_tool_executor", 1));
    assert_eq!(session.kinds().await, "ES IN TC ERR");
    assert_eq!(refused(with_tools.resume(&probe).await).code(), "unanswered_tool_call");
    with_tools.executor().declare("search");
    driven(with_tools.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC ERR TR END");
    assert_eq!(with_tools.executor().calls(), 1);
}

/// A recorded result is served; whether the tool is declared is nobody's question.
async fn f05_cut_after_result(session: Fixture) {
    let session = session.with_tools();
    session.append(cut(recorded())).await;
    session.append([raw::tool_result(&execution(1), recorded_result())]).await;
    let answers = Answers::default();
    let probe = session.place_agreed(Probe::answered([recorded()], &answers)).await;
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC TR OUT END");
    assert_eq!(session.executor().calls(), 0);
    assert!(session.executor().consulted().is_empty());
    assert_eq!(answers.result(), recorded_result());
    session.replay_check(&probe, 1, &["done"]).await;
}

/// At a cut another call is a divergence: nothing is run, and the right harness still completes.
async fn f06_changed_call_at_cut(session: Fixture) {
    let (session, probe) = cut_after_call(session).await;
    session.executor().declare("search");
    let changed = ToolCall { idempotency_key: "another".to_owned(), ..recorded() };
    let changed = session.place_agreed(Probe::calling([changed])).await;
    let resumed = session.resume(&changed).await;
    assert!(resumed.resumed);
    assert!(matches!(resumed.result, Err(ControllerError::ReplayDiverged(_))));
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN TC ERR", 0));
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC ERR TR END");
    assert_eq!(session.executor().calls(), 1);
}

/// An executor that fails when it is run again leaves no result; the harness may go on, and so it does on replay.
async fn f07_executor_fails_on_redrive(session: Fixture) {
    let session = session.with_tools();
    session.append(cut(recorded())).await;
    session.executor().declare("search");
    session.executor().fail(1);
    let answers = Answers::default();
    let probe = session.place_agreed(Probe::handling([recorded()], &answers)).await;
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC OUT END");
    assert_eq!((answers.codes().as_slice(), session.executor().calls()), (&["tool_failed"][..], 1));
    session.replay_check(&probe, 1, &["done"]).await;
    assert_eq!(answers.codes(), ["tool_result_missing"]);
}

/// After a served prefix, with an executor whose failure looks like a divergence.
async fn live_tail(session: Fixture) -> Fixture {
    let session = session.with_tools();
    session.append(cut(recorded())).await;
    session.append([raw::tool_result(&execution(1), recorded_result())]).await;
    session.executor().respond(|_| async {
        let divergence = Divergence::beyond("of another journal");
        Err(ToolError {
            message: "the tool replays journals".to_owned(),
            outcome: Outcome::NotApplied,
            source: Some(Arc::new(SinkError::Diverged(divergence))),
        })
    });
    session
}

/// A divergence that an executor returns is the executor's: an ordinary failure that the harness may handle.
async fn f08_live_tail(session: Fixture) {
    let session = live_tail(session).await;
    let answers = Answers::default();
    let calls = [recorded(), mediated("c2", "search")];
    let probe = session.place_agreed(Probe::handling(calls, &answers)).await;
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC TR TC OUT END");
    assert_eq!(answers.codes(), ["ok", "tool_failed"]);
    session.replay_check(&probe, 1, &["done"]).await;
}

/// The same, unhandled: the turn fails with the tool's failure, not with a divergence.
async fn f08_live_tail_unhandled(session: Fixture) {
    let session = live_tail(session).await;
    let probe = session.place_agreed(Probe::calling([recorded(), mediated("c2", "search")])).await;
    let resumed = session.resume(&probe).await;
    assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "tool_failed");
    assert_eq!(session.kinds().await, "ES IN TC TR TC ERR");
}

/// An unanswered call does not block a new turn, which abandons the old one for good.
async fn f09_exec_past_an_unanswered_call(session: Fixture) {
    let (session, probe) = cut_after_call(session).await;
    let echo = session.place_agreed(Probe::echo()).await;
    session.exec(&echo, &["anew"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC ES IN MC OUT END");
    assert!(session.executor().consulted().is_empty());
    session.executor().declare("search");
    let resumed = session.resume(&probe).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((probe.runs(), session.executor().calls()), (0, 0));
    session.replay_check(&echo, 1, &["echo:anew"]).await;
}

/// The declaration is asked for with the name that is recorded, whatever the harness would call now.
async fn f10_declaration_is_of_the_recorded_name(session: Fixture) {
    let session = session.with_tools();
    session.append(cut(recorded())).await;
    session.executor().declare("other");
    let other = session.place_agreed(Probe::calling([mediated("c1", "other")])).await;
    assert_eq!(refused(session.resume(&other).await).code(), "unanswered_tool_call");
    assert_eq!(session.executor().consulted(), ["search"]);
    session.executor().declare("search");
    let resumed = session.resume(&other).await;
    assert!(matches!(resumed.result, Err(ControllerError::ReplayDiverged(_))));
    assert_eq!(session.executor().consulted(), ["search", "search"]);
    assert_eq!(session.executor().calls(), 0);
}

matrix! {
    run:
    everywhere {
        #[test] fn f01_trailing_call_declared;
        #[test] fn f02_undeclared;
        #[test] fn f03_no_declaration_of_this_tool;
        #[test] fn f04_no_executor;
        #[test] fn f05_cut_after_result;
        #[test] fn f06_changed_call_at_cut;
        #[test] fn f08_live_tail_unhandled;
        #[test] fn f09_exec_past_an_unanswered_call;
        #[test] fn f10_declaration_is_of_the_recorded_name;
        #[test] fn f07_executor_fails_on_redrive;
        #[test] fn f08_live_tail;
    }
}
