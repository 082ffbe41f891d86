//! Family A: live mediation of tools that the controller runs.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    Classify as _, EventBody, HarnessError, Json, Mediation, ModelReply, ResultCode, SinkError,
    ToolCall, ToolResult,
};
use mainspring_testkit::{CutMode, CutOp, CutPoint, CutSide, CutStore, read_all};

use crate::support::raw::{kinds, reported, some_usage};
use crate::support::{
    Answers, Fixture, Probe, TestModel, TestTools, ask, driven, mediated, sink_error, turn,
};

/// The result that is recorded at `index`.
#[track_caller]
fn result(events: &[mainspring_api::Event], index: usize) -> &ToolResult {
    match &events[index].body {
        EventBody::ToolResult(Some(result)) => result,
        other => panic!("not a result: {other:?}"),
    }
}

/// A mediated call is run once in the session's scope, and its result is recorded under the call's own id.
async fn a03_mediated_tool(session: Fixture) {
    let session = session.with_tools();
    let answers = Answers::default();
    let probe = session.place(Probe::answered([mediated("c1", "search")], &answers)).await;
    let controller = session.controller().await;
    controller.exec(&probe.harness, turn(&["hello"])).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC TR OUT END");
    assert_eq!((session.executor().calls(), controller.tool_invocations()), (1, 1));
    let call = mediated("c1", "search");
    assert_eq!(session.executor().attempts(), [(session.uid.clone(), call.clone())]);
    let events = session.events().await;
    let expected = ToolResult { id: "c1".to_owned(), ..TestTools::answer(&call) };
    assert_eq!(result(&events, 3), &expected, "the executor answered under another id");
    assert_eq!(answers.result(), expected, "the harness is given what was recorded");
    assert!(session.executor().consulted().is_empty(), "a first attempt asks for no declaration");
    session.replay_check(&probe, 1, &["done"]).await;
    assert_eq!(answers.result(), expected);
}

/// The same with nothing else in the turn: the journal is `ES IN TC TR END`.
async fn a03_mediated_tool_alone(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(Probe::calling([mediated("c1", "search")])).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC TR END", 1)
    );
    session.replay_check(&probe, 1, &[]).await;
}

/// The tool's part of A04: when the executor runs the intent is the head, and no result is there.
async fn a04_intent_is_durable_before_the_tool_runs(session: Fixture) {
    let session = session.with_tools();
    let found = Arc::new(Mutex::new(String::new()));
    let (log, uid, seen) = (Arc::clone(&session.log), session.uid.clone(), Arc::clone(&found));
    session.executor().respond(move |call| {
        let (log, uid, seen) = (Arc::clone(&log), uid.clone(), Arc::clone(&seen));
        async move {
            let records = read_all(&*log, &uid).await.unwrap();
            let events: Vec<_> = records.iter().map(|record| record.event().unwrap()).collect();
            *seen.lock().unwrap() = kinds(&events);
            Ok(TestTools::answer(&call))
        }
    });
    let probe = session.place(Probe::calling([mediated("c1", "search")])).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(*found.lock().unwrap(), "ES IN TC");
}

async fn reaches_no_executor(session: Fixture, call: ToolCall, code: &str) {
    let session = session.with_tools();
    let probe = session.place(Probe::calling([call])).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), code);
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN ERR", 0));
}

/// A call that nobody mediates reaches no executor, and leaves no record but the turn's error.
async fn a06_unmediated_call_reaches_no_executor(session: Fixture) {
    for mediation in [Mediation::Unspecified, Mediation::InHarnessReported] {
        let session = Fixture::open(session.cell).await;
        let call = ToolCall { mediation, ..mediated("c1", "search") };
        reaches_no_executor(session, call, "unmediated_tool_call").await;
    }
}

/// A mediated call without a key reaches no executor, and leaves no record but the turn's error.
async fn a07_missing_key_reaches_no_executor(session: Fixture) {
    let call = ToolCall { idempotency_key: String::new(), ..mediated("c1", "search") };
    reaches_no_executor(session, call, "missing_idempotency_key").await;
}

/// Without an executor the intent is recorded, and the call fails.
async fn a08_missing_executor(session: Fixture) {
    let probe = session.place(Probe::calling([mediated("c1", "search")])).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), "missing_tool_executor");
    assert_eq!(session.kinds().await, "ES IN TC ERR");
    session.replay_check(&probe, 0, &[]).await;
}

/// That nobody was there to run it is durable with the intent: a host that dies right after leaves nothing unknown.
async fn a08_cut_after_the_intent(session: Fixture) {
    let probe = session.place(Probe::calling([mediated("c1", "search")])).await;
    let point = CutPoint { side: CutSide::After, op: CutOp::Append, nth: 2 };
    let dying = Arc::new(CutStore::new(Arc::clone(&session.log), point, CutMode::Dead));
    session.through(dying.clone()).exec(&probe, &["hello"]).await.unwrap_err();
    assert!(dying.reached());
    assert_eq!(session.kinds().await, "ES IN TC");
    let session = session.with_tools();
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC TR END");
    assert_eq!(session.executor().calls(), 1);
}

/// A failed executor leaves an intent without result and no count; the harness may go on, and so it does on replay.
async fn a09_executor_error_handled(session: Fixture) {
    let session = session.with_tools();
    session.executor().fail(1);
    let answers = Answers::default();
    let probe = session.place(Probe::handling([mediated("c1", "search")], &answers)).await;
    let controller = session.controller().await;
    controller.exec(&probe.harness, turn(&["hello"])).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC OUT END");
    assert_eq!((session.executor().calls(), controller.tool_invocations()), (1, 0));
    assert_eq!(answers.codes(), ["tool_failed"]);
    session.replay_check(&probe, 1, &["done"]).await;
    assert_eq!(answers.codes(), ["tool_result_missing"]);
}

/// The same, unhandled: the executor's own failure ends the turn.
async fn a09_executor_error_unhandled(session: Fixture) {
    let session = session.with_tools();
    session.executor().fail(1);
    let probe = session.place(Probe::calling([mediated("c1", "search")])).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), "tool_failed");
    assert_eq!(session.kinds().await, "ES IN TC ERR");
}

/// An executor that panics is one that failed: the host goes on, the intent stays.
async fn a09_executor_panics(session: Fixture) {
    let session = session.with_tools();
    session.executor().respond(|_| async { panic!("the tool panicked") });
    let probe = session.place(Probe::calling([mediated("c1", "search")])).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), "tool_failed");
    assert_eq!(session.kinds().await, "ES IN TC ERR");
}

/// A report after a call without a result is none of it, whatever id it has and however the call failed.
async fn a09_report_after_a_failed_call(session: Fixture) {
    for id in ["r1", "c1"] {
        for how in ["failed", "forged", "missing"] {
            let mut session = Fixture::open(session.cell).await;
            if how != "missing" {
                session = session.with_tools();
                let fails = usize::from(how == "failed");
                session.executor().fail(fails);
                session.executor().respond(|call| async move {
                    Ok(ToolResult { approval_request_seq: 3, ..TestTools::answer(&call) })
                });
            }
            let probe = Probe::new(move |_, sink| async move {
                if let Ok(_) | Err(SinkError::Diverged(_)) =
                    sink.tool_call(mediated("c1", "search")).await
                {
                    return Err(HarnessError::failed("the call has a result"));
                }
                sink.report(reported(id)).await?;
                sink.output("done".to_owned()).await?;
                Ok(())
            });
            let probe = session.place_agreed(probe).await;
            session.exec(&probe, &["hello"]).await.unwrap();
            assert_eq!(session.kinds().await, "ES IN TC TR OUT END", "{how}");
            session.replay_check(&probe, 1, &["done"]).await;
        }
    }
}

/// What is too large to be recorded fails the turn, also if the harness goes on: it could not be replayed.
async fn too_large_to_be_recorded(session: Fixture) {
    for which in ["output", "call", "report"] {
        let session = Fixture::open(session.cell).await.with_tools();
        let large = "x".repeat(session.log.limits().event_bytes_max);
        let probe = Probe::new(move |_, sink| {
            let large = large.clone();
            async move {
                let refused = match which {
                    "output" => sink.output(large).await.map(drop),
                    "call" => {
                        let args = Some([("n".to_owned(), large.as_str().into())].into());
                        sink.tool_call(ToolCall { args, ..mediated("c1", "search") })
                            .await
                            .map(drop)
                    }
                    _ => sink.report(ToolResult { error: large, ..reported("c1") }).await,
                };
                assert_eq!(refused.unwrap_err().code(), "value_too_large");
                let _ = sink.output("done".to_owned()).await;
                Ok(())
            }
        });
        let probe = session.place_agreed(probe).await;
        let error = session.exec(&probe, &["hello"]).await.unwrap_err();
        assert_eq!(error.code(), "value_too_large", "{which}: {error:?}");
        assert_eq!(session.kinds().await, "ES IN ERR", "{which}");
        assert_eq!(session.executor().calls(), 0);
    }
}

/// The executor sees the arguments as the harness gave them, the journal holds their normal form.
async fn a12_original_args(session: Fixture) {
    let session = session.with_tools();
    let zero = |number: f64| Some([("n".to_owned(), Json::Number(number))].into());
    let call = ToolCall { args: zero(-0.0), ..mediated("c1", "search") };
    let probe = session.place(Probe::calling([call])).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    let sign = |args: &Option<mainspring_api::JsonObject>| match args.as_ref().unwrap()["n"] {
        Json::Number(number) => number.is_sign_negative(),
        _ => panic!("not a number"),
    };
    assert!(sign(&session.executor().attempts()[0].1.args), "minus zero, as it was sent");
    let events = session.events().await;
    let EventBody::ToolCall(Some(recorded)) = &events[2].body else { panic!("{events:?}") };
    assert_eq!(recorded.args, zero(0.0));
    assert!(!sign(&recorded.args), "the recorded form has none");
    session.replay_check(&probe, 1, &[]).await;
}

/// Arguments that have no recorded form are refused before the intent, and that fails the turn whatever the harness does.
async fn a12_args_without_a_recorded_form(session: Fixture) {
    let session = session.with_tools();
    let call = ToolCall {
        args: Some([("n".to_owned(), Json::Number(9_007_199_254_740_992.0))].into()),
        ..mediated("c1", "search")
    };
    let answers = Answers::default();
    let probe = session.place(Probe::handling([call, mediated("c2", "search")], &answers)).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), "invalid_tool_args");
    assert!(!error.to_string().contains("9007"), "{error}");
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN ERR", 0));
}

/// A failure may be given its code by whoever ran the tool, the executor or the harness: it is recorded as given, and replays.
async fn a03_failures_may_have_a_code(session: Fixture) {
    let session = session.with_tools();
    let failed = |id: &str| ToolResult {
        is_error: true,
        error: "no such file".to_owned(),
        code: ResultCode::ExecutorError,
        ..reported(id)
    };
    let (answer, report) = (failed("c1"), failed("c2"));
    session.executor().respond(move |_| {
        let answer = answer.clone();
        async move { Ok(answer) }
    });
    let probe = Probe::new(move |_, sink| {
        let report = report.clone();
        async move {
            assert!(sink.tool_call(mediated("c1", "search")).await?.is_error);
            sink.report(report).await?;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC TR TR END");
    let events = session.events().await;
    assert_eq!((result(&events, 3), result(&events, 4)), (&failed("c1"), &failed("c2")));
    session.replay_check(&probe, 1, &[]).await;
}

/// A turn of every effect replays with the same outputs, no call, and an unchanged head.
async fn b01_multi_effect_turn(session: Fixture) {
    let session = session.with_tools();
    session.model.respond(|request| async move {
        Ok(ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
    let probe = Probe::new(|_, sink| async move {
        ask(&*sink, "first").await?;
        sink.tool_call(mediated("c1", "search")).await?;
        let reply = ask(&*sink, "second").await?;
        sink.usage(reply.usage).await?;
        Ok(())
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT TC TR MC OUT US END");
    session.replay_check(&probe, 1, &["echo:first", "echo:second"]).await;
    assert_eq!((session.model.calls(), session.executor().calls()), (2, 1));
}

matrix! {
    run:
    everywhere {
        #[test] fn a03_mediated_tool;
        #[test] fn a03_mediated_tool_alone;
        #[test] fn a03_failures_may_have_a_code;
        #[test] fn a04_intent_is_durable_before_the_tool_runs;
        #[test] fn a06_unmediated_call_reaches_no_executor;
        #[test] fn a07_missing_key_reaches_no_executor;
        #[test] fn a08_missing_executor;
        #[test] fn a08_cut_after_the_intent;
        #[test] fn a09_executor_error_unhandled;
        #[test] fn a09_executor_panics;
        #[test] fn a12_original_args;
        #[test] fn b01_multi_effect_turn;
        #[test] fn a09_executor_error_handled;
        #[test] fn a09_report_after_a_failed_call;
        #[test] fn a12_args_without_a_recorded_form;
    }
    in_process {
        #[test] fn too_large_to_be_recorded;
    }
}
