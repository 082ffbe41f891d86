//! Reading rows, records and lists from a consistent view.

use std::collections::HashMap;
use std::ops::ControlFlow;

use mainspring_api::{Event, ExecutionId, Head, Seq, SessionUid};

use super::keys;
use super::ops::OpError;
use super::row::{KvRow, Segment};
use crate::chain::StoredRecord;
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::log::{ListQuery, Page, PageKey, ReadLimit, SessionRow};
use crate::view::{ExecutionView, SessionView};

/// Rows that one list call looks at before it returns a short page.
const SCAN_ROWS_MAX: usize = 10_000;

pub(super) fn find_row(
    kv: &dyn KvRead,
    uid: &SessionUid,
) -> Result<Result<Option<KvRow>, LogError>, EngineError> {
    let value = kv.get(Space::Rows, &keys::row(uid))?;
    Ok(value.map(|value| KvRow::decode(uid, &value)).transpose())
}

pub(super) fn load_row(kv: &dyn KvRead, uid: &SessionUid) -> Result<KvRow, OpError> {
    find_row(kv, uid)??.ok_or_else(|| LogError::SessionNotFound(uid.clone()).into())
}

/// Up to `max` keys that start with `prefix`.
pub(super) fn keys_of(
    kv: &dyn KvRead,
    space: Space,
    prefix: &[u8],
    max: usize,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut keys = Vec::new();
    kv.scan(space, prefix, &keys::after(prefix), &mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(keys)
}

/// A page of a session's records, over the sessions that hold them.
pub(super) fn records(
    kv: &dyn KvRead,
    row: &KvRow,
    from: Seq,
    limit: ReadLimit,
) -> Result<Vec<StoredRecord>, OpError> {
    let head = row.row.view.head.seq;
    let mut from = from.max(Seq::new(1));
    let mut out: Vec<StoredRecord> = Vec::new();
    let mut bytes = 0;
    let own = &row.store;
    let inherited = row.segments.iter().map(|s| (&s.uid, Seq::new(s.upto), true));
    for (uid, upto, inherited) in inherited.chain([(own, head, false)]) {
        if from > upto {
            continue;
        }
        let start = out.len();
        let mut damaged = None;
        let range = (keys::record(uid, from), keys::record(uid, upto.next()));
        kv.scan(Space::Records, &range.0, &range.1, &mut |key, value| {
            let seq = key_seq(key);
            match keys::decode_record(seq, value) {
                Ok(record) => {
                    bytes += record.canonical.len();
                    out.push(record);
                }
                Err(error) => {
                    damaged = Some(error);
                    return ControlFlow::Break(());
                }
            }
            if out.len() >= limit.records.max(1) || bytes >= limit.bytes {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        add_notes(kv, uid, &mut out[start..])?;
        if inherited {
            out[start..].iter_mut().for_each(|record| record.fence = KvRow::CHILD_FENCE);
        }
        match damaged {
            // What is whole is handed out; the next call meets the damage first.
            Some(error) if out.is_empty() => return Err(error.into()),
            Some(_) => return Ok(out),
            None if out.len() >= limit.records.max(1) || bytes >= limit.bytes => return Ok(out),
            None => from = upto.next(),
        }
    }
    Ok(out)
}

/// The head of what an import staged under `store` and did not publish yet.
pub(super) fn staged_head(kv: &dyn KvRead, store: &SessionUid) -> Result<Head, OpError> {
    let marker = kv.get(Space::Staging, &keys::row(store))?;
    if marker.is_none_or(|marker| super::ops::is_published(&marker)) {
        return Ok(Head::EMPTY);
    }
    let prefix = keys::session_prefix(store);
    let mut head = Ok(Head::EMPTY);
    kv.scan(Space::Records, &prefix, &keys::after(&prefix), &mut |key, value| {
        head = keys::decode_record(key_seq(key), value).map(|record| record.head());
        if head.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(head?)
}

/// Adds the notes that were made after the records were written.
fn add_notes(
    kv: &dyn KvRead,
    uid: &SessionUid,
    records: &mut [StoredRecord],
) -> Result<(), EngineError> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Ok(());
    };
    let first = first.seq;
    let (from, to) = (keys::record(uid, first), keys::record(uid, last.seq.next()));
    let name_at = from.len();
    kv.scan(Space::Notes, &from, &to, &mut |key, value| {
        let seq = key.get(name_at - 8..name_at).and_then(|seq| seq.try_into().ok());
        let place = seq.map(|seq| u64::from_be_bytes(seq) - first.get());
        let record = place.and_then(|place| records.get_mut(usize::try_from(place).ok()?));
        if let Some(record) = record {
            let name = String::from_utf8_lossy(&key[name_at..]).into_owned();
            record.notes.insert(name, String::from_utf8_lossy(value).into_owned());
        }
        ControlFlow::Continue(())
    })
}

/// Visits the decoded records `from..=to` of a session, in order.
fn each_event(
    kv: &dyn KvRead,
    row: &KvRow,
    from: Seq,
    to: Seq,
    mut visit: impl FnMut(StoredRecord, Event) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let mut next = from;
    while next <= to {
        let page = records(kv, row, next, ReadLimit::default())?;
        if page.is_empty() {
            return Err(LogError::Corrupt { what: format!("record {next} is missing") }.into());
        }
        for record in page.into_iter().take_while(|record| record.seq <= to) {
            next = record.seq.next();
            let event = record.event()?;
            visit(record, event)?;
        }
    }
    Ok(())
}

/// The view of one execution within a range of inherited records, wherever its
/// ancestors keep them.
pub(super) fn refold_execution(
    kv: &dyn KvRead,
    segments: &[Segment],
    id: &ExecutionId,
    (from, to): (Seq, Seq),
) -> Result<Option<ExecutionView>, OpError> {
    let mut events = Vec::new();
    let mut failed = None;
    let mut from = from;
    for Segment { uid, upto } in segments {
        let upto = to.min(Seq::new(*upto));
        if from > upto {
            continue;
        }
        let range = (keys::record(uid, from), keys::record(uid, upto.next()));
        kv.scan(Space::Records, &range.0, &range.1, &mut |key, value| {
            let seq = key_seq(key);
            match keys::decode_record(seq, value).and_then(|record| record.event()) {
                Ok(event) if event.execution_id.as_ref() == Some(id) => events.push((seq, event)),
                Ok(_) => {}
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        from = upto.next();
    }
    Ok(ExecutionView::refold(id, events.iter().map(|(seq, event)| (*seq, event))))
}

/// The position at the end of a record's key.
fn key_seq(key: &[u8]) -> Seq {
    key.last_chunk::<8>().map_or(Seq::ZERO, |seq| Seq::new(u64::from_be_bytes(*seq)))
}

/// The view of a session as it was at `at`.
pub(super) fn view_at(kv: &dyn KvRead, row: &KvRow, at: Head) -> Result<SessionView, OpError> {
    let view = &row.row.view;
    if at.seq > view.head.seq {
        return Err(LogError::Invalid("the position is beyond the head").into());
    }
    if at.seq == view.head.seq {
        return if at == view.head { Ok(view.clone()) } else { Err(moved(at, view.head)) };
    }
    let mut folded = SessionView::default();
    let mut table: HashMap<ExecutionId, ExecutionView> = HashMap::new();
    if at.seq > Seq::ZERO {
        each_event(kv, row, Seq::new(1), at.seq, |record, event| {
            Ok(folded.apply(&event, record.head(), record.canonical.len(), &mut table)?)
        })?;
    }
    if folded.head == at { Ok(folded) } else { Err(moved(at, folded.head)) }
}

fn moved(expected: Head, head: Head) -> OpError {
    LogError::Conflict { expected, head }.into()
}

/// A page of rows.
pub(super) fn list(kv: &dyn KvRead, query: &ListQuery) -> Result<Page, OpError> {
    let prefix = keys::project_prefix(&query.project);
    let end = keys::after(&prefix);
    let mut from = match &query.after {
        None => prefix.clone(),
        Some(key) => just_after(&keys::order(&query.project, key.create_time, &key.uid)),
    };
    let size = query.page_size.clamp(1, 500);
    let wanted = (size + 1).max(64);
    let mut page = Page::default();
    let mut scanned = 0;
    loop {
        let order = keys_between(kv, &from, &end, wanted)?;
        for key in &order {
            scanned += 1;
            let Some((_, uid)) = keys::order_parts(key, prefix.len()) else { continue };
            let Some(row) = listed(kv, &uid)?.filter(|row| matches(row, query)) else { continue };
            if page.rows.len() == size {
                page.next = page.rows.last().map(page_key);
                return Ok(page);
            }
            page.rows.push(row);
        }
        let Some(last) = order.last().filter(|_| order.len() == wanted) else {
            return Ok(page);
        };
        if scanned >= SCAN_ROWS_MAX {
            let seen = keys::order_parts(last, prefix.len());
            page.next = seen.map(|(create_time, uid)| PageKey { create_time, uid });
            return Ok(page);
        }
        from = just_after(last);
    }
}

/// The first key after `key`.
fn just_after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

fn keys_between(
    kv: &dyn KvRead,
    from: &[u8],
    to: &[u8],
    max: usize,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut keys = Vec::new();
    kv.scan(Space::Order, from, to, &mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(keys)
}

/// A row of a list. One damaged row never fails the list.
fn listed(kv: &dyn KvRead, uid: &SessionUid) -> Result<Option<SessionRow>, EngineError> {
    Ok(find_row(kv, uid)?.map(|row| row.map(|row| row.row)).unwrap_or_else(|error| {
        tracing::warn!(session = %uid, error = %error, "row left out of a list");
        None
    }))
}

fn page_key(row: &SessionRow) -> PageKey {
    PageKey { create_time: row.create_time, uid: row.session.uid.clone() }
}

fn matches(row: &SessionRow, query: &ListQuery) -> bool {
    let session = &row.session;
    (query.owner.is_none() || query.owner == session.owner)
        && (query.harness.is_empty() || query.harness == session.harness)
        && (query.states.is_empty() || query.states.contains(&row.view.exec_state()))
        && query.labels.iter().all(|(key, value)| session.labels.get(key) == Some(value))
}
