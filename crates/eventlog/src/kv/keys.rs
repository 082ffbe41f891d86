//! Keys, and the stored form of a record. Drawn in `docs/format.md`.

use mainspring_api::{Bytes, ExecutionId, Fence, Hash, Notes, Owner, Seq, SessionUid, Timestamp};

use crate::chain::StoredRecord;
use crate::error::LogError;
use crate::log::Mark;

/// A key part that ends with a zero byte; uids and projects hold none.
fn terminated(out: &mut Vec<u8>, part: &str) {
    out.extend_from_slice(part.as_bytes());
    out.push(0);
}

/// The first key after every key that starts with `prefix`.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

pub(super) fn row(uid: &SessionUid) -> Vec<u8> {
    uid.as_str().as_bytes().to_vec()
}

pub(super) fn session_prefix(uid: &SessionUid) -> Vec<u8> {
    let mut key = Vec::with_capacity(uid.as_str().len() + 9);
    terminated(&mut key, uid.as_str());
    key
}

pub(super) fn record(uid: &SessionUid, seq: Seq) -> Vec<u8> {
    let mut key = session_prefix(uid);
    key.extend_from_slice(&seq.get().to_be_bytes());
    key
}

pub(super) fn execution(uid: &SessionUid, id: &ExecutionId) -> Vec<u8> {
    let mut key = session_prefix(uid);
    key.extend_from_slice(id.as_str().as_bytes());
    key
}

pub(super) fn note(uid: &SessionUid, seq: Seq, name: &str) -> Vec<u8> {
    let mut key = record(uid, seq);
    key.extend_from_slice(name.as_bytes());
    key
}

/// That `child` shows records of `store`.
pub(super) fn child(store: &SessionUid, child: &SessionUid) -> Vec<u8> {
    let mut key = session_prefix(store);
    key.extend_from_slice(child.as_str().as_bytes());
    key
}

/// That the session whose records are kept under `store` was purged.
pub(super) fn buried(store: &SessionUid) -> Vec<u8> {
    session_prefix(store)
}

pub(super) fn kind_prefix(kind: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(kind.len() + 32);
    terminated(&mut key, kind);
    key
}

pub(super) fn named(kind: &str, name: &str) -> Vec<u8> {
    let mut key = kind_prefix(kind);
    key.extend_from_slice(name.as_bytes());
    key
}

/// A key part of free text: its length keeps one from being another's prefix.
fn measured(out: &mut Vec<u8>, part: &str) {
    out.extend_from_slice(&(part.len() as u64).to_be_bytes());
    out.extend_from_slice(part.as_bytes());
}

pub(super) fn project_prefix(project: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(project.len() + 64);
    measured(&mut key, project);
    key
}

/// The families of the index.
const OWNED: u8 = 1;
const OPEN: u8 = 2;
const MARKED: u8 = 3;

/// The sessions of an owner in a project.
pub(super) fn owner_prefix(project: &str, owner: &Owner) -> Vec<u8> {
    let mut key = vec![OWNED];
    measured(&mut key, project);
    measured(&mut key, &owner.issuer);
    measured(&mut key, &owner.subject);
    key
}

/// The sessions of a project whose latest turn is open.
pub(super) fn open_prefix(project: &str) -> Vec<u8> {
    let mut key = vec![OPEN];
    measured(&mut key, project);
    key
}

/// The sessions of every project that carry a mark.
pub(super) fn mark_prefix(mark: Mark) -> Vec<u8> {
    let mark = match mark {
        Mark::Awaiting => 1,
        Mark::Deleted => 2,
    };
    vec![MARKED, mark]
}

pub(super) fn marked(mark: Mark, uid: &SessionUid) -> Vec<u8> {
    let mut key = mark_prefix(mark);
    key.extend_from_slice(uid.as_str().as_bytes());
    key
}

pub(super) fn order(project: &str, create_time: Timestamp, uid: &SessionUid) -> Vec<u8> {
    placed(project_prefix(project), create_time, uid)
}

/// A place in a list that starts with `key`: newest first, then by uid.
pub(super) fn placed(mut key: Vec<u8>, create_time: Timestamp, uid: &SessionUid) -> Vec<u8> {
    // Flipping the sign bit orders i64 as bytes; the complement puts later first.
    let ordered = create_time.unix_nanos().cast_unsigned() ^ (1 << 63);
    key.extend_from_slice(&(!ordered).to_be_bytes());
    key.extend_from_slice(uid.as_str().as_bytes());
    key
}

/// The create time and uid in a key of [`placed`] whose start takes `prefix` bytes.
pub(super) fn order_parts(key: &[u8], prefix: usize) -> Option<(Timestamp, SessionUid)> {
    let (time, uid) = key.get(prefix..)?.split_first_chunk::<8>()?;
    let nanos = (!u64::from_be_bytes(*time) ^ (1 << 63)).cast_signed();
    let uid = SessionUid::new(std::str::from_utf8(uid).ok()?).ok()?;
    Some((Timestamp::from_unix_nanos(nanos), uid))
}

const RECORD_FORMAT: u8 = 1;

/// `format, fence, hash, has_prev, prev_hash?, notes length, notes, canonical`;
/// `own` are notes of the store, which take the place of others of their name.
pub(super) fn encode_record(record: &StoredRecord, fence: Fence, own: &[(&str, &str)]) -> Vec<u8> {
    let given = record.notes.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let given = given.filter(|(key, _)| own.iter().all(|(name, _)| name != key));
    let mut notes: Vec<(&str, &str)> = own.iter().copied().chain(given).collect();
    notes.sort_unstable();
    let notes_bytes: usize = notes.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
    let mut out = Vec::with_capacity(record.canonical.len() + notes_bytes + 80);
    out.push(RECORD_FORMAT);
    out.extend_from_slice(&fence.get().to_be_bytes());
    out.extend_from_slice(record.hash.as_bytes());
    match &record.prev_hash {
        None => out.push(0),
        Some(hash) => {
            out.push(1);
            out.extend_from_slice(hash.as_bytes());
        }
    }
    let length = |bytes: usize, out: &mut Vec<u8>| {
        let bytes = u32::try_from(bytes).expect("notes are far below 4 GiB");
        out.extend_from_slice(&bytes.to_be_bytes());
    };
    length(notes_bytes, &mut out);
    for text in notes.iter().flat_map(|(key, value)| [key, value]) {
        length(text.len(), &mut out);
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&record.canonical);
    out
}

pub(super) fn decode_record(seq: Seq, value: &[u8]) -> Result<StoredRecord, LogError> {
    try_decode_record(seq, value).ok_or_else(|| cannot_split(seq))
}

pub(super) fn cannot_split(seq: Seq) -> LogError {
    LogError::Corrupt { what: format!("record {seq} cannot be taken apart") }
}

fn try_decode_record(seq: Seq, value: &[u8]) -> Option<StoredRecord> {
    let RecordParts { fence, hash, prev_hash, notes, canonical } = split_record(value)?;
    Some(StoredRecord {
        seq,
        prev_hash,
        hash,
        fence,
        canonical: Bytes::copy_from_slice(canonical),
        notes: decode_notes(notes)?,
    })
}

/// A stored record taken apart where it lies.
pub(super) struct RecordParts<'a> {
    pub(super) fence: Fence,
    pub(super) hash: Hash,
    pub(super) prev_hash: Option<Hash>,
    notes: &'a [u8],
    pub(super) canonical: &'a [u8],
}

pub(super) fn split_record(value: &[u8]) -> Option<RecordParts<'_>> {
    let (format, rest) = value.split_first()?;
    let (fence, rest) = rest.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let (prev_hash, rest) = match (*format, rest.split_first()?) {
        (RECORD_FORMAT, (0, rest)) => (None, rest),
        (RECORD_FORMAT, (1, rest)) => {
            let (prev, rest) = rest.split_first_chunk::<32>()?;
            (Some(Hash::new(*prev)), rest)
        }
        _ => return None,
    };
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (notes, canonical) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let fence = Fence::new(u64::from_be_bytes(*fence));
    Some(RecordParts { fence, hash: Hash::new(*hash), prev_hash, notes, canonical })
}

/// Length-prefixed pairs; most records have one or two.
fn decode_notes(mut rest: &[u8]) -> Option<Notes> {
    let mut next = || -> Option<Option<String>> {
        if rest.is_empty() {
            return Some(None);
        }
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (text, tail) = tail.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        rest = tail;
        Some(Some(String::from_utf8(text.to_vec()).ok()?))
    };
    let mut notes = Notes::new();
    while let Some(key) = next()? {
        notes.insert(key, next()??);
    }
    Some(notes)
}
