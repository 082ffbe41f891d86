//! What outlives every host: the store, the tools, the model's provider, and what hosts were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use mainspring_api::{
    AppendId, BoxStream, Delta, Event, Fence, Head, LogRecord, Message, ModelError, ModelProvider,
    ModelReply, ModelRequest, Outcome, Seq, SessionUid, StoreId, ToolCall, ToolError, ToolExecutor,
    ToolResult, ToolScope,
};
use mainspring_controller::Observer;
use mainspring_eventlog::{
    Batch, EventLog, Follow, Holder, ImportRecord, ImportRow, Level, Limits, ListQuery, Liveness,
    LogError, NamedRows, NewSession, Page, Purge, ReadLimit, RowPatch, SessionRow, StoredRecord,
    Verified,
};

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

/// The log as one host reaches it: every operation waits before and after, and
/// now and then its answer is lost.
#[derive(Debug)]
pub(crate) struct SimLog {
    pub(crate) host: HostId,
    pub(crate) turnstile: Turnstile,
    pub(crate) inner: Arc<dyn EventLog>,
}

impl SimLog {
    async fn read<T>(
        &self,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        self.turnstile.pass(self.host).await;
        run.await
    }

    async fn write<T>(
        &self,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        self.turnstile.pass(self.host).await;
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

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for SimLog {
    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        self.write(self.inner.create(id, session)).await
    }

    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError> {
        self.read(self.inner.get(session, level)).await
    }

    async fn list(&self, query: ListQuery, level: Level) -> Result<Page, LogError> {
        self.read(self.inner.list(query, level)).await
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        self.write(self.inner.update(id, session, version, patch)).await
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        self.write(self.inner.append(session, id, fence, batch)).await
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        self.write(self.inner.mint(session, id, current, holder)).await
    }

    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        self.write(self.inner.acquire_if_head(session, id, current, head, holder)).await
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        self.read(self.inner.head(session, level)).await
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        self.read(self.inner.read(session, from, limit, level)).await
    }

    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        self.inner.verify(session, after)
    }

    async fn fork(
        &self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        children: Vec<(NewSession, Event)>,
    ) -> Result<Vec<SessionRow>, LogError> {
        self.write(self.inner.fork(id, parent, at, children)).await
    }

    fn may_be_child(&self, parent: &SessionUid, uid: &SessionUid) -> bool {
        self.inner.may_be_child(parent, uid)
    }

    async fn import(
        &self,
        id: AppendId,
        row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError> {
        self.write(self.inner.import(id, row, records)).await
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        self.read(self.inner.staged(id)).await
    }

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        self.write(self.inner.annotate(session, seq, fence, key, value)).await
    }

    fn follow(&self) -> Option<&dyn Follow> {
        self.inner.follow()
    }

    fn rows(&self) -> Option<&dyn NamedRows> {
        self.inner.rows()
    }

    fn purge(&self) -> Option<&dyn Purge> {
        self.inner.purge()
    }

    fn liveness(&self) -> Option<&dyn Liveness> {
        self.inner.liveness()
    }
}
