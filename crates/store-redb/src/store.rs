//! The store: the shared log store over the redb engine.

use mainspring_api::{
    AppendId, BoxStream, Event, Fence, Head, Seq, SessionUid, StoreId, async_trait,
};
use mainspring_eventlog::{
    Batch, EventLog, Holder, ImportRecord, ImportRow, KvOptions, KvStore, Level, Limits, ListQuery,
    LogError, NewSession, Page, ReadLimit, RowPatch, SessionRow, StoredRecord, Verified,
};

use crate::config::RedbConfig;
use crate::engine::RedbEngine;

/// A log store in one redb file.
///
/// Dropping it closes the file, once what is queued was committed.
#[derive(Debug)]
pub struct RedbStore {
    inner: KvStore<RedbEngine>,
}

impl RedbStore {
    /// Opens or creates the store that `config` names.
    ///
    /// # Errors
    /// As [`RedbEngine::open`].
    pub fn open(config: &RedbConfig, options: KvOptions) -> Result<Self, LogError> {
        let engine = RedbEngine::open(config, &*options.clock)?;
        Self::over(engine, options)
    }

    /// A store over an engine that was opened otherwise.
    ///
    /// # Errors
    /// - `UnsupportedSchema`: a newer version wrote it.
    /// - `Unavailable`: the engine fails.
    pub fn over(engine: RedbEngine, options: KvOptions) -> Result<Self, LogError> {
        Ok(Self { inner: KvStore::open(engine, options)? })
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for RedbStore {
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
        self.inner.append(session, id, fence, batch).await
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
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
