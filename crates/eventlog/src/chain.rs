//! The hash chain: linking new events, checking stored records.

use std::sync::Arc;

use mainspring_api::{Bytes, Event, Fence, Hash, Head, LogRecord, Notes, Seq};
use sha2::{Digest as _, Sha256};

use crate::canonical;
use crate::error::LogError;
use crate::reader::{self, ReadError};

/// The bytes whose SHA-256 is a record's hash.
#[must_use]
pub fn record_bytes(canonical: &[u8], prev: Option<&Hash>, seq: Seq) -> Vec<u8> {
    let mut out = Vec::with_capacity(canonical.len() + HEAD.len() + TAIL_MAX);
    write_record(&mut out, canonical, prev, seq);
    out
}

/// The hash of the record with these canonical event bytes at `seq` after `prev`.
#[must_use]
pub fn record_hash(canonical: &[u8], prev: Option<&Hash>, seq: Seq) -> Hash {
    let mut tail = Vec::with_capacity(TAIL_MAX);
    write_tail(&mut tail, prev, seq);
    let mut sha = Sha256::new();
    sha.update(HEAD);
    sha.update(canonical);
    sha.update(&tail);
    Hash::new(sha.finalize().into())
}

const HEAD: &[u8] = b"{\"event\":";

/// The most that follows the event: two names, a hash and a position.
const TAIL_MAX: usize = 14 + 64 + 9 + 20 + 2;

fn write_record(out: &mut Vec<u8>, canonical: &[u8], prev: Option<&Hash>, seq: Seq) {
    out.extend_from_slice(HEAD);
    out.extend_from_slice(canonical);
    write_tail(out, prev, seq);
}

/// By hand: this is written for every record that is hashed.
fn write_tail(out: &mut Vec<u8>, prev: Option<&Hash>, seq: Seq) {
    out.extend_from_slice(b",\"prev_hash\":\"");
    if let Some(hash) = prev {
        out.extend_from_slice(&hash.to_hex());
    }
    out.extend_from_slice(b"\",\"seq\":\"");
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = seq.get();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).expect("a digit");
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\"}");
}

/// An event to append, with its side data.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// The event.
    pub event: Event,
    /// Unhashed side data.
    pub notes: Notes,
}

impl From<Event> for NewRecord {
    fn from(event: Event) -> Self {
        Self { event, notes: Notes::new() }
    }
}

/// Events linked to a head: canonical bytes and hashes are computed once, by
/// the caller and off the store's committer, and never again.
///
/// Clones share the records.
#[derive(Debug, Clone)]
pub struct Batch {
    base: Head,
    records: Arc<Vec<LinkedRecord>>,
    bytes: usize,
}

/// One record of a [`Batch`].
#[derive(Debug, Clone)]
pub(crate) struct LinkedRecord {
    pub(crate) event: Event,
    pub(crate) stored: StoredRecord,
}

impl Batch {
    /// Links `records` after `base`.
    ///
    /// # Errors
    /// - [`LogError::Invalid`] for an empty batch.
    /// - [`LogError::Unrecordable`] for an event without a canonical form.
    pub fn link(base: Head, records: Vec<NewRecord>) -> Result<Self, LogError> {
        if records.is_empty() {
            return Err(LogError::Invalid("a batch is empty"));
        }
        let mut head = base;
        let mut bytes = 0;
        let records = records
            .into_iter()
            .map(|NewRecord { event, notes }| {
                let canonical = canonical::event_bytes(&event).map_err(LogError::Unrecordable)?;
                let seq = head.seq.next();
                let hash = record_hash(&canonical, head.hash.as_ref(), seq);
                let stored = StoredRecord {
                    seq,
                    prev_hash: head.hash,
                    hash,
                    fence: Fence::NONE,
                    canonical: canonical.into(),
                    notes,
                };
                head = Head::at(seq, hash);
                bytes += stored.canonical.len();
                Ok(LinkedRecord { event, stored })
            })
            .collect::<Result<Vec<_>, LogError>>()?;
        Ok(Self { base, records: Arc::new(records), bytes })
    }

    /// Records that whoever wrote them has linked after `base`: neither hashes
    /// nor links are computed again, which is what a verification does.
    pub(crate) fn linked_before(base: Head, records: Vec<StoredRecord>) -> Result<Self, LogError> {
        if records.is_empty() {
            return Err(LogError::Invalid("a batch is empty"));
        }
        let bytes = records.iter().map(|record| record.canonical.len()).sum();
        let linked = |stored: StoredRecord| Ok(LinkedRecord { event: stored.event()?, stored });
        let records = records.into_iter().map(linked).collect::<Result<Vec<_>, LogError>>()?;
        Ok(Self { base, records: Arc::new(records), bytes })
    }

    /// The head that it follows.
    #[must_use]
    pub const fn base(&self) -> Head {
        self.base
    }

    /// The head after it.
    #[must_use]
    pub fn head(&self) -> Head {
        self.records.last().map_or(self.base, |last| last.stored.head())
    }

    /// How many records it has; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Canonical bytes of all its records.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its events, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().map(|record| &record.event)
    }

    /// Its records as they are stored, but for fence and the store's own notes.
    pub fn stored(&self) -> impl Iterator<Item = &StoredRecord> {
        self.records.iter().map(|record| &record.stored)
    }

    /// The records as readers will see them under `fence`.
    #[must_use]
    pub fn into_records(self, fence: Fence) -> Vec<LogRecord> {
        // Alone by now: the store has let go of what it was given.
        Arc::unwrap_or_clone(self.records)
            .into_iter()
            .map(|LinkedRecord { event, stored }| LogRecord {
                seq: stored.seq,
                prev_hash: stored.prev_hash,
                hash: stored.hash,
                fence,
                event,
                notes: stored.notes,
            })
            .collect()
    }

    pub(crate) fn linked(&self) -> &[LinkedRecord] {
        &self.records
    }
}

/// A record as it is stored: the canonical bytes are the hashed ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Position.
    pub seq: Seq,
    /// Hash of the record before; `None` for the first.
    pub prev_hash: Option<Hash>,
    /// Hash of this record, as it was stored.
    pub hash: Hash,
    /// The fence under which it was written.
    pub fence: Fence,
    /// The canonical bytes of its event.
    pub canonical: Bytes,
    /// Side data.
    pub notes: Notes,
}

impl StoredRecord {
    /// The head when this record is the last.
    #[must_use]
    pub const fn head(&self) -> Head {
        Head::at(self.seq, self.hash)
    }

    /// Decodes the event.
    ///
    /// # Errors
    /// - [`LogError::UnsupportedRecord`] when a newer version may have written it.
    /// - [`LogError::Corrupt`] when it is no event.
    pub fn event(&self) -> Result<Event, LogError> {
        reader::event_from_bytes(&self.canonical).map_err(|error| read_failed(self.seq, &error))
    }

    /// Decodes the whole record.
    ///
    /// # Errors
    /// As [`StoredRecord::event`].
    pub fn to_record(&self) -> Result<LogRecord, LogError> {
        Ok(LogRecord {
            seq: self.seq,
            prev_hash: self.prev_hash,
            hash: self.hash,
            fence: self.fence,
            event: self.event()?,
            notes: self.notes.clone(),
        })
    }
}

pub(crate) fn read_failed(seq: Seq, error: &ReadError) -> LogError {
    match error {
        ReadError::Unsupported { .. } => {
            LogError::UnsupportedRecord { seq, what: error.to_string() }
        }
        _ => LogError::Corrupt { what: format!("record {seq}: {error}") },
    }
}

/// Checks records one by one, in order, decoding nothing.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    head: Head,
    /// The record bytes of the one that is checked.
    scratch: Vec<u8>,
}

impl ChainVerifier {
    /// Starts after a head that is known to hold; [`Head::EMPTY`] for a whole journal.
    #[must_use]
    pub const fn after(head: Head) -> Self {
        Self { head, scratch: Vec::new() }
    }

    /// The head of what was checked.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Checks the next record.
    ///
    /// # Errors
    /// [`LogError::Tampered`] at its position: out of sequence, a wrong link, or a wrong hash.
    pub fn check(&mut self, record: &StoredRecord) -> Result<(), LogError> {
        self.check_parts(record.seq, record.prev_hash.as_ref(), &record.hash, &record.canonical)
    }

    /// As [`ChainVerifier::check`], of a record that nobody took apart.
    pub(crate) fn check_parts(
        &mut self,
        at: Seq,
        prev: Option<&Hash>,
        hash: &Hash,
        canonical: &[u8],
    ) -> Result<(), LogError> {
        let seq = self.head.seq.next();
        let bad = |what| Err(LogError::Tampered { seq, what });
        if at != seq {
            return bad("a record is missing or out of order");
        }
        if prev != self.head.hash.as_ref() {
            return bad("prev_hash is not the hash of the record before");
        }
        // One piece: the hash takes small ones through a buffer of its own.
        self.scratch.clear();
        write_record(&mut self.scratch, canonical, prev, seq);
        if Sha256::digest(&self.scratch)[..] != hash.as_bytes()[..] {
            return bad("content does not match its hash");
        }
        self.head = Head::at(seq, *hash);
        Ok(())
    }
}
