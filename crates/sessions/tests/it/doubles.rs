//! A harness that does what its turn's configuration says, tools and compute
//! that write down what is asked, and steps between the calls of a log.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mainspring_api::{
    Address, ComputeState, ComputeStatus, Descriptor, EventSink, Fence, Fidelity, Harness,
    HarnessError, InProcess, Incarnation, Mediation, ModelRequest, Outcome, ResultCode, Runtime,
    RuntimeCapabilities, RuntimeError, Seq, SessionHistory, SessionSpec, SessionUid, Signal,
    SnapshotRef, Start, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope, async_trait,
};
use mainspring_eventlog::LogError;
use mainspring_testkit::{LogCall, LogHook};

/// Does the steps of its configuration: `gate ID`, `try ID`, `tool ID NAME`,
/// `out TEXT`, `ask`, `fail TEXT`.
#[derive(Debug, Default)]
struct Scripted;

#[async_trait]
impl Harness for Scripted {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "scripted".to_owned(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let script = String::from_utf8_lossy(&start.config).into_owned();
        for step in script.split(", ").filter(|step| !step.is_empty()) {
            let words: Vec<&str> = step.split(' ').collect();
            match words[..] {
                ["out", text] => sink.output(text.to_owned()).await?,
                ["ask"] => {
                    sink.model(ModelRequest::default()).await?;
                }
                ["gate", id] => {
                    let result = sink.tool_call(call(id, "deploy", Mediation::RequiresApproval));
                    let result = result.await?;
                    let reason = result.decision.map(|decision| decision.reason);
                    let word = match result.code {
                        ResultCode::ApprovalDenied => "denied",
                        ResultCode::ExecutorError => "failed",
                        ResultCode::Unspecified => "done",
                    };
                    sink.output(format!("{id} {word} {}", reason.unwrap_or_default())).await?;
                }
                // Passes over the park.
                ["try", id] => {
                    let called = call(id, "deploy", Mediation::RequiresApproval);
                    let _ = sink.tool_call(called).await;
                }
                ["fail", what] => return Err(HarnessError::failed(what)),
                ["tool", id, name] => {
                    let called = call(id, name, Mediation::ControllerMediated);
                    sink.tool_call(called).await?;
                }
                _ => return Err(HarnessError::failed(format!("what is {step:?}?"))),
            }
        }
        Ok(())
    }
}

fn call(id: &str, tool: &str, mediation: Mediation) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        tool: tool.to_owned(),
        mediation,
        idempotency_key: format!("key-{id}"),
        ..ToolCall::default()
    }
}

/// Counts effects by key. The tool `slow` waits until it is let go.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    started: Mutex<Vec<String>>,
    done: Mutex<Vec<String>>,
    pub(crate) go: Signal<()>,
    pub(crate) entered: Signal<()>,
    pub(crate) repeatable: AtomicBool,
}

impl Tools {
    /// The keys of calls that were started, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }

    /// The keys of calls that came to their end.
    pub(crate) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

#[async_trait]
impl ToolExecutor for Tools {
    async fn execute(&self, _scope: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        self.started.lock().unwrap().push(call.idempotency_key.clone());
        if call.tool == "slow" {
            self.entered.set(());
            self.go.wait().await;
        }
        if call.tool == "lost" {
            let message = "the answer was lost".to_owned();
            return Err(ToolError { message, outcome: Outcome::Unknown, source: None });
        }
        self.done.lock().unwrap().push(call.idempotency_key.clone());
        Ok(ToolResult::default())
    }

    fn is_repeatable(&self, _tool: &str) -> bool {
        self.repeatable.load(Ordering::Relaxed)
    }

    fn offers(&self, _: &str) -> bool {
        true
    }
}

/// Runs the harness in process and writes down what it is asked.
#[derive(Debug, Default)]
pub(crate) struct Compute {
    calls: Mutex<Vec<&'static str>>,
    pub(crate) no_snapshot: AtomicBool,
    /// How often it still says that it is not up yet.
    pub(crate) not_up: AtomicUsize,
    /// Whether a snapshot waits for `go`, once it has begun.
    pub(crate) slow_snapshot: AtomicBool,
    pub(crate) capturing: Signal<()>,
    pub(crate) go: Signal<()>,
}

impl Compute {
    fn note(&self, what: &'static str) {
        self.calls.lock().unwrap().push(what);
    }

    fn once_up(&self) -> Result<Incarnation, RuntimeError> {
        let left = self
            .not_up
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(RuntimeError::CheckpointPending),
            Err(_) => Ok(incarnation()),
        }
    }

    /// What it was asked since the last time.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

#[async_trait]
impl Runtime for Compute {
    fn name(&self) -> &'static str {
        "test"
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities::default()
    }

    async fn create(
        &self,
        _spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("create");
        self.once_up()
    }

    async fn snapshot(
        &self,
        uid: &SessionUid,
        _head: Seq,
        _fidelity: Fidelity,
    ) -> Result<SnapshotRef, RuntimeError> {
        self.note("snapshot");
        if self.slow_snapshot.load(Ordering::Relaxed) {
            self.capturing.set(());
            self.go.wait().await;
        }
        if self.no_snapshot.load(Ordering::Relaxed) {
            return Err(RuntimeError::Unsupported { runtime: "test", what: "a snapshot" });
        }
        Ok(SnapshotRef { local: uid.to_string(), ..SnapshotRef::default() })
    }

    async fn restore(
        &self,
        _from: &SnapshotRef,
        _spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("restore");
        self.once_up()
    }

    async fn fork(
        &self,
        _from: &SnapshotRef,
        _child: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.note("fork");
        Ok(incarnation())
    }

    async fn stop(&self, _uid: &SessionUid) -> Result<(), RuntimeError> {
        self.note("stop");
        Ok(())
    }

    async fn status(&self, _uid: &SessionUid) -> Result<ComputeStatus, RuntimeError> {
        let (instance, reason) = (String::new(), String::new());
        Ok(ComputeStatus { state: ComputeState::None, instance, reason })
    }

    async fn list(&self) -> Result<Vec<SessionUid>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
}

fn incarnation() -> Incarnation {
    Incarnation {
        address: Address::InProcess(InProcess::harness(Arc::new(Scripted))),
        worker: String::new(),
        compute_instance: String::new(),
        fence: Fence::NONE,
        live_describer: false,
    }
}

/// Does something right after one of the reads that follow.
#[derive(Default)]
pub(crate) struct AfterRead(Mutex<Option<(usize, Step)>>);

type Step = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for AfterRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AfterRead")
    }
}

impl AfterRead {
    /// After the `nth` read from now, before its answer is seen.
    pub(crate) fn arm(&self, nth: usize, does: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap() = Some((nth, Box::pin(does)));
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }

    fn step(&self) -> Option<Step> {
        let mut armed = self.0.lock().unwrap();
        let (left, _) = armed.as_mut()?;
        *left -= 1;
        if *left == 0 { armed.take().map(|(_, does)| does) } else { None }
    }
}

impl LogHook for AfterRead {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        let step = if call == LogCall::Read { self.step() } else { None };
        let answer = run.await;
        if let Some(step) = step {
            step.await;
        }
        answer
    }
}

/// Holds every fence until it is let go.
#[derive(Debug, Default)]
pub(crate) struct Gatekeeper {
    pub(crate) asked: Signal<()>,
    pub(crate) go: Signal<()>,
}

impl LogHook for Gatekeeper {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        if call == LogCall::Mint {
            self.asked.set(());
            self.go.wait().await;
        }
        run.await
    }
}
