//! One execution over one stream, seen from the host.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    ApprovalRef, CancelReason, EndState, Event, EventBody, EventSink, ExecutionId, HarnessEnd,
    HarnessError, Mediation, Message, ModelCall, ModelRequest, Part, Signal, SinkError, ToolCall,
};
use mainspring_wire::{ControllerFrame, Frame, ModelResult, v1};
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::{Response, Status, Streaming};

use crate::harness::client::failure;

/// How long a harness may take to stop after a `cancel` frame, and to close
/// its stream after its end.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How long a harness may take to unwind after a `park` frame.
const PARK_GRACE: Duration = Duration::from_secs(30);

pub(crate) struct Bridge {
    session: String,
    execution_id: ExecutionId,
    to_harness: Option<mpsc::Sender<v1::ControllerFrame>>,
    sink: Arc<dyn EventSink>,
    cancel: Signal<CancelReason>,
    message_bytes_max: usize,
}

fn protocol(rule: impl Into<String>) -> HarnessError {
    HarnessError::Protocol { message: rule.into() }
}

impl Bridge {
    pub(crate) fn new(
        (session, execution_id): (String, ExecutionId),
        to_harness: mpsc::Sender<v1::ControllerFrame>,
        sink: Arc<dyn EventSink>,
        cancel: Signal<CancelReason>,
        message_bytes_max: usize,
    ) -> Self {
        Self {
            session,
            execution_id,
            to_harness: Some(to_harness),
            sink,
            cancel,
            message_bytes_max,
        }
    }

    /// Runs the execution. The headers of the answer may come only with the
    /// first event, so a cancellation has to be able to come before them.
    pub(crate) async fn drive(
        &mut self,
        opening: impl Future<Output = Result<Response<Streaming<v1::Event>>, Status>>,
    ) -> Result<(), HarnessError> {
        let mut opening = std::pin::pin!(opening);
        let opened = tokio::select! {
            biased;
            reason = self.cancel.wait() => Err(reason),
            opened = &mut opening => Ok(opened),
        };
        let mut events = match opened {
            Ok(opened) => opened.map_err(|status| failure(&status))?.into_inner(),
            Err(reason) => {
                let closing = async {
                    if let Ok(opened) = opening.await {
                        drain(&mut opened.into_inner()).await;
                    }
                };
                self.stop(reason, closing).await;
                return Err(SinkError::Canceled(reason).into());
            }
        };
        let result = self.converse(&mut events).await;
        if let Err(HarnessError::Sink(SinkError::Canceled(reason))) = &result {
            self.stop(*reason, drain(&mut events)).await;
        }
        // The events are dropped here; a stream that is still open is cancelled by that.
        result
    }

    /// Asks the harness to stop, and gives it a moment to do so.
    async fn stop(&mut self, reason: CancelReason, closing: impl Future<Output = ()>) {
        let _ = tokio::time::timeout(CLOSE_GRACE, async {
            // A stream that takes no frame any more has stopped already.
            if self.send_anyway(Frame::Cancel(reason)).await.is_ok() {
                self.to_harness = None;
                closing.await;
            }
        })
        .await;
    }

    async fn converse(&mut self, events: &mut Streaming<v1::Event>) -> Result<(), HarnessError> {
        loop {
            let Some(event) = self.next(events).await? else {
                return Err(protocol("harness closed without END"));
            };
            match self.handle(event).await? {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(Finish::Ended) => return self.close(events).await,
                ControlFlow::Break(Finish::Parked(park)) => {
                    self.hand_off(events, &park).await?;
                    return Err(SinkError::Parked(park).into());
                }
            }
        }
    }

    /// The next event, checked to be of this execution. A cancellation that
    /// came first wins.
    async fn next(&self, events: &mut Streaming<v1::Event>) -> Result<Option<Event>, HarnessError> {
        let message = tokio::select! {
            biased;
            reason = self.cancel.wait() => return Err(SinkError::Canceled(reason).into()),
            message = events.message() => message.map_err(|status| failure(&status))?,
        };
        let Some(message) = message else {
            return Ok(None);
        };
        if message.execution_id != self.execution_id.as_str() {
            return Err(protocol("event of another execution"));
        }
        let event = Event::try_from(message).map_err(|error| protocol(error.to_string()))?;
        Ok(Some(event))
    }

    async fn handle(&mut self, event: Event) -> Result<ControlFlow<Finish>, HarnessError> {
        let kind = event.kind();
        match event.body {
            EventBody::ModelCall(Some(call)) => self.model(call).await?,
            EventBody::Output(Some(message)) => {
                let text = text_only(&message)?;
                self.sink.output(text).await?;
            }
            EventBody::ToolCall(Some(call)) => return self.tool(call).await,
            EventBody::ToolResult(Some(result)) => self.sink.report(result).await?,
            EventBody::Usage(Some(usage)) => self.sink.usage(usage).await?,
            EventBody::End(Some(end)) => return ended(end),
            EventBody::ModelCall(None)
            | EventBody::Output(None)
            | EventBody::ToolCall(None)
            | EventBody::ToolResult(None)
            | EventBody::Usage(None)
            | EventBody::End(None) => {
                return Err(protocol(format!("{} without its body", kind.name())));
            }
            EventBody::Unspecified
            | EventBody::Input(_)
            | EventBody::ApprovalRequest(_)
            | EventBody::ApprovalResult(_)
            | EventBody::Lifecycle(_)
            | EventBody::Error(_)
            | EventBody::ExecutionStart(_)
            | EventBody::Parked(_) => {
                return Err(protocol(format!("{} is not for a harness to send", kind.name())));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn model(&mut self, call: ModelCall) -> Result<(), HarnessError> {
        if call.id.is_empty() {
            return Err(protocol("model call without an id"));
        }
        let request = ModelRequest {
            model: call.model,
            messages: call.messages,
            params: call.params,
            tools: call.tools,
            tool_choice: call.tool_choice,
        };
        let reply = self.sink.model(request).await?;
        let result = ModelResult { model_call_id: call.id, reply };
        self.send(Frame::Model(Box::new(result))).await
    }

    async fn tool(&mut self, call: ToolCall) -> Result<ControlFlow<Finish>, HarnessError> {
        if call.mediation == Mediation::RequiresApproval
            && (self.session.is_empty() || call.id.is_empty())
        {
            return Err(protocol("gated tool call without a session or an id"));
        }
        let mut result = match self.sink.tool_call(call).await {
            Ok(result) => result,
            Err(SinkError::Parked(park)) => {
                self.send(Frame::Park(park.clone())).await?;
                return Ok(ControlFlow::Break(Finish::Parked(park)));
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(decision) = result.decision.take() {
            self.send(Frame::Approval(decision)).await?;
        }
        self.send(Frame::Tool(Box::new(result))).await?;
        Ok(ControlFlow::Continue(()))
    }

    /// A park is handed off by exactly its acknowledgement and a clean end.
    async fn hand_off(
        &self,
        events: &mut Streaming<v1::Event>,
        park: &ApprovalRef,
    ) -> Result<(), HarnessError> {
        let handing_off = async {
            let acknowledged = match self.next(events).await? {
                None => return Err(protocol("harness closed without acknowledging the park")),
                Some(event) => event,
            };
            if acknowledged.body != EventBody::Parked(Some(park.clone())) {
                return Err(protocol(format!(
                    "{} instead of the acknowledgement of the park",
                    acknowledged.kind().name()
                )));
            }
            match self.next(events).await? {
                None => Ok(()),
                Some(event) => Err(protocol(format!(
                    "{} after the acknowledgement of the park",
                    event.kind().name()
                ))),
            }
        };
        match tokio::time::timeout(PARK_GRACE, handing_off).await {
            Ok(result) => result,
            Err(_) => {
                Err(HarnessError::Deadline { message: "acknowledgement of the park".to_owned() })
            }
        }
    }

    /// After its end the harness sends nothing more. One that leaves its
    /// stream open is not waited for.
    async fn close(&mut self, events: &mut Streaming<v1::Event>) -> Result<(), HarnessError> {
        self.to_harness = None;
        match tokio::time::timeout(CLOSE_GRACE, events.message()).await {
            Ok(Ok(Some(_))) => Err(protocol("event after END")),
            _ => Ok(()),
        }
    }

    async fn send(&mut self, frame: Frame) -> Result<(), HarnessError> {
        tokio::select! {
            biased;
            reason = self.cancel.wait() => Err(SinkError::Canceled(reason).into()),
            sent = self.send_anyway(frame) => sent,
        }
    }

    async fn send_anyway(&self, frame: Frame) -> Result<(), HarnessError> {
        let frame = v1::ControllerFrame::try_from(ControllerFrame {
            session: self.session.clone(),
            execution_id: self.execution_id.to_string(),
            frame,
        })
        .map_err(|error| protocol(format!("frame cannot be sent: {error}")))?;
        let bytes = frame.encoded_len();
        if bytes > self.message_bytes_max {
            return Err(protocol(format!(
                "frame of {bytes} bytes, the harness connection takes {}",
                self.message_bytes_max
            )));
        }
        let Some(to_harness) = &self.to_harness else {
            return Ok(());
        };
        // A stream that has ended says why when it is read next.
        let _ = to_harness.send(frame).await;
        Ok(())
    }
}

/// How a conversation finishes without a failure.
enum Finish {
    Ended,
    Parked(ApprovalRef),
}

fn ended(end: HarnessEnd) -> Result<ControlFlow<Finish>, HarnessError> {
    if end.end_state() == Some(EndState::Completed) {
        return Ok(ControlFlow::Break(Finish::Ended));
    }
    let description = end.error.map(|error| error.description).unwrap_or_default();
    Err(HarnessError::failed(if description.is_empty() {
        format!("harness ended with state {:?}", end.state)
    } else {
        description
    }))
}

/// The text of an output. Parts that would be lost fail the turn by name.
fn text_only(message: &Message) -> Result<String, HarnessError> {
    let other = message.parts.iter().find_map(|part| match part {
        Part::Text(_) => None,
        Part::Empty => Some("an empty"),
        Part::File(_) => Some("a file"),
        Part::Data(_) => Some("a data"),
        Part::Reasoning(_) => Some("a reasoning"),
        Part::ToolCall(_) => Some("a tool call"),
        Part::ToolResult(_) => Some("a tool result"),
    });
    match other {
        None => Ok(message.plain_text()),
        Some(part) => Err(protocol(format!("output has {part} part; only text can be recorded"))),
    }
}

async fn drain(events: &mut Streaming<v1::Event>) {
    while let Ok(Some(_)) = events.message().await {}
}
