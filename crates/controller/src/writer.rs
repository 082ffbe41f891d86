//! Appends of one turn, under one fence, from the head that it last wrote.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    AppendId, ApprovalRequest, Classify as _, Clock, Entropy, Event, EventBody, ExecutionId, Fence,
    Head, LogRecord, Outcome, Seq, random_hex,
};
use mainspring_eventlog::{Batch, LogError, NewRecord};

use crate::journal::Journal;
use crate::observer::{Observer, tell};
use crate::recorded::{EXPIRES_NOTE, expiry_text, recorded_form};

/// How often an operation with an unknown outcome is sent again to settle it.
const SETTLE_TRIES_MAX: u32 = 6;

/// How long to wait before an operation is sent for the second time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

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
        self.journal.advance(self.head, head);
        self.head = head;
        let canonical: Vec<_> = batch.stored().map(|stored| stored.canonical.clone()).collect();
        let written = batch
            .into_records(self.fence)
            .into_iter()
            .zip(&canonical)
            .map(|(record, canonical)| {
                let event = recorded_form(canonical, record.event)?;
                Ok(LogRecord { event, ..record })
            })
            .collect::<Result<Vec<_>, LogError>>()?;
        written.iter().for_each(|record| tell(|| self.observer.on_record(record)));
        Ok(written)
    }

    /// Appends one record.
    pub(crate) async fn append_one(&mut self, record: NewRecord) -> Result<LogRecord, LogError> {
        let mut written = self.append(vec![record]).await?;
        Ok(written.pop().expect("a batch of one gives one record"))
    }

    /// Adds a note to a record, under this fence. Its value is this writer's
    /// alone, so that no other writer's note is taken for this one.
    pub(crate) async fn annotate(&mut self, seq: Seq, key: &str) -> Result<(), LogError> {
        if let Some(error) = &self.unsettled {
            return Err(error.clone());
        }
        let (log, uid, fence) = (self.journal.log(), self.journal.uid(), self.fence);
        let value = self.note_value();
        settle(|| log.annotate(uid, seq, fence, key, &value)).await
    }

    /// A value that is this writer's alone.
    pub(crate) fn note_value(&self) -> String {
        random_hex(&*self.entropy, 8)
    }

    async fn settle(&mut self, batch: &Batch) -> Result<Head, LogError> {
        let id = AppendId::random(&*self.entropy);
        let (log, uid, fence) = (self.journal.log(), self.journal.uid(), self.fence);
        let settled = settle(|| log.append(uid, id, fence, batch)).await;
        if let Err(error) = &settled
            && error.outcome() == Outcome::Unknown
        {
            self.unsettled = Some(error.clone());
        }
        settled
    }
}

/// Sends an operation of the log again, as it is, while its outcome is unknown:
/// the id that it carries makes the log judge the copies as one. Bounded; what
/// stays unknown is answered so.
///
/// # Errors
/// The log's verdict, or the last doubt.
pub async fn settle<T, F>(mut send: impl FnMut() -> F) -> Result<T, LogError>
where
    F: Future<Output = Result<T, LogError>>,
{
    let mut pause = FIRST_PAUSE;
    let mut again = 0;
    loop {
        match send().await {
            Err(error) if error.outcome() == Outcome::Unknown && again < SETTLE_TRIES_MAX => {}
            // Only of the first copy does "not applied" speak for all: of a
            // later one it says that the log could not be asked.
            Err(LogError::Unavailable { message, source, .. }) if again > 0 => {
                return Err(LogError::Unavailable { message, outcome: Outcome::Unknown, source });
            }
            settled => return settled,
        }
        again += 1;
        tokio::time::sleep(pause).await;
        pause *= 2;
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

    /// A request for approval of a call, with the time at which it expires, if it does.
    pub(crate) fn approval_request(
        &self,
        tool_call_id: &str,
        ttl: Option<Duration>,
        clock: &dyn Clock,
    ) -> NewRecord {
        let tool_call_id = tool_call_id.to_owned();
        let request = ApprovalRequest { tool_call_id, reason: String::new() };
        let mut record = NewRecord::from(self.event(EventBody::ApprovalRequest(Some(request))));
        if let Some(ttl) = ttl {
            record.notes.insert(EXPIRES_NOTE.to_owned(), expiry_text(clock, ttl));
        }
        record
    }
}
