//! Reading rows, records and lists from a consistent view.

use std::ops::ControlFlow;

use mainspring_api::{Seq, SessionUid};

use super::index;
use super::keys::{self, RecordParts};
use super::ops::{OpError, decode_named, live_named};
use super::row::KvRow;
use crate::chain::{ChainVerifier, StoredRecord};
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::log::{
    LIST_PAGE_BYTES_MAX, ListQuery, MARKED_MAX, Mark, NamedRow, Page, PageKey, ReadLimit,
    SessionRow,
};

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
    keys_within(kv, space, prefix, &keys::after(prefix), max)
}

/// Up to `max` keys of a range.
pub(super) fn keys_within(
    kv: &dyn KvRead,
    space: Space,
    from: &[u8],
    to: &[u8],
    max: usize,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut keys = Vec::new();
    kv.scan(space, from, to, &mut |key, _| {
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
    if row.row.purged {
        return Err(LogError::Deleted(row.row.session.uid.clone()).into());
    }
    let head = row.row.view.head.seq;
    let asked = from.max(Seq::new(1));
    let mut from = asked;
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
    if out.is_empty() && asked <= head && head > Seq::ZERO {
        let what = "the journal ends before its head";
        return Err(LogError::Tampered { seq: asked, what }.into());
    }
    Ok(out)
}

/// Checks a page of a session's records where they lie, after `chain`.
pub(super) fn check_page(
    kv: &dyn KvRead,
    row: &KvRow,
    chain: &mut ChainVerifier,
    limit: ReadLimit,
) -> Result<(), OpError> {
    if row.row.purged {
        return Err(LogError::Deleted(row.row.session.uid.clone()).into());
    }
    let begun = chain.head().seq;
    let head = row.row.view.head.seq;
    let (mut records, mut bytes, mut bad) = (0, 0, None);
    let inherited = row.segments.iter().map(|s| (&s.uid, Seq::new(s.upto)));
    for (uid, upto) in inherited.chain([(&row.store, head)]) {
        let from = chain.head().seq.next();
        if from > upto {
            continue;
        }
        let range = (keys::record(uid, from), keys::record(uid, upto.next()));
        kv.scan(Space::Records, &range.0, &range.1, &mut |key, value| {
            let seq = key_seq(key);
            let checked = match keys::split_record(value) {
                None => Err(keys::cannot_split(seq)),
                Some(parts) => {
                    let RecordParts { hash, prev_hash, canonical, .. } = parts;
                    bytes += canonical.len();
                    chain.check_parts(seq, prev_hash.as_ref(), &hash, canonical)
                }
            };
            records += 1;
            bad = checked.err();
            if bad.is_some() || records >= limit.records || bytes >= limit.bytes {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = bad {
            return Err(error.into());
        }
        if records >= limit.records || bytes >= limit.bytes {
            return Ok(());
        }
        // Whatever is missing shows as a gap, or as an end before the head.
    }
    if chain.head().seq == begun {
        let what = "the journal ends before its head";
        return Err(LogError::Tampered { seq: begun.next(), what }.into());
    }
    Ok(())
}

/// The session's own records beyond its head, of which there should be none.
pub(super) fn records_after(
    kv: &dyn KvRead,
    row: &KvRow,
    limit: ReadLimit,
) -> Result<Vec<StoredRecord>, OpError> {
    stored_from(kv, &row.store, row.row.view.head.seq.next(), limit)
}

/// A page of what is stored under a name, without later notes.
pub(super) fn stored_from(
    kv: &dyn KvRead,
    store: &SessionUid,
    from: Seq,
    limit: ReadLimit,
) -> Result<Vec<StoredRecord>, OpError> {
    let prefix = keys::session_prefix(store);
    let from = keys::record(store, from);
    let (mut found, mut bytes, mut damaged) = (Vec::new(), 0, None);
    kv.scan(Space::Records, &from, &keys::after(&prefix), &mut |key, value| {
        match keys::decode_record(key_seq(key), value) {
            Ok(record) => {
                bytes += record.canonical.len();
                found.push(record);
            }
            Err(error) => damaged = Some(error),
        }
        if damaged.is_some() || found.len() >= limit.records || bytes >= limit.bytes {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    damaged.map_or(Ok(found), |error| Err(error.into()))
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

/// The position at the end of a record's key.
pub(super) fn key_seq(key: &[u8]) -> Seq {
    key.last_chunk::<8>().map_or(Seq::ZERO, |seq| Seq::new(u64::from_be_bytes(*seq)))
}

/// A page of rows.
pub(super) fn list(kv: &dyn KvRead, query: &ListQuery) -> Result<Page, OpError> {
    let (space, prefix) = index::list_of(query);
    let end = keys::after(&prefix);
    let mut from = match &query.after {
        None => prefix.clone(),
        Some(key) => just_after(&keys::placed(prefix.clone(), key.create_time, &key.uid)),
    };
    let size = query.page_size.clamp(1, 500);
    let wanted = (size + 1).max(64);
    let mut page = Page::default();
    let (mut scanned, mut bytes) = (0, 0);
    loop {
        let order = keys_within(kv, space, &from, &end, wanted)?;
        for key in &order {
            scanned += 1;
            let Some((_, uid)) = keys::order_parts(key, prefix.len()) else { continue };
            let row = listed(kv, &uid)?.filter(|(row, _)| matches(row, query));
            let Some((row, row_bytes)) = row else { continue };
            bytes += row_bytes;
            let is_full = bytes > LIST_PAGE_BYTES_MAX && !page.rows.is_empty();
            if page.rows.len() == size || is_full {
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

/// Rows that carry a mark, after a uid.
pub(super) fn marked(
    kv: &dyn KvRead,
    mark: Mark,
    after: Option<&SessionUid>,
    limit: usize,
) -> Result<Vec<SessionRow>, OpError> {
    let prefix = keys::mark_prefix(mark);
    let mut from = after.map_or_else(|| prefix.clone(), |uid| just_after(&keys::marked(mark, uid)));
    let (end, limit) = (keys::after(&prefix), limit.clamp(1, MARKED_MAX));
    let mut rows = Vec::new();
    // An empty answer means the end: it must not come of rows that were left out.
    while rows.is_empty() {
        let found = keys_within(kv, Space::Index, &from, &end, limit)?;
        let Some(last) = found.last() else { break };
        from = just_after(last);
        for key in &found {
            let uid = std::str::from_utf8(&key[prefix.len()..]).ok();
            let Some(uid) = uid.and_then(|uid| SessionUid::new(uid).ok()) else { continue };
            rows.extend(listed(kv, &uid)?.map(|(row, _)| row));
        }
    }
    Ok(rows)
}

/// The first key after `key`.
fn just_after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

/// A row of a list, and its stored size. One damaged row never fails the list.
fn listed(kv: &dyn KvRead, uid: &SessionUid) -> Result<Option<(SessionRow, usize)>, EngineError> {
    let Some(value) = kv.get(Space::Rows, &keys::row(uid))? else { return Ok(None) };
    Ok(match KvRow::decode(uid, &value) {
        Ok(row) => Some((row.row, value.len())),
        Err(error) => {
            tracing::warn!(session = %uid, error = %error, "row left out of a list");
            None
        }
    })
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

/// Named rows of one answer.
const NAMED_MAX: usize = 1_000;

/// Named rows of a kind, by name, after a name.
pub(super) fn named_of(
    kv: &dyn KvRead,
    kind: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, NamedRow)>, OpError> {
    let prefix = keys::kind_prefix(kind);
    let mut from = keys::named(kind, after);
    if !after.is_empty() {
        from.push(0);
    }
    let limit = limit.clamp(1, NAMED_MAX);
    let (mut found, mut damaged) = (Vec::new(), None);
    kv.scan(Space::Named, &from, &keys::after(&prefix), &mut |key, stored| {
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        match decode_named(stored).map(live_named) {
            Ok(row) => found.extend(row.map(|row| (name, row))),
            Err(error) => damaged = Some(error),
        }
        if found.len() < limit && damaged.is_none() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    damaged.map_or(Ok(found), Err)
}
