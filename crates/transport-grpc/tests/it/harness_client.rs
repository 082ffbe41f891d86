//! The host's side against harnesses that misbehave.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Address, ApprovalRequest, CancelReason, ConnectError, Event, EventBody, EventSink, ExecutionId,
    ExecutionStart, Fence, FilePart, HarnessConnector as _, HarnessEnd, HarnessError, Incarnation,
    Lifecycle, Message, ModelCall, ModelReply, ModelRequest, Part, RecordedError, Signal,
    SinkError, Start, ToolCall, ToolResult, Usage, async_trait,
};
use mainspring_transport_grpc::{GrpcConnector, LinkOptions, ServeOptions};
use mainspring_wire::v1;
use tokio::sync::{Notify, mpsc};

use crate::address_book::{Over, Running};
use crate::raw::{Events, Frames, completed, connect, connect_with, event, serve_raw};
use crate::script::{Recorder, Script, ask, start};

/// Runs against a harness that answers the start with `events`, then closes.
async fn against(events: Vec<v1::Event>) -> (Result<(), HarnessError>, Vec<String>) {
    let (address, _) = serve_raw(move |mut frames: Frames, out: Events| {
        let events = events.clone();
        async move {
            frames.message().await.unwrap().unwrap();
            for event in events {
                let _ = out.send(Ok(event)).await;
            }
            drop(out);
        }
    })
    .await;
    let connection = connect(&address).await;
    let sink = Arc::new(Recorder::default());
    let run = connection.harness().run(start(), Arc::clone(&sink) as Arc<_>).await;
    (run, sink.calls())
}

#[track_caller]
fn protocol(run: Result<(), HarnessError>, words: &str) {
    match run {
        Err(HarnessError::Protocol { message }) => {
            assert!(message.contains(words), "{words} is not in {message}");
        }
        other => panic!("{words}: {other:?}"),
    }
}

#[tokio::test]
async fn t05_host_owned_kinds() {
    let bodies = [
        EventBody::ExecutionStart(Some(ExecutionStart::default())),
        EventBody::ApprovalRequest(Some(ApprovalRequest::default())),
        EventBody::ApprovalResult(Some(Default::default())),
        EventBody::Parked(None),
        EventBody::Input(Some(Message::user("x"))),
        EventBody::Lifecycle(Some(Lifecycle::default())),
        EventBody::Error(Some(RecordedError::default())),
        EventBody::Unspecified,
    ];
    for body in bodies {
        let name = body.kind().name();
        let (run, calls) = against(vec![event(body), completed()]).await;
        protocol(run, name);
        assert!(calls.is_empty(), "{name}");
    }
}

/// A sink that takes nothing until it is let go.
struct Gated {
    recorder: Recorder,
    go: Signal<()>,
}

#[async_trait]
impl EventSink for Gated {
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError> {
        self.recorder.model(request).await
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        self.go.wait().await;
        self.recorder.output(text).await
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        self.recorder.tool_call(call).await
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        self.recorder.report(result).await
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        self.recorder.usage(usage).await
    }
}

/// Small frames that come faster than they are recorded wait their turn; they
/// do not cost the connection.
#[tokio::test]
async fn a_flood_of_small_outputs_waits() {
    const OUTPUTS: usize = 3_000;
    let go = Signal::default();
    let sent = go.clone();
    let (address, _) = serve_raw(move |mut frames: Frames, out: Events| {
        let sent = sent.clone();
        async move {
            frames.message().await.unwrap().unwrap();
            for _ in 0..OUTPUTS {
                let _ = out.send(Ok(event(EventBody::Output(Some(Message::assistant("")))))).await;
                // Each goes out in a frame of its own, as other servers send them.
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
            sent.set(());
            let _ = out.send(Ok(completed())).await;
        }
    })
    .await;
    let connection = connect(&address).await;
    let sink = Arc::new(Gated { recorder: Recorder::default(), go });
    let harness = connection.harness();
    let run = harness.run(start(), Arc::clone(&sink) as Arc<_>);
    // A lost connection would leave the sink waiting.
    let ran = tokio::time::timeout(Duration::from_secs(60), run).await;
    ran.expect("the connection holds").unwrap();
    assert_eq!(sink.recorder.calls().len(), OUTPUTS);
}

#[tokio::test]
async fn kinds_without_their_bodies_are_refused() {
    for body in [
        EventBody::ModelCall(None),
        EventBody::Output(None),
        EventBody::ToolCall(None),
        EventBody::ToolResult(None),
        EventBody::Usage(None),
        EventBody::End(None),
    ] {
        let name = body.kind().name();
        let (run, calls) = against(vec![event(body)]).await;
        protocol(run, &format!("{name} without its body"));
        assert!(calls.is_empty());
    }
}

#[tokio::test]
async fn t03_ids_of_events() {
    let foreign = ExecutionId::new("other").unwrap();
    let body = EventBody::Usage(Some(Usage::default()));
    let wire = Event::in_execution(&foreign, body).try_into().unwrap();
    let (run, calls) = against(vec![wire, completed()]).await;
    protocol(run, "another execution");
    assert!(calls.is_empty());
    let call = EventBody::ModelCall(Some(ModelCall::default()));
    let (run, calls) = against(vec![event(call)]).await;
    protocol(run, "without an id");
    assert!(calls.is_empty());
}

#[tokio::test]
async fn t08_unknown_tool_choice() {
    let mut wire = event(EventBody::ModelCall(Some(ModelCall {
        id: "m".to_owned(),
        tool_choice: Some(Default::default()),
        ..Default::default()
    })));
    let Some(v1::event::Body::Model(call)) = &mut wire.body else {
        unreachable!("built above");
    };
    call.tool_choice.as_mut().unwrap().mode = 99;
    let (run, calls) = against(vec![wire]).await;
    protocol(run, "model.tool_choice.mode");
    assert!(calls.is_empty(), "refused before any effect");
}

#[tokio::test]
async fn output_that_would_be_lost_fails_by_name() {
    let message = Message {
        role: "assistant".to_owned(),
        parts: vec![Part::Text("a".to_owned()), Part::File(FilePart::default())],
    };
    let (run, calls) = against(vec![event(EventBody::Output(Some(message)))]).await;
    protocol(run, "a file part");
    assert!(calls.is_empty());
    let message = Message {
        role: String::new(),
        parts: vec![Part::Text("a".to_owned()), Part::Text("b".to_owned())],
    };
    let (run, calls) = against(vec![event(EventBody::Output(Some(message))), completed()]).await;
    run.unwrap();
    assert_eq!(calls, ["(\"output\", \"ab\")"]);
}

#[tokio::test]
async fn ends_that_are_not_completed() {
    let ended = |state: &str, description: &str| {
        event(EventBody::End(Some(HarnessEnd {
            state: state.to_owned(),
            error: (!description.is_empty())
                .then(|| RecordedError { code: 13, description: description.to_owned() }),
        })))
    };
    for (state, description, words) in [
        ("FAILED", "it broke", "it broke"),
        ("CANCELED", "", "harness ended with state \"CANCELED\""),
        ("", "", "harness ended with state \"\""),
    ] {
        let (run, _) = against(vec![ended(state, description)]).await;
        let Err(HarnessError::Failed { message, .. }) = run else {
            panic!("{run:?}");
        };
        assert_eq!(message, words);
    }
    let (run, _) = against(Vec::new()).await;
    protocol(run, "harness closed without END");
    let (run, _) = against(vec![completed(), completed()]).await;
    protocol(run, "event after END");
}

#[tokio::test]
async fn reports_pass_to_the_sink_as_they_are() {
    // The controller's own guard judges forged ones, the same as in process.
    let forged = ToolResult { id: "t".to_owned(), approval_request_seq: 3, ..Default::default() };
    let (run, calls) = against(vec![event(EventBody::ToolResult(Some(forged))), completed()]).await;
    run.unwrap();
    assert!(calls[0].contains("approval_request_seq: 3"));
}

#[tokio::test]
async fn a_gated_call_needs_an_id() {
    let call =
        ToolCall { mediation: mainspring_api::Mediation::RequiresApproval, ..Default::default() };
    let (run, calls) = against(vec![event(EventBody::ToolCall(Some(call)))]).await;
    protocol(run, "gated tool call without");
    assert!(calls.is_empty());
}

#[tokio::test]
async fn t04_lost_peer() {
    let mut options = ServeOptions::default();
    options.drain_max = Duration::ZERO;
    let script = Script::new(async |_, sink: Arc<dyn mainspring_api::EventSink>| {
        sink.model(ask("x")).await?;
        sink.model(ask("y")).await?;
        Ok(())
    });
    let mut running = Running::harness_with(Over::Tcp, script.clone(), options).await;
    let connection = connect(&running.address).await;
    let (called, mut calls) = mpsc::unbounded_channel();
    let sink = Recorder {
        on_model: Box::new(move |request| {
            called.send(()).unwrap();
            Ok(crate::script::echo(request))
        }),
        ..Default::default()
    };
    let sink = Arc::new(sink);
    let harness = connection.harness();
    let hold = Arc::new(Notify::new());
    let run = {
        let sink: Arc<dyn mainspring_api::EventSink> = Arc::new(Held(sink.clone(), hold.clone()));
        tokio::spawn(async move { harness.run(start(), sink).await })
    };
    // The connection is cut while the host is in the middle of the model call.
    calls.recv().await.unwrap();
    running.ask_to_stop();
    running.stop().await.unwrap_err();
    hold.notify_one();
    let result = run.await.unwrap();
    assert!(matches!(result, Err(HarnessError::Unavailable { .. })), "{result:?}");
    assert_eq!(sink.calls().len(), 1);

    // A new connection completes.
    let running = Running::harness(Over::Tcp, script).await;
    let connection = connect(&running.address).await;
    let sink = Arc::new(Recorder::default());
    let harness = connection.harness();
    harness.run(start(), Arc::clone(&sink) as Arc<_>).await.unwrap();
    assert_eq!(sink.calls().len(), 2);
}

/// A sink whose first completion waits.
struct Held(Arc<Recorder>, Arc<Notify>);

#[mainspring_api::async_trait]
impl mainspring_api::EventSink for Held {
    async fn model(
        &self,
        request: mainspring_api::ModelRequest,
    ) -> Result<mainspring_api::ModelReply, SinkError> {
        let reply = self.0.model(request).await;
        self.1.notified().await;
        reply
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        self.0.output(text).await
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        self.0.tool_call(call).await
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        self.0.report(result).await
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        self.0.usage(usage).await
    }
}

#[tokio::test]
async fn a_start_above_the_limit_is_refused_before_anything_is_sent() {
    let (address, mut seen) = serve_raw(async |_, _| ()).await;
    let mut options = LinkOptions::default();
    options.message_bytes_max = 1000;
    let connection = connect_with(&address, &[], options).await;
    #[derive(Debug)]
    struct Big;
    #[mainspring_api::async_trait]
    impl mainspring_api::History for Big {
        fn len(&self) -> u64 {
            1000
        }
        async fn range(
            &self,
            from: u64,
            limit: usize,
        ) -> Result<Vec<Event>, mainspring_api::HistoryError> {
            let one = Event::of(EventBody::Input(Some(Message::user("0123456789"))));
            let left = usize::try_from(1000 - from).unwrap();
            Ok(vec![one; left.min(limit)])
        }
    }
    let begin = Start { history: Arc::new(Big), ..start() };
    let run = connection.harness().run(begin, Arc::new(Recorder::default())).await;
    let Err(HarnessError::StartTooLarge { bytes, bytes_max }) = run else {
        panic!("{run:?}");
    };
    assert_eq!(bytes_max, 1000);
    assert!((20_000..40_000).contains(&bytes), "{bytes}");
    assert!(seen.try_recv().is_err(), "no call was made");
}

#[tokio::test]
async fn u24_call_metadata_is_on_every_call_and_wins() {
    let (address, mut seen) = serve_raw(async |_, out: Events| {
        let _ = out.send(Ok(completed())).await;
    })
    .await;
    let pairs = [("ate-target-actor", "a/b"), ("x-request-id", "mine")];
    let connection = connect_with(&address, &pairs, LinkOptions::default()).await;
    let harness = connection.harness();
    harness.describe().await.unwrap();
    harness.run(start(), Arc::new(Recorder::default())).await.unwrap();
    for _ in 0..2 {
        let metadata = seen.recv().await.unwrap();
        assert_eq!(metadata.get("ate-target-actor").unwrap(), "a/b");
        let ids: Vec<_> = metadata.get_all("x-request-id").iter().collect();
        assert_eq!(ids, ["mine"]);
    }
    // Two sessions behind one router are never mixed.
    let other =
        connect_with(&address, &[("ate-target-actor", "c/d")], LinkOptions::default()).await;
    for _ in 0..20 {
        let other = other.harness();
        let (first, second) = tokio::join!(harness.describe(), other.describe());
        first.unwrap();
        second.unwrap();
        let mut actors = Vec::new();
        for _ in 0..2 {
            let metadata = seen.recv().await.unwrap();
            let actor = metadata.get("ate-target-actor").unwrap().to_str().unwrap().to_owned();
            // What goes with one pair never goes with the other.
            assert_eq!(actor == "a/b", metadata.get("x-request-id").unwrap() == "mine");
            actors.push(actor);
        }
        actors.sort();
        assert_eq!(actors, ["a/b", "c/d"]);
    }
    let connection = connect(&address).await;
    connection.harness().describe().await.unwrap();
    let metadata = seen.recv().await.unwrap();
    assert_eq!(metadata.get("x-request-id").unwrap().len(), 24);
}

#[tokio::test]
async fn cancelling_sends_the_frame_and_then_cuts_the_stream() {
    let (frame_in, mut frames_seen) = mpsc::unbounded_channel();
    let (address, _) = serve_raw(move |mut frames: Frames, out: Events| {
        let frame_in = frame_in.clone();
        async move {
            while let Ok(Some(frame)) = frames.message().await {
                frame_in.send(frame.frame.unwrap()).unwrap();
            }
            drop(out);
        }
    })
    .await;
    let connection = connect(&address).await;
    let harness = connection.harness();
    let run =
        tokio::spawn(async move { harness.run(start(), Arc::new(Recorder::default())).await });
    use v1::controller_frame::Frame;
    assert!(matches!(frames_seen.recv().await, Some(Frame::Start(_))));
    connection.cancel_signal().set(CancelReason::Timeout);
    let Some(Frame::Cancel(cancel)) = frames_seen.recv().await else {
        panic!("no cancel frame");
    };
    assert_eq!(cancel.reason, "TIMEOUT");
    let result = run.await.unwrap();
    assert!(matches!(result, Err(HarnessError::Sink(SinkError::Canceled(CancelReason::Timeout)))));
}

#[tokio::test(start_paused = true)]
async fn a_harness_that_ignores_cancel_is_left_after_its_grace() {
    let (address, mut seen) = serve_raw(async |mut frames: Frames, out: Events| {
        while frames.message().await.is_ok() {
            out.closed().await;
        }
    })
    .await;
    let connection = connect(&address).await;
    let harness = connection.harness();
    let run =
        tokio::spawn(async move { harness.run(start(), Arc::new(Recorder::default())).await });
    seen.recv().await.unwrap();
    connection.cancel_signal().set(CancelReason::User);
    let result = run.await.unwrap();
    assert!(matches!(result, Err(HarnessError::Sink(SinkError::Canceled(CancelReason::User)))));
}

#[tokio::test]
async fn a_closed_connection_is_not_used_again() {
    let (address, _) = serve_raw(async |_, _| ()).await;
    let connection = connect(&address).await;
    let harness = connection.harness();
    connection.close().await.unwrap();
    let error = harness.describe().await.unwrap_err();
    assert!(matches!(error, HarnessError::Unavailable { .. }));
}

#[tokio::test]
async fn addresses_that_cannot_be_connected() {
    let connect = async |address: Address| {
        let incarnation = Incarnation {
            address,
            worker: String::new(),
            compute_instance: String::new(),
            fence: Fence::NONE,
            live_describer: false,
        };
        let connector = GrpcConnector::default();
        connector.connect(&incarnation).await.map(|_| ()).unwrap_err()
    };
    let grpc = |address: &str, pairs: &[(&str, &str)]| Address::Grpc {
        address: address.to_owned(),
        call_metadata: pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let unsupported = [
        Address::InProcess(mainspring_api::InProcess::harness(Script::new(async |_, _| Ok(())))),
        grpc("http://h:1", &[]),
        grpc("h:1", &[("bad key", "v")]),
        grpc("h:1", &[("k", "bad\nvalue")]),
    ];
    for address in unsupported {
        let error = connect(address).await;
        assert!(matches!(error, ConnectError::UnsupportedAddress { .. }), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let nobody = format!("unix:{}", dir.path().join("none").display());
    let error = connect(grpc(&nobody, &[])).await;
    assert!(matches!(error, ConnectError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn not_a_harness_is_a_protocol_error() {
    let running = Running::sessions(Over::Tcp, Arc::new(crate::fake::Fake::default())).await;
    let connection = connect(&running.address).await;
    let error = connection.harness().describe().await.unwrap_err();
    assert!(matches!(error, HarnessError::Protocol { .. }), "{error}");
}
