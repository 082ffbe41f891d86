//! A log with somebody in front of it.

use std::fmt;
use std::sync::Arc;

use futures_util::{TryStreamExt as _, stream};
use mainspring_api::{
    AppendId, BoxStream, Event, ExecutionId, Fence, Head, Seq, SessionUid, StoreId, async_trait,
};
use mainspring_eventlog::{
    Batch, Durability, EventLog, ExecutionView, Follow, Holder, ImportRecord, ImportRow, Level,
    Limits, ListQuery, Liveness, LogError, Mark, NamedRows, NewSession, Page, Purge, ReadLimit,
    RowPatch, SessionRow, StoredRecord, Verified, Warmth,
};

/// An operation of a log that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogCall {
    /// [`EventLog::append`], under its id.
    Append(AppendId),
    /// [`EventLog::create`].
    Create,
    /// [`EventLog::update`].
    Update,
    /// [`EventLog::mint`] and [`EventLog::acquire_if_head`].
    Mint,
    /// [`EventLog::fork`].
    Fork,
    /// [`EventLog::import`].
    Import,
    /// [`EventLog::annotate`].
    Annotate,
    /// A read that is answered at once.
    Read,
    /// [`EventLog::verify`]: what runs is the opening of its stream.
    Verify,
}

/// What happens around each operation of a [`HookedLog`].
pub trait LogHook: fmt::Debug + Send + Sync + 'static {
    /// Runs `run`, or not, and answers for it.
    fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> impl Future<Output = Result<T, LogError>> + Send;

    /// The purge of the log inside, or none.
    fn purge<'a>(&'a self, log: &'a dyn EventLog) -> Option<&'a dyn Purge> {
        log.purge()
    }

    /// Says who is alive, in the place of the log inside.
    fn liveness(&self) -> Option<&dyn Liveness> {
        None
    }

    /// Says which host is warm, in the place of the log inside.
    fn warmth(&self) -> Option<&dyn Warmth> {
        None
    }
}

/// A log whose operations all pass through a hook.
///
/// The optional parts of the log inside are handed out as they are, but for
/// those that the hook has a say in.
#[derive(Debug)]
pub struct HookedLog<H> {
    inner: Arc<dyn EventLog>,
    hook: Arc<H>,
}

impl<H: LogHook> HookedLog<H> {
    /// Puts `hook` in front of `inner`.
    #[must_use]
    pub fn with_hook(inner: Arc<dyn EventLog>, hook: H) -> Self {
        Self { inner, hook: Arc::new(hook) }
    }

    /// The hook.
    #[must_use]
    pub fn hook(&self) -> &H {
        &self.hook
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<H: LogHook> EventLog for HookedLog<H> {
    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        self.hook.around(LogCall::Create, self.inner.create(id, session)).await
    }

    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError> {
        self.hook.around(LogCall::Read, self.inner.get(session, level)).await
    }

    async fn list(&self, query: ListQuery, level: Level) -> Result<Page, LogError> {
        self.hook.around(LogCall::Read, self.inner.list(query, level)).await
    }

    async fn marked(
        &self,
        mark: Mark,
        after: Option<&SessionUid>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, LogError> {
        self.hook.around(LogCall::Read, self.inner.marked(mark, after, limit)).await
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        let run = self.inner.update(id, session, version, patch);
        self.hook.around(LogCall::Update, run).await
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        let run = self.inner.append(session, id, fence, batch);
        self.hook.around(LogCall::Append(id), run).await
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let run = self.inner.mint(session, id, current, holder);
        self.hook.around(LogCall::Mint, run).await
    }

    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let run = self.inner.acquire_if_head(session, id, current, head, holder);
        self.hook.around(LogCall::Mint, run).await
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        self.hook.around(LogCall::Read, self.inner.head(session, level)).await
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        let run = self.inner.read(session, from, limit, level);
        self.hook.around(LogCall::Read, run).await
    }

    async fn execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionView>, LogError> {
        self.hook.around(LogCall::Read, self.inner.execution(session, id)).await
    }

    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        let (inner, hook, session) = (self.inner.clone(), self.hook.clone(), session.clone());
        let opened = async move {
            hook.around(LogCall::Verify, async { Ok(inner.verify(&session, after)) }).await
        };
        Box::pin(stream::once(opened).try_flatten())
    }

    async fn fork(
        &self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        children: Vec<(NewSession, Event)>,
    ) -> Result<Vec<SessionRow>, LogError> {
        self.hook.around(LogCall::Fork, self.inner.fork(id, parent, at, children)).await
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
        self.hook.around(LogCall::Import, self.inner.import(id, row, records)).await
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        self.hook.around(LogCall::Read, self.inner.staged(id)).await
    }

    fn follow(&self) -> Option<&dyn Follow> {
        self.inner.follow()
    }

    fn rows(&self) -> Option<&dyn NamedRows> {
        self.inner.rows()
    }

    fn purge(&self) -> Option<&dyn Purge> {
        self.hook.purge(&*self.inner)
    }

    fn liveness(&self) -> Option<&dyn Liveness> {
        self.hook.liveness().or_else(|| self.inner.liveness())
    }

    fn warmth(&self) -> Option<&dyn Warmth> {
        self.hook.warmth().or_else(|| self.inner.warmth())
    }

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        let run = self.inner.annotate(session, seq, fence, key, value);
        self.hook.around(LogCall::Annotate, run).await
    }
}
