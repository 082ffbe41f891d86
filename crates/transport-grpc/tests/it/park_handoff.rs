//! A park is handed off by exactly its acknowledgement and a clean end.

use std::sync::Arc;

use mainspring_api::{
    ApprovalRef, CancelReason, EventBody, HarnessError, Mediation, SinkError, ToolCall, Usage,
};
use mainspring_wire::v1;
use tonic::Status;

use crate::raw::{Events, Frames, completed, connect, event, serve_raw};
use crate::script::{Recorder, start};

fn park(request_seq: i64) -> ApprovalRef {
    ApprovalRef { execution_id: "exec".to_owned(), tool_call_id: "call".to_owned(), request_seq }
}

fn parking() -> Arc<Recorder> {
    Arc::new(Recorder {
        on_tool: Box::new(|_| Err(SinkError::Parked(park(17)))),
        ..Default::default()
    })
}

fn gated() -> v1::Event {
    event(EventBody::ToolCall(Some(ToolCall {
        id: "call".to_owned(),
        mediation: Mediation::RequiresApproval,
        ..Default::default()
    })))
}

fn ack(request_seq: i64) -> v1::Event {
    event(EventBody::Parked(Some(park(request_seq))))
}

/// Runs against a harness that answers the park frame with `answers`.
async fn answered(answers: Vec<Result<v1::Event, Status>>) -> Result<(), HarnessError> {
    let (address, _) = serve_raw(move |mut frames: Frames, out: Events| {
        let answers = answers.clone();
        async move {
            frames.message().await.unwrap().unwrap();
            out.send(Ok(gated())).await.unwrap();
            let frame = frames.message().await.unwrap().unwrap();
            assert!(matches!(frame.frame, Some(v1::controller_frame::Frame::Park(_))));
            for answer in answers {
                let _ = out.send(answer).await;
            }
        }
    })
    .await;
    let connection = connect(&address).await;
    connection.harness().run(start(), parking()).await
}

#[tokio::test]
async fn t06_exact_acknowledgement() {
    let run = answered(vec![Ok(ack(17))]).await;
    assert!(
        matches!(&run, Err(HarnessError::Sink(SinkError::Parked(seen))) if *seen == park(17)),
        "{run:?}"
    );
}

#[tokio::test]
async fn t06_anything_else_is_a_failed_hand_off() {
    let usage = || event(EventBody::Usage(Some(Usage::default())));
    let rows: [(Vec<Result<v1::Event, Status>>, &str); 5] = [
        (vec![], "without acknowledging"),
        (vec![Ok(ack(18))], "EVENT_PARKED instead of"),
        (vec![Ok(completed())], "EVENT_END instead of"),
        (vec![Ok(ack(17)), Ok(completed())], "EVENT_END after"),
        (vec![Ok(usage()), Ok(ack(17))], "EVENT_USAGE instead of"),
    ];
    for (answers, words) in rows {
        let run = answered(answers).await;
        let Err(HarnessError::Protocol { message }) = run else {
            panic!("{words}: {run:?}");
        };
        assert!(message.contains(words), "{words}: {message}");
    }
    let run = answered(vec![Ok(ack(17)), Err(Status::internal("late"))]).await;
    assert!(matches!(run, Err(HarnessError::Failed { .. })), "{run:?}");
}

#[tokio::test]
async fn t06_a_cancelled_context_wins_over_the_acknowledgement() {
    let (parked, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (address, _) = serve_raw(move |mut frames: Frames, out: Events| {
        let parked = parked.clone();
        async move {
            frames.message().await.unwrap().unwrap();
            out.send(Ok(gated())).await.unwrap();
            frames.message().await.unwrap().unwrap();
            parked.send(()).unwrap();
            // Acknowledges only after the host has cancelled.
            frames.message().await.unwrap().unwrap();
            out.send(Ok(ack(17))).await.unwrap();
        }
    })
    .await;
    let connection = connect(&address).await;
    let harness = connection.harness();
    let run = tokio::spawn(async move { harness.run(start(), parking()).await });
    seen.recv().await.unwrap();
    connection.cancel_signal().set(CancelReason::User);
    let result = run.await.unwrap();
    assert!(
        matches!(result, Err(HarnessError::Sink(SinkError::Canceled(CancelReason::User)))),
        "{result:?}"
    );
}
