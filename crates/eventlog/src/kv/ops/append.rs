//! Appending, and notes that are added later.

use std::cell::OnceCell;
use std::collections::HashMap;

use mainspring_api::{AppendId, Fence, Seq, SessionUid, Timestamp};

use super::settled::appended;
use super::table::Table;
use super::{APPEND_ID, COMMIT_TIME, Reply, Result, Transaction, put_row, refuse_purged};
use crate::canonical::rfc3339;
use crate::chain::{Batch, StoredRecord};
use crate::engine::{KvWrite, Space};
use crate::error::LogError;
use crate::kv::keys::{self, encode_record};
use crate::kv::row::{self, KvRow};

impl Transaction<'_> {
    pub(super) fn append(
        &mut self,
        id: AppendId,
        session: &SessionUid,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Reply> {
        if !self.rows.load_mut(self.kv, session)?.ends_at_head && !self.judged {
            self.probe(session)?;
        }
        let row = self.rows.known_mut(session);
        let head = row.row.view.head;
        if head != batch.base() {
            if !self.judged && appended(self.kv, row, id, batch)? {
                return Ok(Reply::Head(batch.head()));
            }
            refuse_purged(row)?;
            return Err(LogError::Conflict { expected: batch.base(), head }.into());
        }
        refuse_purged(row)?;
        if fence < row.row.fence.fence {
            return Err(LogError::Fenced { current: row.row.fence.fence }.into());
        }
        let stamp = Stamp { id, fence, now: self.now, commit_time: &self.commit_time };
        if let Err(error) = write_batch(self.kv, row, &stamp, batch) {
            // Its fold may have stopped half way.
            self.rows.forget_one(session);
            return Err(error);
        }
        put_row(self.kv, row, self.judged)?;
        self.wrote = true;
        Ok(Reply::Head(batch.head()))
    }

    pub(super) fn annotate(
        &mut self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<Reply> {
        let row = self.rows.load(self.kv, session)?;
        refuse_purged(row)?;
        if fence < row.row.fence.fence {
            return Err(LogError::Fenced { current: row.row.fence.fence }.into());
        }
        if seq < row.own_from() || seq > row.row.view.head.seq {
            return Err(LogError::Invalid("there is no such record of this session").into());
        }
        let note_key = keys::note(&row.store, seq, key);
        if self.judged {
            self.wrote = true;
            return Ok(self
                .kv
                .put(Space::Notes, &note_key, value.as_bytes())
                .map(|()| Reply::Done)?);
        }
        let stored = self.kv.get(Space::Records, &keys::record(&row.store, seq))?;
        let stored = stored.ok_or_else(|| LogError::Corrupt { what: format!("record {seq}") })?;
        let notes = keys::decode_record(seq, &stored)?.notes;
        if notes.get(key).is_some_and(|given| given == value) {
            return Ok(Reply::Done);
        }
        if notes.contains_key(key) || self.kv.get(Space::Notes, &note_key)?.is_some() {
            return Err(LogError::Moved { what: "the note" }.into());
        }
        self.wrote = true;
        self.kv.put(Space::Notes, &note_key, value.as_bytes())?;
        Ok(Reply::Done)
    }
}

/// What the store adds to a batch.
pub(super) struct Stamp<'a> {
    pub(super) id: AppendId,
    pub(super) fence: Fence,
    pub(super) now: Timestamp,
    /// `now` as text, made when the first record needs it.
    pub(super) commit_time: &'a OnceCell<String>,
}

impl Stamp<'_> {
    /// The stored form of a record, the `first` of its batch or a later one.
    fn stored(&self, record: &StoredRecord, first: bool) -> Vec<u8> {
        let commit_time = self.commit_time.get_or_init(|| rfc3339(self.now));
        let commit_time = (COMMIT_TIME, commit_time.as_str());
        if !first {
            return encode_record(record, self.fence, &[commit_time]);
        }
        encode_record(record, self.fence, &[commit_time, (APPEND_ID, &self.id.to_string())])
    }
}

/// Folds a batch into its row, and puts its records; not the row.
pub(super) fn write_batch(
    kv: &mut dyn KvWrite,
    row: &mut KvRow,
    stamp: &Stamp<'_>,
    batch: &Batch,
) -> Result<()> {
    // The fold comes first: if it is refused, nothing was written.
    let mut table = Table::of(kv, &row.store, &row.segments);
    for linked in batch.linked() {
        let (head, size) = (linked.stored.head(), linked.stored.canonical.len());
        table.fold(&mut row.row.view, &linked.event, head, size)?;
    }
    let changed = table.changed;
    put_executions(kv, &row.store, &changed)?;
    for (index, record) in batch.stored().enumerate() {
        let key = keys::record(&row.store, record.seq);
        kv.put_record(&key, &mut || stamp.stored(record, index == 0))?;
    }
    row.row.update_time = stamp.now;
    Ok(())
}

pub(super) fn put_executions(
    kv: &mut dyn KvWrite,
    store: &SessionUid,
    changed: &HashMap<mainspring_api::ExecutionId, crate::view::ExecutionView>,
) -> Result<()> {
    for view in changed.values() {
        let key = keys::execution(store, &view.id);
        kv.put(Space::Executions, &key, &row::encode_execution(view))?;
    }
    Ok(())
}

/// The records of an append as readers see them.
pub(in crate::kv) fn stored_as<'a>(
    batch: &'a Batch,
    id: AppendId,
    fence: Fence,
    commit_time: &'a str,
) -> impl Iterator<Item = StoredRecord> + 'a {
    batch.stored().enumerate().map(move |(index, record)| {
        let mut record = record.clone();
        record.fence = fence;
        record.notes.insert(COMMIT_TIME.to_owned(), commit_time.to_owned());
        if index == 0 {
            record.notes.insert(APPEND_ID.to_owned(), id.to_string());
        }
        record
    })
}
