//! The contract of a log store.

mod bounds;
mod durability;
mod import;
mod parts;
mod types;

use std::fmt;

use async_trait::async_trait;
use mainspring_api::{
    AppendId, BoxStream, Event, ExecutionId, Fence, Head, Seq, SessionUid, StoreId,
};

pub use bounds::{
    LIST_PAGE_BYTES_MAX, PROJECT_BYTES_MAX, SESSION_METADATA_BYTES_MAX, SESSION_NAME_BYTES_MAX,
};
pub use durability::Durability;
pub use parts::{
    Follow, HOST_ADDRESS_BYTES_MAX, Liveness, NAMED_ROW_BYTES_MAX, NamedRow, NamedRows, Purge,
    ROW_KEY_BYTES_MAX, RowKey, WarmHost, Warmth,
};
pub use types::{
    FenceRow, Holder, ImportRecord, ImportRow, Level, Limits, ListQuery, MARKED_MAX, Mark,
    NewSession, Page, PageKey, ReadLimit, RowPatch, SessionRow, Verified,
};

pub(crate) use import::ImportCheck;

use crate::chain::{Batch, StoredRecord};
use crate::error::LogError;
use crate::view::ExecutionView;

/// Append-only journals, one per session, with a row of metadata each.
///
/// Clones and handles share the data; methods may run concurrently, from any
/// number of hosts where the store allows it.
///
/// Every operation that writes takes an [`AppendId`]. **Settling an unknown
/// outcome**: send the same operation again, with the same id and arguments,
/// until it is judged. If the first copy took effect, the answer is the one
/// that it would have given; otherwise it is judged now. A mint or a change of a
/// row that a later one has overtaken by then answers `Moved`, whatever became
/// of its first copy: nothing of it is in force.
#[async_trait]
pub trait EventLog: fmt::Debug + Send + Sync + 'static {
    /// The random id of this store, drawn at its creation.
    fn store_id(&self) -> StoreId;

    /// Sizes that the store accepts.
    fn limits(&self) -> Limits;

    /// What an answered write is safe from.
    fn durability(&self) -> Durability {
        Durability::Local
    }

    /// Creates a session with an empty journal.
    ///
    /// # Errors
    /// - `AlreadyExists` when the uid is taken (by another operation id).
    /// - As [`NewSession::check`], before anything else is looked at.
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

    /// Rows of every project that carry `mark`, by uid, after `after`: at most
    /// `limit`, and at most [`MARKED_MAX`]. A row that cannot be read is left out.
    ///
    /// # Guarantees
    /// Going on after the last uid until a page is empty shows every session
    /// that carried the mark throughout exactly once.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn marked(
        &self,
        mark: Mark,
        after: Option<&SessionUid>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, LogError>;

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
    /// - `TooLarge`, `TooMany`: an event or the batch exceeds [`Limits`].
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
    /// `SessionNotFound`; then `Conflict` when the head moved; then `Moved` when
    /// the fence did.
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

    /// What is known of one execution of a session, be it its own or inherited;
    /// `None` when its journal has no record of that id.
    ///
    /// Unless a store can look it up, this reads the journal.
    ///
    /// # Errors
    /// As [`EventLog::read`].
    async fn execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionView>, LogError> {
        let head = self.head(session, Level::Committed).await?.seq;
        let (mut view, mut next) = (None, Seq::new(1));
        while next <= head {
            let page = self.read(session, next, ReadLimit::default(), Level::Committed).await?;
            let Some(last) = page.last() else { break };
            next = last.seq.next();
            for record in &page {
                ExecutionView::refold(&mut view, id, record.seq, &record.event()?);
            }
        }
        Ok(view)
    }

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
    /// children or too many; `Deleted` when the parent or its prefix is; `Conflict` when the record at `at` is another one;
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
    /// - On any error nothing is visible. Uid, create time, fences and notes are
    ///   kept; the fence starts at the highest one that was imported. A row that
    ///   comes with the head takes the place of `row`.
    /// - On any error but `AlreadyExists`, and when the process dies, what was
    ///   staged before is kept, and the same `id` goes on with it: the stream
    ///   starts at the first record again, or after [`EventLog::staged`]; of what
    ///   came at most 2 MiB are to be sent again. A refused record is not kept.
    /// - Once published, the same `id` with the same journal answers the same.
    ///
    /// # Errors
    /// `AlreadyExists`; `Tampered` at the first bad record, or when the last
    /// one is not the stated head; `Invalid` when `id` was begun, or is done,
    /// with another journal; whatever the stream yields.
    async fn import(
        &self,
        id: AppendId,
        row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError>;

    /// How much of the import `id` is staged: an import of that id goes on from
    /// there. [`Head::EMPTY`] when nothing is, or when it is published.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn staged(&self, id: AppendId) -> Result<Head, LogError>;

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

    /// Following journals as they grow, where the store can.
    fn follow(&self) -> Option<&dyn Follow> {
        None
    }

    /// Small named rows, where the store has them.
    fn rows(&self) -> Option<&dyn NamedRows> {
        None
    }

    /// Dropping the records of deleted sessions, where the store can.
    fn purge(&self) -> Option<&dyn Purge> {
        None
    }

    /// Signs of life, where more than one process writes.
    fn liveness(&self) -> Option<&dyn Liveness> {
        None
    }

    /// Which host has a session at hand, where more than one serves it.
    fn warmth(&self) -> Option<&dyn Warmth> {
        None
    }
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
