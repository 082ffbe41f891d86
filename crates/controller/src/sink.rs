//! The sink that a run is given: the machine's decisions, carried out in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use mainspring_api::{
    Delta, EventBody, EventSink, Message, ModelCall, ModelProvider, ModelReply, ModelRequest,
    Signal, SinkError, ToolCall, ToolResult, Usage, random_hex,
};
use mainspring_eventlog::{LogError, NewRecord, input_hash};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::unconstrained;

use crate::machine::{Closing, Machine, ModelStep, Step};
use crate::recorded::{USAGE_NOTE, normalise, usage_note};
use crate::writer::{Tag, Writer};

tokio::task_local! {
    /// The run whose callback this task is inside of.
    static INSIDE: usize;
}

/// The sink of one run. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct RunSink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// One complete effect at a time, in lock order.
    guarded: Arc<Mutex<Guarded>>,
    tag: Tag,
    model: Option<Arc<dyn ModelProvider>>,
    model_calls: Arc<AtomicU64>,
    /// Set when the run is given up: abandons the call in flight.
    abandon: Signal<()>,
}

#[derive(Debug)]
struct Guarded {
    machine: Machine,
    writer: Option<Writer>,
}

impl RunSink {
    /// A sink that serves and records.
    pub(crate) fn live(
        machine: Machine,
        tag: Tag,
        writer: Writer,
        model: Arc<dyn ModelProvider>,
        model_calls: Arc<AtomicU64>,
    ) -> Self {
        let guarded = Arc::new(Mutex::new(Guarded { machine, writer: Some(writer) }));
        let abandon = Signal::default();
        Self(Arc::new(Inner { guarded, tag, model: Some(model), model_calls, abandon }))
    }

    /// A sink that only serves: there is no writer and no model to reach.
    pub(crate) fn replay(machine: Machine, tag: Tag) -> Self {
        let guarded = Arc::new(Mutex::new(Guarded { machine, writer: None }));
        let (model_calls, abandon) = (Arc::default(), Signal::default());
        Self(Arc::new(Inner { guarded, tag, model: None, model_calls, abandon }))
    }

    /// Gives the run up: a call in flight fails, what it recorded stays.
    pub(crate) fn abandon(&self) {
        self.0.abandon.set(());
    }

    /// Waits for the effect in flight, then refuses every later one.
    pub(crate) async fn close(&self) -> (Closing, Option<Writer>) {
        let mut guarded = self.0.guarded.lock().await;
        (guarded.machine.close(), guarded.writer.take())
    }

    /// Runs an effect to its end even if the harness drops the call half way:
    /// what was begun is recorded, and no append is cut.
    ///
    /// The effect queues for its turn when the call is first polled, so that
    /// the journal has the order in which the harness made its calls, dropped
    /// ones too. It waits in its own task, so that a call that nobody polls any
    /// more stands in nobody's way.
    async fn whole<T, F>(
        &self,
        effect: impl FnOnce(Arc<Inner>, OwnedMutexGuard<Guarded>) -> F + Send + 'static,
    ) -> Result<T, SinkError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SinkError>> + Send + 'static,
    {
        let run = Arc::as_ptr(&self.0) as usize;
        if INSIDE.try_with(|inside| *inside == run).unwrap_or(false) {
            return Err(SinkError::Reentered);
        }
        let inner = Arc::clone(&self.0);
        // A spent budget of this task must not cost the effect its place.
        let mut turn = Box::pin(unconstrained(Arc::clone(&inner.guarded).lock_owned()));
        let queued = futures_util::poll!(turn.as_mut());
        let task = tokio::spawn(async move {
            let guarded = match queued {
                Poll::Ready(guarded) => guarded,
                Poll::Pending => turn.await,
            };
            effect(inner, guarded).await
        });
        match task.await {
            Ok(result) => result,
            Err(_) => Err(SinkError::Unrecordable("the effect panicked".to_owned())),
        }
    }
}

#[async_trait]
impl EventSink for RunSink {
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError> {
        self.whole(|inner, guarded| async move { inner.model(guarded, request).await }).await
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        self.whole(|inner, mut guarded| async move {
            if guarded.machine.output(&text)? == Step::Record {
                let body = EventBody::Output(Some(Message::assistant(text)));
                guarded.record(inner.tag.event(body).into()).await?;
            }
            Ok(())
        })
        .await
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        self.whole(|_, mut guarded| async move {
            match guarded.machine.tool_call(&call) {
                Err(error) => Err(error),
                Ok(never) => match never {},
            }
        })
        .await
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        self.whole(|inner, mut guarded| async move {
            if guarded.machine.report(&result)? == Step::Record {
                let body = EventBody::ToolResult(Some(result));
                guarded.record(inner.tag.event(body).into()).await?;
            }
            Ok(())
        })
        .await
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        self.whole(|inner, mut guarded| async move {
            if guarded.machine.usage(&usage)? == Step::Record {
                let body = EventBody::Usage(Some(usage));
                guarded.record(inner.tag.event(body).into()).await?;
            }
            Ok(())
        })
        .await
    }
}

impl Inner {
    async fn model(
        self: &Arc<Self>,
        mut guarded: OwnedMutexGuard<Guarded>,
        request: ModelRequest,
    ) -> Result<ModelReply, SinkError> {
        let hash = input_hash(&request)
            .map_err(|error| SinkError::Unrecordable(error.to_string()))?
            .to_string();
        let record_intent = match guarded.machine.model(&hash)? {
            ModelStep::Served(reply) => return Ok(*reply),
            ModelStep::Call { record_intent } => record_intent,
        };
        if record_intent {
            let call = ModelCall {
                model: request.model.clone(),
                input_hash: hash,
                id: random_hex(&*guarded.writer()?.entropy, 8),
                ..ModelCall::default()
            };
            guarded.record(self.tag.event(EventBody::ModelCall(Some(call))).into()).await?;
        }
        let observer = Arc::clone(&guarded.writer()?.observer);
        let run = Arc::as_ptr(self) as usize;
        let called = INSIDE.scope(run, self.call_model(&request, &*observer)).await?;
        self.model_calls.fetch_add(1, Ordering::Relaxed);
        guarded.record_completion(&self.tag, called).await
    }

    async fn call_model(
        &self,
        request: &ModelRequest,
        observer: &dyn crate::observer::Observer,
    ) -> Result<ModelReply, SinkError> {
        let Some(model) = &self.model else {
            return Err(SinkError::Unsupported("a model call on replay"));
        };
        let delta = |chunk: &str, done| {
            observer.on_delta(Delta {
                execution_id: self.tag.id().clone(),
                part_index: 0,
                chunk: chunk.to_owned(),
                done,
            });
        };
        let answered = async {
            match model.streaming() {
                None => model.complete(request).await,
                Some(streaming) => {
                    let mut on_chunk = |chunk: &str| {
                        if !chunk.is_empty() {
                            delta(chunk, false);
                        }
                    };
                    let reply = streaming.stream(request, &mut on_chunk).await;
                    if reply.is_ok() {
                        delta("", true);
                    }
                    reply
                }
            }
        };
        tokio::select! {
            biased;
            () = self.abandon.wait() => Err(SinkError::Interrupted),
            reply = answered => reply.map_err(|error| SinkError::failed(Arc::new(error))),
        }
    }
}

impl Guarded {
    fn writer(&mut self) -> Result<&mut Writer, SinkError> {
        self.writer.as_mut().ok_or(SinkError::Closed)
    }

    async fn record(&mut self, record: NewRecord) -> Result<mainspring_api::LogRecord, SinkError> {
        let written = self.writer()?.append_one(record).await;
        written.map_err(refused)
    }

    /// Records a completion and returns it in its recorded form.
    async fn record_completion(
        &mut self,
        tag: &Tag,
        mut reply: ModelReply,
    ) -> Result<ModelReply, SinkError> {
        normalise(&mut reply.message);
        let mut record = NewRecord::from(tag.event(EventBody::Output(Some(reply.message.clone()))));
        if let Some(note) = usage_note(&reply) {
            record.notes.insert(USAGE_NOTE.to_owned(), note);
        }
        let written = self.record(record).await?;
        match written.event.body {
            EventBody::Output(Some(message)) => Ok(ModelReply { message, usage: reply.usage }),
            _ => unreachable!("an output reads back as an output"),
        }
    }
}

fn refused(error: LogError) -> SinkError {
    match error {
        LogError::TooLarge { what, bytes, bytes_max } => {
            SinkError::TooLarge { what, bytes, bytes_max }
        }
        LogError::Unrecordable(error) => SinkError::Unrecordable(error.to_string()),
        other => SinkError::failed(Arc::new(other)),
    }
}
