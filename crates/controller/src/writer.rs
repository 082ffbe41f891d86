//! Appends of one turn, under one fence, from the head that it last wrote.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    AppendId, Classify as _, Entropy, Event, EventBody, ExecutionId, Fence, Head, LogRecord,
    Outcome,
};
use mainspring_eventlog::{Batch, LogError, NewRecord};

use crate::journal::Journal;
use crate::observer::Observer;
use crate::recorded::recorded_form;

/// How often an append with an unknown outcome is sent again to settle it.
const SETTLE_TRIES_MAX: u32 = 6;

/// Writes records and tells the observer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) journal: Journal,
    pub(crate) fence: Fence,
    pub(crate) head: Head,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// An append whose outcome could not be settled: nothing may follow it.
    unsettled: Option<LogError>,
}

impl Writer {
    pub(crate) fn new(
        journal: Journal,
        fence: Fence,
        head: Head,
        observer: Arc<dyn Observer>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { journal, fence, head, observer, entropy, unsettled: None }
    }

    /// Appends `records` as one unit and returns them as recorded.
    pub(crate) async fn append(
        &mut self,
        records: Vec<NewRecord>,
    ) -> Result<Vec<LogRecord>, LogError> {
        if let Some(error) = &self.unsettled {
            return Err(error.clone());
        }
        let batch = Batch::link(self.head, records)?;
        let head = self.settle(&batch).await?;
        // What is durable is known before anything can fail here.
        self.journal.advance(self.head, head).await;
        self.head = head;
        let canonical: Vec<_> = batch.stored().map(|stored| stored.canonical.clone()).collect();
        let mut written = batch.into_records(self.fence);
        for (record, canonical) in written.iter_mut().zip(&canonical) {
            record.event = recorded_form(canonical, &record.event)?;
        }
        written.iter().for_each(|record| self.observer.on_record(record));
        Ok(written)
    }

    /// Appends one record.
    pub(crate) async fn append_one(&mut self, record: NewRecord) -> Result<LogRecord, LogError> {
        let mut written = self.append(vec![record]).await?;
        Ok(written.pop().expect("a batch of one gives one record"))
    }

    async fn settle(&mut self, batch: &Batch) -> Result<Head, LogError> {
        let id = AppendId::random(&*self.entropy);
        let mut pause = Duration::from_millis(20);
        let mut tries = 0;
        loop {
            let sent = self.journal.log().append(self.journal.uid(), id, self.fence, batch).await;
            match sent {
                Err(error) if error.outcome() == Outcome::Unknown => {
                    tries += 1;
                    if tries > SETTLE_TRIES_MAX {
                        self.unsettled = Some(error.clone());
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                // The log itself cannot be asked to settle the first copy: what
                // it says now is not about that copy.
                Err(error) if tries > 0 && matches!(error, LogError::Unavailable { .. }) => {
                    let unknown = LogError::Unavailable {
                        message: error.to_string(),
                        outcome: Outcome::Unknown,
                        source: None,
                    };
                    self.unsettled = Some(unknown.clone());
                    return Err(unknown);
                }
                settled => return settled,
            }
        }
    }
}

/// Which execution the records of a run belong to.
#[derive(Debug, Clone)]
pub(crate) enum Tag {
    /// An execution with an id.
    Execution(ExecutionId),
    /// An id-less turn of an old journal; the token names it to the harness alone.
    Legacy(ExecutionId),
}

impl Tag {
    /// The id that the harness sees.
    pub(crate) const fn id(&self) -> &ExecutionId {
        match self {
            Self::Execution(id) | Self::Legacy(id) => id,
        }
    }

    /// An event of the run.
    pub(crate) fn event(&self, body: EventBody) -> Event {
        match self {
            Self::Execution(id) => Event::in_execution(id, body),
            Self::Legacy(_) => Event::of(body),
        }
    }
}
