//! What outlives every host: the store, the tools, the model's provider, and what hosts were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use mainspring_api::{
    Delta, LogRecord, Message, ModelError, ModelProvider, ModelReply, ModelRequest, Outcome,
    ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope,
};
use mainspring_controller::Observer;
use mainspring_eventlog::LogError;
use mainspring_testkit::{LogCall, LogHook};

use crate::turnstile::{HostId, Turnstile};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often each key was attempted, and how often its effect happened.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) attempts: usize,
    pub(crate) effects: usize,
    /// Starts that a person allowed beyond the first.
    pub(crate) allowed: usize,
    pub(crate) declared: bool,
}

/// The ledger of the tools themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<String, Entry>>>);

impl Ledger {
    pub(crate) fn of(&self, key: &str) -> Entry {
        lock(&self.0).get(key).copied().unwrap_or_default()
    }

    pub(crate) fn allow(&self, key: &str) {
        lock(&self.0).entry(key.to_owned()).or_default().allowed += 1;
    }

    pub(crate) fn entries(&self) -> BTreeMap<String, Entry> {
        lock(&self.0).clone()
    }

    fn run(&self, key: &str, declared: bool) {
        let mut entries = lock(&self.0);
        let entry = entries.entry(key.to_owned()).or_default();
        entry.declared = declared;
        entry.attempts += 1;
        // A declared tool deduplicates by its key.
        if !(declared && entry.effects > 0) {
            entry.effects += 1;
        }
    }
}

/// Whether repeating a tool is harmless.
pub(crate) fn is_declared(tool: &str) -> bool {
    tool.starts_with("safe")
}

/// Tools as one host reaches them.
#[derive(Debug)]
pub(crate) struct SimTools {
    pub(crate) host: HostId,
    pub(crate) turnstile: Turnstile,
    pub(crate) ledger: Ledger,
}

#[async_trait]
impl ToolExecutor for SimTools {
    async fn execute(&self, _: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        self.turnstile.pass(self.host).await;
        let failed =
            |outcome| Err(ToolError { message: "out of order".to_owned(), outcome, source: None });
        if self.turnstile.percent(10) {
            return failed(Outcome::NotApplied);
        }
        self.ledger.run(&call.idempotency_key, is_declared(&call.tool));
        // The effect has happened; its answer may be lost with the host.
        self.turnstile.pass(self.host).await;
        if self.turnstile.percent(5) {
            return failed(Outcome::Unknown);
        }
        Ok(ToolResult { is_error: self.turnstile.percent(10), ..ToolResult::default() })
    }

    fn is_repeatable(&self, tool: &str) -> bool {
        is_declared(tool)
    }

    fn offers(&self, _: &str) -> bool {
        true
    }
}

/// A provider as one host reaches it.
#[derive(Debug)]
pub(crate) struct SimModel {
    pub(crate) host: HostId,
    pub(crate) turnstile: Turnstile,
}

#[async_trait]
impl ModelProvider for SimModel {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        self.turnstile.pass(self.host).await;
        if self.turnstile.percent(15) {
            let message = "out of order".to_owned();
            return Err(ModelError::Unavailable { message, source: None });
        }
        let text = request.messages.last().map(Message::plain_text).unwrap_or_default();
        // A provider is not deterministic; the record is.
        let answer = format!("{text}:{}", self.turnstile.below(1_000));
        Ok(ModelReply { message: Message::assistant(answer), ..ModelReply::default() })
    }
}

/// Every record that any host was told of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<LogRecord>>>);

impl Told {
    pub(crate) fn records(&self) -> Vec<LogRecord> {
        lock(&self.0).clone()
    }
}

impl Observer for Told {
    fn on_record(&self, record: &LogRecord) {
        lock(&self.0).push(record.clone());
    }

    fn on_delta(&self, _: Delta) {}
}

/// How one host reaches the log: every operation waits before and after, and
/// now and then its answer is lost.
#[derive(Debug)]
pub(crate) struct SimLog {
    pub(crate) host: HostId,
    pub(crate) turnstile: Turnstile,
}

impl LogHook for SimLog {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        self.turnstile.pass(self.host).await;
        if matches!(call, LogCall::Read | LogCall::Verify) {
            return run.await;
        }
        if self.turnstile.percent(2) {
            return Err(LogError::unavailable("not reached"));
        }
        let answer = run.await;
        self.turnstile.pass(self.host).await;
        if self.turnstile.percent(3) {
            let message = "the answer was lost".to_owned();
            return Err(LogError::Unavailable { message, outcome: Outcome::Unknown, source: None });
        }
        answer
    }
}
