//! The store: the contract over a log that decides.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_api::{
    AppendId, BoxStream, Bytes, Event, ExecutionId, Fence, Head, OsEntropy, Seq, SessionUid,
    StoreId,
};
use mainspring_eventlog::replica::{self, Op, Replica, Reply, Terms};
use mainspring_eventlog::{
    Batch, Durability, EventLog, Follow, HOST_ADDRESS_BYTES_MAX, Holder, ImportRecord, ImportRow,
    Level, Limits, ListQuery, Liveness, LogError, MARKED_MAX, Mark, NamedRow, NamedRows,
    NewSession, Page, ReadLimit, RowKey, RowPatch, SessionRow, StoredRecord, Verified, WarmHost,
    Warmth,
};

use crate::config::KafkaConfig;
use crate::ends::Ends;
use crate::engine::PartitionEngine;
use crate::error::Halt;
use crate::frame::{Genesis, Statement};
use crate::hosts::Hosts;
use crate::import::ImportWriter;
use crate::judge::{ROWS_PARTITION, Void, partition_of};
use crate::lane::Lanes;
use crate::progress::{CatchUp, Progress};

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
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// What all parts of a store share.
pub(crate) struct Core {
    pub(crate) config: KafkaConfig,
    pub(crate) genesis: Genesis,
    pub(crate) durability: Durability,
    pub(crate) replicas: Vec<Replica<PartitionEngine>>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) ends: Ends,
    /// Only a host that serves, or asks who lives, has it.
    pub(crate) hosts: OnceLock<Hosts>,
}

impl fmt::Debug for KafkaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaStore")
            .field("topic", &self.core.config.topic)
            .field("genesis", &self.core.genesis)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("genesis", &self.genesis).finish_non_exhaustive()
    }
}

impl KafkaStore {
    pub(crate) const fn of(core: Arc<Core>, threads: Vec<JoinHandle<()>>) -> Self {
        Self { core, threads, tasks: Vec::new() }
    }

    /// Ends a task with this store.
    pub(crate) fn with_task(&mut self, task: tokio::task::JoinHandle<()>) {
        self.tasks.push(task);
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
    /// [`staged_max`](KafkaConfig::staged_max). A host that serves does it every hour.
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
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        for replica in &self.core.replicas {
            replica.close();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// How long a read waits before it writes a barrier, for a log whose last
/// message never reaches a reader, such as the mark of a foreign transaction.
const NUDGE_AFTER: Duration = Duration::from_secs(1);

impl Core {
    pub(crate) fn partition_of(&self, uid: &SessionUid) -> u32 {
        partition_of(uid, self.genesis.partitions)
    }

    pub(crate) fn replica(&self, partition: u32) -> &Replica<PartitionEngine> {
        &self.replicas[partition as usize]
    }

    /// Waits until this host's view has all that was committed when this began.
    pub(crate) async fn up_to_date(&self, partition: u32, level: Level) -> Result<(), LogError> {
        self.progress.check()?;
        let end = match level {
            Level::Committed => self.ends.of(partition).await?,
            Level::Strict => self.barrier(partition).await?,
        };
        if self.progress.wait(partition, end, NUDGE_AFTER).await? {
            return Ok(());
        }
        let CatchUp { folded, end: all } = self.progress.catch_up();
        if all.saturating_sub(folded) < 2 {
            self.barrier(partition).await?;
        }
        if self.progress.wait(partition, end, self.config.read_max).await? {
            return Ok(());
        }
        let CatchUp { folded, end: all } = self.progress.catch_up();
        let at = self.progress.applied(partition);
        Err(LogError::unavailable(format!(
            "this host is catching up with the log: partition {partition} is at {at} of {end}, \
             all of them at {folded} of {all}"
        )))
    }

    /// The hosts of this store; from the first call on this one listens.
    fn hosts(&self) -> Result<&Hosts, LogError> {
        if let Some(hosts) = self.hosts.get() {
            return Ok(hosts);
        }
        let started = Hosts::start(&self.config, self.lanes.writer())?;
        // Another call may have been quicker: then its hosts are used.
        Ok(self.hosts.get_or_init(|| started))
    }

    async fn barrier(&self, partition: u32) -> Result<u64, LogError> {
        let id = AppendId::random(&OsEntropy);
        let judged = self.lanes.write(partition, id, &Statement::Barrier, None, false).await;
        judged.map(|judged| judged.next).map_err(|error| match error {
            // A barrier changes nothing, so there is nothing to settle.
            LogError::Unavailable { message, .. } => LogError::unavailable(message),
            other => other,
        })
    }

    /// All partitions' views have all that was committed when this began.
    pub(crate) async fn all_up_to_date(&self, level: Level) -> Result<(), LogError> {
        let waits = (0..self.genesis.partitions).map(|partition| self.up_to_date(partition, level));
        futures_util::future::try_join_all(waits).await.map(drop)
    }

    /// Writes an operation to its partition and answers what it came to.
    pub(crate) async fn write_to(
        &self,
        partition: u32,
        op: Op,
        terms: Terms,
    ) -> Result<Reply, LogError> {
        self.progress.check()?;
        let wants_reply = !matches!(op, Op::Append { .. } | Op::Mint { .. });
        let id = id_of(&op);
        let op = Arc::new(op);
        let statement = Statement::Op(terms);
        let sent = self.lanes.write(partition, id, &statement, Some(Arc::clone(&op)), wants_reply);
        let judged = sent.await?;
        match (judged.void(), judged.reply) {
            (None, Some(reply)) => reply,
            (None, None) => Ok(counted(&op)),
            (Some(void), _) => {
                // What is there now was decided before this copy.
                self.settle(partition, &op, void, judged.next).await
            }
        }
    }

    /// A copy of an operation was judged and does not count: if an earlier one
    /// did, its answer is the operation's; otherwise no copy ever can.
    async fn settle(
        &self,
        partition: u32,
        op: &Op,
        void: Void,
        next: u64,
    ) -> Result<Reply, LogError> {
        if !self.progress.wait(partition, next, self.config.read_max).await? {
            return Err(crate::error::unknown("this host's view is behind the log"));
        }
        if let Some(reply) = self.replica(partition).settled(op).await? {
            return Ok(reply);
        }
        Err(refusal(op, void))
    }
}

/// The answer of an operation that counts, where that follows from itself.
fn counted(op: &Op) -> Reply {
    match op {
        Op::Append { batch, .. } => Reply::Head(batch.head()),
        Op::Mint { current, .. } => Reply::Fence(current.next()),
        _ => Reply::Done,
    }
}

/// The id that an operation carries.
fn id_of(op: &Op) -> AppendId {
    match op {
        Op::Create { id, .. }
        | Op::Update { id, .. }
        | Op::Append { id, .. }
        | Op::Mint { id, .. }
        | Op::Fork { id, .. }
        | Op::Publish { id, .. }
        | Op::PutNamed { id, .. } => *id,
        _ => AppendId::random(&OsEntropy),
    }
}

/// What an operation that does not count is refused with.
fn refusal(op: &Op, void: Void) -> LogError {
    let session = op.terms().and_then(|terms| terms.session().cloned());
    match (void, op) {
        (
            Void::NotFound | Void::Version,
            Op::BeginImport { .. } | Op::Stage { .. } | Op::Publish { .. } | Op::Unstage { .. },
        ) => LogError::Moved { what: "an import of the same id" },
        (Void::NotFound, _) => session
            .map_or(LogError::Invalid("there is nothing of that name"), LogError::SessionNotFound),
        (Void::Exists, Op::Fork { children, .. }) => {
            LogError::AlreadyExists(children[0].0.uid.clone())
        }
        (Void::Exists, _) => session
            .map_or(LogError::Moved { what: "an import of the same id" }, LogError::AlreadyExists),
        (Void::Head(head), Op::Append { batch, .. }) => {
            LogError::Conflict { expected: batch.base(), head }
        }
        (Void::Head(head), Op::Mint { head: Some(expected), .. }) => {
            LogError::Conflict { expected: *expected, head }
        }
        (Void::Head(_), _) => LogError::Moved { what: "an import of the same id" },
        (Void::Fence(current), Op::Append { .. } | Op::Annotate { .. }) => {
            LogError::Fenced { current }
        }
        (Void::Fence(_), _) => LogError::Moved { what: "the fence" },
        (Void::Version, Op::Annotate { .. }) => LogError::Moved { what: "the note" },
        (Void::Version, _) => LogError::Moved { what: "the row's version" },
        (Void::Owner, _) => LogError::Invalid("the session has an owner already"),
        (Void::Deleted, _) => {
            session.map_or(LogError::Invalid("the session is to be deleted"), LogError::Deleted)
        }
        (Void::Beyond, Op::Fork { .. }) => LogError::Invalid("the position is beyond the head"),
        (Void::Beyond, _) => LogError::Invalid("there is no such record of this session"),
        (Void::Misplaced, _) => {
            LogError::Invalid("it does not belong into the partition that it was written to")
        }
        (Void::Frame, _) => LogError::Unavailable {
            message: "the store stopped while the message was judged".to_owned(),
            outcome: mainspring_api::Outcome::Unknown,
            source: None,
        },
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

impl Core {
    async fn write(&self, op: Op) -> Result<Reply, LogError> {
        let terms = op.terms().ok_or(LogError::Unsupported("this operation"))?;
        let partition = match &op {
            Op::PutNamed { .. } => ROWS_PARTITION,
            _ => self.partition_of(terms.session().expect("only rows and imports have none")),
        };
        self.write_to(partition, op, terms).await
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

#[async_trait]
impl Liveness for KafkaStore {
    async fn announce(&self, holder: &Holder) -> Result<(), LogError> {
        self.core.hosts()?.announce(holder).await
    }

    async fn is_alive(&self, holder: &str) -> Result<bool, LogError> {
        self.core.hosts()?.is_alive(holder).await
    }
}

#[async_trait]
impl Warmth for KafkaStore {
    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        self.core.hosts.get()?.warm_host(self.core.partition_of(session))
    }

    async fn advertise(&self, address: &str) -> Result<(), LogError> {
        if address.len() > HOST_ADDRESS_BYTES_MAX {
            return Err(LogError::Invalid("the address of a host is too long"));
        }
        self.core.hosts()?.advertise(address).await
    }
}

impl Follow for KafkaStore {
    fn follow(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<StoredRecord, LogError>> {
        use futures_util::{StreamExt as _, TryStreamExt as _};
        let (core, session) = (Arc::downgrade(&self.core), session.clone());
        let followed = async move {
            let closed = || LogError::unavailable("the store is closed");
            let core = core.upgrade().ok_or_else(closed)?;
            let partition = core.partition_of(&session);
            core.up_to_date(partition, Level::Committed).await?;
            Ok::<_, LogError>(core.replica(partition).follow(&session, after))
        };
        futures_util::stream::once(followed).try_flatten().boxed()
    }
}

#[async_trait]
impl NamedRows for KafkaStore {
    async fn named(&self, key: &RowKey) -> Result<Option<NamedRow>, LogError> {
        self.core.up_to_date(ROWS_PARTITION, Level::Committed).await?;
        self.core.replica(ROWS_PARTITION).named(key).await
    }

    async fn named_of(
        &self,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, LogError> {
        self.core.up_to_date(ROWS_PARTITION, Level::Committed).await?;
        self.core.replica(ROWS_PARTITION).named_of(kind, after, limit).await
    }

    async fn put_named(
        &self,
        id: AppendId,
        key: &RowKey,
        version: u64,
        value: Option<Bytes>,
    ) -> Result<u64, LogError> {
        let (bytes, bytes_max) =
            (value.as_ref().map_or(0, Bytes::len), mainspring_eventlog::NAMED_ROW_BYTES_MAX);
        if bytes > bytes_max {
            let (bytes, bytes_max) = (bytes as u64, bytes_max as u64);
            return Err(LogError::TooLarge { what: "named row", bytes, bytes_max });
        }
        let op = Op::PutNamed { id, key: key.clone(), version, value };
        answer!(self.core.write(op).await, Version)
    }
}
