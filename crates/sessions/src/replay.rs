//! Reading stored records.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream;
use mainspring_api::{
    Action, BoxStream, Caller, LogRecord, ReplayRequest, Seq, SessionUid, SessionsError,
};
use mainspring_eventlog::{EventLog, Level, LogError, ReadLimit, StoredRecord};

use crate::service::{Inner, deleted, invalid, log_failed};

impl Inner {
    pub(crate) async fn replay(
        self: &Arc<Self>,
        caller: &Caller,
        request: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        if request.to_seq < 0 {
            return Err(invalid(format!("to_seq is {}", request.to_seq)));
        }
        let uid = request.session;
        let row = self.find_for(caller, &[Action::Read], &uid).await?;
        if row.purged {
            return Err(deleted(&uid));
        }
        if request.verify {
            let opened = self.unverified(&uid).open().await;
            opened.map_err(|error| SessionsError::because(Arc::new(error)).on(&uid))?;
        }
        let from = Seq::from_i64(request.from_seq).unwrap_or(Seq::ZERO).max(Seq::new(1));
        let head = row.view.head.seq;
        let to = match Seq::from_i64(request.to_seq) {
            None | Some(Seq::ZERO) => head,
            Some(to) => to.min(head),
        };
        Ok(self.records(uid, from, to))
    }

    /// The records of a session from `from` to `to`. After an error there is none.
    pub(crate) fn records(
        &self,
        session: SessionUid,
        from: Seq,
        to: Seq,
    ) -> BoxStream<'static, Result<LogRecord, SessionsError>> {
        let pages = Pages::of(Arc::clone(&self.options.log), session, from, to);
        Box::pin(stream::unfold(pages, Pages::next))
    }
}

/// Records of a range, a page at a time.
pub(crate) struct Pages {
    log: Arc<dyn EventLog>,
    uid: SessionUid,
    next: Seq,
    to: Seq,
    ready: VecDeque<StoredRecord>,
}

impl Pages {
    async fn next(mut self) -> Option<(Result<LogRecord, SessionsError>, Self)> {
        let stored = match self.stored().await? {
            Ok(stored) => stored,
            Err(error) => return Some((Err(error), self)),
        };
        match stored.to_record() {
            Ok(record) => Some((Ok(record), self)),
            Err(error) => {
                self.next = self.to.next();
                self.ready.clear();
                let error = log_failed(error).on(&self.uid);
                Some((Err(error), self))
            }
        }
    }

    /// The records of a session from `from` to `to`.
    pub(crate) fn of(log: Arc<dyn EventLog>, uid: SessionUid, from: Seq, to: Seq) -> Self {
        Self { log, uid, next: from, to, ready: VecDeque::new() }
    }

    /// The next record as it is stored. After an error there is none.
    pub(crate) async fn stored(&mut self) -> Option<Result<StoredRecord, SessionsError>> {
        if self.ready.is_empty() && self.next <= self.to {
            let limit = ReadLimit::default();
            match self.log.read(&self.uid, self.next, limit, Level::Committed).await {
                Ok(page) if page.is_empty() => {
                    let (seq, what) = (self.next, "the journal ends before its head");
                    self.next = self.to.next();
                    let error = log_failed(LogError::Tampered { seq, what });
                    return Some(Err(error.on(&self.uid)));
                }
                Ok(page) => {
                    let to = self.to;
                    self.ready = page.into_iter().take_while(|record| record.seq <= to).collect();
                }
                Err(error) => {
                    self.next = self.to.next();
                    return Some(Err(log_failed(error).on(&self.uid)));
                }
            }
        }
        let stored = self.ready.pop_front()?;
        self.next = stored.seq.next();
        Some(Ok(stored))
    }
}
