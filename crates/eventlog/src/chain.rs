//! The hash chain: linking new events, checking stored records.

use std::fmt::Write as _;
use std::sync::Arc;

use mainspring_api::{Bytes, Event, Fence, Hash, Head, LogRecord, Notes, Seq};
use sha2::{Digest as _, Sha256};

use crate::canonical;
use crate::error::LogError;
use crate::reader::{self, ReadError};

/// The bytes whose SHA-256 is a record's hash.
#[must_use]
pub fn record_bytes(canonical: &[u8], prev: Option<&Hash>, seq: Seq) -> Vec<u8> {
    let mut out = Vec::with_capacity(canonical.len() + 128);
    out.extend_from_slice(b"{\"event\":");
    out.extend_from_slice(canonical);
    out.extend_from_slice(tail(prev, seq).as_bytes());
    out
}

fn tail(prev: Option<&Hash>, seq: Seq) -> String {
    let mut tail = String::with_capacity(112);
    tail.push_str(",\"prev_hash\":\"");
    if let Some(hash) = prev {
        let _ = write!(tail, "{hash}");
    }
    let _ = write!(tail, "\",\"seq\":\"{seq}\"}}");
    tail
}

/// The hash of the record with these canonical event bytes at `seq` after `prev`.
#[must_use]
pub fn record_hash(canonical: &[u8], prev: Option<&Hash>, seq: Seq) -> Hash {
    let mut sha = Sha256::new();
    sha.update(b"{\"event\":");
    sha.update(canonical);
    sha.update(tail(prev, seq).as_bytes());
    Hash::new(sha.finalize().into())
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
#[derive(Debug, Clone, Copy)]
pub struct ChainVerifier {
    head: Head,
}

impl ChainVerifier {
    /// Starts after a head that is known to hold; [`Head::EMPTY`] for a whole journal.
    #[must_use]
    pub const fn after(head: Head) -> Self {
        Self { head }
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
        let seq = self.head.seq.next();
        let bad = |what| Err(LogError::Tampered { seq, what });
        if record.seq != seq {
            return bad("a record is missing or out of order");
        }
        if record.prev_hash != self.head.hash {
            return bad("prev_hash is not the hash of the record before");
        }
        if record_hash(&record.canonical, record.prev_hash.as_ref(), seq) != record.hash {
            return bad("content does not match its hash");
        }
        self.head = record.head();
        Ok(())
    }
}
