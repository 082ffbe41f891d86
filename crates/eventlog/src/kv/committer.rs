//! One committer, many callers.
//!
//! A thread drains what is queued into one durable transaction and answers
//! each caller. What queued while the last commit ran goes out together; when
//! many callers are known to be active it waits a moment for the rest of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_channel::oneshot;
use mainspring_api::{Clock, Outcome, SessionUid, Timestamp};

use super::follow::Followers;
use super::import;
use super::ops::{self, Op, OpError, Reply, Rows, Transaction, settled};
use crate::canonical::rfc3339;
use crate::engine::{Engine, EngineError, Keep};
use crate::error::LogError;
use crate::log::Limits;

/// Writes that may wait; beyond it callers wait to queue.
const QUEUE_MAX: usize = 4_096;
/// Writes of one transaction.
const ROUND_OPS_MAX: usize = 1_024;
/// Canonical bytes of one transaction, after which no more writes join it.
const ROUND_BYTES_MAX: usize = 32 << 20;
/// How long a round waits for callers that were active in the last one.
const GATHER_MAX: Duration = Duration::from_micros(60);
/// How long the committer stays awake for writers that go on this soon.
const AWAKE_MAX: Duration = Duration::from_micros(150);
/// How long what an import staged is kept for it to go on.
pub(super) const STAGED_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

pub(super) struct Job {
    op: Op,
    reply: oneshot::Sender<Result<Reply, LogError>>,
}

/// What the committer and the readers share.
#[derive(Debug)]
pub(super) struct Shared<E> {
    pub(super) engine: E,
    pub(super) limits: Limits,
    pub(super) followers: Followers,
    clock: Arc<dyn Clock>,
    reopen_max: Duration,
    pub(super) rows: Mutex<Rows>,
    /// Set after a commit error until the engine is open again: the handle
    /// knows nothing, so nothing is served from it.
    failed: AtomicBool,
    why: RwLock<String>,
}

impl<E: Engine> Shared<E> {
    pub(super) fn new(
        engine: E,
        limits: Limits,
        clock: Arc<dyn Clock>,
        reopen_max: Duration,
        rows: Rows,
    ) -> Self {
        Self {
            engine,
            limits,
            followers: Followers::default(),
            clock,
            reopen_max,
            rows: Mutex::new(rows),
            failed: AtomicBool::new(false),
            why: RwLock::default(),
        }
    }

    /// Refuses when the handle knows nothing.
    pub(super) fn check(&self) -> Result<(), LogError> {
        if self.failed.load(Ordering::Acquire) {
            let why = self.why.read().unwrap_or_else(PoisonError::into_inner).clone();
            return Err(LogError::unavailable(format!("store is being reopened after: {why}")));
        }
        Ok(())
    }

    /// Removes what imports staged and did not go on with for a long time.
    pub(super) fn remove_staged(&self) -> Result<(), LogError> {
        let before = self.clock.now().unix_nanos().saturating_sub(STAGED_MAX.as_nanos() as i64);
        let before = Timestamp::from_unix_nanos(before);
        let mut stores = Vec::new();
        self.engine
            .read(&mut |kv| {
                stores = import::staged_before(kv, before)?;
                Ok(())
            })
            .map_err(super::engine_failed)?;
        for store in stores {
            while matches!(self.run_now(Op::Unstage { store: store.clone() })?, Reply::More) {}
        }
        Ok(())
    }

    /// Folds a row forward to the end of its records.
    pub(super) fn catch_up(&self, session: &SessionUid) -> Result<(), LogError> {
        let op = || Op::CatchUp { session: session.clone() };
        while matches!(self.run_now(op())?, Reply::More) {}
        self.followers.changed(session);
        Ok(())
    }

    /// Runs one operation on this thread, as a round of its own.
    fn run_now(&self, op: Op) -> Result<Reply, LogError> {
        let (reply, mut answer) = oneshot::channel();
        self.round(vec![Job { op, reply }]);
        let unanswered = || Err(LogError::unavailable("the operation was not answered"));
        answer.try_recv().ok().flatten().unwrap_or_else(unanswered)
    }

    /// Runs one round and answers its callers.
    fn round(&self, jobs: Vec<Job>) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failed.load(Ordering::Acquire) && !self.reopen() {
            // Nothing was tried, so nothing was applied.
            let refused = self.check().err();
            for job in jobs {
                let error = refused.clone().unwrap_or_else(|| LogError::unavailable("store"));
                let _ = job.reply.send(Err(error));
            }
            return;
        }
        let now = self.clock.now();
        let mut answers: Vec<Result<Reply, LogError>> = Vec::with_capacity(jobs.len());
        let committed = self.engine.write(&mut |kv| {
            answers.clear();
            rows.abort();
            let mut txn = Transaction::new(kv, &mut rows, &self.limits, now);
            for job in &jobs {
                answers.push(match txn.apply(&job.op) {
                    Ok(reply) => Ok(reply),
                    Err(OpError::Refused(error)) => Err(error),
                    Err(OpError::Engine(error)) => return Err(error),
                });
            }
            Ok(if txn.wrote { Keep::Yes } else { Keep::No })
        });
        match committed {
            Ok(()) => {
                rows.commit();
                for (Job { op, reply }, answer) in jobs.into_iter().zip(answers) {
                    if answer.is_ok() {
                        self.tell(&op, now);
                    }
                    // First, so that the caller is alone with what it sent.
                    drop(op);
                    let _ = reply.send(answer);
                }
            }
            Err(error) => self.recover(&mut rows, jobs, &error),
        }
    }

    /// Tells those who follow a session what was committed.
    pub(super) fn tell(&self, op: &Op, now: Timestamp) {
        match op {
            Op::Append { id, session, fence, batch } => self.followers.committed(session, || {
                ops::stored_as(batch, *id, *fence, &rfc3339(now)).collect::<Vec<_>>()
            }),
            Op::Bury { session, .. } => self.followers.changed(session),
            _ => {}
        }
    }

    /// After a failed commit: forget, reopen, and answer from what is there.
    fn recover(&self, rows: &mut Rows, jobs: Vec<Job>, error: &EngineError) {
        tracing::error!(error = %mainspring_api::report(error), "commit failed; reopening the store");
        rows.forget();
        *self.why.write().unwrap_or_else(PoisonError::into_inner) = mainspring_api::report(error);
        self.failed.store(true, Ordering::Release);
        let open = self.reopen();
        for job in jobs {
            let answer = if open { self.judge(rows, &job.op) } else { Err(unknown(error)) };
            let _ = job.reply.send(answer);
        }
        self.followers.all_changed();
    }

    /// What the reopened log says about an operation whose commit failed.
    fn judge(&self, rows: &mut Rows, op: &Op) -> Result<Reply, LogError> {
        let mut verdict = None;
        let read = self.engine.read(&mut |kv| {
            verdict = Some(match settled(kv, rows, op) {
                Ok(reply) => Ok(reply),
                Err(OpError::Refused(error)) => Err(error),
                Err(OpError::Engine(error)) => return Err(error),
            });
            Ok(())
        });
        match (read, verdict) {
            (Ok(()), Some(Ok(Some(reply)))) => Ok(reply),
            (Ok(()), Some(Ok(None))) => {
                Err(LogError::unavailable("the write failed and is not in the reopened store"))
            }
            (Ok(()), Some(Err(error))) => Err(error),
            (Ok(()), None) => Err(LogError::unavailable("the reopened store was not read")),
            (Err(error), _) => Err(unknown(&error)),
        }
    }

    /// Reopens within the bound. Reads are refused until it succeeds.
    fn reopen(&self) -> bool {
        let mut pause = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        loop {
            match self.engine.reopen() {
                Ok(()) => {
                    self.failed.store(false, Ordering::Release);
                    tracing::warn!("store reopened");
                    return true;
                }
                Err(error) if waited >= self.reopen_max => {
                    tracing::error!(error = %mainspring_api::report(&error), "store cannot be reopened");
                    return false;
                }
                Err(_) => {
                    std::thread::sleep(pause);
                    waited += pause;
                    pause = (pause * 2).min(Duration::from_millis(250));
                }
            }
        }
    }
}

fn unknown(error: &EngineError) -> LogError {
    LogError::Unavailable {
        message: format!("commit failed: {}", mainspring_api::report(error)),
        outcome: Outcome::Unknown,
        source: None,
    }
}

/// The way in for writes.
#[derive(Debug)]
pub(super) enum Committer {
    /// Each write runs on its caller: nothing to wait for.
    Inline,
    /// A thread groups them.
    Thread { queue: Sender<Job>, thread: Option<std::thread::JoinHandle<()>> },
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl Committer {
    pub(super) fn start<E: Engine>(shared: &Arc<Shared<E>>) -> std::io::Result<Self> {
        if !shared.engine.is_durable() {
            return Ok(Self::Inline);
        }
        let (queue, jobs) = async_channel::bounded(QUEUE_MAX);
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("journal-committer".to_owned())
            .spawn(move || run(&shared, &jobs))?;
        Ok(Self::Thread { queue, thread: Some(thread) })
    }

    pub(super) async fn submit<E: Engine>(
        &self,
        shared: &Shared<E>,
        op: Op,
    ) -> Result<Reply, LogError> {
        let (reply, answer) = oneshot::channel();
        let job = Job { op, reply };
        match self {
            Self::Inline => shared.round(vec![job]),
            Self::Thread { queue, .. } => {
                queue.send(job).await.map_err(|_| LogError::unavailable("store is closed"))?;
            }
        }
        answer.await.unwrap_or_else(|_| {
            Err(LogError::Unavailable {
                message: "committer stopped".to_owned(),
                outcome: Outcome::Unknown,
                source: None,
            })
        })
    }
}

impl Drop for Committer {
    /// Ends the thread after what is queued, so that the store is closed when
    /// its handle is.
    fn drop(&mut self) {
        if let Self::Thread { queue, thread } = self {
            queue.close();
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn run<E: Engine>(shared: &Shared<E>, jobs: &Receiver<Job>) {
    let _refuse = RefuseQueued(jobs);
    let mut last_round = 1;
    let mut awake = false;
    while let Some(first) = next(jobs, &mut awake) {
        let round = gather(jobs, first, last_round);
        last_round = round.len();
        shared.round(round);
    }
}

/// The next write. Waking a thread costs about as much as a small commit: while
/// writers go on soon after they are answered, this thread stays awake for
/// them, and lets others run meanwhile.
#[expect(clippy::disallowed_methods, reason = "bounds a wait of microseconds on this thread")]
fn next(jobs: &Receiver<Job>, awake: &mut bool) -> Option<Job> {
    let since = std::time::Instant::now();
    let found = loop {
        match jobs.try_recv() {
            Ok(job) => break Some(job),
            Err(error) if error.is_closed() => return None,
            Err(_) if !*awake || since.elapsed() >= AWAKE_MAX => break jobs.recv_blocking().ok(),
            Err(_) => std::thread::yield_now(),
        }
    };
    *awake = since.elapsed() < AWAKE_MAX;
    found
}

/// When the committer ends, also by a panic, nobody waits for it any more: a
/// dropped job answers its caller.
struct RefuseQueued<'a>(&'a Receiver<Job>);

impl Drop for RefuseQueued<'_> {
    fn drop(&mut self) {
        self.0.close();
        while self.0.try_recv().is_ok() {}
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds a wait of microseconds on this thread")]
fn gather(jobs: &Receiver<Job>, first: Job, last_round: usize) -> Vec<Job> {
    let mut bytes = first.op.bytes();
    let mut round = vec![first];
    let mut since = None;
    while round.len() < ROUND_OPS_MAX && bytes < ROUND_BYTES_MAX {
        match jobs.try_recv() {
            Ok(job) => {
                bytes += job.op.bytes();
                round.push(job);
            }
            Err(_) if round.len() >= last_round => break,
            Err(_) => {
                let since = *since.get_or_insert_with(std::time::Instant::now);
                if since.elapsed() >= GATHER_MAX {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }
    round
}
