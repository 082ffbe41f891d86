//! The contract of a log store.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use mainspring_api::{
    AppendId, BoxStream, Event, ExecState, Fence, Head, IdentityRef, Origin, Owner, Seq,
    SessionUid, StoreId, Timestamp,
};

use crate::canonical;
use crate::chain::{Batch, ChainVerifier, StoredRecord};
use crate::error::LogError;
use crate::view::SessionView;

/// Append-only journals, one per session, with a row of metadata each.
///
/// Clones and handles share the data; methods may run concurrently, from any
/// number of hosts where the store allows it.
///
/// Every operation that writes takes an [`AppendId`]. **Settling an unknown
/// outcome**: send the same operation again, with the same id and arguments,
/// until it is judged. If the first copy took effect, the answer is the one
/// that it would have given; otherwise it is judged now.
#[async_trait]
pub trait EventLog: fmt::Debug + Send + Sync + 'static {
    /// The random id of this store, drawn at its creation.
    fn store_id(&self) -> StoreId;

    /// Sizes that the store accepts.
    fn limits(&self) -> Limits;

    /// Creates a session with an empty journal.
    ///
    /// # Errors
    /// `AlreadyExists` when the uid is taken (by another operation id).
    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError>;

    /// One row, with its fold.
    ///
    /// # Errors
    /// `SessionNotFound`.
    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError>;

    /// Rows that match, by create time descending, then uid ascending.
    ///
    /// # Guarantees
    /// Walking the pages shows every session that existed throughout exactly
    /// once. A page may be short while its token says that there is more.
    async fn list(&self, query: ListQuery, level: Level) -> Result<Page, LogError>;

    /// Changes a row, if its version is still `version`.
    ///
    /// # Errors
    /// `SessionNotFound`; `Moved` when the version moved.
    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError>;

    /// Appends `batch` as one unit, if the journal's head is the batch's base
    /// and no newer fence was minted.
    ///
    /// # Guarantees
    /// - On `Ok` every record is durable and all later reads see it; the head
    ///   after it is returned.
    /// - Readers see the whole batch or none of it.
    /// - The row's fold moves in the same transaction.
    ///
    /// # Errors
    /// Tested in this order, with nothing written:
    /// - `TooLarge`: an event or the batch exceeds [`Limits`].
    /// - `SessionNotFound`. Nothing is created.
    /// - `Conflict`: the journal ends elsewhere, and the record after the base
    ///   was not written by this very append.
    /// - `Fenced`: a newer fence exists. A fence above the current one is
    ///   accepted and does not raise it.
    /// - `Unavailable`: with outcome `Unknown` it may have been written.
    ///
    /// # Cancellation
    /// A dropped future leaves the batch written or not written, never in part.
    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError>;

    /// Mints the next fence for `holder`, if the fence is still `current`.
    ///
    /// # Errors
    /// `SessionNotFound`; `Moved` when another fence was minted meanwhile.
    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError>;

    /// As [`EventLog::mint`], and only if the journal still ends at `head`, so
    /// that a losing caller does not stop a healthy writer.
    ///
    /// # Errors
    /// `SessionNotFound`; `Conflict` when the head moved; `Moved` when the fence did.
    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError>;

    /// The head of a journal, as its row holds it.
    ///
    /// # Errors
    /// `SessionNotFound`.
    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError>;

    /// Records from `from` on (0 is 1), in order, as many as `limit` allows but
    /// at least one where there is one. Hashes come as they are stored.
    ///
    /// # Errors
    /// `SessionNotFound`; `Corrupt` for a record that cannot be taken apart.
    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError>;

    /// Recomputes the chain after `after`, which is known to hold, up to the
    /// row's head. Yields progress and ends with [`Verified::Done`] or an error.
    ///
    /// # Errors
    /// In the stream: `Tampered`, naming the first bad position; a journal that
    /// ends before its row's head is `Tampered` at the first missing one.
    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>>;

    /// Creates children that share the parent's records up to `at`, each with
    /// its first fence and its marker as one more record. All or none.
    ///
    /// # Guarantees
    /// At most two commits at any length; the prefix is shared, not copied. A
    /// child shows its own first fence for the whole prefix, and the parent's notes.
    ///
    /// # Errors
    /// `SessionNotFound`; `Invalid` when `at` is beyond the head, there are no
    /// children or too many; `Conflict` when the record at `at` is another one;
    /// `AlreadyExists` when a child's uid is taken.
    async fn fork(
        &self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        children: Vec<(NewSession, Event)>,
    ) -> Result<Vec<SessionRow>, LogError>;

    /// Whether a fork of `parent` may create `uid` in this store.
    fn may_be_child(&self, parent: &SessionUid, uid: &SessionUid) -> bool {
        let _ = (parent, uid);
        true
    }

    /// Stages `records`, verifies them, and publishes the session in one step.
    ///
    /// # Guarantees
    /// On any error nothing is visible. Uid, create time, fences and notes are
    /// kept; the fence starts at the highest one that was imported. A row that
    /// comes with the head takes the place of `row`.
    ///
    /// # Errors
    /// `AlreadyExists`; `Tampered` at the first bad record, or when the last
    /// one is not `expect`; whatever the stream yields.
    async fn import(
        &self,
        id: AppendId,
        row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError>;

    /// Adds a note to a record, once, under the fence in force.
    ///
    /// # Errors
    /// `SessionNotFound`; `Fenced`; `Invalid` when there is no such record;
    /// `Moved` when the note exists with another value.
    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError>;
}

/// Sizes that a store accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Canonical bytes of one event. Default 16 MiB.
    pub event_bytes_max: usize,
    /// Canonical bytes of one batch. Default 64 MiB.
    pub batch_bytes_max: usize,
    /// Records of one batch. Default 4,096.
    pub batch_records_max: usize,
    /// Children of one fork. 128.
    pub children_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_bytes_max: 16 << 20,
            batch_bytes_max: 64 << 20,
            batch_records_max: 4_096,
            children_max: 128,
        }
    }
}

impl Limits {
    /// Checks a batch, before anything else is looked at.
    ///
    /// # Errors
    /// `TooLarge`, naming what exceeds which bound.
    pub fn check(&self, batch: &Batch) -> Result<(), LogError> {
        let over = |what, bytes: usize, max: usize| {
            Err(LogError::TooLarge { what, bytes: bytes as u64, bytes_max: max as u64 })
        };
        if batch.len() > self.batch_records_max {
            return Err(LogError::Invalid("a batch has too many records"));
        }
        if let Some(record) =
            batch.stored().find(|record| record.canonical.len() > self.event_bytes_max)
        {
            return over("event", record.canonical.len(), self.event_bytes_max);
        }
        if batch.bytes() > self.batch_bytes_max {
            return over("batch", batch.bytes(), self.batch_bytes_max);
        }
        Ok(())
    }
}

/// How fresh a read must be. The same on embedded stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Level {
    /// All that was committed when the call began.
    #[default]
    Committed,
    /// As `Committed`, confirmed by the log itself.
    Strict,
}

/// How much one read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Records.
    pub records: usize,
    /// Canonical bytes; the first record is returned whatever its size.
    pub bytes: usize,
}

impl Default for ReadLimit {
    fn default() -> Self {
        Self { records: 256, bytes: 1 << 20 }
    }
}

/// A session to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Its uid.
    pub uid: SessionUid,
    /// Project; never empty, the caller fills in the default.
    pub project: String,
    /// Display name.
    pub name: String,
    /// Harness; empty means the host's default.
    pub harness: String,
    /// Model.
    pub model: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Where it came from.
    pub origin: Option<Origin>,
    /// Provenance.
    pub identity: Option<IdentityRef>,
    /// Who owns it.
    pub owner: Option<Owner>,
}

impl NewSession {
    /// A session with nothing but a uid and a project.
    #[must_use]
    pub fn bare(uid: SessionUid, project: &str) -> Self {
        Self {
            uid,
            project: project.to_owned(),
            name: String::new(),
            harness: String::new(),
            model: String::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            origin: None,
            identity: None,
            owner: None,
        }
    }
}

/// A session's row: metadata, fence and fold.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// What it was created with.
    pub session: NewSession,
    /// Times that the metadata changed.
    pub version: u64,
    /// When it was created.
    pub create_time: Timestamp,
    /// When its row or journal last changed.
    pub update_time: Timestamp,
    /// The fence in force.
    pub fence: FenceRow,
    /// The parent that it was forked from, and where.
    pub parent: Option<(SessionUid, Seq)>,
    /// The fold of its journal.
    pub view: SessionView,
}

/// The fence in force, and who holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FenceRow {
    /// The token.
    pub fence: Fence,
    /// Who minted it; `None` when nobody did, as in an import.
    pub holder: Option<Holder>,
    /// When it was minted.
    pub since: Option<Timestamp>,
}

/// One incarnation of a host process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Random id of the incarnation.
    pub id: String,
    /// For people, such as `host/pid`.
    pub name: String,
}

/// Changes to a row; `None` leaves as it is.
#[derive(Debug, Clone, Default)]
pub struct RowPatch {
    /// Display name.
    pub name: Option<String>,
    /// Labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Owner, for a session that has none.
    pub owner: Option<Owner>,
}

/// Which rows to list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Project.
    pub project: String,
    /// Owner; `None` means all.
    pub owner: Option<Owner>,
    /// Turn states; empty means all.
    pub states: Vec<ExecState>,
    /// Harness; empty means all.
    pub harness: String,
    /// Labels that must all be there.
    pub labels: BTreeMap<String, String>,
    /// Rows a page, 1 to 500.
    pub page_size: usize,
    /// Start after this row.
    pub after: Option<PageKey>,
}

/// The place of a row in the list order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageKey {
    /// Create time of the last row seen.
    pub create_time: Timestamp,
    /// Its uid.
    pub uid: SessionUid,
}

/// A page of rows.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The rows.
    pub rows: Vec<SessionRow>,
    /// Where the next page starts, when there is one.
    pub next: Option<PageKey>,
}

/// The row of an imported session.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportRow {
    /// What it was created with.
    pub session: NewSession,
    /// When; `None` means now.
    pub create_time: Option<Timestamp>,
    /// The parent that it was forked from, and where.
    pub parent: Option<(SessionUid, Seq)>,
}

/// One record to import.
#[derive(Debug, Clone)]
pub enum ImportRecord {
    /// A record.
    Record(StoredRecord),
    /// The head that the records must end at, and the row if it is known only
    /// now; comes last, if at all.
    Head(Head, Option<Box<ImportRow>>),
}

/// How far a verification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// Position checked so far, of the head's.
    Checked {
        /// So far.
        seq: Seq,
        /// In all.
        head: Seq,
    },
    /// The chain holds up to this head.
    Done(Head),
}

/// How often [`mint_any`] repeats its compare-and-swap.
const MINT_TRIES_MAX: usize = 16;

/// Mints a fence whatever the current one is, repeating the compare-and-swap a
/// bounded number of times.
///
/// # Errors
/// As [`EventLog::mint`]; `Moved` when others kept minting throughout.
pub async fn mint_any(
    log: &(impl EventLog + ?Sized),
    session: &SessionUid,
    id: impl Fn() -> AppendId + Send + Sync,
    holder: Holder,
) -> Result<Fence, LogError> {
    for _ in 0..MINT_TRIES_MAX {
        let current = log.get(session, Level::Committed).await?.fence.fence;
        match log.mint(session, id(), current, holder.clone()).await {
            Err(LogError::Moved { .. }) => {}
            settled => return settled,
        }
    }
    Err(LogError::Moved { what: "the fence" })
}

/// Checks the records of one import as they come.
#[derive(Debug)]
pub(crate) struct ImportCheck {
    chain: ChainVerifier,
    ended: bool,
    pub(crate) fence_max: Fence,
}

impl ImportCheck {
    pub(crate) const fn new() -> Self {
        Self { chain: ChainVerifier::after(Head::EMPTY), ended: false, fence_max: Fence::NONE }
    }

    pub(crate) const fn head(&self) -> Head {
        self.chain.head()
    }

    /// Checks one item; returns the record to stage and its event, if it is one.
    pub(crate) fn check(
        &mut self,
        item: ImportRecord,
    ) -> Result<Option<(StoredRecord, Event)>, LogError> {
        if self.ended {
            return Err(LogError::Invalid("a record follows the head line"));
        }
        match item {
            ImportRecord::Record(record) => {
                self.chain.check(&record)?;
                self.fence_max = self.fence_max.max(record.fence);
                let event = record.event()?;
                // A form that we would not write ourselves could not be served
                // over the wire and hash the same there.
                let same = canonical::event_bytes(&event)
                    .is_ok_and(|bytes| bytes == record.canonical.as_ref());
                if !same {
                    let what = "it is not in the form that this version writes".to_owned();
                    return Err(LogError::UnsupportedRecord { seq: record.seq, what });
                }
                Ok(Some((record, event)))
            }
            ImportRecord::Head(head, _) => {
                self.ended = true;
                if head == self.chain.head() {
                    return Ok(None);
                }
                Err(LogError::Tampered {
                    seq: self.chain.head().seq.next().min(head.seq),
                    what: "the records do not end at the stated head",
                })
            }
        }
    }
}
