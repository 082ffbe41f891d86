//! One execution over one stream, seen from the host.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    ApprovalRef, CancelReason, EndState, Event, EventBody, EventSink, ExecutionId, HarnessEnd,
    HarnessError, History, Mediation, ModelCall, ModelRequest, Signal, SinkError, ToolCall,
};
use mainspring_wire::{ControllerFrame, Frame, HistoryRequest, ModelResult, v1};
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::{Response, Status, Streaming};

use crate::harness::client::failure;
use crate::harness::event::{protocol, read, refused_there, text_only, unreadable};
use crate::harness::extensions::Agreement;
use crate::harness::failure::{self as failures, Called};
use crate::harness::history;

/// How long a harness may take to stop after a `cancel` frame, and to close
/// its stream after its end.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How long a harness may take to unwind after a `park` frame.
const PARK_GRACE: Duration = Duration::from_secs(30);

/// What a page costs in its frame beside its events: two tags, two lengths, its
/// position and its end.
const PAGE_FRAMING: usize = 32;

pub(crate) struct Bridge {
    session: String,
    execution_id: ExecutionId,
    to_harness: Option<mpsc::Sender<v1::ControllerFrame>>,
    sink: Arc<dyn EventSink>,
    cancel: Signal<CancelReason>,
    terms: Terms,
    /// The last failed call that was answered, as an agent says it that does
    /// not handle it.
    answered: Option<(String, SinkError)>,
}

/// What holds for this stream.
pub(crate) struct Terms {
    pub(crate) message_bytes_max: usize,
    pub(crate) agreed: Agreement,
    /// Every event before this execution.
    pub(crate) history: Arc<dyn History>,
}

impl Bridge {
    pub(crate) fn new(
        (session, execution_id): (String, ExecutionId),
        to_harness: mpsc::Sender<v1::ControllerFrame>,
        sink: Arc<dyn EventSink>,
        cancel: Signal<CancelReason>,
        terms: Terms,
    ) -> Self {
        Self {
            session,
            execution_id,
            to_harness: Some(to_harness),
            sink,
            cancel,
            terms,
            answered: None,
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
            Ok(opened) => {
                let opened = opened.map_err(|status| failure(&status))?;
                self.terms.agreed.check(opened.metadata()).map_err(|rule| {
                    HarnessError::DescriptorMismatch { message: rule.to_owned() }
                })?;
                opened.into_inner()
            }
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
            if let Some(request) = HistoryRequest::of(&event).map_err(unreadable)? {
                self.history(request).await?;
                continue;
            }
            match self.handle(read(event)?).await? {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(Finish::Ended) => return self.close(events).await,
                ControlFlow::Break(Finish::Parked(park)) => {
                    self.hand_off(events, &park).await?;
                    return Err(SinkError::Parked(park).into());
                }
                ControlFlow::Break(Finish::Failed(error)) => {
                    return Err(self.refusal(events).await.map_or(error, HarnessError::Sink));
                }
            }
        }
    }

    /// The next event, checked to be of this execution. A cancellation that
    /// came first wins.
    async fn next(
        &self,
        events: &mut Streaming<v1::Event>,
    ) -> Result<Option<v1::Event>, HarnessError> {
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
        Ok(Some(message))
    }

    /// Answers with a page, which is all of the history that is held here.
    async fn history(&self, request: HistoryRequest) -> Result<(), HarnessError> {
        if !self.terms.agreed.extensions.history_range {
            return Err(protocol("history was asked for by range, which was not agreed on"));
        }
        let mut frame = v1::ControllerFrame {
            session: self.session.clone(),
            execution_id: self.execution_id.to_string(),
            frame: None,
        };
        let room = self.terms.message_bytes_max.saturating_sub(frame.encoded_len() + PAGE_FRAMING);
        let page = history::page(&*self.terms.history, request, room);
        let page = self.unless_cancelled(page).await?;
        frame.frame = Some(v1::controller_frame::Frame::HistoryPage(page));
        self.unless_cancelled(self.send_frame(frame)).await
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
            EventBody::End(Some(end)) => return self.ended(end),
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
        let reply = match self.sink.model(request).await {
            Ok(reply) => reply,
            Err(error) => return self.fail(call.id, error, Called::Model).await,
        };
        let result = ModelResult { model_call_id: call.id, reply };
        self.send(Frame::Model(Box::new(result))).await
    }

    async fn tool(&mut self, call: ToolCall) -> Result<ControlFlow<Finish>, HarnessError> {
        if call.mediation == Mediation::RequiresApproval
            && (self.session.is_empty() || call.id.is_empty())
        {
            return Err(protocol("gated tool call without a session or an id"));
        }
        let called = match call.mediation {
            Mediation::RequiresApproval => Called::Gate,
            _ => Called::Tool,
        };
        let id = call.id.clone();
        let mut result = match self.sink.tool_call(call).await {
            Ok(result) => result,
            Err(SinkError::Parked(park)) => {
                self.send(Frame::Park(park.clone())).await?;
                return Ok(ControlFlow::Break(Finish::Parked(park)));
            }
            Err(error) => {
                self.fail(id, error, called).await?;
                return Ok(ControlFlow::Continue(()));
            }
        };
        if let Some(decision) = result.decision.take() {
            self.send(Frame::Approval(decision)).await?;
        }
        self.send(Frame::Tool(Box::new(result))).await?;
        Ok(ControlFlow::Continue(()))
    }

    /// Answers a failed call that the harness may handle; any other failure
    /// ends the stream.
    async fn fail(
        &mut self,
        call_id: String,
        error: SinkError,
        called: Called,
    ) -> Result<(), HarnessError> {
        let answered = self.terms.agreed.extensions.failure_replies;
        if !answered || !failures::is_handleable(&error, called) {
            return Err(error.into());
        }
        let failure = failures::to_frame(call_id, &error);
        self.answered = Some((failures::unhandled_text(&failure, called), error));
        self.send(Frame::Failure(failure)).await
    }

    /// A harness that fails with the very words of a failed call did not handle
    /// it: then the turn fails with that error itself, as in process.
    fn ended(&mut self, end: HarnessEnd) -> Result<ControlFlow<Finish>, HarnessError> {
        if end.end_state() == Some(EndState::Completed) {
            return Ok(ControlFlow::Break(Finish::Ended));
        }
        let description = end.error.map(|error| error.description).unwrap_or_default();
        match self.answered.take() {
            Some((text, error)) if text == description => return Err(error.into()),
            _ => {}
        }
        let failed = HarnessError::failed(if description.is_empty() {
            format!("harness ended with state {:?}", end.state)
        } else {
            description
        });
        Ok(ControlFlow::Break(Finish::Failed(failed)))
    }

    /// What the harness's side of the bridge refused, if that is why it failed.
    /// The status behind the end says so.
    async fn refusal(&mut self, events: &mut Streaming<v1::Event>) -> Option<SinkError> {
        self.to_harness = None;
        match tokio::time::timeout(CLOSE_GRACE, events.message()).await {
            Ok(Err(status)) => refused_there(&status),
            _ => None,
        }
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
                Some(event) => read(event)?,
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
                    event.kind().as_str_name()
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

    async fn send(&self, frame: Frame) -> Result<(), HarnessError> {
        self.unless_cancelled(self.send_anyway(frame)).await
    }

    async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, HarnessError>>,
    ) -> Result<T, HarnessError> {
        tokio::select! {
            biased;
            reason = self.cancel.wait() => Err(SinkError::Canceled(reason).into()),
            done = work => done,
        }
    }

    async fn send_anyway(&self, frame: Frame) -> Result<(), HarnessError> {
        let frame = v1::ControllerFrame::try_from(ControllerFrame {
            session: self.session.clone(),
            execution_id: self.execution_id.to_string(),
            frame,
        })
        .map_err(|error| protocol(format!("frame cannot be sent: {error}")))?;
        self.send_frame(frame).await
    }

    async fn send_frame(&self, frame: v1::ControllerFrame) -> Result<(), HarnessError> {
        let bytes = frame.encoded_len();
        let bytes_max = self.terms.message_bytes_max;
        if bytes > bytes_max {
            return Err(protocol(format!(
                "frame of {bytes} bytes, the harness connection takes {bytes_max}"
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

/// How a conversation finishes.
enum Finish {
    Ended,
    Failed(HarnessError),
    Parked(ApprovalRef),
}

async fn drain(events: &mut Streaming<v1::Event>) {
    while let Ok(Some(_)) = events.message().await {}
}
