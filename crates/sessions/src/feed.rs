//! From a turn that the host owns to the streams that watch it.
//!
//! The turn never waits for a watcher: its queue is bounded and drops the
//! oldest. A watcher that fell behind sees the gap by position and reads the
//! missing records from the log, so no record is lost and none comes twice;
//! only deltas, which are not recorded, can be. Watchers may come at any time
//! and see the turn's records from its first on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream;
use mainspring_api::{
    Condition, Delta, ExecStream, ExecUpdate, LogRecord, Seq, Session, SessionUid, SessionsError,
    Signal,
};
use mainspring_controller::Observer;
use mainspring_eventlog::{EventLog, Level, ReadLimit, StoredRecord, canonical};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::service::log_failed;

/// Updates that a watcher may lag behind before it reads from the log.
pub(crate) const FEED_MAX: usize = 512;

/// Canonical bytes of an event that is sent whole; of a larger one only its
/// position is, and who watches reads it from the log.
const SENT_BYTES_MAX: usize = 64 << 10;

/// How a turn ended: a session to show last, or why it failed.
type Ended = Result<Option<Box<Session>>, SessionsError>;

#[derive(Debug, Clone)]
pub(crate) enum Update {
    Record(Arc<LogRecord>),
    /// A record of this position, too large to be kept for who is slow.
    Recorded(Seq),
    /// A delta, and the position that it follows.
    Delta(Delta, Seq),
    /// The turn is over at this position.
    Done(Seq, Ended),
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
    /// Set once it is over, for those who come late. Held while one subscribes.
    done: Mutex<Option<(Seq, Ended)>>,
    audience: Arc<Audience>,
    /// Set by the first record, or by the end.
    begun: Signal<()>,
    /// Set by the end, and when the turn's task dies.
    over: Signal<()>,
}

/// Who watches a turn.
#[derive(Debug, Default)]
struct Audience {
    watchers: Mutex<usize>,
    /// Set when the last one goes.
    gone: Signal<()>,
}

/// What a watcher is shown.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) session: SessionUid,
    /// Comes before everything else.
    pub(crate) first: Option<Box<Session>>,
    /// Records after this position.
    pub(crate) after: Seq,
    /// Set when this watcher is the last one to go, before the turn is over.
    pub(crate) lost: Signal<()>,
}

impl Feed {
    /// The feed of a turn that starts after `start`.
    pub(crate) fn new(start: Seq) -> Arc<Self> {
        Arc::new(Self {
            updates: broadcast::Sender::new(FEED_MAX),
            start,
            last: AtomicU64::new(start.get()),
            has_deltas: Mutex::new(false),
            done: Mutex::default(),
            audience: Arc::default(),
            begun: Signal::default(),
            over: Signal::default(),
        })
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

    /// Set when nobody watches any more.
    pub(crate) fn gone(&self) -> Signal<()> {
        self.audience.gone.clone()
    }

    /// Set by the first record, or by the end.
    pub(crate) fn begun(&self) -> Signal<()> {
        self.begun.clone()
    }

    /// Set by the end, and when the turn's task dies.
    pub(crate) fn over(&self) -> Signal<()> {
        self.over.clone()
    }

    /// The turn is over. Comes after every record, so it is never dropped.
    pub(crate) fn finish(&self, result: Ended) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done = Some((self.last(), result.clone()));
        // First: who leaves because it was told must not count as lost.
        self.over.set(());
        let _ = self.updates.send(Update::Done(self.last(), result));
        drop(done);
        self.begun.set(());
    }

    /// A stream of the turn. `None` when everybody has left it before it began:
    /// then it is given up, unless it just begins.
    pub(crate) fn watch(&self, watch: Watch) -> Option<ExecStream> {
        let Watch { log, session, first, after, lost } = watch;
        let presence = Presence::of(&self.audience, self.has_recorded(), lost, self.over())?;
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let updates = self.updates.subscribe();
        // What comes from now on is in the queue; what was before is in the log.
        let (behind, finishing) = match &*done {
            Some((head, result)) => (*head, Some(result.clone())),
            None => (self.last(), None),
        };
        drop(done);
        let watcher = Watcher {
            updates,
            log,
            session,
            last: after,
            ready: first.map(|session| Ok(ExecUpdate::Session(session))).into_iter().collect(),
            behind: Some(behind),
            lagged: false,
            finishing,
            ended: false,
            _presence: presence,
        };
        Some(Box::pin(stream::unfold(watcher, Watcher::next)))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.begun.set(());
        self.over.set(());
    }
}

impl Observer for Feed {
    fn on_record(&self, record: &LogRecord) {
        let bytes = canonical::event_bytes(&record.event).map(|bytes| bytes.len());
        let update = match bytes {
            Ok(0..=SENT_BYTES_MAX) => Update::Record(Arc::new(record.clone())),
            _ => Update::Recorded(record.seq),
        };
        let mut has_deltas = self.has_deltas.lock().unwrap_or_else(PoisonError::into_inner);
        *has_deltas = false;
        self.last.store(record.seq.get(), Ordering::Release);
        let _ = self.updates.send(update);
        drop(has_deltas);
        self.begun.set(());
    }

    fn on_delta(&self, delta: Delta) {
        let mut has_deltas = self.has_deltas.lock().unwrap_or_else(PoisonError::into_inner);
        *has_deltas = true;
        let _ = self.updates.send(Update::Delta(delta, self.last()));
    }
}

/// One watcher, for as long as it is there.
struct Presence {
    audience: Arc<Audience>,
    lost: Signal<()>,
    over: Signal<()>,
}

impl Presence {
    fn of(
        audience: &Arc<Audience>,
        has_begun: bool,
        lost: Signal<()>,
        over: Signal<()>,
    ) -> Option<Self> {
        let mut watchers = audience.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if audience.gone.get().is_some() && !has_begun {
            return None;
        }
        *watchers += 1;
        Some(Self { audience: Arc::clone(audience), lost, over })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut watchers = self.audience.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        *watchers -= 1;
        if *watchers > 0 {
            return;
        }
        self.audience.gone.set(());
        if self.over.get().is_none() {
            self.lost.set(());
        }
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
    finishing: Option<Ended>,
    ended: bool,
    _presence: Presence,
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
        if matches!(update, Ok(Update::Record(_) | Update::Recorded(_))) {
            self.lagged = false;
        }
        match update {
            Ok(Update::Record(record)) if record.seq <= self.last => {}
            Ok(Update::Record(record)) if record.seq == self.last.next() => {
                self.last = record.seq;
                self.ready.push_back(Ok(ExecUpdate::Record(Box::new((*record).clone()))));
            }
            Ok(Update::Record(record)) => self.behind = Some(record.seq),
            Ok(Update::Recorded(seq)) => self.behind = Some(seq),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Wake, Waker};

    use mainspring_api::{Event, EventBody, Fence, Hash, Message, Notes};

    use super::*;

    /// What waits for a slow watcher is small, whatever was recorded.
    #[tokio::test]
    async fn a_large_record_is_sent_by_its_position() {
        let feed = Feed::new(Seq::ZERO);
        let (mut updates, _) = feed.join();
        for (seq, bytes) in [(1, 10), (2, SENT_BYTES_MAX)] {
            let message = Message::user("x".repeat(bytes));
            feed.on_record(&LogRecord {
                seq: Seq::new(seq),
                prev_hash: None,
                hash: Hash::from_hex(&"0".repeat(64)).unwrap(),
                fence: Fence::NONE,
                event: Event::of(EventBody::Input(Some(message))),
                notes: Notes::new(),
            });
        }
        assert!(matches!(updates.recv().await, Ok(Update::Record(_))));
        let large = updates.recv().await;
        assert!(matches!(large, Ok(Update::Recorded(seq)) if seq == Seq::new(2)), "{large:?}");
    }

    /// Looks at the feed at the very moment at which a watcher is woken.
    struct Looks {
        over: Signal<()>,
        woken: AtomicBool,
        was_over: AtomicBool,
    }

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.was_over.store(self.over.get().is_some(), Ordering::SeqCst);
            self.woken.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_turn_is_over_before_a_watcher_is_told() {
        let feed = Feed::new(Seq::ZERO);
        let (mut updates, _) = feed.join();
        let (woken, was_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let looks = Arc::new(Looks { over: feed.over(), woken, was_over });
        let waker = Waker::from(Arc::clone(&looks));
        let mut told = Box::pin(updates.recv());
        assert!(told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        feed.finish(Ok(None));
        assert!(looks.woken.load(Ordering::SeqCst));
        assert!(looks.was_over.load(Ordering::SeqCst));
    }
}
