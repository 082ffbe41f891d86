//! A failed call is answered, and the harness goes on as it would in process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mainspring_api::{
    ApprovalRef, Classify, Condition, Divergence, Event, EventBody, EventSink, Harness as _,
    HarnessError, Json, JsonObject, Mediation, ModelError, Outcome, SessionsError, SinkError,
    Start, ToolCall, ToolError, ToolResult, Usage,
};
use mainspring_wire::v1;
use mainspring_wire::v1::controller_frame::Frame;

use crate::address_book::{BOTH, Over, Running};
use crate::harness_extensions::{admitted, offering};
use crate::raw::{
    Events, Frames, RawHost, completed, connect, event, serve_raw, serve_raw_with, start_frame,
};
use crate::script::{Recorder, Script, ask, echo, start};

fn wrapped(error: impl Classify + Send + Sync + 'static) -> SinkError {
    SinkError::failed(Arc::new(error))
}

fn refused_model() -> SinkError {
    wrapped(ModelError::Refused { status: 429, message: "slow down".to_owned() })
}

fn broken_tool() -> SinkError {
    wrapped(ToolError { message: "it broke".to_owned(), outcome: Outcome::Unknown, source: None })
}

fn call(mediation: Mediation) -> ToolCall {
    ToolCall {
        id: "call".to_owned(),
        tool: "tool".to_owned(),
        mediation,
        idempotency_key: "k".to_owned(),
        ..Default::default()
    }
}

/// A sink whose first model call and every tool call fails.
fn failing(on_tool: impl Fn() -> SinkError + Send + Sync + 'static) -> Recorder {
    let asked = AtomicUsize::new(0);
    Recorder {
        on_model: Box::new(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Err(refused_model()),
            _ => Ok(echo(request)),
        }),
        on_tool: Box::new(move |_| Err(on_tool())),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_harness_handles_failed_calls_and_goes_on() {
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let error = sink.model(ask("one")).await.unwrap_err();
        sink.output(format!("{} {error}", error.code())).await?;
        let reply = sink.model(ask("two")).await?;
        let error = sink.tool_call(call(Mediation::ControllerMediated)).await.unwrap_err();
        sink.output(format!("{} {error}", error.code())).await?;
        sink.usage(reply.usage).await?;
        Ok(())
    });
    let sink = Arc::new(failing(broken_tool));
    script.run(start(), Arc::clone(&sink) as Arc<_>).await.unwrap();
    let here = sink.calls();
    assert_eq!(here.len(), 6);
    for over in BOTH {
        let running = Running::harness(over, script.clone()).await;
        let connection = admitted(&running.address).await;
        let sink = Arc::new(failing(broken_tool));
        connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await.unwrap();
        assert_eq!(sink.calls(), here, "{over:?}");
        connection.close().await.unwrap();
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn without_an_agreement_the_failure_ends_the_turn() {
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let _ = sink.model(ask("one")).await;
        sink.output("handled".to_owned()).await?;
        Ok(())
    });
    let running = Running::harness(Over::Unix, script).await;
    let connection = connect(&running.address).await;
    let sink = Arc::new(failing(broken_tool));
    let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
    assert!(matches!(&run, Err(error) if error.code() == "model_refused"), "{run:?}");
    assert_eq!(sink.calls().len(), 1);
}

/// Runs a harness that calls, and returns the error or wraps it in words of its own.
async fn unhandled(
    mediation: Option<Mediation>,
    on_tool: impl Fn() -> SinkError + Send + Sync + 'static,
    wrap: bool,
) -> HarnessError {
    let script = Script::new(move |_, sink: Arc<dyn EventSink>| async move {
        let failed = match mediation {
            None => sink.model(ask("one")).await.map(|_| ()),
            Some(mediation) => sink.tool_call(call(mediation)).await.map(|_| ()),
        };
        match failed {
            Err(error) if wrap => Err(HarnessError::failed(format!("gave up: {error}"))),
            other => Ok(other?),
        }
    });
    let running = Running::harness(Over::Unix, script).await;
    let connection = admitted(&running.address).await;
    let sink = Arc::new(failing(on_tool));
    connection.harness().run(start(), sink).await.unwrap_err()
}

#[tokio::test]
async fn a_failure_that_is_not_handled_fails_the_turn_with_itself() {
    let error = unhandled(None, broken_tool, false).await;
    let HarnessError::Sink(sink) = &error else {
        panic!("{error:?}");
    };
    assert_eq!((sink.code(), sink.to_string()), ("model_refused", refused_model().to_string()));

    let mediated = Some(Mediation::ControllerMediated);
    let error = unhandled(mediated, || SinkError::MissingToolExecutor, false).await;
    assert!(matches!(error, HarnessError::Sink(SinkError::MissingToolExecutor)), "{error:?}");
    // Also where its exact words do not travel.
    let gate = Some(Mediation::RequiresApproval);
    let error = unhandled(gate, || SinkError::InvalidApprovalCall("its id is used"), false).await;
    assert!(
        matches!(error, HarnessError::Sink(SinkError::InvalidApprovalCall("its id is used"))),
        "{error:?}"
    );
    // Other words are the agent's own failure.
    let error = unhandled(None, broken_tool, true).await;
    let HarnessError::Failed { message, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*message, format!("gave up: {}", refused_model()));
}

/// What a harness gets for a failed tool call, and whether it could go on.
async fn tool_failed(
    mediation: Mediation,
    error: impl Fn() -> SinkError + Send + Sync + 'static,
) -> (Option<SinkError>, Result<(), HarnessError>) {
    let got = Arc::new(Mutex::new(None));
    let script = {
        let got = Arc::clone(&got);
        Script::new(move |_, sink: Arc<dyn EventSink>| {
            let got = Arc::clone(&got);
            async move {
                let error = sink.tool_call(call(mediation)).await.unwrap_err();
                *got.lock().unwrap() = Some(error);
                sink.usage(Usage::default()).await?;
                Ok(())
            }
        })
    };
    let running = Running::harness(Over::Unix, script).await;
    let connection = admitted(&running.address).await;
    let run = connection.harness().run(start(), Arc::new(failing(error))).await;
    // The run is over at the host; at the harness a moment later.
    running.stop().await.unwrap();
    let got = got.lock().unwrap().take();
    (got, run)
}

#[tokio::test]
async fn refusals_are_the_same_variants_and_do_not_stick() {
    let check = async |mediation, error: fn() -> SinkError| {
        let (got, run) = tool_failed(mediation, error).await;
        let got = got.expect("the harness goes on");
        assert_eq!(got.condition(), error().condition(), "{got:?}");
        assert!(got.condition().is_some(), "a variant of its own: {got:?}");
        run.unwrap();
    };
    let mediated = Mediation::ControllerMediated;
    check(Mediation::Unspecified, || SinkError::UnmediatedToolCall).await;
    check(Mediation::InHarnessReported, || SinkError::UnmediatedToolCall).await;
    check(mediated, || SinkError::MissingIdempotencyKey).await;
    check(mediated, || SinkError::MissingToolExecutor).await;
    check(mediated, || SinkError::ToolResultMissing).await;
    check(mediated, || SinkError::ApprovalReceiptReport).await;
    let gated = Mediation::RequiresApproval;
    check(gated, || SinkError::ApprovalUnavailable).await;
    check(gated, || SinkError::InvalidApprovalCall("its id is used")).await;
    check(gated, || SinkError::MissingIdempotencyKey).await;
    check(gated, || SinkError::MissingSessionUid).await;
}

#[tokio::test]
async fn what_the_turn_cannot_survive_still_ends_it() {
    let log = |condition| move || wrapped(SessionsError::new(condition, "the log"));
    let ends = async |mediation, error: &(dyn Fn() -> SinkError + Send + Sync)| {
        let code = error().code();
        let made = Mutex::new(Some(error()));
        let (got, run) = tool_failed(mediation, move || made.lock().unwrap().take().unwrap()).await;
        let run = run.unwrap_err();
        assert_eq!(run.code(), code, "{run:?}");
        // The harness sees the end of its stream, if its run still lives to see it.
        assert!(got.is_none_or(|got| got.code() != code));
    };
    let mediated = Mediation::ControllerMediated;
    ends(mediated, &log(Condition::Conflict)).await;
    ends(mediated, &log(Condition::Fenced)).await;
    ends(mediated, &log(Condition::Unavailable)).await;
    ends(mediated, &log(Condition::OutcomeUnknown)).await;
    ends(mediated, &|| SinkError::Diverged(Divergence::beyond("x"))).await;
    ends(mediated, &|| SinkError::InvalidToolArgs).await;
    ends(mediated, &|| SinkError::Interrupted).await;
    // Once a gate is recorded, nothing may follow its failure.
    let gated = Mediation::RequiresApproval;
    ends(gated, &broken_tool).await;
    ends(gated, &|| SinkError::MissingToolExecutor).await;
    ends(gated, &|| SinkError::ApprovalReceiptReport).await;
}

#[tokio::test]
async fn a_park_is_still_a_park() {
    let park = || ApprovalRef {
        execution_id: "exec".to_owned(),
        tool_call_id: "call".to_owned(),
        request_seq: 17,
    };
    let gated = Some(Mediation::RequiresApproval);
    let error = unhandled(gated, move || SinkError::Parked(park()), false).await;
    assert!(matches!(error, HarnessError::Sink(SinkError::Parked(seen)) if seen == park()));
}

#[tokio::test]
async fn what_this_side_refuses_for_the_host_does_not_stick_either() {
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let nameless = ToolCall { id: String::new(), ..call(Mediation::RequiresApproval) };
        let error = sink.tool_call(nameless).await.unwrap_err();
        assert!(matches!(error, SinkError::InvalidApprovalCall(_)), "{error}");
        sink.output("went on".to_owned()).await?;
        // Arguments that cannot be recorded, and a forged report, stick.
        let nan = JsonObject::from([("n".to_owned(), Json::Number(f64::NAN))]);
        let bad = ToolCall { args: Some(nan), ..call(Mediation::ControllerMediated) };
        let error = sink.tool_call(bad).await.unwrap_err();
        assert!(matches!(error, SinkError::InvalidToolArgs), "{error}");
        let error = sink.output("no more".to_owned()).await.unwrap_err();
        assert!(matches!(error, SinkError::InvalidToolArgs), "{error}");
        Ok(())
    });
    let running = Running::harness(Over::Unix, script).await;
    let connection = admitted(&running.address).await;
    let sink = Arc::new(Recorder::default());
    let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
    assert!(matches!(run, Err(HarnessError::Sink(SinkError::InvalidToolArgs))), "{run:?}");
    assert_eq!(sink.calls(), ["(\"output\", \"went on\")"]);

    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let forged = ToolResult { approval_request_seq: 1, ..Default::default() };
        sink.report(forged).await.unwrap_err();
        let error = sink.output("no more".to_owned()).await.unwrap_err();
        assert!(matches!(error, SinkError::ApprovalReceiptReport), "{error}");
        Ok(())
    });
    let running = Running::harness(Over::Unix, script).await;
    // The turn fails as it would in process, agreed on or not.
    for connection in [connect(&running.address).await, admitted(&running.address).await] {
        let sink = Arc::new(Recorder::default());
        let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
        assert!(
            matches!(run, Err(HarnessError::Sink(SinkError::ApprovalReceiptReport))),
            "{run:?}"
        );
        assert!(sink.calls().is_empty());
    }
}

/// A harness that asks a model once and says what it got, in an output.
fn telling() -> Arc<Script> {
    Script::new(async |_, sink: Arc<dyn EventSink>| {
        let error = sink.model(ask("x")).await.unwrap_err();
        sink.output(format!("{}: {error}", error.code())).await?;
        Ok(())
    })
}

#[tokio::test]
async fn a_failure_frame_has_to_be_agreed_on_and_name_the_call() {
    let running = Running::harness(Over::Tcp, telling()).await;
    let answered = async |names: &str, own_id: bool, code: &str| -> (Vec<Event>, bool) {
        let first = Some(start_frame());
        let mut host = RawHost::open_with(&running.address, names, first).await.unwrap();
        let Some(v1::event::Body::Model(call)) = host.wire().await.body else {
            panic!("a model call");
        };
        host.send(Frame::Failure(v1::CallFailure {
            call_id: if own_id { call.id } else { "foreign".to_owned() },
            code: code.to_owned(),
            description: "words".to_owned(),
        }))
        .await;
        let (events, status) = host.rest().await;
        (events, status.is_ok())
    };
    let said = |events: &[Event]| match &events[0].body {
        EventBody::Output(Some(message)) => message.plain_text(),
        EventBody::End(Some(end)) => end.error.clone().unwrap().description,
        other => panic!("{other:?}"),
    };
    let (events, ok) = answered("failure-replies", true, "model_unavailable").await;
    assert!(ok);
    assert_eq!((events.len(), said(&events)), (2, "model_unavailable: words".to_owned()));
    let (events, ok) = answered("failure-replies", true, "brand_new").await;
    assert!(ok);
    assert_eq!(said(&events), "model_failed: words (brand_new)");
    // A code that would end a turn is only a word here.
    let (events, ok) = answered("failure-replies", true, "cancelled").await;
    assert!(ok);
    assert_eq!(said(&events), "cancelled: words");
    let (events, ok) = answered("failure-replies", false, "model_unavailable").await;
    assert!(!ok && said(&events).contains("another call"), "{events:?}");
    let (events, ok) = answered("history-range", true, "model_unavailable").await;
    assert!(!ok && said(&events).contains("not agreed on"), "{events:?}");
}

#[tokio::test]
async fn a_failure_names_the_call_by_its_id() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let headers = offering("failure-replies");
    let (address, _) = serve_raw_with(headers, move |mut frames: Frames, out: Events| {
        let tell = tell.clone();
        async move {
            frames.message().await.unwrap().unwrap();
            for mediation in [Mediation::ControllerMediated, Mediation::Unspecified] {
                let body = EventBody::ToolCall(Some(call(mediation)));
                let _ = out.send(Ok(event(body))).await;
                tell.send(frames.message().await.unwrap().unwrap().frame).unwrap();
            }
            let _ = out.send(Ok(completed())).await;
        }
    })
    .await;
    let connection = admitted(&address).await;
    let run = connection.harness().run(start(), Arc::new(failing(broken_tool))).await;
    run.unwrap();
    for _ in 0..2 {
        let Some(Some(Frame::Failure(failure))) = told.recv().await else {
            panic!("no failure");
        };
        assert_eq!((failure.call_id.as_str(), failure.code.as_str()), ("call", "tool_failed"));
        assert_eq!(failure.description, "tool executor: it broke");
    }
}

/// Every shape of argument, in one object.
fn shapes() -> JsonObject {
    let object = |key: &str, value: Json| JsonObject::from([(key.to_owned(), value)]);
    let leaves = [
        Json::Null,
        Json::Bool(true),
        Json::Number(-0.5),
        Json::Number(9_007_199_254_740_991.0),
        Json::from("\u{0}\"\\\u{2028}<&>"),
        Json::from("e\u{301}\u{1d11e}"),
        Json::Array(Vec::new()),
        Json::Object(JsonObject::new()),
    ];
    let lists =
        Json::Array(vec![Json::Array(leaves.to_vec()), Json::Object(object("k", Json::Null))]);
    let mut shapes = object("\u{e000}\u{1d11e}", Json::Object(object("inner", lists)));
    shapes.insert(String::new(), Json::Array(leaves.to_vec()));
    shapes
}

#[tokio::test]
async fn t07_tool_args_are_the_same_at_both_ends() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    for args in [Some(shapes()), Some(JsonObject::new()), None] {
        let sent = args.clone();
        let script = Script::new(move |_: Start, sink: Arc<dyn EventSink>| {
            let args = sent.clone();
            async move {
                let call = ToolCall { args: args.clone(), ..call(Mediation::ControllerMediated) };
                // The recorder answers with the arguments.
                assert_eq!(sink.tool_call(call).await?.output, args);
                Ok(())
            }
        });
        let running = Running::harness(Over::Unix, script).await;
        let recorder = || {
            let seen = Arc::clone(&seen);
            Recorder {
                on_tool: Box::new(move |call| {
                    seen.lock().unwrap().push(call.args.clone());
                    let output = call.args.clone();
                    Ok(ToolResult { id: call.id.clone(), output, ..Default::default() })
                }),
                ..Default::default()
            }
        };
        for connection in [connect(&running.address).await, admitted(&running.address).await] {
            connection.harness().run(start(), Arc::new(recorder())).await.unwrap();
            assert_eq!(seen.lock().unwrap().pop(), Some(args.clone()));
        }
    }
}

#[tokio::test]
async fn t07_tool_args_that_are_not_json_never_reach_the_sink() {
    use prost_types::value::Kind;
    let value = |kind| prost_types::Value { kind };
    for bad in [None, Some(Kind::NumberValue(f64::NAN)), Some(Kind::NumberValue(f64::INFINITY))] {
        let fields = [("secret".to_owned(), value(bad))].into();
        let mut wire = event(EventBody::ToolCall(Some(call(Mediation::ControllerMediated))));
        let Some(v1::event::Body::Tool(tool)) = &mut wire.body else {
            panic!("built above");
        };
        tool.args = Some(prost_types::Struct { fields });
        let (address, _) = serve_raw(move |mut frames: Frames, out: Events| {
            let wire = wire.clone();
            async move {
                frames.message().await.unwrap().unwrap();
                let _ = out.send(Ok(wire)).await;
                let _ = out.send(Ok(completed())).await;
            }
        })
        .await;
        let connection = connect(&address).await;
        let sink = Arc::new(Recorder::default());
        let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
        let Err(HarnessError::Protocol { message }) = run else {
            panic!("{run:?}");
        };
        assert!(message.starts_with("tool.args"), "{message}");
        assert!(!message.contains("secret"), "{message}");
        assert!(sink.calls().is_empty());
    }
}
