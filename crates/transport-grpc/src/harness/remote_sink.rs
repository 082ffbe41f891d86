//! The sink that a harness gets when its host is at the other end of a stream.

use std::sync::Arc;

use mainspring_api::{
    Entropy, Event, EventBody, EventSink, ExecutionId, Mediation, Message, ModelCall, ModelReply,
    ModelRequest, Signal, SinkError, ToolCall, ToolResult, Usage, async_trait, random_hex,
};
use mainspring_wire::{CallFailure, ControllerFrame, Frame, HistoryRequest, WireError, v1};
use prost::Message as _;
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};
use tokio::task::JoinHandle;
use tonic::Status;

use crate::harness::extensions::HarnessExtensions;
use crate::harness::failure::{self, Called};
use crate::harness::gate;
use crate::harness::link::{LinkError, Stop};
use crate::options::LinkOptions;

/// What the reader pump hands on: a frame, or what was wrong with it.
pub(crate) type Inbound = Result<ControllerFrame, LinkError>;

/// What the response stream sends.
pub(crate) type Outbound = Result<v1::Event, Status>;

/// Effects as events, answered by frames. One effect at a time.
pub(crate) struct RemoteSink {
    session: String,
    execution_id: ExecutionId,
    stop: Signal<Stop>,
    entropy: Arc<dyn Entropy>,
    message_bytes_max: usize,
    agreed: HarnessExtensions,
    exchange: Arc<Mutex<Exchange>>,
}

/// What comes of a call. An inner error is of that call alone, and the harness
/// may handle it; after an outer one no effect is possible.
type Outcome<T> = Result<Result<T, SinkError>, SinkError>;

struct Exchange {
    /// Gone once the run has ended: a sink that somebody kept must not hold
    /// the response stream open.
    out: Option<mpsc::Sender<Outbound>>,
    replies: mpsc::Receiver<Inbound>,
    /// The first failure. Every later call returns it again: after it, host
    /// and harness no longer agree on where the turn is.
    sealed: Option<SinkError>,
}

impl RemoteSink {
    pub(crate) fn new(
        (session, execution_id): (String, ExecutionId),
        (out, replies): (mpsc::Sender<Outbound>, mpsc::Receiver<Inbound>),
        stop: Signal<Stop>,
        options: &LinkOptions,
        agreed: HarnessExtensions,
    ) -> Self {
        Self {
            session,
            execution_id,
            stop,
            entropy: Arc::clone(&options.entropy),
            message_bytes_max: options.message_bytes_max,
            agreed,
            exchange: Arc::new(Mutex::new(Exchange { out: Some(out), replies, sealed: None })),
        }
    }

    /// Lets go of the stream, and tells the failure that the turn met, if any.
    /// Call it after the stop is set, which ends the calls that still wait.
    pub(crate) async fn finish(&self) -> Option<SinkError> {
        let mut exchange = self.exchange.lock().await;
        exchange.out = None;
        exchange.sealed.clone()
    }

    async fn turn(&self) -> Result<OwnedMutexGuard<Exchange>, SinkError> {
        let exchange = tokio::select! {
            biased;
            stop = self.stop.wait() => return Err(stop.into_sink()),
            exchange = Arc::clone(&self.exchange).lock_owned() => exchange,
        };
        match &exchange.sealed {
            Some(error) => Err(error.clone()),
            None => Ok(exchange),
        }
    }

    async fn send(&self, exchange: &Exchange, body: EventBody) -> Result<(), SinkError> {
        let event = Event::in_execution(&self.execution_id, body);
        self.send_event(exchange, v1::Event::try_from(event).map_err(unrecordable)?).await
    }

    async fn send_event(&self, exchange: &Exchange, event: v1::Event) -> Result<(), SinkError> {
        let bytes = event.encoded_len();
        if bytes > self.message_bytes_max {
            return Err(SinkError::TooLarge {
                what: "event",
                bytes: bytes as u64,
                bytes_max: self.message_bytes_max as u64,
            });
        }
        let out = exchange.out.as_ref().ok_or(SinkError::Closed)?;
        tokio::select! {
            biased;
            stop = self.stop.wait() => Err(stop.into_sink()),
            sent = out.send(Ok(event)) => {
                sent.map_err(|_| LinkError::eof().into_sink())
            }
        }
    }

    /// The next frame. A stop that came before it wins over it.
    async fn receive(&self, exchange: &mut Exchange) -> Result<Frame, SinkError> {
        let inbound = tokio::select! {
            biased;
            stop = self.stop.wait() => return Err(stop.into_sink()),
            inbound = exchange.replies.recv() => inbound,
        };
        let frame = inbound
            .ok_or_else(LinkError::eof)
            .and_then(|inbound| inbound)
            .map_err(LinkError::into_sink)?;
        self.check_envelope(&frame).map_err(LinkError::into_sink)?;
        Ok(frame.frame)
    }

    pub(crate) fn check_envelope(&self, frame: &ControllerFrame) -> Result<(), LinkError> {
        if frame.session != self.session {
            return Err(LinkError::protocol("frame of another session"));
        }
        if frame.execution_id != self.execution_id.as_str() {
            return Err(LinkError::protocol("frame with another execution_id"));
        }
        Ok(())
    }

    async fn ask_model(
        &self,
        exchange: &mut Exchange,
        request: ModelRequest,
    ) -> Outcome<ModelReply> {
        let id = random_hex(&*self.entropy, 8);
        let call = ModelCall {
            model: request.model,
            params: request.params,
            input_hash: String::new(),
            id: id.clone(),
            messages: request.messages,
            tools: request.tools,
            tool_choice: request.tool_choice,
        };
        self.send(exchange, EventBody::ModelCall(Some(call))).await?;
        match self.receive(exchange).await? {
            Frame::Model(result) if result.model_call_id == id => Ok(Ok(result.reply)),
            Frame::Model(_) => Err(refuse("completion has the id of another model call")),
            Frame::Failure(failure) => self.failed(&failure, &id, Called::Model),
            other => Err(unexpected("model", &other)),
        }
    }

    async fn ask_tool(&self, exchange: &mut Exchange, call: ToolCall) -> Outcome<ToolResult> {
        let gated = call.mediation == Mediation::RequiresApproval;
        if gated && self.session.is_empty() {
            return self.refused(SinkError::MissingSessionUid);
        }
        if gated && call.id.is_empty() {
            return self.refused(SinkError::InvalidApprovalCall("its id is empty"));
        }
        let id = call.id.clone();
        self.send(exchange, EventBody::ToolCall(Some(call))).await.map_err(
            |error| match error {
                // One fixed text, without any part of the arguments.
                SinkError::Unrecordable(_) => SinkError::InvalidToolArgs,
                other => other,
            },
        )?;
        if gated {
            return self.await_decision(exchange, &id).await;
        }
        match self.receive(exchange).await? {
            Frame::Tool(result) => {
                gate::check_ungated(&result, &id).map_err(LinkError::into_sink)?;
                Ok(Ok(*result))
            }
            Frame::Failure(failure) => self.failed(&failure, &id, Called::Tool),
            other => Err(unexpected("ToolResult", &other)),
        }
    }

    /// Park, or the decision and then its receipt.
    async fn await_decision(&self, exchange: &mut Exchange, id: &str) -> Outcome<ToolResult> {
        let approval = match self.receive(exchange).await? {
            Frame::Park(park) => {
                gate::check_park(&park, self.execution_id.as_str(), id)
                    .map_err(LinkError::into_sink)?;
                return Err(SinkError::Parked(park));
            }
            Frame::Approval(approval) => approval,
            Frame::Failure(failure) => return self.failed(&failure, id, Called::Gate),
            other => return Err(unexpected("approval or park", &other)),
        };
        gate::check_approval(&approval, id).map_err(LinkError::into_sink)?;
        match self.receive(exchange).await? {
            Frame::Tool(mut result) => {
                gate::check_receipt(&result, &approval, id).map_err(LinkError::into_sink)?;
                result.decision = Some(approval);
                Ok(Ok(*result))
            }
            other => Err(unexpected("ToolResult", &other)),
        }
    }

    /// A call that is refused on this side, where the host would refuse it
    /// before recording anything.
    fn refused<T>(&self, error: SinkError) -> Outcome<T> {
        if self.agreed.failure_replies { Ok(Err(error)) } else { Err(error) }
    }

    /// A failure that the host answers with.
    fn failed<T>(&self, failure: &CallFailure, id: &str, called: Called) -> Outcome<T> {
        if !self.agreed.failure_replies {
            return Err(refuse("failure replies were not agreed on"));
        }
        if failure.call_id != id {
            return Err(refuse("correlation: failure has the id of another call"));
        }
        Ok(Err(failure::received(failure, called)))
    }

    /// Events from the 0-based index `from` on, of the `len` that there are.
    pub(crate) async fn history(
        &self,
        from: u64,
        limit: usize,
        len: u64,
    ) -> Result<Vec<Event>, SinkError> {
        let mut exchange = self.turn().await?;
        let result = self.ask_history(&mut exchange, from, limit, len).await;
        settle(&mut exchange, result)
    }

    async fn ask_history(
        &self,
        exchange: &mut Exchange,
        from: u64,
        limit: usize,
        len: u64,
    ) -> Result<Vec<Event>, SinkError> {
        // Below `len`, which came as an i64.
        let from_seq = i64::try_from(from + 1).map_err(|_| refuse("history is too long"))?;
        let request = HistoryRequest { from_seq, limit: i32::try_from(limit).unwrap_or(i32::MAX) };
        self.send_event(exchange, request.in_execution(&self.execution_id)).await?;
        let page = match self.receive(exchange).await? {
            Frame::HistoryPage(page) => page,
            other => return Err(unexpected("history_page", &other)),
        };
        let next = from + page.events.len() as u64;
        let fits = page.from_seq == from_seq
            && (1..=limit).contains(&page.events.len())
            && next <= len
            && page.end == (next == len);
        if fits { Ok(page.events) } else { Err(refuse("page of the history is another one")) }
    }
}

fn unrecordable(error: WireError) -> SinkError {
    SinkError::Unrecordable(error.to_string())
}

fn refuse(rule: &str) -> SinkError {
    LinkError::protocol(rule).into_sink()
}

fn unexpected(expected: &str, frame: &Frame) -> SinkError {
    refuse(&format!("expected {expected}, got {}", frame.name()))
}

/// Keeps the first failure. That the run has returned is none.
fn settle<T>(exchange: &mut Exchange, result: Result<T, SinkError>) -> Result<T, SinkError> {
    if let Err(error) = &result
        && !matches!(error, SinkError::Closed)
    {
        exchange.sealed = Some(error.clone());
    }
    result
}

/// The same for a call, whose own failure is not kept.
fn settle_call<T>(exchange: &mut Exchange, outcome: Outcome<T>) -> Result<T, SinkError> {
    settle(exchange, outcome).and_then(|own| own)
}

/// The sink that a run is given.
///
/// A call that has an answer is made in its own task: one that is dropped half
/// way must leave no answer behind that the next call would take for its own.
pub(crate) struct RunSink(pub(crate) Arc<RemoteSink>);

/// Waits for the rest of a call.
async fn answered<T>(call: JoinHandle<Result<T, SinkError>>) -> Result<T, SinkError> {
    call.await.unwrap_or(Err(SinkError::Closed))
}

#[async_trait]
impl EventSink for RunSink {
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError> {
        let mut exchange = self.0.turn().await?;
        let sink = Arc::clone(&self.0);
        answered(tokio::spawn(async move {
            let outcome = sink.ask_model(&mut exchange, request).await;
            settle_call(&mut exchange, outcome)
        }))
        .await
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        let mut exchange = self.0.turn().await?;
        let body = EventBody::Output(Some(Message::assistant(text)));
        let result = self.0.send(&exchange, body).await;
        settle(&mut exchange, result)
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        let mut exchange = self.0.turn().await?;
        let sink = Arc::clone(&self.0);
        answered(tokio::spawn(async move {
            let outcome = sink.ask_tool(&mut exchange, call).await;
            settle_call(&mut exchange, outcome)
        }))
        .await
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        let mut exchange = self.0.turn().await?;
        let result = if gate::carries_receipt(&result) {
            Err(SinkError::ApprovalReceiptReport)
        } else {
            let body = EventBody::ToolResult(Some(result));
            self.0.send(&exchange, body).await
        };
        settle(&mut exchange, result)
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        let mut exchange = self.0.turn().await?;
        let result = self.0.send(&exchange, EventBody::Usage(Some(usage))).await;
        settle(&mut exchange, result)
    }
}
