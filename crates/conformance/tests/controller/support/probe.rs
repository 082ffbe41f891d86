//! A harness that a case scripts, and that remembers what it was given.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_api::{
    BoxFuture, Bytes, Capabilities, Classify, Descriptor, Event, EventSink, ExecutionId, Harness,
    HarnessError, Mediation, Message, ModelReply, ModelRequest, Resumability, SessionUid,
    SinkError, Start, ToolCall, ToolResult, async_trait,
};
use mainspring_harness::{Echo, HistoryPages};

type Run =
    dyn Fn(Start, Arc<dyn EventSink>) -> BoxFuture<'static, Result<(), HarnessError>> + Send + Sync;
type Describe = dyn Fn() -> BoxFuture<'static, Result<Descriptor, HarnessError>> + Send + Sync;

/// What a run was started with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) session: Option<SessionUid>,
    pub(crate) execution_id: ExecutionId,
    pub(crate) model: String,
    pub(crate) config: Bytes,
    pub(crate) history: Vec<Event>,
    pub(crate) inputs: Vec<String>,
    pub(crate) resume_from_seq: i64,
}

/// What a harness was answered to its tool calls. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Arc<Mutex<Vec<Result<ToolResult, SinkError>>>>);

impl Answers {
    /// What was answered since the last call.
    pub(crate) fn take(&self) -> Vec<Result<ToolResult, SinkError>> {
        std::mem::take(&mut *lock(&self.0))
    }

    /// The only answer since the last call, which is a result.
    #[track_caller]
    pub(crate) fn result(&self) -> ToolResult {
        let mut answers = self.take();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.pop().unwrap().unwrap()
    }

    /// The codes of the failures since the last call; `ok` for results.
    pub(crate) fn codes(&self) -> Vec<&'static str> {
        self.take()
            .iter()
            .map(|answer| answer.as_ref().map_or_else(Classify::code, |_| "ok"))
            .collect()
    }
}

/// A harness out of closures.
pub(crate) struct Probe {
    describe: Box<Describe>,
    run: Box<Run>,
    runs: AtomicUsize,
    describes: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Probe {
    /// A harness `probe` of version 1 that does as `run` says.
    pub(crate) fn new<F>(
        run: impl Fn(Start, Arc<dyn EventSink>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), HarnessError>> + Send + 'static,
    {
        Self {
            describe: Box::new(|| Box::pin(async { Ok(descriptor("probe", "1")) })),
            run: Box::new(move |start, sink| Box::pin(run(start, sink))),
            runs: AtomicUsize::new(0),
            describes: AtomicUsize::new(0),
            seen: Mutex::default(),
        }
    }

    /// The reference harness echo.
    pub(crate) fn echo() -> Self {
        Self::new(|start, sink| async move { Echo.run(start, sink).await })
            .describing(|| async { Echo.describe().await })
    }

    /// A harness that asks the model for each of `texts`, one after the other.
    pub(crate) fn asking(texts: &'static [&'static str]) -> Self {
        Self::new(move |_, sink| async move {
            for text in texts {
                ask(&*sink, text).await?;
            }
            Ok(())
        })
    }

    /// A harness that outputs each of `texts`.
    pub(crate) fn saying(texts: &'static [&'static str]) -> Self {
        Self::new(move |_, sink| async move {
            for text in texts {
                sink.output((*text).to_owned()).await?;
            }
            Ok(())
        })
    }

    /// A harness that makes each of `calls`, one after the other.
    pub(crate) fn calling(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        let calls: Vec<_> = calls.into_iter().collect();
        Self::new(move |_, sink| {
            let calls = calls.clone();
            async move {
                for call in calls {
                    sink.tool_call(call).await?;
                }
                Ok(())
            }
        })
    }

    /// The same, which then says `done`.
    pub(crate) fn calling_then_done(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::answered(calls, &Answers::default())
    }

    /// The same, which keeps what it is answered, and gives up at a failure.
    pub(crate) fn answered(calls: impl IntoIterator<Item = ToolCall>, kept: &Answers) -> Self {
        Self::keeping(calls, kept, false)
    }

    /// The same, which goes on after a failure.
    pub(crate) fn handling(calls: impl IntoIterator<Item = ToolCall>, kept: &Answers) -> Self {
        Self::keeping(calls, kept, true)
    }

    fn keeping(calls: impl IntoIterator<Item = ToolCall>, kept: &Answers, goes_on: bool) -> Self {
        let (calls, kept): (Vec<_>, _) = (calls.into_iter().collect(), kept.clone());
        Self::new(move |_, sink| {
            let (calls, kept) = (calls.clone(), kept.clone());
            async move {
                for call in calls {
                    let answer = sink.tool_call(call).await;
                    let failed = answer.clone().err().filter(|_| !goes_on);
                    lock(&kept.0).push(answer);
                    if let Some(error) = failed {
                        return Err(error.into());
                    }
                }
                sink.output("done".to_owned()).await?;
                Ok(())
            }
        })
    }

    /// The same harness under another name and version.
    pub(crate) fn named(self, id: &'static str, version: &'static str) -> Self {
        self.describing(move || async move { Ok(descriptor(id, version)) })
    }

    /// The same harness, which needs its memory.
    pub(crate) fn with_memory(self) -> Self {
        self.describing(|| async {
            let resumability = Resumability::RequiresMemorySnapshot;
            let capabilities = Capabilities { resumability, ..Capabilities::default() };
            Ok(Descriptor { capabilities, ..descriptor("probe", "1") })
        })
    }

    /// The same harness, described by `describe`.
    pub(crate) fn describing<F>(self, describe: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Descriptor, HarnessError>> + Send + 'static,
    {
        Self { describe: Box::new(move || Box::pin(describe())), ..self }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    pub(crate) fn describes(&self) -> usize {
        self.describes.load(Ordering::SeqCst)
    }

    /// What each run was started with, in order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }
}

fn descriptor(id: &str, version: &str) -> Descriptor {
    Descriptor { id: id.to_owned(), version: version.to_owned(), ..Descriptor::default() }
}

/// Asks the model `echo` for one user text.
pub(crate) async fn ask(sink: &dyn EventSink, text: &str) -> Result<ModelReply, SinkError> {
    sink.model(request(text)).await
}

/// The request of [`ask`], which is also what the harness echo sends.
pub(crate) fn request(text: &str) -> ModelRequest {
    ModelRequest {
        model: Echo::ID.to_owned(),
        messages: vec![Message::user(text)],
        ..ModelRequest::default()
    }
}

/// A mediated call of `tool` under `id`, with a key of its own and one argument.
pub(crate) fn mediated(id: &str, tool: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        tool: tool.to_owned(),
        args: Some([("n".to_owned(), 2.0.into())].into()),
        mediation: Mediation::ControllerMediated,
        idempotency_key: format!("key-{id}"),
    }
}

/// The same, to be approved first.
pub(crate) fn gated(id: &str, tool: &str) -> ToolCall {
    ToolCall { mediation: Mediation::RequiresApproval, ..mediated(id, tool) }
}

#[async_trait]
impl Harness for Probe {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        self.describes.fetch_add(1, Ordering::SeqCst);
        (self.describe)().await
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let mut history = Vec::new();
        let mut pages = HistoryPages::new(&*start.history);
        while let Some(page) = pages.next_page().await? {
            history.extend(page);
        }
        lock(&self.seen).push(Seen {
            session: start.session.clone(),
            execution_id: start.execution_id.clone(),
            model: start.model.clone(),
            config: Bytes::copy_from_slice(&start.config),
            history,
            inputs: start.inputs.iter().map(Message::plain_text).collect(),
            resume_from_seq: start.resume_from_seq,
        });
        (self.run)(start, sink).await
    }
}
