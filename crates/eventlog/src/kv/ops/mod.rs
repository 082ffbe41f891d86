//! The operations that write, each decided and applied inside one transaction.

mod append;
mod catch_up;
mod fork;
mod import;
mod named;
mod purge;
mod rows;
mod session;
mod settled;
mod table;

use std::cell::OnceCell;

use mainspring_api::{AppendId, Bytes, Event, Fence, Head, Seq, SessionUid, Timestamp};

use super::index::Indexed;
use super::keys;
use super::row::{KvRow, broken_row};
use crate::chain::{Batch, StoredRecord};
use crate::engine::{EngineError, KvWrite, Space};
use crate::error::LogError;
use crate::log::{Holder, ImportRow, Limits, NewSession, RowKey, RowPatch, SessionRow};
use crate::view::SessionView;
pub(super) use append::stored_as;
pub(super) use import::{Staged, staged, staged_in};
pub(super) use named::{decode_named, live_named};
pub(super) use rows::Rows;
pub(super) use settled::settled;
pub(super) use table::execution;

/// Note: when a record was committed, RFC 3339.
pub(super) const COMMIT_TIME: &str = "commit_time";
/// Note on a batch's first record: the id of the append.
pub(super) const APPEND_ID: &str = "append_id";

/// One write.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "as the arguments of the contract's operations")]
pub enum Op {
    /// [`EventLog::create`](crate::EventLog::create).
    Create { id: AppendId, session: Box<NewSession> },
    /// [`EventLog::update`](crate::EventLog::update).
    Update { id: AppendId, session: SessionUid, version: u64, patch: RowPatch },
    /// [`EventLog::append`](crate::EventLog::append).
    Append { id: AppendId, session: SessionUid, fence: Fence, batch: Batch },
    /// [`EventLog::mint`](crate::EventLog::mint), and with `head`
    /// [`EventLog::acquire_if_head`](crate::EventLog::acquire_if_head).
    Mint { id: AppendId, session: SessionUid, current: Fence, head: Option<Head>, holder: Holder },
    /// [`EventLog::fork`](crate::EventLog::fork), with the fold at `at` and each
    /// child's marker linked to it.
    Fork {
        id: AppendId,
        parent: SessionUid,
        at: Head,
        view: Box<SessionView>,
        children: Vec<(NewSession, Batch)>,
    },
    /// [`EventLog::annotate`](crate::EventLog::annotate).
    Annotate { session: SessionUid, seq: Seq, fence: Fence, key: String, value: String },
    /// Starts an import, or finds how far it is.
    BeginImport { store: SessionUid },
    /// Puts records of an import where nobody sees them yet.
    Stage { store: SessionUid, after: Head, records: Vec<(StoredRecord, Event)> },
    /// Makes what was staged up to `head` a session.
    Publish { id: AppendId, store: SessionUid, row: Box<ImportRow>, head: Head },
    /// Removes what was staged, as much as one transaction should.
    Unstage { store: SessionUid },
    /// Makes a tombstone of a row.
    Bury { id: AppendId, session: SessionUid },
    /// Removes records that no session shows any more, as many as one
    /// transaction should.
    Reclaim { session: SessionUid },
    /// Folds records into a row that is behind them.
    CatchUp { session: SessionUid },
    /// [`NamedRows::put_named`](crate::NamedRows::put_named).
    PutNamed { id: AppendId, key: RowKey, version: u64, value: Option<Bytes> },
}

impl Op {
    /// The session that is there and that it changes.
    pub(super) const fn changes(&self) -> Option<&SessionUid> {
        match self {
            Self::Append { session, .. }
            | Self::Update { session, .. }
            | Self::Mint { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Roughly what it adds to a transaction.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.bytes(),
            Self::Stage { records, .. } => {
                records.iter().map(|(record, _)| record.canonical.len()).sum()
            }
            Self::PutNamed { value, .. } => 256 + value.as_ref().map_or(0, Bytes::len),
            _ => 1_024,
        }
    }
}

/// What a write answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A row as it is now.
    Row(Box<SessionRow>),
    /// The rows of a fork's children.
    Rows(Vec<SessionRow>),
    /// An import that is done, and the head that it was published with.
    Imported(Box<SessionRow>, Option<Head>),
    /// The journal's head now.
    Head(Head),
    /// The fence in force now.
    Fence(Fence),
    /// The version of a named row.
    Version(u64),
    /// It is done.
    Done,
    /// There is more to remove.
    More,
}

/// A refusal of one operation, or a failure of the whole transaction.
#[derive(Debug)]
pub(super) enum OpError {
    Refused(LogError),
    Engine(EngineError),
}

impl From<LogError> for OpError {
    fn from(error: LogError) -> Self {
        Self::Refused(error)
    }
}

impl From<EngineError> for OpError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

type Result<T> = std::result::Result<T, OpError>;

/// One transaction.
pub(super) struct Transaction<'a> {
    kv: &'a mut dyn KvWrite,
    rows: &'a mut Rows,
    limits: &'a Limits,
    now: Timestamp,
    /// `now`, as records carry it.
    commit_time: OnceCell<String>,
    /// Whether the log has decided already, so that nothing is looked up to decide.
    judged: bool,
    pub(super) wrote: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        kv: &'a mut dyn KvWrite,
        rows: &'a mut Rows,
        limits: &'a Limits,
        now: Timestamp,
    ) -> Self {
        Self { kv, rows, limits, now, commit_time: OnceCell::new(), judged: false, wrote: false }
    }

    /// A transaction of operations that a log has decided.
    pub(super) fn judged(
        kv: &'a mut dyn KvWrite,
        rows: &'a mut Rows,
        limits: &'a Limits,
        now: Timestamp,
    ) -> Self {
        Self { judged: true, ..Self::new(kv, rows, limits, now) }
    }

    /// Decides and applies one operation. A refusal has written nothing.
    pub(super) fn apply(&mut self, op: &Op) -> Result<Reply> {
        // An append that is at the head cannot have taken effect before, and
        // what a log has decided is done now.
        if !self.judged
            && !matches!(op, Op::Append { .. })
            && let Some(reply) = settled(self.kv, self.rows, op)?
        {
            return Ok(reply);
        }
        match op {
            Op::Create { id, session } => self.create(*id, session),
            Op::Update { id, session, version, patch } => {
                self.update(*id, session, *version, patch)
            }
            Op::Append { id, session, fence, batch } => self.append(*id, session, *fence, batch),
            Op::Mint { id, session, current, head, holder } => {
                self.mint(*id, session, *current, *head, holder)
            }
            Op::Fork { id, parent, at, view, children } => {
                self.fork(*id, parent, *at, view, children)
            }
            Op::Annotate { session, seq, fence, key, value } => {
                self.annotate(session, *seq, *fence, key, value)
            }
            Op::BeginImport { store } => self.begin_import(store),
            Op::Stage { store, after, records } => self.stage(store, *after, records),
            Op::Publish { id, store, row, head } => self.publish(*id, store, row, *head),
            Op::Unstage { store } => self.unstage(store),
            Op::Bury { id, session } => self.bury(*id, session),
            Op::Reclaim { session } => self.reclaim(session),
            Op::CatchUp { session } => self.catch_up(session),
            Op::PutNamed { id, key, version, value } => {
                self.put_named(*id, key, *version, value.as_ref())
            }
        }
    }

    /// As [`Transaction::apply`], also what takes several steps.
    pub(super) fn apply_whole(&mut self, op: &Op) -> Result<Reply> {
        loop {
            match self.apply(op)? {
                Reply::More => {}
                reply => return Ok(reply),
            }
        }
    }

    /// Puts a new row.
    fn add(&mut self, mut row: KvRow) -> Result<SessionRow> {
        put_row(self.kv, &mut row, self.judged)?;
        self.wrote = true;
        let answer = row.row.clone();
        self.rows.insert(row);
        Ok(answer)
    }

    fn refuse_taken(&mut self, uid: &SessionUid) -> Result<()> {
        if self.rows.find(self.kv, uid)?.is_some() {
            return Err(LogError::AlreadyExists(uid.clone()).into());
        }
        Ok(())
    }
}

/// Leaves a session behind as one that cannot be read.
pub(super) fn break_off(
    kv: &mut dyn KvWrite,
    rows: &mut Rows,
    session: &SessionUid,
    error: &LogError,
) -> std::result::Result<(), EngineError> {
    // So that the lists have it where it stood, however it was applied.
    rows.write_one(kv, session)?;
    rows.forget_one(session);
    kv.put(Space::Rows, &keys::row(session), &broken_row(error))
}

/// Puts a row now or, `at_end`, once for all that its transaction does to it:
/// [`Rows::write`] puts it then. Only where a refusal breaks its session off:
/// what is forgotten half way was not put before either.
fn put_row(kv: &mut dyn KvWrite, row: &mut KvRow, at_end: bool) -> Result<()> {
    if at_end {
        row.unwritten = true;
        return Ok(());
    }
    Ok(write_row(kv, row)?)
}

/// Puts a row, and moves it in the lists that it stands in.
fn write_row(kv: &mut dyn KvWrite, row: &mut KvRow) -> std::result::Result<(), EngineError> {
    let indexed = Indexed::of(&row.row);
    row.indexed.move_to(kv, &row.row, indexed)?;
    row.indexed = indexed;
    kv.put(Space::Rows, &keys::row(&row.row.session.uid), &row.encode())
}

/// Refuses what would need the records of a tombstone.
fn refuse_purged(row: &KvRow) -> Result<()> {
    if row.row.purged { Err(LogError::Deleted(row.row.session.uid.clone()).into()) } else { Ok(()) }
}
