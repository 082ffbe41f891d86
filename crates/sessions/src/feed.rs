//! From a turn that the host owns to the streams that watch it.
//!
//! The turn never waits for a watcher: its queue is bounded and drops the
//! oldest. A watcher that fell behind sees the gap by position and reads the
//! missing records from the log, so no record is lost and none comes twice;
//! only deltas, which are not recorded, can be.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream;
use mainspring_api::{
    BoxStream, Condition, Delta, ExecUpdate, LogRecord, Seq, Session, SessionUid, SessionsError,
    Signal,
};
use mainspring_controller::Observer;
use mainspring_eventlog::{EventLog, Level, ReadLimit, StoredRecord};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::service::log_failed;

/// Updates that a watcher may lag behind before it reads from the log.
pub(crate) const FEED_MAX: usize = 512;

#[derive(Debug, Clone)]
pub(crate) enum Update {
    Record(Arc<LogRecord>),
    /// A delta, and the position that it follows.
    Delta(Delta, Seq),
    /// The turn is over at this position; a session to show last, or why it failed.
    Done(Seq, Result<Option<Box<Session>>, SessionsError>),
}

/// The turn's side.
#[derive(Debug)]
pub(crate) struct Feed {
    updates: broadcast::Sender<Update>,
    start: Seq,
    /// The turn's last record so far.
    last: AtomicU64,
    /// Whether deltas follow that record. Held while something is sent, so that
    /// who joins knows what was sent before.
    has_deltas: Mutex<bool>,
}

impl Feed {
    /// The feed of a turn that starts after `start`.
    pub(crate) fn new(start: Seq) -> Arc<Self> {
        let last = AtomicU64::new(start.get());
        let (updates, has_deltas) = (broadcast::Sender::new(FEED_MAX), Mutex::new(false));
        Arc::new(Self { updates, start, last, has_deltas })
    }

    /// Whether the turn has recorded anything.
    pub(crate) fn has_recorded(&self) -> bool {
        self.last() > self.start
    }

    /// The turn's last record so far, or the position before it.
    fn last(&self) -> Seq {
        Seq::new(self.last.load(Ordering::Acquire))
    }

    /// What is sent from now on, and the position after which deltas were sent
    /// before, if any were.
    pub(crate) fn join(&self) -> (broadcast::Receiver<Update>, Option<Seq>) {
        let has_deltas = self.has_deltas.lock().unwrap_or_else(PoisonError::into_inner);
        (self.updates.subscribe(), has_deltas.then(|| self.last()))
    }

    /// The turn is over. Comes after every record, so it is never dropped.
    pub(crate) fn finish(&self, result: Result<Option<Box<Session>>, SessionsError>) {
        let _ = self.updates.send(Update::Done(self.last(), result));
    }

    /// A stream that starts with `first` and goes on with the turn's records. `gone` is set when it is dropped.
    pub(crate) fn watch(
        &self,
        log: Arc<dyn EventLog>,
        session: SessionUid,
        first: Option<Box<Session>>,
        gone: Signal<()>,
    ) -> BoxStream<'static, Result<ExecUpdate, SessionsError>> {
        let watcher = Watcher {
            updates: self.updates.subscribe(),
            log,
            session,
            last: self.start,
            ready: first.map(|session| Ok(ExecUpdate::Session(session))).into_iter().collect(),
            behind: None,
            lagged: false,
            finishing: None,
            ended: false,
            _gone: SetOnDrop(gone),
        };
        Box::pin(stream::unfold(watcher, Watcher::next))
    }
}

impl Observer for Feed {
    fn on_record(&self, record: &LogRecord) {
        let mut has_deltas = self.has_deltas.lock().unwrap_or_else(PoisonError::into_inner);
        *has_deltas = false;
        self.last.store(record.seq.get(), Ordering::Release);
        let _ = self.updates.send(Update::Record(Arc::new(record.clone())));
    }

    fn on_delta(&self, delta: Delta) {
        let mut has_deltas = self.has_deltas.lock().unwrap_or_else(PoisonError::into_inner);
        *has_deltas = true;
        let _ = self.updates.send(Update::Delta(delta, self.last()));
    }
}

struct SetOnDrop(Signal<()>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(());
    }
}

type Item = Result<ExecUpdate, SessionsError>;

struct Watcher {
    updates: broadcast::Receiver<Update>,
    log: Arc<dyn EventLog>,
    session: SessionUid,
    /// The last position that was handed out.
    last: Seq,
    ready: VecDeque<Item>,
    /// Records up to here are to be read from the log.
    behind: Option<Seq>,
    /// Updates were missed, and no record has told yet how far: a delta now
    /// would come before the records that it follows.
    lagged: bool,
    finishing: Option<Result<Option<Box<Session>>, SessionsError>>,
    ended: bool,
    _gone: SetOnDrop,
}

impl Watcher {
    async fn next(mut self) -> Option<(Item, Self)> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some((item, self));
            }
            if self.ended {
                return None;
            }
            if let Some(upto) = self.behind {
                self.catch_up(upto).await;
            } else if let Some(result) = self.finishing.take() {
                self.ended = true;
                match result {
                    Ok(session) => self.ready.extend(session.map(|s| Ok(ExecUpdate::Session(s)))),
                    Err(error) => self.ready.push_back(Err(error)),
                }
            } else {
                self.receive().await;
            }
        }
    }

    async fn receive(&mut self) {
        let update = self.updates.recv().await;
        if matches!(update, Ok(Update::Record(_))) {
            self.lagged = false;
        }
        match update {
            Ok(Update::Record(record)) if record.seq <= self.last => {}
            Ok(Update::Record(record)) if record.seq == self.last.next() => {
                self.last = record.seq;
                self.ready.push_back(Ok(ExecUpdate::Record(Box::new((*record).clone()))));
            }
            Ok(Update::Record(record)) => self.behind = Some(record.seq),
            Ok(Update::Delta(..)) if self.lagged => {}
            Ok(Update::Delta(delta, _)) => self.ready.push_back(Ok(ExecUpdate::Delta(delta))),
            Ok(Update::Done(head, result)) => {
                self.behind = Some(head);
                self.finishing = Some(result);
            }
            // The next record says by its position what was missed.
            Err(RecvError::Lagged(_)) => self.lagged = true,
            // The turn's task died without a word; the log says how far it got.
            Err(RecvError::Closed) => {
                let message = "the turn's task ended without a result";
                self.finishing = Some(Err(SessionsError::new(Condition::Internal, message)));
            }
        }
    }

    /// Reads one page of what was missed.
    async fn catch_up(&mut self, upto: Seq) {
        let from = self.last.next();
        if from > upto {
            self.behind = None;
            return;
        }
        let page = self.log.read(&self.session, from, ReadLimit::default(), Level::Committed).await;
        let records = page.and_then(|page| {
            page.iter().map(StoredRecord::to_record).collect::<Result<Vec<_>, _>>()
        });
        match records {
            Ok(records) if records.is_empty() => self.behind = None,
            Ok(records) => {
                for record in records.into_iter().take_while(|record| record.seq <= upto) {
                    self.last = record.seq;
                    self.ready.push_back(Ok(ExecUpdate::Record(Box::new(record))));
                }
            }
            Err(error) => {
                self.behind = None;
                self.finishing = Some(Err(log_failed(error).on(&self.session)));
            }
        }
    }
}
