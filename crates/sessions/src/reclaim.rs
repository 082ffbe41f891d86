//! Dropping the records of sessions that were deleted long enough ago.
//!
//! Off unless a retention is set. What a fork still shows is kept, and so is a
//! tombstone: the uid stays taken, and says what it was.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mainspring_api::{AppendId, Classify as _, Condition, SessionUid, SessionsError, Timestamp};
use mainspring_controller::settle;
use mainspring_eventlog::{LogError, Mark, SessionRow};

use crate::expiry::between;
use crate::service::{Inner, Service, log_failed};

/// Whether and when deleted sessions are purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// How long a session stays whole after its last change, that is, after its
    /// deletion.
    pub retention: Duration,
}

/// How long the reclaimer rests between two looks at what is deleted, at most.
const REST_MAX: Duration = Duration::from_secs(600);

/// And at least: a short retention does not keep the store busy.
const REST_MIN: Duration = Duration::from_secs(1);

/// Sessions of one page of the scan.
const SCAN_PAGE: usize = 200;

impl Service {
    /// Refuses a reclaimer that the store cannot serve; to be asked before the
    /// host starts.
    ///
    /// # Errors
    /// `unimplemented` when a retention is set and the store cannot purge.
    pub fn check_reclaim(&self) -> Result<(), SessionsError> {
        let options = &self.inner.options;
        match options.reclaim {
            Some(_) if options.log.purge().is_none() => Err(SessionsError::new(
                Condition::Unimplemented,
                "this store cannot purge deleted sessions; set no retention for them",
            )),
            _ => Ok(()),
        }
    }

    /// Purges deleted sessions whose retention has passed, for as long as the
    /// host is there and does not drain; nothing when no retention is set. Must
    /// be called within a runtime.
    ///
    /// # Errors
    /// As [`Service::check_reclaim`]; then nothing was started.
    pub fn reclaim_deleted(&self) -> Result<(), SessionsError> {
        self.check_reclaim()?;
        if let Some(reclaim) = self.inner.options.reclaim {
            let host = Arc::downgrade(&self.inner);
            let draining = self.inner.draining.clone();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = draining.wait() => {}
                    () = run(&host, reclaim) => {}
                }
            });
        }
        Ok(())
    }
}

async fn run(host: &Weak<Inner>, reclaim: Reclaim) {
    loop {
        let Some(inner) = host.upgrade() else { return };
        let rest = inner.reclaim(reclaim).await.unwrap_or_else(|error| {
            tracing::warn!(code = error.code(), "not all deleted sessions were looked at");
            REST_MAX
        });
        // What is deleted meanwhile is not due before its retention has passed.
        let early = (reclaim.retention < REST_MAX).then(|| Arc::clone(&inner.deletions));
        drop(inner);
        let Some(deletions) = early else {
            tokio::time::sleep(rest).await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = deletions.notified() => tokio::time::sleep(REST_MIN).await,
        }
    }
}

impl Inner {
    /// Purges what is due, and says how long until something may be.
    async fn reclaim(&self, reclaim: Reclaim) -> Result<Duration, LogError> {
        let mut rest = REST_MAX;
        let mut after: Option<SessionUid> = None;
        loop {
            let page = self.options.log.marked(Mark::Deleted, after.as_ref(), SCAN_PAGE).await?;
            let Some(last) = page.last() else { return Ok(rest.max(REST_MIN)) };
            after = Some(last.session.uid.clone());
            for row in &page {
                let now = self.options.clock.now();
                let due = due(row, reclaim.retention);
                // A purge that was cut is gone on with.
                if row.purged || due <= now {
                    self.purge(row).await;
                } else {
                    rest = rest.min(between(now, due));
                }
            }
        }
    }

    /// A session that cannot be purged now is found again, and holds up nobody.
    async fn purge(&self, row: &SessionRow) {
        let Some(purge) = self.options.log.purge() else { return };
        let (id, uid) = (AppendId::random(&*self.options.entropy), &row.session.uid);
        match settle(|| purge.purge(id, uid)).await {
            Ok(_) => tracing::info!(session = %uid, "purged"),
            Err(error) => {
                let error = log_failed(error);
                tracing::warn!(session = %uid, code = error.code(), "not purged");
            }
        }
    }
}

/// When a session's retention has passed.
fn due(row: &SessionRow, retention: Duration) -> Timestamp {
    let seconds = i64::try_from(retention.as_secs()).unwrap_or(i64::MAX);
    let nanos = row.update_time.nanos + retention.subsec_nanos();
    let carried = i64::from(nanos / 1_000_000_000);
    Timestamp {
        seconds: row.update_time.seconds.saturating_add(seconds).saturating_add(carried),
        nanos: nanos % 1_000_000_000,
    }
}
