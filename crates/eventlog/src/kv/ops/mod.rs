//! The operations that write, each decided and applied inside one transaction.

mod fork;
mod import;
mod table;

use std::collections::HashMap;

use mainspring_api::{AppendId, Event, Fence, Head, Seq, SessionUid, Timestamp};

use super::keys;
use super::read;
use super::row::{self, KvRow, Ops};
use crate::canonical::rfc3339;
use crate::chain::{Batch, StoredRecord};
use crate::engine::{EngineError, KvRead, KvWrite, Space};
use crate::error::LogError;
use crate::log::{FenceRow, Holder, Limits, NewSession, RowPatch, SessionRow};
use crate::view::SessionView;
pub(super) use import::{Publish, is_published};
use table::Table;

/// Note: when a record was committed, RFC 3339.
pub(super) const COMMIT_TIME: &str = "commit_time";
/// Note on a batch's first record: the id of the append.
pub(super) const APPEND_ID: &str = "append_id";

/// One write.
#[derive(Debug)]
pub(super) enum Op {
    Create {
        id: AppendId,
        session: Box<NewSession>,
    },
    Update {
        id: AppendId,
        session: SessionUid,
        version: u64,
        patch: RowPatch,
    },
    Append {
        id: AppendId,
        session: SessionUid,
        fence: Fence,
        batch: Batch,
    },
    Mint {
        id: AppendId,
        session: SessionUid,
        current: Fence,
        head: Option<Head>,
        holder: Holder,
    },
    Fork {
        id: AppendId,
        parent: SessionUid,
        at: Head,
        view: Box<SessionView>,
        children: Vec<(NewSession, Event)>,
    },
    Annotate {
        session: SessionUid,
        seq: Seq,
        fence: Fence,
        key: String,
        value: String,
    },
    /// Puts records of an import where nobody sees them yet.
    Stage {
        id: AppendId,
        uid: SessionUid,
        records: Vec<StoredRecord>,
    },
    Publish(Box<Publish>),
    /// Removes records that this operation staged (or any did, with no id), as
    /// many as one transaction should.
    Unstage {
        id: Option<AppendId>,
        uid: SessionUid,
    },
}

impl Op {
    /// Roughly what it adds to a transaction.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.bytes(),
            Self::Stage { records, .. } => {
                records.iter().map(|record| record.canonical.len()).sum()
            }
            _ => 1_024,
        }
    }
}

/// What a write answers.
#[derive(Debug)]
pub(super) enum Reply {
    Row(Box<SessionRow>),
    Rows(Vec<SessionRow>),
    Head(Head),
    Fence(Fence),
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

/// Rows that are cached, and those that this transaction changed.
#[derive(Debug, Default)]
pub(super) struct Rows {
    cache: HashMap<SessionUid, KvRow>,
    pending: HashMap<SessionUid, KvRow>,
}

/// Rows kept in memory, about 1 KiB each.
const CACHE_ROWS_MAX: usize = 8_192;

impl Rows {
    /// The transaction is durable.
    pub(super) fn commit(&mut self) {
        if self.cache.len() + self.pending.len() > CACHE_ROWS_MAX {
            // Which rows go is of no consequence: each costs one read to bring back.
            self.cache.clear();
        }
        self.cache.extend(self.pending.drain());
    }

    /// The transaction was given up.
    pub(super) fn abort(&mut self) {
        self.pending.clear();
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.cache.clear();
        self.pending.clear();
    }

    fn find(&self, kv: &dyn KvRead, uid: &SessionUid) -> Result<Option<KvRow>> {
        match self.pending.get(uid).or_else(|| self.cache.get(uid)) {
            Some(row) => Ok(Some(row.clone())),
            None => Ok(read::find_row(kv, uid)??),
        }
    }

    fn load(&self, kv: &dyn KvRead, uid: &SessionUid) -> Result<KvRow> {
        self.find(kv, uid)?.ok_or_else(|| LogError::SessionNotFound(uid.clone()).into())
    }
}

/// One transaction.
pub(super) struct Transaction<'a> {
    pub(super) kv: &'a mut dyn KvWrite,
    pub(super) rows: &'a mut Rows,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    pub(super) wrote: bool,
}

/// What the log already says about an operation that may have taken effect.
pub(super) fn settled(kv: &dyn KvRead, rows: &Rows, op: &Op) -> Result<Option<Reply>> {
    let reply = match op {
        Op::Create { id, session } => created(kv, rows, &session.uid, *id)?,
        Op::Publish(publish) => created(kv, rows, &publish.row.session.uid, publish.id)?,
        Op::Update { id, session, .. } => rows
            .find(kv, session)?
            .filter(|row| row.ops.update == id.to_string())
            .map(|row| Reply::Row(Box::new(row.row))),
        Op::Mint { id, session, .. } => rows
            .find(kv, session)?
            .filter(|row| row.ops.mint == id.to_string())
            .map(|row| Reply::Fence(row.row.fence.fence)),
        Op::Append { id, session, batch, .. } => {
            let Some(row) = rows.find(kv, session)? else {
                return Ok(None);
            };
            appended(kv, &row, *id, batch)?.then(|| Reply::Head(batch.head()))
        }
        Op::Fork { id, children, .. } => {
            let mut done = Vec::with_capacity(children.len());
            for (child, _) in children {
                match rows.find(kv, &child.uid)?.filter(|row| row.ops.create == id.to_string()) {
                    Some(row) => done.push(row.row),
                    None => return Ok(None),
                }
            }
            (!done.is_empty()).then_some(Reply::Rows(done))
        }
        Op::Annotate { session, seq, key, value, .. } => {
            let Some(row) = rows.find(kv, session)? else {
                return Ok(None);
            };
            let stored = kv.get(Space::Notes, &keys::note(row.holder_of(*seq), *seq, key))?;
            (stored.as_deref() == Some(value.as_bytes())).then_some(Reply::Done)
        }
        Op::Stage { .. } | Op::Unstage { .. } => None,
    };
    Ok(reply)
}

fn created(kv: &dyn KvRead, rows: &Rows, uid: &SessionUid, id: AppendId) -> Result<Option<Reply>> {
    let row = rows.find(kv, uid)?.filter(|row| row.ops.create == id.to_string());
    Ok(row.map(|row| Reply::Row(Box::new(row.row))))
}

/// Whether the record after the batch's base was written by this very append.
fn appended(kv: &dyn KvRead, row: &KvRow, id: AppendId, batch: &Batch) -> Result<bool> {
    let first = batch.stored().next().expect("a batch is never empty");
    if row.row.view.head.seq < first.seq || first.seq < row.own_from() {
        return Ok(false);
    }
    let Some(value) = kv.get(Space::Records, &keys::record(&row.store, first.seq))? else {
        return Ok(false);
    };
    let record = keys::decode_record(first.seq, &value)?;
    Ok(record.hash == first.hash
        && record.notes.get(APPEND_ID).is_some_and(|note| *note == id.to_string()))
}

impl Transaction<'_> {
    /// Decides and applies one operation. A refusal has written nothing.
    pub(super) fn apply(&mut self, op: &Op) -> Result<Reply> {
        if let Some(reply) = settled(self.kv, self.rows, op)? {
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
            Op::Stage { id, uid, records } => self.stage(*id, uid, records),
            Op::Publish(publish) => self.publish(publish),
            Op::Unstage { id, uid } => self.unstage(*id, uid),
        }
    }

    fn save(&mut self, row: KvRow) -> Result<()> {
        self.wrote = true;
        self.kv.put(Space::Rows, &keys::row(&row.row.session.uid), &row.encode())?;
        self.rows.pending.insert(row.row.session.uid.clone(), row);
        Ok(())
    }

    fn refuse_taken(&self, uid: &SessionUid) -> Result<()> {
        if self.rows.find(self.kv, uid)?.is_some() {
            return Err(LogError::AlreadyExists(uid.clone()).into());
        }
        Ok(())
    }

    fn new_row(&mut self, id: AppendId, session: &NewSession) -> Result<KvRow> {
        let order = keys::order(&session.project, self.now, &session.uid);
        self.kv.put(Space::Order, &order, &[])?;
        Ok(KvRow {
            row: SessionRow {
                session: session.clone(),
                version: 1,
                create_time: self.now,
                update_time: self.now,
                fence: FenceRow::default(),
                parent: None,
                view: SessionView::default(),
            },
            store: session.uid.clone(),
            segments: Vec::new(),
            ops: Ops { create: id.to_string(), ..Ops::default() },
        })
    }

    fn create(&mut self, id: AppendId, session: &NewSession) -> Result<Reply> {
        if session.project.is_empty() {
            return Err(LogError::Invalid("a session has no project").into());
        }
        self.refuse_taken(&session.uid)?;
        let row = self.new_row(id, session)?;
        let answer = row.row.clone();
        self.save(row)?;
        Ok(Reply::Row(Box::new(answer)))
    }

    fn update(
        &mut self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: &RowPatch,
    ) -> Result<Reply> {
        let mut kv = self.rows.load(self.kv, session)?;
        if kv.row.version != version {
            return Err(LogError::Moved { what: "the row's version" }.into());
        }
        let RowPatch { name, labels, annotations, owner } = patch;
        let meta = &mut kv.row.session;
        if owner.is_some() && meta.owner.is_some() {
            return Err(LogError::Invalid("the session has an owner already").into());
        }
        if let Some(name) = name {
            meta.name.clone_from(name);
        }
        if let Some(labels) = labels {
            meta.labels.clone_from(labels);
        }
        if let Some(annotations) = annotations {
            meta.annotations.clone_from(annotations);
        }
        if owner.is_some() {
            meta.owner.clone_from(owner);
        }
        kv.row.version += 1;
        kv.row.update_time = self.now;
        kv.ops.update = id.to_string();
        let answer = kv.row.clone();
        self.save(kv)?;
        Ok(Reply::Row(Box::new(answer)))
    }

    fn append(
        &mut self,
        id: AppendId,
        session: &SessionUid,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Reply> {
        let kv = self.rows.load(self.kv, session)?;
        let head = kv.row.view.head;
        if head != batch.base() {
            return Err(LogError::Conflict { expected: batch.base(), head }.into());
        }
        if fence < kv.row.fence.fence {
            return Err(LogError::Fenced { current: kv.row.fence.fence }.into());
        }
        self.write_batch(kv, id, fence, batch)?;
        Ok(Reply::Head(batch.head()))
    }

    fn write_batch(
        &mut self,
        mut kv: KvRow,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<SessionRow> {
        let store = kv.store.clone();
        // The fold comes first: if it is refused, nothing was written.
        let mut table = Table {
            kv: self.kv,
            uid: &store,
            segments: &kv.segments,
            changed: HashMap::new(),
            failed: None,
        };
        let mut folded = Ok(());
        for linked in batch.linked() {
            let (head, size) = (linked.stored.head(), linked.stored.canonical.len());
            folded = folded.and_then(|()| kv.row.view.apply(&linked.event, head, size, &mut table));
        }
        if let Some(error) = table.failed {
            return Err(OpError::Engine(error));
        }
        folded?;
        let changed = table.changed;
        let commit_time = rfc3339(self.now);
        self.wrote = true;
        for view in changed.values() {
            let key = keys::execution(&store, &view.id);
            self.kv.put(Space::Executions, &key, &row::encode_execution(view))?;
        }
        for (index, linked) in batch.linked().iter().enumerate() {
            let record = &linked.stored;
            let mut notes = record.notes.clone();
            notes.insert(COMMIT_TIME.to_owned(), commit_time.clone());
            if index == 0 {
                notes.insert(APPEND_ID.to_owned(), id.to_string());
            }
            let value = keys::encode_record(record, fence, &notes);
            self.kv.put(Space::Records, &keys::record(&store, record.seq), &value)?;
        }
        kv.row.update_time = self.now;
        let answer = kv.row.clone();
        self.save(kv)?;
        Ok(answer)
    }

    fn mint(
        &mut self,
        id: AppendId,
        session: &SessionUid,
        current: Fence,
        head: Option<Head>,
        holder: &Holder,
    ) -> Result<Reply> {
        let mut kv = self.rows.load(self.kv, session)?;
        let actual = kv.row.view.head;
        if let Some(expected) = head.filter(|expected| *expected != actual) {
            return Err(LogError::Conflict { expected, head: actual }.into());
        }
        if kv.row.fence.fence != current {
            return Err(LogError::Moved { what: "the fence" }.into());
        }
        kv.row.fence =
            FenceRow { fence: current.next(), holder: Some(holder.clone()), since: Some(self.now) };
        kv.row.update_time = self.now;
        kv.ops.mint = id.to_string();
        let fence = kv.row.fence.fence;
        self.save(kv)?;
        Ok(Reply::Fence(fence))
    }

    fn annotate(
        &mut self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<Reply> {
        let kv = self.rows.load(self.kv, session)?;
        if fence < kv.row.fence.fence {
            return Err(LogError::Fenced { current: kv.row.fence.fence }.into());
        }
        if seq < kv.own_from() || seq > kv.row.view.head.seq {
            return Err(LogError::Invalid("there is no such record of this session").into());
        }
        let record_key = keys::record(&kv.store, seq);
        let stored = self.kv.get(Space::Records, &record_key)?;
        let stored = stored.ok_or_else(|| LogError::Corrupt { what: format!("record {seq}") })?;
        let note_key = keys::note(&kv.store, seq, key);
        let notes = keys::decode_record(seq, &stored)?.notes;
        if notes.get(key).is_some_and(|given| given == value) {
            return Ok(Reply::Done);
        }
        let taken = notes.contains_key(key) || self.kv.get(Space::Notes, &note_key)?.is_some();
        if taken {
            return Err(LogError::Moved { what: "the note" }.into());
        }
        self.wrote = true;
        self.kv.put(Space::Notes, &note_key, value.as_bytes())?;
        Ok(Reply::Done)
    }
}
