//! The same harness in process, over unix and over TCP makes the same calls.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    ApprovalRef, Event, EventBody, EventSink, Harness, HarnessError, History, HistoryError, Json,
    JsonObject, Mediation, Message, Part, ResultCode, SinkError, Start, ToolCall, ToolResult,
    async_trait,
};

use crate::address_book::{BOTH, Running};
use crate::raw::connect;
use crate::script::{Recorder, Script, ask, descriptor, start};

/// Outcome of a run as text, which is what both sides can agree on.
fn shown(result: Result<(), HarnessError>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => mainspring_api::report(&error),
    }
}

/// Runs the script everywhere and returns what the in-process run did.
async fn everywhere(
    script: Arc<Script>,
    begin: impl Fn() -> Start,
    recorder: impl Fn() -> Recorder,
) -> (String, Vec<String>) {
    let sink = Arc::new(recorder());
    let here = shown(script.run(begin(), Arc::clone(&sink) as Arc<_>).await);
    let calls = sink.calls();
    for over in BOTH {
        let running = Running::harness(over, script.clone()).await;
        let connection = connect(&running.address).await;
        let sink = Arc::new(recorder());
        let harness = connection.harness();
        let there = shown(harness.run(begin(), Arc::clone(&sink) as Arc<_>).await);
        assert_eq!(there, here, "{over:?}");
        assert_eq!(sink.calls(), calls, "{over:?}");
        drop(harness);
        connection.close().await.unwrap();
        running.stop().await.unwrap();
    }
    (here, calls)
}

fn nested_args() -> JsonObject {
    JsonObject::from([
        ("null".to_owned(), Json::Null),
        ("list".to_owned(), Json::Array(vec![Json::Number(1.5), Json::Object(JsonObject::new())])),
        ("\u{1d11e}\u{e000}".to_owned(), Json::from("\u{0}\"\\")),
    ])
}

#[tokio::test]
async fn every_effect_is_the_same_call() {
    let script = Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        let history = start.history.range(0, 10).await?;
        let text = format!(
            "{:?} {:?} {:?} {} {history:?}",
            start.session, start.inputs, start.config, start.resume_from_seq
        );
        sink.output(text).await?;
        let reply = sink.model(ask("one")).await?;
        sink.usage(reply.usage).await?;
        let call = ToolCall {
            id: "t1".to_owned(),
            tool: "tool".to_owned(),
            args: Some(nested_args()),
            mediation: Mediation::ControllerMediated,
            idempotency_key: "k1".to_owned(),
        };
        let result = sink.tool_call(call).await?;
        assert_eq!(result.output, Some(nested_args()));
        sink.report(ToolResult {
            id: "own".to_owned(),
            content: vec![Part::Text("done".to_owned()), Part::Empty],
            ..Default::default()
        })
        .await?;
        sink.model(ask(&reply.message.plain_text())).await?;
        Ok(())
    });
    let (result, calls) = everywhere(script, start, Recorder::default).await;
    assert_eq!((result.as_str(), calls.len()), ("ok", 6));
}

#[derive(Debug)]
struct Long(u64);

#[async_trait]
impl History for Long {
    fn len(&self) -> u64 {
        self.0
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        // Shorter pages than asked for, as a bound on bytes would give.
        let end = self.0.min(from + limit.min(100) as u64);
        Ok((from..end)
            .map(|n| Event::of(EventBody::Input(Some(Message::user(n.to_string())))))
            .collect())
    }
}

#[tokio::test]
async fn history_arrives_whole_and_in_order() {
    let script = Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        let events = start.history.range(0, usize::MAX).await?;
        // In process the page is shorter; only the first hundred are compared.
        sink.output(format!("{} {:?}", start.history.len(), &events[..100])).await?;
        let tail = start.history.range(999, 5).await?;
        sink.output(format!("{tail:?}")).await?;
        Ok(())
    });
    let begin = || Start { history: Arc::new(Long(1000)), ..start() };
    let (result, calls) = everywhere(script, begin, Recorder::default).await;
    assert_eq!(result, "ok");
    assert!(calls[0].starts_with("(\"output\", \"1000 "));
}

#[tokio::test]
async fn failures_of_the_agent_keep_their_words() {
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        sink.output("before".to_owned()).await?;
        Err(HarnessError::failed("the agent gave up"))
    });
    let (result, _) = everywhere(script, start, Recorder::default).await;
    assert_eq!(result, "the agent gave up");
}

#[tokio::test]
async fn a_sink_error_is_returned_as_itself() {
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        sink.model(ask("x")).await?;
        Ok(())
    });
    let recorder = || Recorder {
        on_model: Box::new(|_| Err(SinkError::ModelNotAllowed("big".to_owned()))),
        ..Default::default()
    };
    let (result, _) = everywhere(script.clone(), start, recorder).await;
    assert_eq!(result, "model \"big\" is not allowed by policy");

    let running = Running::harness(BOTH[0], script).await;
    let connection = connect(&running.address).await;
    let run = connection.harness().run(start(), Arc::new(recorder())).await;
    assert!(matches!(run, Err(HarnessError::Sink(SinkError::ModelNotAllowed(_)))));
}

fn gated() -> ToolCall {
    ToolCall {
        id: "call".to_owned(),
        tool: "danger".to_owned(),
        mediation: Mediation::RequiresApproval,
        idempotency_key: "k".to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn t06_park_handshake() {
    let park = ApprovalRef {
        execution_id: "exec".to_owned(),
        tool_call_id: "call".to_owned(),
        request_seq: 17,
    };
    let parks = {
        let park = park.clone();
        move || {
            let park = park.clone();
            Recorder {
                on_tool: Box::new(move |_| Err(SinkError::Parked(park.clone()))),
                ..Default::default()
            }
        }
    };
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let error = sink.tool_call(gated()).await.unwrap_err();
        Err(error.into())
    });
    everywhere(script.clone(), start, &parks).await;
    let running = Running::harness(BOTH[0], script).await;
    let connection = connect(&running.address).await;
    let run = connection.harness().run(start(), Arc::new(parks())).await;
    let Err(HarnessError::Sink(SinkError::Parked(seen))) = run else {
        panic!("{run:?}");
    };
    assert_eq!(seen, park);

    // Another failure wins over the park, also beside it.
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let parked = sink.tool_call(gated()).await.unwrap_err();
        Err(HarnessError::Joined(vec![parked.into(), HarnessError::failed("cleanup failed")]))
    });
    let running = Running::harness(BOTH[0], script).await;
    let connection = connect(&running.address).await;
    let run = connection.harness().run(start(), Arc::new(parks())).await;
    let Err(HarnessError::Protocol { message }) = run else {
        panic!("{run:?}");
    };
    assert!(message.starts_with("EVENT_END instead of"), "{message}");
}

#[tokio::test]
async fn a_decided_gate_brings_its_decision() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let script = {
        let seen = Arc::clone(&seen);
        Script::new(move |_, sink: Arc<dyn EventSink>| {
            let seen = Arc::clone(&seen);
            async move {
                let result = sink.tool_call(gated()).await?;
                seen.lock().unwrap().push(result);
                Ok(())
            }
        })
    };
    let recorder = || Recorder {
        on_tool: Box::new(|call| {
            Ok(ToolResult {
                id: call.id.clone(),
                is_error: true,
                code: ResultCode::ApprovalDenied,
                approval_request_seq: 17,
                approval_decision_seq: 19,
                decision: Some(mainspring_api::ApprovalResult {
                    tool_call_id: call.id.clone(),
                    approved: false,
                    reason: "no".to_owned(),
                    request_seq: 17,
                }),
                ..Default::default()
            })
        }),
        ..Default::default()
    };
    everywhere(script, start, recorder).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|result| *result == seen[0]));
    assert!(seen[0].decision.is_some());
}

#[tokio::test]
async fn big_messages_pass() {
    let text = "x".repeat(5 * 1024 * 1024);
    let script = Script::new(async |start: Start, sink: Arc<dyn EventSink>| {
        let reply = sink.model(ask(&start.inputs[0].plain_text())).await?;
        sink.output(reply.message.plain_text().len().to_string()).await?;
        Ok(())
    });
    let begin = move || Start { inputs: vec![Message::user(text.clone())], ..start() };
    let (result, calls) = everywhere(script, begin, Recorder::default).await;
    assert_eq!(result, "ok");
    assert_eq!(calls[1], "(\"output\", \"5242885\")");
}

#[tokio::test]
async fn describe_is_the_harness_own_word() {
    let script = Script::new(async |_, _| Ok(()));
    for over in BOTH {
        let running = Running::harness(over, script.clone()).await;
        let connection = connect(&running.address).await;
        let described = connection.harness().describe().await.unwrap();
        assert_eq!(described, descriptor());
    }
}
