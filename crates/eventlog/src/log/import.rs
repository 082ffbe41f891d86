//! Checking an import as it comes.

use mainspring_api::{Event, Fence, Head};

use super::ImportRecord;
use crate::canonical;
use crate::chain::{ChainVerifier, StoredRecord};
use crate::error::LogError;

/// Checks the records of one import as they come.
#[derive(Debug)]
pub(crate) struct ImportCheck {
    chain: ChainVerifier,
    ended: bool,
    pub(crate) fence_max: Fence,
}

impl ImportCheck {
    pub(crate) const fn new() -> Self {
        Self { chain: ChainVerifier::after(Head::EMPTY), ended: false, fence_max: Fence::NONE }
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
                self.fence_max = self.fence_max.max(record.fence);
                let event = record.event()?;
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
