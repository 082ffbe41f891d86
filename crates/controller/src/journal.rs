//! One session's journal as one host process knows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use mainspring_api::{Event, ExecutionId, Head, History, HistoryError, Seq, SessionUid};
use mainspring_eventlog::{
    EventLog, Level, LogError, ReadLimit, SessionRow, StoredRecord, Verified,
};

use crate::error::ControllerError;

/// How often [`Journal::open`] follows a head that keeps moving.
const OPEN_ROUNDS_MAX: usize = 64;

/// A session's journal, with the head up to which this process has verified it.
///
/// Clones share the watermark: the journal is verified whole once per process,
/// and from then on only what is new. A journal that ends before the watermark
/// is tampered.
#[derive(Debug, Clone)]
pub struct Journal {
    log: Arc<dyn EventLog>,
    uid: SessionUid,
    verified: Arc<Mutex<Head>>,
    /// Held while the log is verified, so that many readers verify it once; a
    /// writer never waits for it.
    verifying: Arc<tokio::sync::Mutex<()>>,
    /// The execution whose approvals were found well formed, up to this position.
    approvals: Arc<Mutex<Option<(ExecutionId, Seq)>>>,
}

impl Journal {
    /// The journal of `uid` in `log`, not verified yet.
    #[must_use]
    pub fn new(log: Arc<dyn EventLog>, uid: SessionUid) -> Self {
        let (verified, verifying, approvals) = Default::default();
        Self { log, uid, verified, verifying, approvals }
    }

    /// The store.
    #[must_use]
    pub fn log(&self) -> &Arc<dyn EventLog> {
        &self.log
    }

    /// The session.
    #[must_use]
    pub fn uid(&self) -> &SessionUid {
        &self.uid
    }

    /// Verifies what is new and returns the row at a verified head.
    ///
    /// # Errors
    /// The log's: `Tampered` at the first bad position, `SessionNotFound`.
    pub async fn open(&self) -> Result<SessionRow, ControllerError> {
        let _one = self.verifying.lock().await;
        // What a concurrent writer appends between the two reads is verified by
        // the next round, which has only that to do.
        for _ in 0..OPEN_ROUNDS_MAX {
            let mut verified = *lock(&self.verified);
            let row = self.log.get(&self.uid, Level::Committed).await?;
            if row.view.head == verified {
                return Ok(row);
            }
            let mut steps = self.log.verify(&self.uid, verified);
            while let Some(step) = steps.next().await {
                if let Verified::Done(head) = step? {
                    verified = head;
                    self.raise(head);
                }
            }
            if row.view.head == verified {
                return Ok(row);
            }
        }
        Err(LogError::Moved { what: "the head" }.into())
    }

    /// Records that this process wrote itself need no second look.
    pub(crate) fn advance(&self, from: Head, to: Head) {
        let mut verified = lock(&self.verified);
        if *verified == from {
            *verified = to;
        }
    }

    /// The journal is verified up to `head`, unless a writer went further meanwhile.
    fn raise(&self, head: Head) {
        let mut verified = lock(&self.verified);
        if head.seq > verified.seq {
            *verified = head;
        }
    }

    /// Whether the approvals of an execution are known to be well formed up to `seq`.
    pub(crate) fn has_checked(&self, execution: &ExecutionId, seq: Seq) -> bool {
        let checked = lock(&self.approvals);
        checked.as_ref().is_some_and(|(id, upto)| id == execution && *upto == seq)
    }

    /// The approvals of an execution are well formed up to `seq`.
    pub(crate) fn checked(&self, execution: &ExecutionId, seq: Seq) {
        *lock(&self.approvals) = Some((execution.clone(), seq));
    }

    /// Reads the records `from..=to`, page by page.
    pub(crate) async fn read_range(
        &self,
        from: Seq,
        to: Seq,
        mut visit: impl FnMut(StoredRecord) -> Result<(), ControllerError> + Send,
    ) -> Result<(), ControllerError> {
        let mut next = from;
        while next <= to {
            let page = self.page(next, to).await?;
            for record in page {
                next = record.seq.next();
                visit(record)?;
            }
        }
        Ok(())
    }

    /// The records from `from` on, no further than `to`; at least one.
    pub(crate) async fn page(&self, from: Seq, to: Seq) -> Result<Vec<StoredRecord>, LogError> {
        let limit = ReadLimit::default();
        let left = (to.get() + 1).saturating_sub(from.get());
        let records = limit.records.min(usize::try_from(left).unwrap_or(usize::MAX));
        let limit = ReadLimit { records, ..limit };
        let page = self.log.read(&self.uid, from, limit, Level::Committed).await?;
        if page.is_empty() { Err(missing(from)) } else { Ok(page) }
    }

    /// The events before `before`, read on demand.
    #[must_use]
    pub fn history(&self, before: Seq) -> Arc<dyn History> {
        Arc::new(LogHistory {
            log: Arc::clone(&self.log),
            uid: self.uid.clone(),
            len: before.get().saturating_sub(1),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn missing(seq: Seq) -> LogError {
    LogError::Tampered { seq, what: "the journal ends before its head" }
}

/// The first events of a journal, read on demand in bounded memory.
#[derive(Debug, Clone)]
pub struct LogHistory {
    log: Arc<dyn EventLog>,
    uid: SessionUid,
    len: u64,
}

#[async_trait]
impl History for LogHistory {
    fn len(&self) -> u64 {
        self.len
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        let left = self.len.saturating_sub(from);
        let records = limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        if records == 0 {
            return Ok(Vec::new());
        }
        let limit = ReadLimit { records, ..ReadLimit::default() };
        let failed = |error: LogError| HistoryError(Arc::new(error));
        let page = self
            .log
            .read(&self.uid, Seq::new(from + 1), limit, Level::Committed)
            .await
            .map_err(failed)?;
        if page.is_empty() {
            return Err(failed(missing(Seq::new(from + 1))));
        }
        page.iter().map(|record| record.event().map_err(failed)).collect()
    }
}
