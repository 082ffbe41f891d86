//! Recorded effects of one run, read as they are needed.

use std::collections::VecDeque;

use mainspring_api::{EventBody, ExecutionId, Seq};
use mainspring_eventlog::{LogError, StoredRecord};

use crate::journal::Journal;
use crate::recorded::Effect;

/// Whose effects they are.
#[derive(Debug, Clone)]
enum Whose {
    Execution(ExecutionId),
    /// The id-less records of an old journal. Usage is no effect of theirs.
    Legacy,
}

/// Effects of a range of records, page by page.
#[derive(Debug)]
pub(crate) struct Tape {
    journal: Journal,
    whose: Whose,
    next: Seq,
    last: Seq,
}

impl Tape {
    /// The effects of `id` in `first..=last`.
    pub(crate) fn of(journal: &Journal, id: &ExecutionId, first: Seq, last: Seq) -> Self {
        let whose = Whose::Execution(id.clone());
        Self { journal: journal.clone(), whose, next: first, last }
    }

    /// The effects without an id in `first..=last`.
    pub(crate) fn legacy(journal: &Journal, first: Seq, last: Seq) -> Self {
        Self { journal: journal.clone(), whose: Whose::Legacy, next: first, last }
    }

    /// The next effects, at least one; `None` when there are none left.
    pub(crate) async fn page(&mut self) -> Result<Option<VecDeque<Effect>>, LogError> {
        while self.next <= self.last {
            let page = self.journal.page(self.next, self.last).await?;
            let mut effects = VecDeque::new();
            for record in page {
                self.next = record.seq.next();
                effects.extend(self.effect(&record)?);
            }
            if !effects.is_empty() {
                return Ok(Some(effects));
            }
        }
        Ok(None)
    }

    fn effect(&self, record: &StoredRecord) -> Result<Option<Effect>, LogError> {
        let event = record.event()?;
        let own = match (&self.whose, &event.execution_id) {
            (Whose::Execution(id), Some(of)) => id == of,
            (Whose::Legacy, None) => !matches!(event.body, EventBody::Usage(_)),
            _ => false,
        };
        Ok(own.then(|| Effect::of(record.seq, event.body, &record.notes)).flatten())
    }
}
