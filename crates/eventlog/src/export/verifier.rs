//! Verifying an exported journal.

use mainspring_api::Head;

use super::{Line, check_line, no_lines, parse_line};
use crate::chain::ChainVerifier;
use crate::error::LogError;

/// Verifies an exported journal, line by line.
#[derive(Debug)]
pub struct LineVerifier {
    chain: ChainVerifier,
    line: u64,
    head: Option<Head>,
}

impl Default for LineVerifier {
    fn default() -> Self {
        Self { chain: ChainVerifier::after(Head::EMPTY), line: 0, head: None }
    }
}

impl LineVerifier {
    /// Checks the next line; blank ones are skipped.
    ///
    /// # Errors
    /// [`LogError::BadLine`]; [`LogError::TooLarge`]; [`LogError::Tampered`] at
    /// the first bad record or when the records do not end at the stated head; as
    /// [`StoredRecord::event`](crate::StoredRecord::event) when a record's content is not known.
    pub fn push(&mut self, line: &[u8]) -> Result<(), LogError> {
        self.line += 1;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        check_line(line)?;
        let parsed = parse_line(self.line, line)?;
        if self.head.is_some() {
            return Err(LogError::BadLine {
                line: self.line,
                why: "it follows the head line".to_owned(),
            });
        }
        match parsed {
            Line::Record(record) => {
                self.chain.check(&record)?;
                record.event().map(drop)
            }
            Line::Head(head, _) => {
                self.head = Some(head);
                self.expect(head)
            }
        }
    }

    /// The head of the records so far.
    #[must_use]
    pub const fn records_head(&self) -> Head {
        self.chain.head()
    }

    /// Requires the records to end at `head`.
    ///
    /// # Errors
    /// [`LogError::Tampered`].
    pub fn expect(&self, head: Head) -> Result<(), LogError> {
        let found = self.chain.head();
        if found == head {
            return Ok(());
        }
        let what = if found.seq < head.seq {
            "records are missing at the end"
        } else {
            "the records do not end at the expected head"
        };
        Err(LogError::Tampered { seq: found.seq.next().min(head.seq), what })
    }

    /// The head of the records, and whether a head line attested it.
    ///
    /// # Errors
    /// [`LogError::BadLine`] when there was neither a record nor a head.
    pub fn finish(&self) -> Result<(Head, bool), LogError> {
        let head = self.chain.head();
        if head == Head::EMPTY && self.head.is_none() {
            return Err(no_lines());
        }
        Ok((head, self.head.is_some()))
    }
}
