//! What of an operation its terms do not say, as bytes. Drawn in `docs/format.md`.

use std::borrow::Cow;

use mainspring_api::{AppendId, Bytes, Fence, Head, Seq, SessionUid, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Op, Terms};
use crate::canonical::rfc3339;
use crate::chain::{Batch, StoredRecord};
use crate::error::LogError;
use crate::kv::keys::{decode_record, encode_record};
use crate::kv::ops::{APPEND_ID, COMMIT_TIME};
use crate::kv::row::{
    KvRow, Map, StoredIdentity, StoredOrigin, StoredOwner, StoredView, Text, identity_in,
    identity_out, origin_in, origin_out, owner_in, owner_out,
};
use crate::log::{Holder, ImportRow, NewSession, RowPatch};

/// Why a payload cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DecodeError {
    /// It is not in the form of its kind.
    #[error("the payload is not in the form of its kind")]
    Malformed,
    /// It holds what this version does not know, or what cannot be.
    #[error(transparent)]
    Refused(#[from] LogError),
}

type Result<T> = std::result::Result<T, DecodeError>;

#[derive(Serialize, Deserialize)]
struct StoredSession<'a> {
    project: Text<'a>,
    name: Text<'a>,
    harness: Text<'a>,
    model: Text<'a>,
    labels: Cow<'a, Map>,
    annotations: Cow<'a, Map>,
    origin: Option<StoredOrigin<'a>>,
    identity: Option<StoredIdentity<'a>>,
    owner: Option<StoredOwner<'a>>,
}

impl<'a> From<&'a NewSession> for StoredSession<'a> {
    fn from(s: &'a NewSession) -> Self {
        Self {
            project: (&s.project).into(),
            name: (&s.name).into(),
            harness: (&s.harness).into(),
            model: (&s.model).into(),
            labels: Cow::Borrowed(&s.labels),
            annotations: Cow::Borrowed(&s.annotations),
            origin: s.origin.as_ref().map(origin_out),
            identity: s.identity.as_ref().map(identity_out),
            owner: s.owner.as_ref().map(owner_out),
        }
    }
}

impl StoredSession<'_> {
    fn into_session(self, uid: SessionUid) -> NewSession {
        let owned = Cow::into_owned;
        NewSession {
            uid,
            project: owned(self.project),
            name: owned(self.name),
            harness: owned(self.harness),
            model: owned(self.model),
            labels: self.labels.into_owned(),
            annotations: self.annotations.into_owned(),
            origin: self.origin.map(origin_in),
            identity: self.identity.map(identity_in),
            owner: self.owner.map(owner_in),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredPatch<'a> {
    name: Option<Text<'a>>,
    labels: Option<Cow<'a, Map>>,
    annotations: Option<Cow<'a, Map>>,
    owner: Option<StoredOwner<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredFork<'a> {
    at: Text<'a>,
    view: StoredView<'a>,
    children: Vec<StoredSession<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredPublish<'a> {
    session: StoredSession<'a>,
    created: Option<(i64, u32)>,
    parent: Option<(Text<'a>, u64)>,
}

/// The payload of an operation, which its terms do not say.
#[must_use]
pub fn encode(op: &Op) -> Vec<u8> {
    match op {
        Op::Create { session, .. } => json(&StoredSession::from(&**session)),
        Op::Update { patch, .. } => json(&StoredPatch {
            name: patch.name.as_ref().map(Into::into),
            labels: patch.labels.as_ref().map(Cow::Borrowed),
            annotations: patch.annotations.as_ref().map(Cow::Borrowed),
            owner: patch.owner.as_ref().map(owner_out),
        }),
        Op::Append { batch, .. } => {
            let mut out = Vec::with_capacity(batch.bytes() + batch.len() * 128);
            batch.stored().for_each(|record| put_record(&mut out, record, Fence::NONE));
            out
        }
        Op::Mint { holder, .. } => texts(&[&holder.id, &holder.name]),
        Op::Fork { at, view, children, .. } => {
            let stored = StoredFork {
                at: at.to_string().into(),
                view: StoredView::from(&**view),
                children: children.iter().map(|(child, _)| child.into()).collect(),
            };
            let mut out = Vec::new();
            put_part(&mut out, &json(&stored));
            let markers = children.iter().flat_map(|(_, batch)| batch.stored());
            markers.for_each(|record| put_record(&mut out, record, Fence::NONE));
            out
        }
        Op::Annotate { key, value, .. } => texts(&[key, value]),
        Op::Stage { records, .. } => {
            let mut out = Vec::new();
            records.iter().for_each(|(record, _)| put_record(&mut out, record, record.fence));
            out
        }
        Op::Publish { row, .. } => json(&StoredPublish {
            session: StoredSession::from(&row.session),
            created: row.create_time.map(|ts| (ts.seconds, ts.nanos)),
            parent: row.parent.as_ref().map(|(uid, seq)| (uid.as_str().into(), seq.get())),
        }),
        Op::PutNamed { value, .. } => match value {
            None => vec![0],
            Some(value) => [&[1], &value[..]].concat(),
        },
        Op::BeginImport { .. }
        | Op::Unstage { .. }
        | Op::Bury { .. }
        | Op::Reclaim { .. }
        | Op::CatchUp { .. } => Vec::new(),
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a stored form has only string keys")
}

/// The operation of `id` with these terms and this payload.
///
/// # Errors
/// `Malformed`; `Refused` for an event that this version does not know.
pub fn decode(id: AppendId, terms: &Terms, payload: &[u8]) -> Result<Op> {
    Ok(match terms.clone() {
        Terms::Create { session, .. } => {
            let session = Box::new(read::<StoredSession<'_>>(payload)?.into_session(session));
            Op::Create { id, session }
        }
        Terms::Update { session, version, .. } => {
            Op::Update { id, session, version, patch: patch(read(payload)?) }
        }
        Terms::Append { session, base, head, fence, .. } => {
            let batch = batch(base, head, records(payload, base.seq)?)?;
            Op::Append { id, session, fence, batch }
        }
        Terms::Mint { session, current, at } => {
            let [holder, name] = read_texts(payload)?;
            let holder = Holder { id: holder, name };
            Op::Mint { id, session, current, head: at, holder }
        }
        Terms::Fork { parent, children, .. } => fork(id, parent, &children, payload)?,
        Terms::Annotate { session, seq, fence, .. } => {
            let [key, value] = read_texts(payload)?;
            Op::Annotate { session, seq, fence, key, value }
        }
        Terms::BeginImport { store, .. } => Op::BeginImport { store },
        Terms::Unstage { store, .. } => Op::Unstage { store },
        Terms::Stage { store, after, .. } => {
            let records = records(payload, after.seq)?;
            let decoded = records.into_iter().map(|record| Ok((record.event()?, record)));
            let decoded = decoded.map(|pair| pair.map(|(event, record)| (record, event)));
            let records = decoded.collect::<std::result::Result<_, LogError>>()?;
            Op::Stage { store, after, records }
        }
        Terms::Publish { store, session, head, .. } => {
            let StoredPublish { session: row, created, parent } = read(payload)?;
            let parent = match parent {
                None => None,
                Some((uid, seq)) => Some((uid_of(&uid)?, Seq::new(seq))),
            };
            let create_time = created.map(|(seconds, nanos)| Timestamp { seconds, nanos });
            let row = ImportRow { session: row.into_session(session), create_time, parent };
            Op::Publish { id, store, row: Box::new(row), head }
        }
        Terms::PutNamed { key, version } => {
            let value = match payload.split_first() {
                Some((0, [])) => None,
                Some((1, value)) => Some(Bytes::copy_from_slice(value)),
                _ => return Err(DecodeError::Malformed),
            };
            Op::PutNamed { id, key, version, value }
        }
    })
}

fn fork(id: AppendId, parent: SessionUid, children: &[super::Child], payload: &[u8]) -> Result<Op> {
    let (head, markers) = part(payload).ok_or(DecodeError::Malformed)?;
    let StoredFork { at, view, children: sessions } = read(head)?;
    let at: Head = at.parse().map_err(|_| DecodeError::Malformed)?;
    let view = view.into_view().ok_or(DecodeError::Malformed)?;
    let mut markers = parts(markers).map(|value| record(at.seq.next(), value?));
    let mut pairs = Vec::with_capacity(children.len());
    for (child, session) in children.iter().zip(sessions) {
        let marker = markers.next().ok_or(DecodeError::Malformed)??;
        let batch = batch(at, child.head, vec![marker])?;
        pairs.push((session.into_session(child.session.clone()), batch));
    }
    if pairs.len() != children.len() || markers.next().is_some() {
        return Err(DecodeError::Malformed);
    }
    Ok(Op::Fork { id, parent, at, view: Box::new(view), children: pairs })
}

fn patch(stored: StoredPatch<'_>) -> RowPatch {
    RowPatch {
        name: stored.name.map(Cow::into_owned),
        labels: stored.labels.map(Cow::into_owned),
        annotations: stored.annotations.map(Cow::into_owned),
        owner: stored.owner.map(owner_in),
    }
}

/// A record as the store keeps it, out of the operation that brought it: the one
/// at `place` of those that the operation puts.
///
/// # Errors
/// `Malformed`, also when there is no such record.
pub fn record_value(
    id: AppendId,
    terms: &Terms,
    payload: &[u8],
    time: Timestamp,
    place: usize,
) -> Result<Vec<u8>> {
    let nth = |payload| parts(payload).nth(place).unwrap_or(Err(DecodeError::Malformed));
    let (seq, fence, first, value) = match terms {
        // Staged records are kept as they came.
        Terms::Stage { .. } => return nth(payload).map(<[u8]>::to_vec),
        Terms::Append { base, fence, .. } => {
            (base.seq.get() + 1 + place as u64, *fence, place == 0, nth(payload)?)
        }
        Terms::Fork { at, .. } => {
            let (_, markers) = part(payload).ok_or(DecodeError::Malformed)?;
            (at.get() + 1, KvRow::CHILD_FENCE, true, nth(markers)?)
        }
        _ => return Err(DecodeError::Malformed),
    };
    let record = record(Seq::new(seq), value)?;
    let (commit_time, id) = (rfc3339(time), id.to_string());
    let own = [(COMMIT_TIME, commit_time.as_str()), (APPEND_ID, id.as_str())];
    Ok(encode_record(&record, fence, if first { &own[..] } else { &own[..1] }))
}

/// Records whose writer linked them to `base`. What does not end at the head
/// that was decided is no batch.
fn batch(base: Head, head: Head, records: Vec<StoredRecord>) -> Result<Batch> {
    let batch = Batch::linked_before(base, records)?;
    if batch.head() == head { Ok(batch) } else { Err(DecodeError::Malformed) }
}

fn records(payload: &[u8], after: Seq) -> Result<Vec<StoredRecord>> {
    let mut seq = after;
    parts(payload)
        .map(|value| {
            seq = seq.next();
            record(seq, value?)
        })
        .collect()
}

fn record(seq: Seq, value: &[u8]) -> Result<StoredRecord> {
    Ok(decode_record(seq, value)?)
}

fn put_record(out: &mut Vec<u8>, record: &StoredRecord, fence: Fence) {
    put_part(out, &encode_record(record, fence, &[]));
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("a message is far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(part);
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

fn parts(mut rest: &[u8]) -> impl Iterator<Item = Result<&[u8]>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((found, tail)) = part(rest) else {
            rest = &[];
            return Some(Err(DecodeError::Malformed));
        };
        rest = tail;
        Some(Ok(found))
    })
}

fn texts(texts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    texts.iter().for_each(|text| put_part(&mut out, text.as_bytes()));
    out
}

fn read_texts<const N: usize>(payload: &[u8]) -> Result<[String; N]> {
    let text = |value: Result<&[u8]>| {
        String::from_utf8(value?.to_vec()).map_err(|_| DecodeError::Malformed)
    };
    let texts: Vec<String> = parts(payload).map(text).collect::<Result<_>>()?;
    texts.try_into().map_err(|_| DecodeError::Malformed)
}

fn read<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T> {
    serde_json::from_slice(payload).map_err(|_| DecodeError::Malformed)
}

fn uid_of(text: &str) -> Result<SessionUid> {
    SessionUid::new(text).map_err(|_| DecodeError::Malformed)
}
