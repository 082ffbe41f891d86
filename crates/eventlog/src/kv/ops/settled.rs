//! What the log already says about an operation that may have taken effect.

use mainspring_api::{AppendId, SessionUid};

use super::import::{Staged, staged};
use super::named::stored_named;
use super::{APPEND_ID, Op, Reply, Result, Rows};
use crate::chain::Batch;
use crate::engine::{KvRead, Space};
use crate::kv::keys;
use crate::kv::row::KvRow;

/// The answer of an operation that has taken effect.
pub(in crate::kv) fn settled(kv: &dyn KvRead, rows: &mut Rows, op: &Op) -> Result<Option<Reply>> {
    let row_reply = |row: &KvRow| Reply::Row(Box::new(row.row.clone()));
    Ok(match op {
        Op::Create { id, session } => created(kv, rows, &session.uid, *id)?,
        Op::Publish { id, row, .. } => created(kv, rows, &row.session.uid, *id)?,
        Op::Update { id, session, .. } => {
            rows.find(kv, session)?.filter(|row| row.ops.update == id.to_string()).map(row_reply)
        }
        Op::Mint { id, session, .. } => rows
            .find(kv, session)?
            .filter(|row| row.ops.mint == id.to_string())
            .map(|row| Reply::Fence(row.row.fence.fence)),
        Op::Bury { session, .. } => {
            rows.find(kv, session)?.filter(|row| row.row.purged).map(row_reply)
        }
        Op::Append { id, session, batch, .. } => {
            let Some(row) = rows.find(kv, session)? else {
                return Ok(None);
            };
            appended(kv, row, *id, batch)?.then(|| Reply::Head(batch.head()))
        }
        Op::Fork { id, children, .. } => {
            let mut done = Vec::with_capacity(children.len());
            for (child, _) in children {
                match rows.find(kv, &child.uid)?.filter(|row| row.ops.create == id.to_string()) {
                    Some(row) => done.push(row.row.clone()),
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
        Op::PutNamed { id, key, .. } => stored_named(kv, key)?
            .filter(|stored| stored.id == *id)
            .map(|stored| Reply::Version(stored.version)),
        Op::Stage { store, records, .. } => match (staged(kv, store)?, records.last()) {
            (Some(Staged::Open(open)), Some((last, _))) if open.view.head == last.head() => {
                Some(Reply::Head(last.head()))
            }
            _ => None,
        },
        Op::BeginImport { .. } | Op::Unstage { .. } | Op::Reclaim { .. } | Op::CatchUp { .. } => {
            None
        }
    })
}

fn created(
    kv: &dyn KvRead,
    rows: &mut Rows,
    uid: &SessionUid,
    id: AppendId,
) -> Result<Option<Reply>> {
    let row = rows.find(kv, uid)?.filter(|row| row.ops.create == id.to_string());
    Ok(row.map(|row| Reply::Row(Box::new(row.row.clone()))))
}

/// Whether the record after the batch's base was written by this very append.
pub(super) fn appended(kv: &dyn KvRead, row: &KvRow, id: AppendId, batch: &Batch) -> Result<bool> {
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
