//! A log that lets somebody else go first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_api::{
    AppendId, BoxFuture, BoxStream, Event, Fence, Head, Seq, SessionUid, StoreId, async_trait,
};
use mainspring_eventlog::{
    Batch, EventLog, Follow, Holder, ImportRecord, ImportRow, Level, Limits, ListQuery, Liveness,
    LogError, NamedRows, NewSession, Page, Purge, ReadLimit, RowPatch, SessionRow, StoredRecord,
    Verified,
};

/// Before what somebody goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// The fence.
    Mint,
    /// The record.
    Append,
}

type Hook = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// Runs a hook once, before the first operation of a kind.
pub(crate) struct Between {
    inner: Arc<dyn EventLog>,
    before: Before,
    hook: Box<Hook>,
    done: AtomicBool,
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Between {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        inner: Arc<dyn EventLog>,
        before: Before,
        hook: impl Fn() -> F + Send + Sync + 'static,
    ) -> Arc<Self> {
        let hook = Box::new(move || Box::pin(hook()) as BoxFuture<'static, ()>);
        Arc::new(Self { inner, before, hook, done: AtomicBool::new(false) })
    }

    async fn first(&self, at: Before) {
        if at == self.before && !self.done.swap(true, Ordering::SeqCst) {
            (self.hook)().await;
        }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for Between {
    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        self.inner.create(id, session).await
    }

    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError> {
        self.inner.get(session, level).await
    }

    async fn list(&self, query: ListQuery, level: Level) -> Result<Page, LogError> {
        self.inner.list(query, level).await
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        self.inner.update(id, session, version, patch).await
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        self.first(Before::Append).await;
        self.inner.append(session, id, fence, batch).await
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        self.first(Before::Mint).await;
        self.inner.mint(session, id, current, holder).await
    }

    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        self.first(Before::Mint).await;
        self.inner.acquire_if_head(session, id, current, head, holder).await
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        self.inner.head(session, level).await
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        self.inner.read(session, from, limit, level).await
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
        self.inner.fork(id, parent, at, children).await
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
        self.inner.import(id, row, records).await
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        self.inner.staged(id).await
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

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        self.inner.annotate(session, seq, fence, key, value).await
    }
}
