//! The sink that a run is given: the machine's decisions, carried out in order.

mod model;
mod tool;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use mainspring_api::{
    Clock, EventBody, EventSink, Harness, LogRecord, Message, ModelProvider, ModelReply,
    ModelRequest, SessionUid, Signal, SinkError, ToolCall, ToolExecutor, ToolResult, Usage,
};
use mainspring_eventlog::{LogError, NewRecord};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::unconstrained;
use tracing::Span;

use crate::controller::{ApprovedRetry, Counters};
use crate::machine::{Closing, Machine, Step};
use crate::recorded::REPORTED_NOTE;
use crate::run::TurnStop;
use crate::tape::Tape;
use crate::writer::{Tag, Writer};

tokio::task_local! {
    /// The run whose callback this task is inside of.
    static INSIDE: usize;
}

/// The sink of one run. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct RunSink(Arc<Inner>);

/// What effects are carried out with.
pub(crate) struct Means {
    pub(crate) tag: Tag,
    pub(crate) session: Option<SessionUid>,
    pub(crate) model: Option<Arc<dyn ModelProvider>>,
    pub(crate) tools: Option<Arc<dyn ToolExecutor>>,
    /// Is described when the machine has to know, and was not told.
    pub(crate) harness: Option<Arc<dyn Harness>>,
    pub(crate) approved_retry: ApprovedRetry,
    pub(crate) approval_ttl: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    /// The host's word that the turn is to stop.
    pub(crate) stop: Signal<TurnStop>,
    /// The live run that effects happen in; none on replay.
    pub(crate) span: Span,
    /// Is given the text of each recorded output that is served.
    pub(crate) on_output: Option<Arc<dyn Fn(String) + Send + Sync>>,
}

struct Inner {
    /// One complete effect at a time, in lock order.
    guarded: Arc<Mutex<Guarded>>,
    means: Means,
    /// Set when the run is given up: abandons the call in flight.
    abandon: Signal<()>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("tag", &self.means.tag).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Guarded {
    machine: Machine,
    /// What is recorded beyond the machine's window.
    tape: Option<Tape>,
    /// None on replay: there is nothing to write with.
    writer: Option<Writer>,
}

impl RunSink {
    /// A sink that serves what `tape` holds, and records if it has a writer.
    pub(crate) fn new(
        machine: Machine,
        tape: Option<Tape>,
        writer: Option<Writer>,
        means: Means,
    ) -> Self {
        let guarded = Arc::new(Mutex::new(Guarded { machine, tape, writer }));
        Self(Arc::new(Inner { guarded, means, abandon: Signal::default() }))
    }

    /// The span of this run.
    pub(crate) fn span(&self) -> Span {
        self.0.means.span.clone()
    }

    /// Gives the run up: a call in flight fails, what it recorded stays.
    pub(crate) fn abandon(&self) {
        self.0.abandon.set(());
    }

    /// Waits until no effect is in flight.
    pub(crate) async fn quiet(&self) {
        drop(self.0.guarded.lock().await);
    }

    /// Waits for the effect in flight, then refuses every later one.
    pub(crate) async fn close(&self) -> (Closing, Option<Writer>) {
        let mut guarded = self.0.guarded.lock().await;
        // What was not asked for may lie beyond the window.
        guarded.refill().await;
        guarded.tape = None;
        let mut closing = guarded.machine.close();
        // The call that was given up was refused, whatever the harness made of it.
        let given_up = self.0.abandon.get().is_some() && self.0.means.stop.get().is_some();
        closing.latched |= given_up;
        (closing, guarded.writer.take())
    }

    /// Runs an effect to its end even if the harness drops the call half way:
    /// what was begun is recorded, and no append is cut.
    ///
    /// It is for effects that run a model or a tool, which may hold up a thread:
    /// they have a task of their own from the beginning, unless this run only
    /// serves what is recorded.
    async fn whole<T, F>(
        &self,
        effect: impl FnOnce(Arc<Inner>, OwnedMutexGuard<Guarded>) -> F + Send + 'static,
    ) -> Result<T, SinkError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SinkError>> + Send + 'static,
    {
        if self.0.only_serves() {
            return self.begun_here(effect).await;
        }
        let effect = self.queued(effect).await?;
        tokio::spawn(effect).await.unwrap_or_else(|_| Err(panicked()))
    }

    /// As [`RunSink::whole`], for effects that run nobody else's code: the call
    /// itself begins them, and only what has to wait is given a task.
    async fn begun_here<T, F>(
        &self,
        effect: impl FnOnce(Arc<Inner>, OwnedMutexGuard<Guarded>) -> F + Send + 'static,
    ) -> Result<T, SinkError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SinkError>> + Send + 'static,
    {
        let mut effect = Box::pin(AssertUnwindSafe(self.queued(effect).await?).catch_unwind());
        let ended = match futures_util::poll!(effect.as_mut()) {
            // A harness that never has to wait must let its deadline be seen.
            Poll::Ready(ended) => {
                tokio::task::consume_budget().await;
                ended
            }
            Poll::Pending => tokio::spawn(effect).await.unwrap_or_else(|_| Ok(Err(panicked()))),
        };
        ended.unwrap_or_else(|_| Err(panicked()))
    }

    /// The effect, in its place: it queues for its turn when the call is first
    /// polled, so that the journal has the order in which the harness made its
    /// calls, dropped ones too. It waits in a task, so that a call that nobody
    /// polls any more stands in nobody's way.
    async fn queued<T, F>(
        &self,
        effect: impl FnOnce(Arc<Inner>, OwnedMutexGuard<Guarded>) -> F + Send + 'static,
    ) -> Result<impl Future<Output = Result<T, SinkError>> + Send + 'static, SinkError>
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
        Ok(async move {
            let mut guarded = match queued {
                Poll::Ready(guarded) => guarded,
                Poll::Pending => turn.await,
            };
            match (inner.means.stop.get(), inner.abandon.get()) {
                (Some(stop), _) => guarded.machine.latch(stop),
                // What waited behind the call that was given up comes too late.
                (None, Some(())) => guarded.machine.refuse_late(),
                (None, None) => {}
            }
            guarded.refill().await;
            effect(inner, guarded).await
        })
    }
}

#[async_trait]
impl EventSink for RunSink {
    async fn model(&self, request: ModelRequest) -> Result<ModelReply, SinkError> {
        self.whole(|inner, guarded| async move { inner.model(guarded, request).await }).await
    }

    async fn output(&self, text: String) -> Result<(), SinkError> {
        self.begun_here(|inner, mut guarded| async move {
            match guarded.machine.output(&text)? {
                Step::Served => inner.served(text),
                Step::Record => {
                    let body = EventBody::Output(Some(Message::assistant(text)));
                    guarded.record(inner.means.tag.event(body).into()).await?;
                }
            }
            Ok(())
        })
        .await
    }

    async fn tool_call(&self, call: ToolCall) -> Result<ToolResult, SinkError> {
        self.whole(|inner, guarded| async move { inner.tool_call(guarded, call).await }).await
    }

    async fn report(&self, result: ToolResult) -> Result<(), SinkError> {
        self.begun_here(|inner, mut guarded| async move {
            if guarded.machine.report(&result)? == Step::Record {
                let called = guarded.machine.has_called(&result.id);
                let body = EventBody::ToolResult(Some(result));
                let mut record = NewRecord::from(inner.means.tag.event(body));
                if called {
                    record.notes.insert(REPORTED_NOTE.to_owned(), "1".to_owned());
                }
                guarded.record(record).await?;
            }
            Ok(())
        })
        .await
    }

    async fn usage(&self, usage: Usage) -> Result<(), SinkError> {
        self.begun_here(|inner, mut guarded| async move {
            if guarded.machine.usage(&usage)? == Step::Record {
                let body = EventBody::Usage(Some(usage));
                guarded.record(inner.means.tag.event(body).into()).await?;
            }
            Ok(())
        })
        .await
    }
}

impl Inner {
    /// Whether nothing can happen but what is recorded.
    fn only_serves(&self) -> bool {
        self.means.model.is_none() && self.means.tools.is_none() && self.means.harness.is_none()
    }

    fn served(&self, output: String) {
        if let Some(on_output) = &self.means.on_output {
            on_output(output);
        }
    }

    /// What a call that was given up says.
    fn abandoned(&self) -> SinkError {
        match self.means.stop.get() {
            Some(TurnStop::Cancel(reason)) => SinkError::Canceled(reason),
            Some(TurnStop::Interrupt) | None => SinkError::Interrupted,
        }
    }

    /// Runs somebody else's code for this run: it may not use the sink, and it
    /// is dropped when the run is given up.
    async fn calling<T>(self: &Arc<Self>, call: impl Future<Output = T>) -> Result<T, SinkError> {
        let run = Arc::as_ptr(self) as usize;
        tokio::select! {
            biased;
            () = self.abandon.wait() => Err(self.abandoned()),
            value = INSIDE.scope(run, call) => Ok(value),
        }
    }
}

impl Guarded {
    /// Keeps what the next call may need in the machine's sight. A journal that
    /// cannot be read ends the run, with nothing more recorded.
    async fn refill(&mut self) {
        while self.machine.wants_more() {
            let page = match &mut self.tape {
                None => Ok(None),
                Some(tape) => tape.page().await,
            };
            match page {
                Ok(Some(effects)) => self.machine.push(effects),
                Ok(None) => {
                    self.tape = None;
                    self.machine.drain();
                }
                Err(error) => {
                    self.tape = None;
                    self.machine.drain();
                    let _ = self.machine.stop::<()>(SinkError::failed(Arc::new(error)));
                }
            }
        }
    }

    fn writer(&mut self) -> Result<&mut Writer, SinkError> {
        self.writer.as_mut().ok_or(SinkError::Closed)
    }

    /// Records what nothing in the journal announces. A harness that handled
    /// its refusal could not be replayed, so the turn fails with what has no
    /// recorded form.
    async fn record(&mut self, record: NewRecord) -> Result<LogRecord, SinkError> {
        match self.writer()?.append_one(record).await {
            Ok(written) => Ok(written),
            Err(error @ (LogError::TooLarge { .. } | LogError::Unrecordable(_))) => {
                self.machine.fail(refused(error))
            }
            Err(error) => Err(refused(error)),
        }
    }
}

fn panicked() -> SinkError {
    SinkError::Unrecordable("the effect panicked".to_owned())
}

/// A log's refusal as the harness sees it.
fn refused(error: LogError) -> SinkError {
    match error {
        LogError::TooLarge { what, bytes, bytes_max } => {
            SinkError::TooLarge { what, bytes, bytes_max }
        }
        LogError::Unrecordable(error) => SinkError::Unrecordable(error.to_string()),
        other => SinkError::failed(Arc::new(other)),
    }
}
