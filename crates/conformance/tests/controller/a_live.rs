//! Family A: live mediation, without tools that the controller runs.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    Classify as _, EventBody, EventSink, HarnessError, Mediation, Seq, SinkError, ToolCall,
};
use mainspring_controller::{ControllerError, Expected, Turn};
use mainspring_testkit::read_all;

use crate::support::raw::{description, kinds, reported};
use crate::support::{Fixture, Probe, TestModel, ask, sink_error, turn};

/// One model call: the journal is `ES IN MC OUT END` and the request hashes as the reference's does.
async fn a01_one_model_turn(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let controller = session.controller().await;
    let turn = Turn { expected: Expected::Seq(Seq::ZERO), ..turn(&["hello"]) };
    let executed = controller.exec(&echo.harness, turn).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT END");
    assert_eq!((session.model.calls(), controller.model_invocations()), (1, 1));
    assert_eq!(executed.head, session.head().await);
    let events = session.events().await;
    let id = executed.execution_id;
    assert!(events.iter().all(|event| event.execution_id.as_ref() == Some(&id)));
    assert_eq!(id.as_str().len(), 16);
    let EventBody::ModelCall(Some(call)) = &events[2].body else { panic!("{:?}", events[2]) };
    let recorded = "2611c24a1a665deca46265ed96d1e1efc699260c9cba9c07f22cda7939232c30";
    assert_eq!((call.input_hash.as_str(), call.model.as_str()), (recorded, "echo"));
    assert_eq!((call.id.len(), call.messages.len()), (16, 0), "the request itself is not stored");
    assert_eq!(session.outputs().await, ["echo:hello"]);
    let fence = session.fence().await;
    assert!(session.records().await.iter().all(|record| record.fence == fence));
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// A turn without inputs is legal; its start declares 0, which is not absent.
async fn a02_inputless_turn(session: Fixture) {
    let probe = session.place(Probe::saying(&["unasked"])).await;
    session.exec(&probe, &[]).await.unwrap();
    assert_eq!(session.kinds().await, "ES OUT END");
    let events = session.events().await;
    let EventBody::ExecutionStart(Some(start)) = &events[0].body else { panic!("{events:?}") };
    assert_eq!(start.input_count, Some(0));
    assert!(probe.probe.seen()[0].inputs.is_empty());
    session.replay_check(&probe, 1, &["unasked"]).await;
}

/// The model's part of A04: when the provider is called its intent is the head, and no answer is there.
async fn a04_intent_is_durable_before_the_model_is_called(session: Fixture) {
    let found = Arc::new(Mutex::new(String::new()));
    let (log, uid, seen) = (Arc::clone(&session.log), session.uid.clone(), Arc::clone(&found));
    session.model.respond(move |request| {
        let (log, uid, seen) = (Arc::clone(&log), uid.clone(), Arc::clone(&seen));
        async move {
            let records = read_all(&*log, &uid).await.unwrap();
            let events: Vec<_> = records.iter().map(|record| record.event().unwrap()).collect();
            *seen.lock().unwrap() = kinds(&events);
            Ok(TestModel::echo(&request))
        }
    });
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["hello"]).await.unwrap();
    assert_eq!(*found.lock().unwrap(), "ES IN MC");
}

/// A result that the harness reports is recorded as given, and needs no call before it.
async fn a05_reported_tool(session: Fixture) {
    let probe = Probe::new(|_, sink| async move { Ok(sink.report(reported("c1")).await?) });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TR END");
    let events = session.events().await;
    assert_eq!(events[2].body, EventBody::ToolResult(Some(reported("c1"))));
    session.replay_check(&probe, 1, &[]).await;
}

fn call(mediation: Mediation, key: &str) -> ToolCall {
    ToolCall {
        id: "c1".to_owned(),
        tool: "search".to_owned(),
        mediation,
        idempotency_key: key.to_owned(),
        ..ToolCall::default()
    }
}

/// A harness that makes each of `calls`, handles the refusals, and goes on.
fn calling(
    calls: &'static [(Mediation, &'static str)],
    refusals: &Arc<Mutex<Vec<String>>>,
) -> Probe {
    let refusals = Arc::clone(refusals);
    Probe::new(move |_, sink| {
        let refusals = Arc::clone(&refusals);
        async move {
            for (mediation, key) in calls {
                let refused = sink.tool_call(call(*mediation, key)).await.unwrap_err();
                refusals.lock().unwrap().push(refused.code().to_owned());
            }
            sink.output("went on".to_owned()).await?;
            Ok(())
        }
    })
}

/// A harness that makes one call and returns its refusal.
fn failing_call(mediation: Mediation, key: &'static str) -> Probe {
    Probe::new(move |_, sink| async move {
        sink.tool_call(call(mediation, key)).await?;
        Ok(())
    })
}

async fn refused_before_anything(
    session: Fixture,
    calls: &'static [(Mediation, &'static str)],
    code: &str,
) {
    let refusals = Arc::default();
    let handled = session.place(calling(calls, &refusals)).await;
    session.exec(&handled, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN OUT END", "a refused call leaves no record");
    assert_eq!(*refusals.lock().unwrap(), vec![code; calls.len()]);
    session.replay_check(&handled, 1, &["went on"]).await;
    assert_eq!(refusals.lock().unwrap().len(), 2 * calls.len(), "a replay refuses the same");

    let failing = session.place(failing_call(calls[0].0, calls[0].1)).await;
    let error = session.exec(&failing, &["hello"]).await.unwrap_err();
    assert_eq!(error.code(), code);
    assert!(matches!(error, ControllerError::Run(HarnessError::Sink(_))), "{error:?}");
    assert_eq!(session.kinds().await, "ES IN OUT END ES IN ERR");
}

/// A call that nobody mediates is refused before anything is recorded, and the harness may go on.
async fn a06_unmediated_call(session: Fixture) {
    let calls = &[(Mediation::Unspecified, "k1"), (Mediation::InHarnessReported, "k2")];
    refused_before_anything(session, calls, "unmediated_tool_call").await;
}

/// A mediated call without a key is refused before anything is recorded.
async fn a07_missing_key(session: Fixture) {
    let calls = &[(Mediation::ControllerMediated, ""), (Mediation::RequiresApproval, "")];
    refused_before_anything(session, calls, "missing_idempotency_key").await;
}

/// A provider's failure that nobody handles ends the turn; the intent stays, the call does not count.
async fn a10_provider_error_unhandled(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.model.fail(1);
    let controller = session.controller().await;
    let turn = turn(&["hello"]);
    let error = controller.exec(&echo.harness, turn).await.unwrap_err();
    assert_eq!(session.kinds().await, "ES IN MC ERR");
    assert_eq!((session.model.calls(), controller.model_invocations()), (1, 0));
    let cause = sink_error(&error).code();
    assert_eq!(cause, "model_unavailable", "the provider's own: {error:?}");
    assert_eq!(description(&session.events().await[3]), TestModel::failure().to_string());
    session.replay_check(&echo, 0, &[]).await;
}

/// A harness may handle a provider's failure; each attempt has its own intent.
async fn a11_provider_error_handled_and_retried(session: Fixture) {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&failures);
    let probe = Probe::new(move |_, sink| {
        let kept = Arc::clone(&kept);
        async move {
            if let Err(error) = ask(&*sink, "hello").await {
                kept.lock().unwrap().push(error.code());
                ask(&*sink, "hello").await?;
            }
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.model.fail(1);
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC MC OUT END");
    assert_eq!(session.model.calls(), 2);
    session.replay_check(&probe, 1, &["echo:hello"]).await;
    // Replay gives the harness a failure at the same place, by another name.
    assert_eq!(*failures.lock().unwrap(), ["model_unavailable", "completion_missing"]);
}

/// A failed run leaves an error record with its words, no end, and its own error.
async fn a13_run_error(session: Fixture) {
    let probe = Probe::new(|_, sink: Arc<dyn EventSink>| async move {
        sink.output("half".to_owned()).await?;
        Err(HarnessError::failed("the agent gave up"))
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(session.kinds().await, "ES IN OUT ERR");
    assert_eq!(description(&session.events().await[3]), "the agent gave up");
    let ControllerError::Run(HarnessError::Failed { message, .. }) = &error else {
        panic!("not the run's own error: {error:?}")
    };
    assert_eq!(message, "the agent gave up");
}

/// A sink error that the harness returns is the turn's, with its own type.
async fn a_sink_error_is_returned_as_it_is(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        let mut result = reported("c1");
        result.approval_request_seq = 3;
        Ok(sink.report(result).await?)
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(session.kinds().await, "ES IN ERR");
    assert!(
        matches!(error, ControllerError::Run(HarnessError::Sink(SinkError::ApprovalReceiptReport))),
        "{error:?}"
    );
}

matrix! {
    run:
    everywhere {
        #[test] fn a01_one_model_turn;
        #[test] fn a02_inputless_turn;
        #[test] fn a04_intent_is_durable_before_the_model_is_called;
        #[test] fn a05_reported_tool;
        #[test] fn a10_provider_error_unhandled;
        #[test] fn a13_run_error;
        #[test] fn a06_unmediated_call;
        #[test] fn a07_missing_key;
        #[test] fn a11_provider_error_handled_and_retried;
    }
    in_process {
        #[test] fn a_sink_error_is_returned_as_it_is;
    }
}
