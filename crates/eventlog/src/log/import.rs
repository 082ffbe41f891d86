//! Checking an import as it comes.

use mainspring_api::{Event, EventBody, Head};

use super::ImportRecord;
use crate::canonical;
use crate::chain::{ChainVerifier, StoredRecord};
use crate::error::LogError;

/// Checks the records of one import as they come.
#[derive(Debug)]
pub(crate) struct ImportCheck {
    chain: ChainVerifier,
    ended: bool,
}

impl ImportCheck {
    /// Checks what follows `head`.
    pub(crate) const fn after(head: Head) -> Self {
        Self { chain: ChainVerifier::after(head), ended: false }
    }

    pub(crate) const fn head(&self) -> Head {
        self.chain.head()
    }

    /// Checks one item; returns the record to stage and its event, if it is one.
    pub(crate) fn check(
        &mut self,
        item: ImportRecord,
    ) -> Result<Option<(StoredRecord, Event)>, LogError> {
        if self.ended {
            return Err(LogError::Invalid("a record follows the head line"));
        }
        match item {
            ImportRecord::Record(record) => {
                self.chain.check(&record)?;
                bounded(&record)?;
                let event = record.event()?;
                bounded_names(&event)?;
                // A form that we would not write ourselves could not be served
                // over the wire and hash the same there.
                let same = canonical::event_bytes(&event)
                    .is_ok_and(|bytes| bytes == record.canonical.as_ref());
                if !same {
                    let what = "it is not in the form that this version writes".to_owned();
                    return Err(LogError::UnsupportedRecord { seq: record.seq, what });
                }
                Ok(Some((record, event)))
            }
            ImportRecord::Head(head, _) => {
                self.ended = true;
                if head == self.chain.head() {
                    return Ok(None);
                }
                Err(LogError::Tampered {
                    seq: self.chain.head().seq.next().min(head.seq),
                    what: "the records do not end at the stated head",
                })
            }
        }
    }
}

/// The highest fence that an import may bring: what follows it stays within
/// what every reader of the wire form takes.
const FENCE_MAX: u64 = 1 << 53;
/// Bytes of one record's notes.
const NOTES_BYTES_MAX: usize = 64 << 10;
/// Bytes of an id or name that the fold keeps in the row.
const NAME_BYTES_MAX: usize = 1 << 10;

fn bounded(record: &StoredRecord) -> Result<(), LogError> {
    if record.fence.get() > FENCE_MAX {
        return Err(LogError::Invalid("a record's fence is beyond 2^53"));
    }
    let notes = record.notes.iter().map(|(key, value)| key.len() + value.len()).sum();
    within("notes", notes, NOTES_BYTES_MAX)
}

fn bounded_names(event: &Event) -> Result<(), LogError> {
    if let Some(id) = &event.execution_id {
        within("execution id", id.as_str().len(), NAME_BYTES_MAX)?;
    }
    match &event.body {
        EventBody::ExecutionStart(Some(start)) => {
            within("harness name", start.harness.len(), NAME_BYTES_MAX)?;
            within("harness version", start.harness_version.len(), NAME_BYTES_MAX)?;
            within("compute instance", start.compute_instance.len(), NAME_BYTES_MAX)?;
            within("model", start.model.len(), NAME_BYTES_MAX)
        }
        EventBody::ToolCall(Some(call)) => within("tool call id", call.id.len(), NAME_BYTES_MAX),
        EventBody::Lifecycle(Some(body)) => {
            within("snapshot", body.snapshot.local.len(), NAME_BYTES_MAX)?;
            within("snapshot uri", body.snapshot.external_uri.len(), NAME_BYTES_MAX)
        }
        _ => Ok(()),
    }
}

fn within(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), LogError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(LogError::TooLarge { what, bytes: bytes as u64, bytes_max: bytes_max as u64 })
}
