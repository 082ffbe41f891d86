//! A log store over any ordered key-value engine.
//!
//! Stores differ in their transaction alone; rows, records, forks, lists,
//! settling and group commit are the same for all and live here.

mod committer;
mod fold;
mod follow;
mod import;
mod index;
mod keys;
mod migrate;
mod ops;
mod parts;
mod read;
pub mod replica;
mod row;
mod stats;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_api::{
    AppendId, BoxStream, Clock, Entropy, Event, ExecutionId, Fence, Head, OsEntropy, Outcome, Seq,
    SessionUid, StoreId, SystemClock,
};

use crate::chain::{Batch, StoredRecord};
use crate::engine::{Engine, EngineError, KvRead};
use crate::error::LogError;
use crate::log::{
    Durability, EventLog, Follow, Holder, ImportRecord, ImportRow, Level, Limits, ListQuery, Mark,
    NamedRows, NewSession, Page, Purge, ReadLimit, RowPatch, SessionRow, Verified,
};
use crate::view::ExecutionView;
use committer::{Committer, Shared};
use import::OpWriter;
use ops::{Op, OpError, Reply};
use replica::Replica;
pub use stats::{SessionTotals, StoreStats};

/// The version of the stored form that this build writes and reads.
///
/// 1: version 0.1.0. 2: whose records a fork shows can be looked up, imports go
/// on where they stopped, records can be purged, named rows. 3: sessions of an
/// owner, open ones and deleted ones can be looked up.
pub const SCHEMA_VERSION: u64 = 3;

/// How a store runs.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// Sizes that it accepts.
    pub limits: Limits,
    /// Source of commit times.
    pub clock: Arc<dyn Clock>,
    /// Source of the store id.
    pub entropy: Arc<dyn Entropy>,
    /// How long to try to reopen after a failed commit. Default 5 s.
    pub reopen_max: Duration,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            reopen_max: Duration::from_secs(5),
        }
    }
}

/// A log store over an engine.
#[derive(Debug)]
pub struct KvStore<E: Engine> {
    committer: Committer,
    state: Replica<E>,
    store_id: StoreId,
}

impl<E: Engine> Drop for KvStore<E> {
    fn drop(&mut self) {
        self.state.close();
    }
}

impl<E: Engine> KvStore<E> {
    /// Opens the store that `engine` holds, or creates it in an empty engine.
    ///
    /// # Errors
    /// - [`LogError::UnsupportedSchema`] for a store of a newer version, before anything is written.
    /// - [`LogError::Unavailable`] when the engine fails.
    ///
    /// A store of an older version is copied aside and then migrated.
    pub fn open(engine: E, options: KvOptions) -> Result<Self, LogError> {
        let KvOptions { limits, clock, entropy, reopen_max } = options;
        let store_id = match migrate::identity(&engine)? {
            Some((id, SCHEMA_VERSION)) => id,
            Some((id, older)) => {
                migrate::migrate(&engine, older)?;
                id
            }
            None => migrate::initialise(&engine, &StoreId::random(&*entropy))?,
        };
        let shared = Arc::new(Shared::new(engine, limits, clock, reopen_max, ops::Rows::default()));
        shared.remove_staged()?;
        let committer = Committer::start(&shared)
            .map_err(|error| LogError::unavailable(format!("committer: {error}")))?;
        Ok(Self { committer, state: Replica { shared }, store_id })
    }

    /// The engine, for what only this kind of store offers.
    #[must_use]
    pub fn engine(&self) -> &E {
        self.state.engine()
    }
}

#[async_trait]
impl<E: Engine> OpWriter for KvStore<E> {
    async fn write(&self, op: Op) -> Result<Reply, LogError> {
        self.committer.submit(&self.state.shared, op).await
    }

    fn event_bytes_max(&self) -> usize {
        self.limits().event_bytes_max
    }
}

/// Runs `f` on a consistent view, off the caller's thread where a disk may be touched.
async fn read_shared<E: Engine, T, F>(shared: Arc<Shared<E>>, f: F) -> Result<T, LogError>
where
    T: Send + 'static,
    F: Fn(&dyn KvRead) -> Result<T, OpError> + Send + 'static,
{
    shared.check()?;
    let blocks = shared.engine.is_durable();
    let run = move || {
        let mut out = None;
        let read = shared.engine.read(&mut |kv| match f(kv) {
            Ok(value) => {
                out = Some(Ok(value));
                Ok(())
            }
            Err(OpError::Refused(error)) => {
                out = Some(Err(error));
                Ok(())
            }
            Err(OpError::Engine(error)) => Err(error),
        });
        // A handle that failed meanwhile may have shown what is not durable.
        shared.check()?;
        match (read, out) {
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => Err(LogError::unavailable("the engine ran no read")),
            (Err(error), _) => Err(engine_failed(error)),
        }
    };
    if blocks { blocking::unblock(run).await } else { run() }
}

fn engine_failed(error: EngineError) -> LogError {
    LogError::Unavailable {
        message: error.message,
        outcome: Outcome::NotApplied,
        source: error.source.map(Arc::from),
    }
}

macro_rules! answer {
    ($reply:expr, $variant:ident) => {
        match $reply? {
            Reply::$variant(value) => Ok(value),
            other => unreachable!("this operation answers otherwise: {other:?}"),
        }
    };
}

#[async_trait]
impl<E: Engine> EventLog for KvStore<E> {
    fn store_id(&self) -> StoreId {
        self.store_id.clone()
    }

    fn limits(&self) -> Limits {
        self.state.shared.limits
    }

    fn durability(&self) -> Durability {
        if self.state.shared.engine.is_durable() { Durability::Local } else { Durability::Volatile }
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        session.check()?;
        answer!(self.write(Op::Create { id, session: Box::new(session) }).await, Row)
            .map(|row| *row)
    }

    async fn get(&self, session: &SessionUid, _level: Level) -> Result<SessionRow, LogError> {
        self.state.get(session).await
    }

    async fn list(&self, query: ListQuery, _level: Level) -> Result<Page, LogError> {
        self.state.list(query).await
    }

    async fn marked(
        &self,
        mark: Mark,
        after: Option<&SessionUid>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, LogError> {
        self.state.marked(mark, after, limit).await
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        patch.check()?;
        let op = Op::Update { id, session: session.clone(), version, patch };
        answer!(self.write(op).await, Row).map(|row| *row)
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        self.limits().check(batch)?;
        let op = Op::Append { id, session: session.clone(), fence, batch: batch.clone() };
        answer!(self.write(op).await, Head)
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let op = Op::Mint { id, session: session.clone(), current, head: None, holder };
        answer!(self.write(op).await, Fence)
    }

    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let op = Op::Mint { id, session: session.clone(), current, head: Some(head), holder };
        answer!(self.write(op).await, Fence)
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        Ok(self.get(session, level).await?.view.head)
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        _level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        self.state.records(session, from, limit).await
    }

    async fn execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionView>, LogError> {
        self.state.execution(session, id).await
    }

    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        self.state.verify(session, after)
    }

    async fn fork(
        &self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        children: Vec<(NewSession, Event)>,
    ) -> Result<Vec<SessionRow>, LogError> {
        children.iter().try_for_each(|(child, _)| child.check())?;
        let view = self.state.view_at(parent, at).await.map(Box::new)?;
        let children = replica::linked(at, children, &self.limits())?;
        let op = Op::Fork { id, parent: parent.clone(), at, view, children };
        answer!(self.write(op).await, Rows)
    }

    async fn import(
        &self,
        id: AppendId,
        row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError> {
        import::import(self, id, row, records).await
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        self.state.staged(&import::staged_name(id)).await
    }

    fn follow(&self) -> Option<&dyn Follow> {
        Some(self)
    }

    fn rows(&self) -> Option<&dyn NamedRows> {
        Some(self)
    }

    fn purge(&self) -> Option<&dyn Purge> {
        Some(self)
    }

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        let op = Op::Annotate {
            session: session.clone(),
            seq,
            fence,
            key: key.to_owned(),
            value: value.to_owned(),
        };
        self.write(op).await.map(drop)
    }
}
