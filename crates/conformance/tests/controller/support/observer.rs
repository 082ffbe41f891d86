//! An observer that remembers what it was told.

use std::sync::{Mutex, PoisonError};

use mainspring_api::{Delta, LogRecord, Seq};
use mainspring_controller::Observer;

use super::raw::kind;

/// What an observer was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// Of a record: its position and short kind.
    Record(Seq, String),
    /// Of a delta: its chunk, and whether it was the last.
    Delta(String, bool),
}

/// Remembers everything, in order.
#[derive(Debug, Default)]
pub(crate) struct Watcher(Mutex<Vec<Told>>);

impl Watcher {
    /// What was told since the last call.
    pub(crate) fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

impl Observer for Watcher {
    fn on_record(&self, record: &LogRecord) {
        self.tell(Told::Record(record.seq, kind(&record.event)));
    }

    fn on_delta(&self, delta: Delta) {
        assert_eq!(delta.part_index, 0, "the only part that is streamed");
        self.tell(Told::Delta(delta.chunk, delta.done));
    }
}
