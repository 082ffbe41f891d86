//! Following journals: those at the end share what was just committed, those
//! behind read the store.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use event_listener::Event;
use futures_util::stream;
use mainspring_api::{BoxStream, Head, Seq, SessionUid};

use super::committer::Shared;
use super::{read, read_shared};
use crate::chain::StoredRecord;
use crate::engine::Engine;
use crate::error::LogError;
use crate::log::ReadLimit;

/// Records that a followed session keeps for those at its end.
const RECENT_RECORDS_MAX: usize = 1_024;
/// Canonical bytes of them.
const RECENT_BYTES_MAX: usize = 1 << 20;

/// The sessions that are followed.
#[derive(Debug, Default)]
pub(super) struct Followers {
    tails: Mutex<HashMap<SessionUid, Weak<Tail>>>,
    /// How many there are, so that a commit without followers takes no lock.
    count: AtomicUsize,
}

/// The end of one followed journal.
#[derive(Debug, Default)]
struct Tail {
    state: Mutex<TailState>,
    changed: Event,
}

#[derive(Debug, Default)]
struct TailState {
    /// What was committed last, without gaps.
    recent: VecDeque<StoredRecord>,
    bytes: usize,
    /// Rises when only the store knows what happened.
    unknown: u64,
    closed: bool,
}

impl Tail {
    fn lock(&self) -> MutexGuard<'_, TailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut TailState)) {
        change(&mut self.lock());
        self.changed.notify(usize::MAX);
    }
}

impl TailState {
    fn push(&mut self, record: StoredRecord) {
        match self.recent.back().map(|last| last.seq) {
            // An append that was sent again.
            Some(last) if record.seq <= last => return,
            Some(last) if record.seq != last.next() => self.forget(),
            _ => {}
        }
        self.bytes += record.canonical.len();
        self.recent.push_back(record);
        while self.recent.len() > 1
            && (self.recent.len() > RECENT_RECORDS_MAX || self.bytes > RECENT_BYTES_MAX)
        {
            if let Some(gone) = self.recent.pop_front() {
                self.bytes -= gone.canonical.len();
            }
        }
    }

    fn forget(&mut self) {
        self.recent.clear();
        self.bytes = 0;
        self.unknown += 1;
    }

    /// The records from `seq` on, if they are all here.
    fn after(&self, seq: Seq) -> Option<VecDeque<StoredRecord>> {
        let first = self.recent.front()?.seq;
        let last = self.recent.back()?.seq;
        (first <= seq && seq <= last).then(|| {
            let skip = usize::try_from(seq.get() - first.get()).unwrap_or(usize::MAX);
            self.recent.iter().skip(skip).cloned().collect()
        })
    }

    /// Whether the store has records from `seq` on that are not here any more.
    fn passed(&self, seq: Seq) -> bool {
        self.recent.front().is_some_and(|first| seq < first.seq)
    }
}

impl Followers {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionUid, Weak<Tail>>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, session: &SessionUid) -> Arc<Tail> {
        let mut tails = self.lock();
        if let Some(tail) = tails.get(session).and_then(Weak::upgrade) {
            return tail;
        }
        tails.retain(|_, tail| tail.strong_count() > 0);
        let tail = Arc::new(Tail::default());
        tails.insert(session.clone(), Arc::downgrade(&tail));
        self.count.store(tails.len(), Ordering::Release);
        tail
    }

    /// Hands on what an append has committed.
    pub(super) fn committed<I>(&self, session: &SessionUid, records: impl FnOnce() -> I)
    where
        I: IntoIterator<Item = StoredRecord>,
    {
        if let Some(tail) = self.tail(session) {
            tail.change(|state| records().into_iter().for_each(|record| state.push(record)));
        }
    }

    /// Something else happened to the session: only the store knows what.
    pub(super) fn changed(&self, session: &SessionUid) {
        if let Some(tail) = self.tail(session) {
            tail.change(TailState::forget);
        }
    }

    fn tail(&self, session: &SessionUid) -> Option<Arc<Tail>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(session).and_then(Weak::upgrade)
    }

    /// After a failed commit only the store knows.
    pub(super) fn all_changed(&self) {
        self.each(TailState::forget);
    }

    pub(super) fn close(&self) {
        self.each(|state| state.closed = true);
    }

    fn each(&self, change: impl Fn(&mut TailState)) {
        let tails: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        tails.iter().for_each(|tail| tail.change(&change));
    }
}

/// One reader.
struct Follower<E> {
    /// Weak: a reader does not keep a closed store open.
    shared: Weak<Shared<E>>,
    session: SessionUid,
    tail: Arc<Tail>,
    at: Head,
    /// Whether the journal was found to pass through `at`.
    started: bool,
    /// What `TailState::unknown` was when the store was last read to its end.
    read_at: Option<u64>,
    ready: VecDeque<StoredRecord>,
}

/// Every record of `session` after `after`.
pub(super) fn follow<E: Engine>(
    shared: &Arc<Shared<E>>,
    session: &SessionUid,
    after: Head,
) -> BoxStream<'static, Result<StoredRecord, LogError>> {
    let follower = Follower {
        shared: Arc::downgrade(shared),
        session: session.clone(),
        // Before the first read, so that nothing falls between it and the first commit.
        tail: shared.followers.register(session),
        at: after,
        started: false,
        read_at: None,
        ready: VecDeque::new(),
    };
    Box::pin(stream::unfold(Some(follower), async |follower| {
        let mut follower = follower?;
        match follower.next().await {
            Some(Ok(record)) => Some((Ok(record), Some(follower))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    }))
}

/// What a reader has to do next.
enum Step {
    Take(VecDeque<StoredRecord>),
    Read(u64),
    Wait,
    End,
}

impl<E: Engine> Follower<E> {
    async fn next(&mut self) -> Option<Result<StoredRecord, LogError>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                if record.seq <= self.at.seq {
                    continue;
                }
                self.at = record.head();
                return Some(Ok(record));
            }
            let changed = self.tail.changed.listen();
            match self.step() {
                Step::Take(records) => self.ready = records,
                Step::Read(unknown) => match self.read().await? {
                    Ok(page) if page.is_empty() => self.read_at = Some(unknown),
                    Ok(page) => self.ready = page.into(),
                    Err(error) => return Some(Err(error)),
                },
                Step::Wait => changed.await,
                Step::End => return None,
            }
        }
    }

    fn step(&self) -> Step {
        let state = self.tail.lock();
        let next = self.at.seq.next();
        if !self.started {
            return Step::Read(state.unknown);
        }
        match state.after(next) {
            Some(records) => Step::Take(records),
            None if self.read_at != Some(state.unknown) || state.passed(next) => {
                Step::Read(state.unknown)
            }
            None if state.closed => Step::End,
            None => Step::Wait,
        }
    }

    /// A page after `at`; `None` when the store is closed.
    async fn read(&mut self) -> Option<Result<Vec<StoredRecord>, LogError>> {
        let shared = self.shared.upgrade()?;
        let (session, at, started) = (self.session.clone(), self.at, self.started);
        let page = read_shared(shared, move |kv| {
            let row = read::load_row(kv, &session)?;
            if !started && at.seq > Seq::ZERO {
                let found = read::records(kv, &row, at.seq, ReadLimit { records: 1, bytes: 1 })?;
                if found.first().is_none_or(|record| record.head() != at) {
                    let what = "the journal does not pass through the known head";
                    return Err(LogError::Tampered { seq: at.seq, what }.into());
                }
            }
            read::records(kv, &row, at.seq.next(), ReadLimit::default())
        })
        .await;
        self.started |= page.is_ok();
        Some(page)
    }
}
