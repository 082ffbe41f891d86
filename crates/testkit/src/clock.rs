//! A clock that tests move.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_api::{Clock, Timestamp};

/// A wall clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock {
    now: Mutex<Timestamp>,
}

impl ManualClock {
    /// Stands at `seconds` after the epoch.
    #[must_use]
    pub fn at_unix(seconds: i64) -> Self {
        Self { now: Mutex::new(Timestamp { seconds, nanos: 0 }) }
    }

    /// Sets the time, also backwards.
    pub fn set(&self, now: Timestamp) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = now.nanos + by.subsec_nanos();
        now.seconds += i64::try_from(by.as_secs()).expect("a test does not wait for ages");
        now.seconds += i64::from(nanos / 1_000_000_000);
        now.nanos = nanos % 1_000_000_000;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
