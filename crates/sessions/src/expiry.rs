//! Requests for approval that nobody has decided in time.
//!
//! The time is noted beside the request, so it survives the host. What is kept
//! in memory is a bounded set of timers, soonest first, and one task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mainspring_api::{
    ApprovalRef, ApproveRequest, Classify, Clock, IdentityRef, Seq, SessionUid, SessionsError,
    Timestamp,
};
use mainspring_controller::{EXPIRES_NOTE, EXPIRY_PRINCIPAL};
use mainspring_eventlog::reader::parse_rfc3339;
use mainspring_eventlog::{Level, LogError, Mark, ReadLimit, SessionRow};
use tokio::sync::{Notify, Semaphore};

use crate::approvals::is_settled;
use crate::service::{Inner, log_failed};

/// Timers that are kept, about 100 bytes each. Those that are due last are
/// found again when there is room.
const TIMERS_MAX: usize = 65_536;

/// How long the task sleeps at most: a wall clock that was set, or a machine
/// that slept, is noticed by then.
const TICK_MAX: Duration = Duration::from_secs(60);

/// After how long a decision that could not be recorded is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often requests are looked for again where many hosts serve the store:
/// whoever kept the time of one may have died.
const SHARED_SCAN_EVERY: Duration = Duration::from_secs(300);

/// Requests that are ended at a time, so that a session which is slow to answer
/// does not hold up the others.
const LANES: usize = 16;

/// Sessions of one page of the scan.
const SCAN_PAGE: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Timer {
    at: Timestamp,
    session: SessionUid,
    request: Seq,
    /// How long the requests of its call live; `None` leaves it to the host.
    ttl: Option<Duration>,
}

/// The timers of a host.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    state: Mutex<Timers>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Timers {
    /// By what tells requests apart, soonest first; how long the requests of
    /// their calls live is not part of that.
    due: BTreeMap<(Timestamp, SessionUid, Seq), Option<Duration>>,
    /// Whether the task runs.
    running: bool,
    /// Requests without a timer are to be looked for, from then on: there was
    /// no room for all, or the log did not answer.
    scan: Option<Timestamp>,
}

/// What the task does next.
enum Next {
    Expire(Timer),
    Scan,
    Sleep(Duration),
}

impl Expiry {
    fn timers(&self) -> std::sync::MutexGuard<'_, Timers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a timer. Whether a task must be started for it.
    fn add(&self, timer: Timer) -> bool {
        let Timer { at, session, request, ttl } = timer;
        let mut timers = self.timers();
        // A scan finds requests again, and does not know what was said of their calls.
        let known = timers.due.entry((at, session, request)).or_default();
        *known = ttl.or(*known);
        if timers.due.len() > TIMERS_MAX {
            timers.due.pop_last();
            timers.scan = Some(Timestamp::default());
        }
        self.wake(&mut timers)
    }

    /// Has requests looked for from `at` on. Whether a task must be started for it.
    fn scan_from(&self, at: Timestamp) -> bool {
        let mut timers = self.timers();
        timers.scan = Some(timers.scan.map_or(at, |known| known.min(at)));
        self.wake(&mut timers)
    }

    fn wake(&self, timers: &mut Timers) -> bool {
        self.changed.notify_one();
        !std::mem::replace(&mut timers.running, true)
    }

    fn next(&self, now: Timestamp) -> Next {
        let mut timers = self.timers();
        let has_room = timers.due.len() <= TIMERS_MAX / 2;
        let scan = timers.scan.filter(|_| has_room);
        if scan.is_some_and(|at| at <= now) {
            timers.scan = None;
            return Next::Scan;
        }
        if let Some(first) = timers.due.first_entry()
            && first.key().0 <= now
        {
            let ((at, session, request), ttl) = first.remove_entry();
            return Next::Expire(Timer { at, session, request, ttl });
        }
        let first = timers.due.keys().next().map(|(at, ..)| *at);
        let soonest = first.into_iter().chain(scan).min();
        Next::Sleep(soonest.map_or(TICK_MAX, |at| between(now, at).min(TICK_MAX)))
    }
}

impl Inner {
    /// How long a request of this call stays open.
    pub(crate) fn approval_ttl(&self, asked: Option<Duration>) -> Option<Duration> {
        asked.or(self.options.approval_ttl)
    }

    /// Sets a timer for the request that a session waits on, if it expires.
    pub(crate) async fn watch_request(self: &Arc<Self>, row: &SessionRow, ttl: Option<Duration>) {
        match self.expires(row).await {
            Ok(None) => {}
            Ok(Some(timer)) => self.keep_time(self.expiry.add(Timer { ttl, ..timer })),
            Err(error) => {
                tracing::warn!(
                    session = %row.session.uid, code = error.code(),
                    "cannot tell yet whether a request for approval expires"
                );
                self.scan_again(&error);
            }
        }
    }

    /// Looks for requests once more after a failure that may pass.
    fn scan_again(self: &Arc<Self>, error: &impl Classify) {
        if is_settled(error) {
            return;
        }
        let at = later(self.options.clock.now(), RETRY_AFTER);
        self.keep_time(self.expiry.scan_from(at));
    }

    /// Starts the task, if it must be.
    fn keep_time(self: &Arc<Self>, start: bool) {
        if start {
            let (weak, expiry) = (Arc::downgrade(self), Arc::clone(&self.expiry));
            let clock = Arc::clone(&self.options.clock);
            tokio::spawn(async move { run(&weak, &expiry, &*clock).await });
        }
    }

    async fn expires(&self, row: &SessionRow) -> Result<Option<Timer>, SessionsError> {
        let Some((_, _, request)) = row.view.pending_gate() else { return Ok(None) };
        let session = row.session.uid.clone();
        let limit = ReadLimit { records: 1, ..ReadLimit::default() };
        let page = self.options.log.read(&session, request, limit, Level::Committed).await;
        let page = page.map_err(|error| log_failed(error).on(&session))?;
        let note = page.first().and_then(|record| record.notes.get(EXPIRES_NOTE));
        let Some(note) = note else { return Ok(None) };
        // A note that is no time was not written by a host, and ends nothing.
        Ok(parse_rfc3339(note).map(|at| Timer { at, session, request, ttl: None }))
    }

    /// Finds the requests that were made before this process started.
    pub(crate) async fn scan_requests(self: &Arc<Self>) {
        if let Err(error) = self.scan().await {
            tracing::warn!(code = error.code(), "not all requests for approval were looked at yet");
            self.scan_again(&error);
        } else if self.options.log.liveness().is_some() {
            let at = later(self.options.clock.now(), SHARED_SCAN_EVERY);
            self.keep_time(self.expiry.scan_from(at));
        }
    }

    /// Looks at every session that waits for a decision, in whatever project it
    /// is and wherever it came from.
    async fn scan(self: &Arc<Self>) -> Result<(), LogError> {
        let mut after: Option<SessionUid> = None;
        loop {
            let log = &self.options.log;
            let page = log.marked(Mark::Awaiting, after.as_ref(), SCAN_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.session.uid.clone());
            for row in &page {
                self.watch_request(row, None).await;
            }
        }
    }

    async fn expire_or_retry(self: &Arc<Self>, timer: Timer) {
        let Err(error) = self.expire(&timer).await else { return };
        if is_settled(&error) {
            tracing::debug!(session = %timer.session, code = error.code(), "not expired");
        } else {
            tracing::info!(session = %timer.session, code = error.code(), "not expired yet");
            let at = later(self.options.clock.now(), RETRY_AFTER);
            self.keep_time(self.expiry.add(Timer { at, ..timer }));
        }
    }

    /// Decides a request whose time has come, unless somebody else has.
    async fn expire(self: &Arc<Self>, timer: &Timer) -> Result<(), SessionsError> {
        self.admit_turn()?;
        let row = self.find_active(&timer.session).await?;
        if self.record_expiry(&row, timer).await? {
            self.finish_turn(&timer.session, timer.ttl);
        }
        Ok(())
    }

    /// Ends the request that a session waits on, if its time has come: a host
    /// that keeps no timers notices when the session is gone on with.
    pub(crate) async fn expire_if_due(
        self: &Arc<Self>,
        row: &SessionRow,
    ) -> Result<(), SessionsError> {
        match self.expires(row).await? {
            Some(timer) if timer.at <= self.options.clock.now() => {
                self.record_expiry(row, &timer).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Records the decision. Whether the request was still there.
    async fn record_expiry(
        self: &Arc<Self>,
        row: &SessionRow,
        timer: &Timer,
    ) -> Result<bool, SessionsError> {
        let waiting = row.view.pending_gate().filter(|(_, _, seq)| *seq == timer.request);
        let Some((execution, gate, request)) = waiting else { return Ok(false) };
        let request = ApproveRequest {
            session: timer.session.clone(),
            approval: ApprovalRef {
                execution_id: execution.id.to_string(),
                tool_call_id: gate.call_id.clone(),
                request_seq: request.as_i64(),
            },
            approved: false,
            reason: "expired".to_owned(),
            identity: Some(IdentityRef {
                principal: EXPIRY_PRINCIPAL.to_owned(),
                ..IdentityRef::default()
            }),
            digest: None,
        };
        self.approve_as_host(request).await?;
        tracing::info!(session = %timer.session, "a request for approval has expired");
        Ok(true)
    }
}

/// Ends requests as their time comes, for as long as the host is there.
async fn run(host: &Weak<Inner>, expiry: &Expiry, clock: &dyn Clock) {
    let lanes = Arc::new(Semaphore::new(LANES));
    loop {
        let Some(inner) = host.upgrade() else { return };
        match expiry.next(clock.now()) {
            Next::Expire(timer) => {
                let lane = Arc::clone(&lanes).acquire_owned().await;
                tokio::spawn(async move {
                    inner.expire_or_retry(timer).await;
                    drop(lane);
                });
            }
            Next::Scan => inner.scan_requests().await,
            Next::Sleep(duration) => {
                drop(inner);
                let _ = tokio::time::timeout(duration, expiry.changed.notified()).await;
            }
        }
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp {
        seconds: at.seconds.saturating_add(i64::try_from(by.as_secs()).unwrap_or(i64::MAX)),
        ..at
    }
}

/// From `now` to a later time; never nothing, so that a wait for it is one.
pub(crate) fn between(now: Timestamp, at: Timestamp) -> Duration {
    let nanos = (i128::from(at.seconds) - i128::from(now.seconds)) * 1_000_000_000
        + i128::from(at.nanos)
        - i128::from(now.nanos);
    let nanos = u64::try_from(nanos.max(0)).unwrap_or(u64::MAX);
    Duration::from_nanos(nanos).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(second: usize) -> Timer {
        Timer {
            at: Timestamp { seconds: i64::try_from(second).unwrap(), nanos: 0 },
            session: SessionUid::new(&format!("s{second}")).unwrap(),
            request: Seq::new(4),
            ttl: None,
        }
    }

    #[test]
    fn timers_are_bounded_and_the_soonest_are_kept() {
        let expiry = Expiry::default();
        for second in (1..=TIMERS_MAX + 10).rev() {
            assert_eq!(expiry.add(timer(second)), second == TIMERS_MAX + 10, "one task");
        }
        expiry.add(timer(1));
        assert_eq!(expiry.timers().due.len(), TIMERS_MAX, "a request has one timer");
        let now = Timestamp { seconds: 1 << 30, nanos: 0 };
        for second in 1..=TIMERS_MAX / 2 {
            match expiry.next(now) {
                Next::Expire(due) => assert_eq!(due, timer(second)),
                _ => panic!("{second} is due"),
            }
        }
        assert!(matches!(expiry.next(now), Next::Scan), "there is room for those left out");
        assert!(matches!(expiry.next(now), Next::Expire(_)));
        let early = Timestamp { seconds: 0, nanos: 0 };
        assert!(matches!(expiry.next(early), Next::Sleep(TICK_MAX)));
    }

    #[test]
    fn a_request_that_is_found_again_keeps_what_its_call_said() {
        let ttl = Some(Duration::from_secs(9));
        let now = Timestamp { seconds: 1 << 30, nanos: 0 };
        for (first, second) in [(None, ttl), (ttl, None)] {
            let expiry = Expiry::default();
            expiry.add(Timer { ttl: first, ..timer(1) });
            expiry.add(Timer { ttl: second, ..timer(1) });
            match expiry.next(now) {
                Next::Expire(due) => assert_eq!(due, Timer { ttl, ..timer(1) }),
                _ => panic!("it is due"),
            }
            assert!(matches!(expiry.next(now), Next::Sleep(TICK_MAX)), "once");
        }
    }

    #[test]
    fn a_scan_that_failed_is_made_again() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let expiry = Expiry::default();
        assert!(expiry.scan_from(at(15)), "a task is needed");
        assert!(!expiry.scan_from(at(20)), "one");
        match expiry.next(at(10)) {
            Next::Sleep(duration) => assert_eq!(duration, Duration::from_secs(5)),
            _ => panic!("not yet"),
        }
        assert!(matches!(expiry.next(at(15)), Next::Scan));
        assert!(matches!(expiry.next(at(30)), Next::Sleep(TICK_MAX)), "once");
    }

    #[test]
    fn the_time_that_is_left_is_never_nothing() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(between(at(1, 900_000_000), at(3, 0)), Duration::from_millis(1_100));
        assert_eq!(between(at(3, 0), at(3, 10)), Duration::from_millis(1));
        assert_eq!(between(at(3, 0), at(1, 0)), Duration::from_millis(1));
    }
}
