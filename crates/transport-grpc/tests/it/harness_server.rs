//! The harness's side against hosts that misbehave.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    ApprovalResult, CancelReason, EventBody, EventSink, HarnessError, Json, JsonObject, Mediation,
    Message, ModelRequest, SinkError, ToolCall, ToolChoice, ToolResult, Usage,
};
use mainspring_wire::v1;
use mainspring_wire::v1::controller_frame::Frame;
use tokio::sync::{mpsc, oneshot};
use tonic::Code;

use crate::address_book::{Over, Running};
use crate::raw::{RawHost, envelope, start_frame};
use crate::script::{Script, ask};

/// A harness that asks a model once and tells the test what it got.
fn asking() -> (Arc<Script>, mpsc::UnboundedReceiver<Result<String, SinkError>>) {
    let (tell, told) = mpsc::unbounded_channel();
    let script = Script::new(move |_, sink: Arc<dyn EventSink>| {
        let tell = tell.clone();
        async move {
            let reply = sink.model(ask("x")).await;
            tell.send(reply.clone().map(|reply| reply.message.plain_text())).unwrap();
            reply?;
            Ok(())
        }
    });
    (script, told)
}

fn completion(id: &str) -> v1::ModelResult {
    v1::ModelResult {
        message: Some(Message::assistant("answer").try_into().unwrap()),
        usage: None,
        model_call_id: id.to_owned(),
    }
}

async fn call_id(host: &mut RawHost) -> String {
    match host.next().await.unwrap().unwrap().body {
        EventBody::ModelCall(Some(call)) => {
            assert_eq!(call.id.len(), 16);
            call.id
        }
        other => panic!("{other:?}"),
    }
}

fn assert_failed(events: &[mainspring_api::Event], words: &str) {
    let Some(EventBody::End(Some(end))) = events.last().map(|event| &event.body) else {
        panic!("{events:?}");
    };
    assert_eq!(end.state, "FAILED");
    let error = end.error.as_ref().unwrap();
    assert!(error.description.contains(words), "{words}: {}", error.description);
}

#[tokio::test]
async fn t02_first_frame() {
    let (script, mut told) = asking();
    let running = Running::harness(Over::Tcp, script).await;
    let firsts = [
        (None, "before start"),
        (
            Some(v1::ControllerFrame { execution_id: String::new(), ..start_frame() }),
            "execution id",
        ),
        (Some(envelope(Frame::Cancel(v1::Cancel::default()))), "cancel, not start"),
        (
            Some(v1::ControllerFrame {
                session: "s".to_owned(),
                execution_id: "e".to_owned(),
                frame: None,
            }),
            "missing",
        ),
        (
            Some(v1::ControllerFrame { session: "not/legal".to_owned(), ..start_frame() }),
            "session uid",
        ),
    ];
    for (first, words) in firsts {
        let mut host = RawHost::open(&running.address, first).await;
        let (events, status) = host.rest().await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(words), "{words}: {}", status.message());
        assert!(events.is_empty());
    }
    assert!(told.try_recv().is_err(), "no run, no effects");
}

#[tokio::test]
async fn t03_ids() {
    let foreign = |id: &str| {
        [
            (completion("foreign"), start_frame(), "another model call"),
            (
                completion(id),
                v1::ControllerFrame { execution_id: "foreign".to_owned(), ..start_frame() },
                "execution_id",
            ),
            (
                completion(id),
                v1::ControllerFrame { session: "foreign".to_owned(), ..start_frame() },
                "session",
            ),
        ]
    };
    for row in 0..3 {
        let (script, mut told) = asking();
        let running = Running::harness(Over::Tcp, script).await;
        let mut host = RawHost::open(&running.address, Some(start_frame())).await;
        let id = call_id(&mut host).await;
        let (result, mut frame, words) = foreign(&id)[row].clone();
        frame.frame = Some(Frame::Model(result));
        host.send_frame(frame).await;
        let error = told.recv().await.unwrap().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let (events, status) = host.rest().await;
        assert_failed(&events, words);
        assert!(status.is_err());
    }
}

#[tokio::test]
async fn a_reply_with_its_id_is_delivered() {
    let (script, mut told) = asking();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    let id = call_id(&mut host).await;
    host.send(Frame::Model(completion(&id))).await;
    assert_eq!(told.recv().await.unwrap().unwrap(), "answer");
    let (events, status) = host.rest().await;
    status.unwrap();
    let [end] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(matches!(&end.body, EventBody::End(Some(end)) if end.state == "COMPLETED"));
}

#[tokio::test]
async fn frames_of_another_kind_or_unasked_are_refused() {
    let (script, mut told) = asking();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    call_id(&mut host).await;
    host.send(Frame::Tool(v1::ToolResult::default())).await;
    let error = told.recv().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("expected model, got tool"), "{error}");

    let script = Script::new(async |_, _| std::future::pending().await);
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    for _ in 0..3 {
        host.send(Frame::Tool(v1::ToolResult::default())).await;
    }
    let (events, _) = host.rest().await;
    assert_failed(&events, "more frames than the harness has asked for");
}

/// Tells when a run is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(());
        }
    }
}

/// A harness that waits for a completion in another task and then for ever,
/// with the word of that task and of its own end.
fn waiting() -> (Arc<Script>, mpsc::UnboundedReceiver<SinkError>, oneshot::Receiver<()>) {
    let (tell, told) = mpsc::unbounded_channel();
    let (gone, dropped) = oneshot::channel();
    let gone = Mutex::new(Some(gone));
    let script = Script::new(move |_, sink: Arc<dyn EventSink>| {
        let tell = tell.clone();
        let guard = Dropped(gone.lock().unwrap().take());
        async move {
            tokio::spawn(async move {
                let error = sink.model(ask("x")).await.unwrap_err();
                tell.send(error).unwrap();
                // The sink outlived its run.
                let error = sink.usage(Usage::default()).await.unwrap_err();
                tell.send(error).unwrap();
            });
            let _guard = guard;
            std::future::pending::<Result<(), HarnessError>>().await
        }
    });
    (script, told, dropped)
}

#[tokio::test]
async fn a_cancel_frame_unblocks_calls_and_drops_the_run() {
    let (script, mut told, dropped) = waiting();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    call_id(&mut host).await;
    host.send(Frame::Cancel(v1::Cancel { reason: "TIMEOUT".to_owned() })).await;
    dropped.await.unwrap();
    for _ in 0..2 {
        let error = told.recv().await.unwrap();
        assert!(matches!(error, SinkError::Canceled(CancelReason::Timeout)), "{error}");
    }
    let (events, status) = host.rest().await;
    let Some(EventBody::End(Some(end))) = events.last().map(|event| &event.body) else {
        panic!("{events:?}");
    };
    assert_eq!(end.state, "CANCELED");
    assert_eq!(status.unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn a_dropped_stream_drops_the_run() {
    let (script, _told, dropped) = waiting();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    call_id(&mut host).await;
    drop(host);
    dropped.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_stream_unblocks_calls_and_bounds_the_run() {
    let (script, mut told, dropped) = waiting();
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    call_id(&mut host).await;
    host.half_close();
    let error = told.recv().await.unwrap();
    assert!(error.to_string().contains("EOF"), "{error}");
    dropped.await.unwrap();
    let (events, _) = host.rest().await;
    assert_failed(&events, "EOF");
}

#[tokio::test]
async fn a_retained_sink_is_closed() {
    let kept = Arc::new(Mutex::new(None));
    let script = {
        let kept = Arc::clone(&kept);
        Script::new(move |_, sink: Arc<dyn EventSink>| {
            *kept.lock().unwrap() = Some(sink);
            async { Ok(()) }
        })
    };
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    host.rest().await.1.unwrap();
    let sink = kept.lock().unwrap().take().unwrap();
    let closed = |result: Result<(), SinkError>| {
        assert!(matches!(result, Err(SinkError::Closed)), "{result:?}");
    };
    closed(sink.model(ask("x")).await.map(|_| ()));
    closed(sink.output("x".to_owned()).await);
    closed(sink.tool_call(ToolCall::default()).await.map(|_| ()));
    closed(sink.report(ToolResult::default()).await);
    closed(sink.usage(Usage::default()).await);
}

/// Runs one effect and returns its error and what reached the host.
async fn refused<F>(
    effect: impl Fn(Arc<dyn EventSink>) -> F + Send + Sync + Copy + 'static,
) -> (SinkError, Vec<mainspring_api::Event>)
where
    F: Future<Output = Result<(), SinkError>> + Send + 'static,
{
    let (tell, mut told) = mpsc::unbounded_channel();
    let script = Script::new(move |_, sink: Arc<dyn EventSink>| {
        let tell = tell.clone();
        async move {
            let error = effect(Arc::clone(&sink)).await.unwrap_err();
            // It stays: a swallowed refusal does not turn into success.
            let again = sink.usage(Usage::default()).await.unwrap_err();
            assert_eq!(again.to_string(), error.to_string());
            tell.send(error).unwrap();
            Ok(())
        }
    });
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    let (events, status) = host.rest().await;
    assert!(status.is_err());
    (told.recv().await.unwrap(), events)
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_before_it_is() {
    let nan = || Some(JsonObject::from([("n".to_owned(), Json::Number(f64::NAN))]));
    let (error, events) = refused(move |sink| async move {
        let call = ToolCall {
            args: nan(),
            mediation: Mediation::ControllerMediated,
            ..Default::default()
        };
        sink.tool_call(call).await.map(|_| ())
    })
    .await;
    assert!(matches!(error, SinkError::InvalidToolArgs));
    assert_eq!(events.len(), 1, "its end alone: {events:?}");

    let (error, _) = refused(|sink| async move {
        let forged = ToolResult { decision: Some(ApprovalResult::default()), ..Default::default() };
        sink.report(forged).await
    })
    .await;
    assert!(matches!(error, SinkError::ApprovalReceiptReport));

    let (error, _) = refused(|sink| async move {
        let call = ToolCall { mediation: Mediation::RequiresApproval, ..Default::default() };
        sink.tool_call(call).await.map(|_| ())
    })
    .await;
    assert!(matches!(error, SinkError::InvalidApprovalCall(_)));

    let (error, _) =
        refused(|sink| async move { sink.output("x".repeat(65 * 1024 * 1024)).await }).await;
    assert!(matches!(error, SinkError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_tool_choice_reaches_the_host_as_it_was_set() {
    let script = Script::new(async |_, sink: Arc<dyn EventSink>| {
        let request = ModelRequest {
            tool_choice: Some(ToolChoice {
                mode: mainspring_api::ToolChoiceMode::Required,
                name: "t".to_owned(),
            }),
            ..ask("x")
        };
        sink.model(request).await?;
        Ok(())
    });
    let running = Running::harness(Over::Tcp, script).await;
    let mut host = RawHost::open(&running.address, Some(start_frame())).await;
    let event = host.next().await.unwrap().unwrap();
    let EventBody::ModelCall(Some(call)) = event.body else {
        panic!("{event:?}");
    };
    assert_eq!(call.tool_choice.unwrap().name, "t");
}
