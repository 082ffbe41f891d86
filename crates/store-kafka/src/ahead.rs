//! How much the fold is ahead of the view, in bytes of memory.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of messages that may be judged and not in the view yet. What the view
/// takes apart for a step comes on top.
const AHEAD_BYTES_MAX: usize = 32 << 20;
/// How often a wait looks whether the store is over.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of messages that were judged and are not in the view yet.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    bytes: Mutex<usize>,
    fell: Condvar,
}

/// What one message takes of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    of: Arc<Ahead>,
    bytes: usize,
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a message. Waits on this thread while there is too much, until
    /// `is_over`; one alone always has room.
    pub(crate) fn room(self: &Arc<Self>, bytes: usize, is_over: impl Fn() -> bool) -> Room {
        let mut taken = self.lock();
        while *taken > 0 && *taken + bytes > AHEAD_BYTES_MAX && !is_over() {
            let waited = self.fell.wait_timeout(taken, LOOK);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += bytes;
        Room { of: Arc::clone(self), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.of.lock() -= self.bytes;
        self.of.fell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_waits_until_there_is_room() {
        let ahead = Arc::new(Ahead::default());
        let whole = ahead.room(AHEAD_BYTES_MAX + 1, || false);
        let waiting = Arc::clone(&ahead);
        let waits = std::thread::spawn(move || drop(waiting.room(1, || false)));
        std::thread::sleep(LOOK * 2);
        assert!(!waits.is_finished(), "there is no room beside it");
        drop(whole);
        waits.join().expect("it goes on");
        assert_eq!(*ahead.lock(), 0);
    }

    #[test]
    fn nobody_waits_for_a_store_that_is_over() {
        let ahead = Arc::new(Ahead::default());
        let _whole = ahead.room(AHEAD_BYTES_MAX, || false);
        drop(ahead.room(1, || true));
    }
}
