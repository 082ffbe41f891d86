//! The store: the contract over a log that decides.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use mainspring_api::{
    AppendId, BoxStream, Event, ExecutionId, Fence, Head, Seq, SessionUid, StoreId,
};
use mainspring_eventlog::replica::{self, Op, Reply};
use mainspring_eventlog::{
    Batch, Durability, EventLog, Follow, Holder, ImportRecord, ImportRow, Level, Limits, ListQuery,
    Liveness, LogError, MARKED_MAX, Mark, NamedRows, NewSession, Page, ReadLimit, RowPatch,
    SessionRow, StoredRecord, Verified, Warmth,
};

use crate::answers::answer;
use crate::error::Halt;
use crate::frame::Genesis;
use crate::import::ImportWriter;
use crate::progress::CatchUp;
use crate::shared::Core;

/// A log store on Apache Kafka. Many hosts may have one open on the same topic:
/// the log alone decides whose append counts.
///
/// # What fails, and what is known then
/// | Event | Answer |
/// |---|---|
/// | no broker reachable, before anything is sent | `Unavailable`, `NotApplied` |
/// | an earlier message is still on its way for as long as a write may wait | `Unavailable`, `NotApplied` |
/// | broker gone, leader moved, too few replicas in sync, with a message on its way | the client sends it again for `write_max`; then `Unavailable`, `Unknown` |
/// | timeout after sending | `Unavailable`, `Unknown`: the message may be in the log, or come there |
/// | a message delivered twice, or late | judged like any other, and void: heads never return, fences and versions only rise |
/// | the producer is made anew | as a timeout for what was on its way |
/// | clocks that differ | nothing: times are notes, no rule reads them |
/// | a fold that is slow | reads wait for what was committed, then `Unavailable`; the log keeps everything |
/// | a message that is no frame, or of rules not in force | void, on every host alike |
/// | an entry that counts and whose payload this build cannot read | its session cannot be read here; others go on |
/// | rules that this build does not know come into force | the host stops: `rules_unknown` |
/// | the log cut, recreated, or its partitions changed | the host stops, by name, and keeps its view |
///
/// An `Unknown` is settled by sending the same operation again.
pub struct KafkaStore {
    pub(crate) core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for KafkaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaStore")
            .field("topic", &self.core.config.topic)
            .field("genesis", &self.core.genesis)
            .finish_non_exhaustive()
    }
}

impl KafkaStore {
    pub(crate) const fn of(core: Arc<Core>, threads: Vec<JoinHandle<()>>) -> Self {
        Self { core, threads }
    }

    /// How far this host has folded the log.
    #[must_use]
    pub fn catch_up(&self) -> CatchUp {
        self.core.progress.catch_up()
    }

    /// Writes a checkpoint of every partition, as far as this host's view is.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn checkpoint(&self) -> Result<(), LogError> {
        let core = Arc::clone(&self.core);
        blocking::unblock(move || {
            for (partition, replica) in (0..).zip(&core.replicas) {
                let view = replica.engine();
                crate::checkpoint::save(&core.config, &core.genesis, view, partition)?;
            }
            Ok(())
        })
        .await
    }

    /// Removes what imports staged and did not go on with for
    /// [`staged_max`](crate::KafkaConfig::staged_max). A host that serves does it every hour.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn sweep(&self) -> Result<(), LogError> {
        crate::sweep::remove_staged(&self.core).await
    }

    /// The digest of each partition's fold: of all messages before the position.
    /// Two hosts at one position have the same.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn digests(&self) -> Result<Vec<(u64, [u8; 32])>, LogError> {
        let mark = |replica| crate::view::stands_at(replica);
        let marks = self.core.replicas.iter().map(mark);
        let digest =
            |mark: Result<crate::mark::Mark, _>| mark.map(|mark| (mark.next, mark.digest.0));
        marks.map(digest).collect::<Result<_, _>>().map_err(replica::unavailable)
    }

    /// Why this host stopped, if it has.
    #[must_use]
    pub fn halted(&self) -> Option<&Halt> {
        self.core.progress.halted()
    }

    /// What the log starts with.
    #[must_use]
    pub fn genesis(&self) -> &Genesis {
        &self.core.genesis
    }
}

impl Drop for KafkaStore {
    fn drop(&mut self) {
        self.core.progress.close();
        for replica in &self.core.replicas {
            replica.close();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl EventLog for KafkaStore {
    fn store_id(&self) -> StoreId {
        self.core.genesis.store_id.clone()
    }

    fn limits(&self) -> Limits {
        self.core.config.limits
    }

    fn durability(&self) -> Durability {
        self.core.durability
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        session.check()?;
        let op = Op::Create { id, session: Box::new(session) };
        answer!(self.core.write(op).await, Row).map(|row| *row)
    }

    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError> {
        let partition = self.core.partition_of(session);
        self.core.up_to_date(partition, level).await?;
        self.core.replica(partition).get(session).await
    }

    async fn list(&self, query: ListQuery, level: Level) -> Result<Page, LogError> {
        query.check()?;
        self.core.all_up_to_date(level).await?;
        crate::lists::page(&self.core.replicas, query).await
    }

    async fn marked(
        &self,
        mark: Mark,
        after: Option<&SessionUid>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, LogError> {
        self.core.all_up_to_date(Level::Committed).await?;
        crate::lists::marked(&self.core.replicas, mark, after, limit.clamp(1, MARKED_MAX)).await
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        let partition = self.core.partition_of(session);
        self.core.up_to_date(partition, Level::Committed).await?;
        // The metadata changes with the version alone, so that what this row
        // would come to is what it comes to if the version still stands.
        let row = self.core.replica(partition).get(session).await?;
        if row.version == version {
            patch.applied_to(&row.session)?;
        }
        let op = Op::Update { id, session: session.clone(), version, patch };
        answer!(self.core.write(op).await, Row).map(|row| *row)
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        self.core.config.limits.check(batch)?;
        self.core.progress.check()?;
        let op = Op::Append { id, session: session.clone(), fence, batch: batch.clone() };
        answer!(self.core.write(op).await, Head)
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let op = Op::Mint { id, session: session.clone(), current, head: None, holder };
        answer!(self.core.write(op).await, Fence)
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
        answer!(self.core.write(op).await, Fence)
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        Ok(self.get(session, level).await?.view.head)
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        let partition = self.core.partition_of(session);
        self.core.up_to_date(partition, level).await?;
        self.core.replica(partition).records(session, from, limit).await
    }

    async fn execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<mainspring_eventlog::ExecutionView>, LogError> {
        let partition = self.core.partition_of(session);
        self.core.up_to_date(partition, Level::Committed).await?;
        self.core.replica(partition).execution(session, id).await
    }

    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        use futures_util::{StreamExt as _, TryStreamExt as _};
        let (core, session) = (Arc::clone(&self.core), session.clone());
        let verified = async move {
            let partition = core.partition_of(&session);
            core.up_to_date(partition, Level::Committed).await?;
            Ok::<_, LogError>(core.replica(partition).verify(&session, after))
        };
        futures_util::stream::once(verified).try_flatten().boxed()
    }

    async fn fork(
        &self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        children: Vec<(NewSession, Event)>,
    ) -> Result<Vec<SessionRow>, LogError> {
        children.iter().try_for_each(|(child, _)| child.check())?;
        let partition = self.core.partition_of(parent);
        self.core.up_to_date(partition, Level::Committed).await?;
        let view = Box::new(self.core.replica(partition).view_at(parent, at).await?);
        if view.deletion == mainspring_api::DeletionState::Pending {
            return Err(LogError::Deleted(parent.clone()));
        }
        if children.iter().any(|(child, _)| !self.may_be_child(parent, &child.uid)) {
            return Err(LogError::Invalid(
                "a child's uid is not one that a fork of its parent may make",
            ));
        }
        let children = replica::linked(at, children, &self.core.config.limits)?;
        if children.is_empty() || children.len() > self.core.config.limits.children_max {
            return Err(LogError::Invalid("a fork makes 1 to 128 children"));
        }
        let op = Op::Fork { id, parent: parent.clone(), at, view, children };
        answer!(self.core.write(op).await, Rows)
    }

    fn may_be_child(&self, parent: &SessionUid, uid: &SessionUid) -> bool {
        self.core.partition_of(parent) == self.core.partition_of(uid)
    }

    async fn import(
        &self,
        id: AppendId,
        row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError> {
        let writer = ImportWriter::new(Arc::clone(&self.core), &row.session.uid);
        replica::import(&writer, id, row, records).await
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        self.core.all_up_to_date(Level::Committed).await?;
        let store = replica::staged_name(id);
        Ok(crate::import::furthest(&self.core, &store).await?.map_or(Head::EMPTY, |(_, head)| head))
    }

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        crate::notes::annotate(&self.core, session, seq, fence, (key, value)).await
    }

    fn follow(&self) -> Option<&dyn Follow> {
        Some(self)
    }

    fn rows(&self) -> Option<&dyn NamedRows> {
        Some(self)
    }

    fn liveness(&self) -> Option<&dyn Liveness> {
        Some(self)
    }

    fn warmth(&self) -> Option<&dyn Warmth> {
        Some(self)
    }
}
