//! Time that all processes of the machine share, and waits that have an end.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock: comparable between processes.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds * 1_000_000_000 + nanos
}

/// Since a time of this clock.
pub(crate) fn since(then: u64) -> Duration {
    Duration::from_nanos(now().saturating_sub(then))
}

/// How often a condition is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// Waits until `ready` gives something.
///
/// # Panics
/// When that takes longer than `limit`; `what` says what was waited for.
pub(crate) fn within<T>(
    limit: Duration,
    what: &dyn Fn() -> String,
    mut ready: impl FnMut() -> Option<T>,
) -> T {
    let start = now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(since(start) < limit, "{} took longer than {limit:?}", what());
        std::thread::sleep(POLL);
    }
}
