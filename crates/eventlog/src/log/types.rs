//! What the contract's operations take and give.

use std::collections::BTreeMap;

use mainspring_api::{
    ExecState, Fence, Head, IdentityRef, Origin, Owner, Seq, SessionUid, Timestamp,
};

use crate::chain::{Batch, StoredRecord};
use crate::error::LogError;
use crate::view::SessionView;

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
            return Err(LogError::TooMany {
                what: "records of one batch",
                count: batch.len(),
                count_max: self.batch_records_max,
            });
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
    /// Whether its records were dropped: then this row is all that is left.
    pub purged: bool,
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

/// What a host looks for in every project, for its own upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Its latest turn waits for a decision, and it is not deleted.
    Awaiting,
    /// It is to be deleted, and not purged to the end.
    Deleted,
}

/// Rows of one answer of [`EventLog::marked`](crate::EventLog::marked).
pub const MARKED_MAX: usize = 500;

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
