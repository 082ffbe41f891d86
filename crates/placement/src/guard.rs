//! One driver per session in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mainspring_api::{SessionUid, Timestamp};

use crate::error::PlacementError;

/// What a lease is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Operation {
    Exec,
    Resume,
    Suspend,
    Approve,
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exec => "exec",
            Self::Resume => "resume",
            Self::Suspend => "suspend",
            Self::Approve => "approve",
            Self::Delete => "delete",
        })
    }
}

/// Leases of this process: at most one per session, no queueing.
///
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Guard(Arc<Mutex<HashMap<SessionUid, Entry>>>);

#[derive(Debug, Clone, Copy)]
struct Entry {
    operation: Operation,
    since: Timestamp,
}

impl Guard {
    /// Takes the session's lease.
    ///
    /// # Errors
    /// [`PlacementError::SessionBusy`] when it is held; nothing waits.
    pub fn try_acquire(
        &self,
        session: &SessionUid,
        operation: Operation,
        now: Timestamp,
    ) -> Result<Lease, PlacementError> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = entries.get(session) {
            return Err(PlacementError::SessionBusy {
                operation: held.operation,
                age_seconds: now.seconds.saturating_sub(held.since.seconds).max(0),
            });
        }
        entries.insert(session.clone(), Entry { operation, since: now });
        Ok(Lease { guard: self.clone(), session: session.clone() })
    }

    /// What the session's lease is held for.
    #[must_use]
    pub fn held_for(&self, session: &SessionUid) -> Option<Operation> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(session).map(|entry| entry.operation)
    }

    /// Sessions whose lease is held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no lease is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The right to drive one session, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    guard: Guard,
    session: SessionUid,
}

impl Lease {
    /// The session.
    #[must_use]
    pub fn session(&self) -> &SessionUid {
        &self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.guard.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_excludes_its_session_alone_and_frees_its_entry() {
        let guard = Guard::default();
        let (a, b) = (SessionUid::new("a").unwrap(), SessionUid::new("b").unwrap());
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let lease = guard.try_acquire(&a, Operation::Exec, at(10)).unwrap();
        let busy = guard.try_acquire(&a, Operation::Resume, at(13)).unwrap_err();
        assert!(matches!(
            busy,
            PlacementError::SessionBusy { operation: Operation::Exec, age_seconds: 3 }
        ));
        assert!(guard.try_acquire(&b, Operation::Exec, at(10)).is_ok());
        drop(lease);
        assert!(guard.is_empty());
    }
}
