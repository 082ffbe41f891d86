//! Who is told of committed records and deltas.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mainspring_api::{Delta, LogRecord};

/// Is told of each committed record once, after it is durable and in order,
/// and of deltas between them.
///
/// Calls are serialised and made while the turn waits: an implementation hands
/// over and returns, and must not use the sink. One that may block goes behind a
/// [`Relayed`](crate::Relayed). One that panics misses what it was told of; the
/// turn goes on.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A record is durable.
    fn on_record(&self, record: &LogRecord);

    /// A piece of output that is not recorded.
    fn on_delta(&self, delta: Delta);
}

/// Tells an observer, whose panic must not come between a record and what the
/// turn makes of it.
pub(crate) fn tell(told: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(told)).is_err() {
        tracing::error!("an observer of the turn panicked");
    }
}

/// Ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct IgnoreAll;

impl Observer for IgnoreAll {
    fn on_record(&self, _record: &LogRecord) {}

    fn on_delta(&self, _delta: Delta) {}
}
