//! Who is told of committed records and deltas.

use std::fmt;

use mainspring_api::{Delta, LogRecord};

/// Is told of each committed record once, after it is durable and in order,
/// and of deltas between them.
///
/// Calls are serialised and made while the turn waits: an implementation hands
/// over and returns, and must not use the sink. One that may block goes behind a
/// [`Relayed`](crate::Relayed).
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A record is durable.
    fn on_record(&self, record: &LogRecord);

    /// A piece of output that is not recorded.
    fn on_delta(&self, delta: Delta);
}

/// Ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct IgnoreAll;

impl Observer for IgnoreAll {
    fn on_record(&self, _record: &LogRecord) {}

    fn on_delta(&self, _delta: Delta) {}
}
