//! Following a session: its records as they are committed, and the deltas of
//! the turn that runs on this host.
//!
//! Records come from the log alone, so none is lost however slow the reader is.
//! Deltas come from the turn's feed, each with the position that it follows:
//! it is handed out at that place or not at all.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Action, BoxStream, Caller, Clock, Condition, Delta, FollowRequest, FollowUpdate, Head, Seq,
    SessionUid, SessionsError, Signal, Timestamp,
};
use mainspring_eventlog::{Level, LogError, ReadLimit, SessionRow, StoredRecord};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::expiry::between;
use crate::feed::{FEED_MAX, Feed, Update};
use crate::service::{Inner, deleted, invalid, log_failed};

/// After how long without anything a follower is told that the stream is alive.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// Followers of one host, about 2 KB each.
const FOLLOWERS_MAX: usize = 16_384;

/// Updates of a follow.
pub(crate) type FollowStream = BoxStream<'static, Result<FollowUpdate, SessionsError>>;

/// The feeds of the turns that this host runs, and who waits for one.
#[derive(Debug, Default)]
pub(crate) struct Feeds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionUid, watch::Sender<Option<Arc<Feed>>>>,
    followers: usize,
}

impl Feeds {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the feed of a turn of `session` until the guard is dropped.
    pub(crate) fn show(self: &Arc<Self>, session: &SessionUid, feed: &Arc<Feed>) -> Shown {
        let mut state = self.state();
        let running = state.sessions.entry(session.clone()).or_default();
        running.send_replace(Some(Arc::clone(feed)));
        Shown { feeds: Arc::clone(self), session: session.clone(), feed: Arc::clone(feed) }
    }

    /// The feed of the turn that runs on `session` here.
    fn of(&self, session: &SessionUid) -> Option<Arc<Feed>> {
        self.state().sessions.get(session)?.borrow().clone()
    }

    fn join(self: &Arc<Self>, session: &SessionUid) -> Result<Joined, SessionsError> {
        let mut state = self.state();
        if state.followers >= FOLLOWERS_MAX {
            let message = format!("this host has {FOLLOWERS_MAX} followers, its most");
            return Err(SessionsError::new(Condition::QuotaExceeded, message).on(session));
        }
        state.followers += 1;
        let running = state.sessions.entry(session.clone()).or_default().subscribe();
        Ok(Joined { feeds: Arc::clone(self), session: session.clone(), running })
    }
}

impl State {
    /// Forgets a session that no turn runs on and that at most `leaving` follow.
    fn prune(&mut self, session: &SessionUid, leaving: usize) {
        let running = self.sessions.get(session);
        if running.is_some_and(|r| r.borrow().is_none() && r.receiver_count() <= leaving) {
            self.sessions.remove(session);
        }
    }
}

/// A feed that is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    feeds: Arc<Feeds>,
    session: SessionUid,
    feed: Arc<Feed>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        let mut state = self.feeds.state();
        if let Some(running) = state.sessions.get(&self.session) {
            // The next turn may have begun.
            running.send_if_modified(|shown| {
                let own = shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, &self.feed));
                own && shown.take().is_some()
            });
        }
        state.prune(&self.session, 0);
    }
}

/// A follower's place among those that wait for turns of a session.
#[derive(Debug)]
struct Joined {
    feeds: Arc<Feeds>,
    session: SessionUid,
    running: watch::Receiver<Option<Arc<Feed>>>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut state = self.feeds.state();
        state.followers -= 1;
        // This one still counts.
        state.prune(&self.session, 1);
    }
}

impl Inner {
    /// The feed of the turn that runs on the session here, if one does.
    pub(crate) fn feed_of(&self, session: &SessionUid) -> Option<Arc<Feed>> {
        self.feeds.of(session)
    }

    pub(crate) async fn follow(
        &self,
        caller: &Caller,
        request: FollowRequest,
    ) -> Result<FollowStream, SessionsError> {
        let FollowRequest { session, after_seq } = request;
        let row = self.find_for(caller, &[Action::Read], &session).await?;
        self.admit_turn()?;
        if row.purged {
            return Err(deleted(&session));
        }
        let Some(follow) = self.options.log.follow() else {
            return Err(log_failed(LogError::Unsupported("following a session")).on(&session));
        };
        let after = self.head_at(&row, after_seq).await?;
        let mut follower = Follower {
            records: follow.follow(&session, after),
            last: after_seq,
            joined: self.feeds.join(&session)?,
            deltas: None,
            held: None,
            gap: None,
            lagged: false,
            ready: VecDeque::new(),
            clock: Arc::clone(&self.options.clock),
            expires: caller.expires,
            draining: self.draining.clone(),
            heartbeat: Instant::now() + HEARTBEAT_EVERY,
            ended: false,
            session,
        };
        if let Some(error) = follower.over() {
            return Err(error);
        }
        if self.feed_of(&follower.session).is_some() {
            follower.attach();
        }
        Ok(Box::pin(stream::unfold(follower, |mut follower| async move {
            let update = follower.next().await?;
            Some((update, follower))
        })))
    }

    /// The head that the journal had at a position that it has.
    async fn head_at(&self, row: &SessionRow, seq: Seq) -> Result<Head, SessionsError> {
        let (session, head) = (&row.session.uid, row.view.head);
        if seq == Seq::ZERO || seq == head.seq {
            return Ok(if seq == Seq::ZERO { Head::EMPTY } else { head });
        }
        if seq > head.seq {
            let message = format!("after_seq is {seq}, the journal ends at {}", head.seq);
            return Err(invalid(message).on(session));
        }
        let limit = ReadLimit { records: 1, ..ReadLimit::default() };
        let page = self.options.log.read(session, seq, limit, Level::Committed).await;
        let page = page.map_err(|error| log_failed(error).on(session))?;
        page.first().map(StoredRecord::head).ok_or_else(|| {
            let what = "the journal ends before its head";
            log_failed(LogError::Tampered { seq, what }).on(session)
        })
    }
}

struct Follower {
    session: SessionUid,
    records: BoxStream<'static, Result<StoredRecord, LogError>>,
    /// The last position that was handed out.
    last: Seq,
    joined: Joined,
    /// The feed of the turn that runs here.
    deltas: Option<broadcast::Receiver<Update>>,
    /// A delta of further on, and the position that it follows.
    held: Option<(Delta, Seq)>,
    /// The position after which deltas were left out, until that is said.
    gap: Option<Seq>,
    /// Updates of the feed were missed just before its next one.
    lagged: bool,
    ready: VecDeque<FollowUpdate>,
    clock: Arc<dyn Clock>,
    expires: Option<Timestamp>,
    draining: Signal<()>,
    /// When the next sign of life is due.
    heartbeat: Instant,
    ended: bool,
}

/// What came first.
enum Came {
    Record(Option<Result<StoredRecord, LogError>>),
    Update(Result<Update, RecvError>),
    /// A turn has begun here, or has ended.
    Turn,
    /// The time, or the end of the host.
    Other,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<FollowUpdate, SessionsError>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(error) = self.over() {
                return self.end(error);
            }
            self.place();
            if let Some(update) = self.ready.pop_front() {
                self.heartbeat = Instant::now() + HEARTBEAT_EVERY;
                return Some(Ok(update));
            }
            match self.wait().await {
                Came::Record(Some(Ok(record))) => {
                    if let Err(error) = self.take(&record) {
                        return self.end(log_failed(error));
                    }
                }
                Came::Record(Some(Err(error))) => return self.end(log_failed(error)),
                Came::Record(None) => {
                    return self.end(log_failed(LogError::unavailable("the store was closed")));
                }
                Came::Update(update) => self.update(update),
                Came::Turn => self.attach(),
                Came::Other if Instant::now() >= self.heartbeat => {
                    self.ready.push_back(FollowUpdate::Heartbeat);
                }
                Came::Other => {}
            }
        }
    }

    fn end(&mut self, error: SessionsError) -> Option<Result<FollowUpdate, SessionsError>> {
        self.ended = true;
        Some(Err(error.on(&self.session)))
    }

    /// Why nothing more may be handed out.
    fn over(&self) -> Option<SessionsError> {
        if self.expires.is_some_and(|expires| expires <= self.clock.now()) {
            let message = "the caller's credential has expired";
            return Some(SessionsError::new(Condition::Unauthenticated, message));
        }
        self.draining.get().map(|()| {
            let message = "host is shutting down; go on from the last position elsewhere";
            SessionsError::new(Condition::Draining, message)
        })
    }

    async fn wait(&mut self) -> Came {
        let mut until = self.heartbeat;
        if let Some(expires) = self.expires {
            until = until.min(Instant::now() + between(self.clock.now(), expires));
        }
        let Self { records, joined, deltas, draining, held, gap, .. } = self;
        let is_attached = deltas.is_some();
        // Deltas of further on wait in the feed until the records are there.
        let waits = held.is_some() || gap.is_some();
        let update = async {
            match deltas {
                Some(updates) if !waits => updates.recv().await,
                _ => std::future::pending().await,
            }
        };
        let turn = async {
            if is_attached || joined.running.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = draining.wait() => Came::Other,
            update = update => Came::Update(update),
            () = turn => Came::Turn,
            record = records.next() => Came::Record(record),
            () = tokio::time::sleep_until(until) => Came::Other,
        }
    }

    /// Joins the turn that runs here now, if one does.
    fn attach(&mut self) {
        self.deltas = self.joined.running.borrow_and_update().as_ref().map(|feed| {
            let (updates, missed) = feed.join();
            // What came before of an output under way is missing.
            self.gap = missed.or(self.gap);
            updates
        });
    }

    fn update(&mut self, update: Result<Update, RecvError>) {
        match update {
            Ok(Update::Delta(delta, after)) => {
                self.gap = self.lagged.then_some(after).or(self.gap);
                self.held = Some((delta, after));
            }
            // The log has them all; what was missed of the outputs before is in them.
            Ok(Update::Record(_) | Update::Recorded(_)) => {}
            Ok(Update::Done(..)) | Err(RecvError::Closed) => self.deltas = None,
            Err(RecvError::Lagged(_)) => {
                self.lagged = true;
                return;
            }
        }
        self.lagged = false;
    }

    /// Hands out what has its place right after the last record, and drops what
    /// had one before it: the record that came of it is there.
    fn place(&mut self) {
        if self.gap.is_some_and(|after| after <= self.last) && self.gap.take() == Some(self.last) {
            self.ready.push_back(FollowUpdate::DeltaGap);
        }
        if self.held.as_ref().is_some_and(|(_, after)| *after <= self.last)
            && let Some((delta, after)) = self.held.take()
            && after == self.last
        {
            self.ready.push_back(FollowUpdate::Delta(delta));
        }
    }

    /// Takes the next record, and before it the deltas that led to it: they
    /// were sent before it was committed.
    fn take(&mut self, record: &StoredRecord) -> Result<(), LogError> {
        let record = record.to_record()?;
        for _ in 0..FEED_MAX {
            if self.held.is_some() || self.gap.is_some() {
                break;
            }
            let Some(updates) = &mut self.deltas else { break };
            match updates.try_recv() {
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Closed) => self.update(Err(RecvError::Closed)),
                Err(TryRecvError::Lagged(missed)) => self.update(Err(RecvError::Lagged(missed))),
                Ok(update) => self.update(Ok(update)),
            }
            self.place();
        }
        self.last = record.seq;
        self.ready.push_back(FollowUpdate::Record(Box::new(record)));
        Ok(())
    }
}
