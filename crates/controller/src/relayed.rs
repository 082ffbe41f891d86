//! An observer that may be slow, or never return, beside a turn that must not wait.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mainspring_api::{Classify as _, Delta, ErrorKind, LogRecord, Seq, Signal};
use mainspring_eventlog::LogError;
use tokio::runtime::Handle;

use crate::journal::Journal;
use crate::observer::Observer;

/// Records and deltas that wait for a relayed observer; beyond it, it lags.
pub const RELAY_QUEUE_MAX: usize = 256;

/// How long [`Relayed::close`] waits for what is still to be told.
pub const RELAY_FLUSH_MAX: Duration = Duration::from_secs(5);

/// How often a lagging relay asks a log that is unavailable, and how long it
/// waits in between.
const READ_TRIES_MAX: u32 = 50;
const READ_PAUSE: Duration = Duration::from_millis(100);

/// What a relayed observer did not get as it happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// The first record that was not kept; it and those after it come next, read
    /// from the log. `None` when only deltas were lost.
    pub from: Option<Seq>,
    /// Deltas that are lost for good.
    pub deltas_lost: u64,
}

/// An observer that is told when it lags behind.
pub trait RelayedObserver: Observer {
    /// It was too slow for the turn. Comes before the first record after the gap.
    fn on_lag(&self, lag: Lag);

    /// The log cannot be read where it lags: `from` and all after it is not
    /// told, and this is the last call.
    fn on_lost(&self, from: Seq, error: &LogError);
}

/// Hands an observer what it is told of, on a thread of its own: it may block
/// for as long as it likes, even for ever, and the turn goes on.
///
/// Use a plain [`Observer`] for what hands over and returns, such as a channel
/// with room: it costs nothing and is told before the turn goes on. Use this for
/// all others: those that write to a disk, a socket or a lock that somebody
/// holds, and those that you did not write. It costs a thread and one copy of
/// each record.
///
/// # Guarantees
/// - Calls of a turn never wait for the observer.
/// - Until it is closed, every record is told once and in order, however slow
///   the observer is: what does not fit into [`RELAY_QUEUE_MAX`] is read from the
///   log later, with the notes that the store adds, and together with what
///   others appended in between.
/// - Deltas that do not fit are dropped. [`RelayedObserver::on_lag`] says so.
/// - After [`Relayed::close`], or once this is dropped, no call begins. One that
///   has begun may still run.
pub struct Relayed {
    shared: Arc<Shared>,
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayed").finish_non_exhaustive()
    }
}

enum Told {
    Record(Box<LogRecord>),
    Delta(Delta),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Told>,
    /// What came after the queue was full, until the relay gets to it.
    missed: Option<Missed>,
    /// Nothing more is taken.
    closing: bool,
    /// Nothing more is told.
    closed: bool,
    /// Not everything was told, and will not be.
    lost: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Missed {
    records: Option<(Seq, Seq)>,
    deltas: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Set when the thread has ended.
    ended: Signal<()>,
}

/// What the thread does next.
enum Next {
    Tell(Told),
    CatchUp(Missed),
    End,
}

impl Relayed {
    /// Relays what happens to `journal` to `observer`. Must be called within a
    /// runtime, which reads the log when the observer lags, and is to outlive this.
    ///
    /// # Errors
    /// The system's, when it gives no thread.
    pub fn start(journal: Journal, observer: Arc<dyn RelayedObserver>) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let relay = Relay { shared: Arc::clone(&shared), journal, observer };
        let runtime = Handle::current();
        thread::Builder::new().name("observer-relay".to_owned()).spawn(move || {
            let _ended = Ended(Arc::clone(&relay.shared));
            relay.run(&runtime);
        })?;
        Ok(Self { shared })
    }

    /// Takes nothing more, and waits until all is told, for
    /// [`RELAY_FLUSH_MAX`] at most. Returns whether all was; what was not is in the log.
    pub async fn close(&self) -> bool {
        {
            let mut state = self.shared.lock();
            state.closing = true;
            self.shared.changed.notify_all();
        }
        let flushed = tokio::time::timeout(RELAY_FLUSH_MAX, self.shared.ended.wait()).await;
        let mut state = self.shared.lock();
        state.lost |= flushed.is_err();
        state.close();
        !state.lost
    }

    fn take(&self, told: impl FnOnce() -> Told, missed: impl FnOnce(&mut Missed)) {
        let mut state = self.shared.lock();
        if state.closing || state.closed {
            return;
        }
        if state.missed.is_none() && state.queue.len() < RELAY_QUEUE_MAX {
            state.queue.push_back(told());
        } else {
            missed(state.missed.get_or_insert_default());
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.shared.lock().close();
        self.shared.changed.notify_all();
    }
}

impl Observer for Relayed {
    fn on_record(&self, record: &LogRecord) {
        self.take(
            || Told::Record(Box::new(record.clone())),
            |missed| {
                let first = missed.records.map_or(record.seq, |(first, _)| first);
                missed.records = Some((first, record.seq));
            },
        );
    }

    fn on_delta(&self, delta: Delta) {
        self.take(|| Told::Delta(delta), |missed| missed.deltas += 1);
    }
}

impl State {
    /// Nothing more is told, and nothing kept for it.
    fn close(&mut self) {
        (self.closing, self.closed) = (true, true);
        self.lost |= !self.queue.is_empty() || self.missed.is_some();
        self.queue.clear();
        self.missed = None;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits for something to do.
    fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            if state.closed {
                return Next::End;
            }
            if let Some(told) = state.queue.pop_front() {
                return Next::Tell(told);
            }
            // From here on there is room again; what is queued comes after this.
            if let Some(missed) = state.missed.take() {
                return Next::CatchUp(missed);
            }
            if state.closing {
                return Next::End;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Says that the thread has ended, also by the observer's panic.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closing = true;
        state.lost |= thread::panicking();
        drop(state);
        self.0.ended.set(());
    }
}

/// The thread's side.
struct Relay {
    shared: Arc<Shared>,
    journal: Journal,
    observer: Arc<dyn RelayedObserver>,
}

impl Relay {
    fn run(&self, runtime: &Handle) {
        loop {
            match self.shared.next() {
                Next::Tell(Told::Record(record)) => self.observer.on_record(&record),
                Next::Tell(Told::Delta(delta)) => self.observer.on_delta(delta),
                Next::CatchUp(missed) => {
                    if !self.catch_up(runtime, missed) {
                        self.shared.lock().lost = true;
                        return;
                    }
                }
                Next::End => return,
            }
        }
    }

    /// Tells what was missed, from the log. Returns whether to go on.
    fn catch_up(&self, runtime: &Handle, missed: Missed) -> bool {
        let from = missed.records.map(|(first, _)| first);
        self.observer.on_lag(Lag { from, deltas_lost: missed.deltas });
        let Some((mut next, last)) = missed.records else { return true };
        while next <= last {
            let page = match runtime.block_on(self.page(next, last)) {
                Ok(page) => page,
                Err(_) if self.shared.is_closed() => return false,
                Err(error) => {
                    self.observer.on_lost(next, &error);
                    return false;
                }
            };
            for record in page {
                if self.shared.is_closed() {
                    return false;
                }
                next = record.seq.next();
                self.observer.on_record(&record);
            }
        }
        true
    }

    async fn page(&self, from: Seq, last: Seq) -> Result<Vec<LogRecord>, LogError> {
        let mut tries = 1;
        loop {
            let read = self.journal.page(from, last).await;
            match read {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && tries < READ_TRIES_MAX
                        && !self.shared.is_closed() =>
                {
                    tries += 1;
                    tokio::time::sleep(READ_PAUSE).await;
                }
                read => return read?.iter().map(|stored| stored.to_record()).collect(),
            }
        }
    }
}
