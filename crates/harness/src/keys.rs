//! Idempotency keys that every replay derives again.

use mainspring_api::{ExecutionId, Start};

/// Hands out one key per effect: the execution's id and an ordinal.
///
/// The execution id survives crash and resume, and a harness makes the same
/// calls in the same order, so the n-th effect has the same key on every run
/// and no two effects of a session share one. Taking a key needs `&mut`: keys
/// taken by racing tasks would be in no order.
#[derive(Debug)]
pub struct Keys {
    execution: ExecutionId,
    taken: u64,
}

impl Keys {
    /// The keys of the execution that `start` opens.
    #[must_use]
    pub fn of(start: &Start) -> Self {
        Self { execution: start.execution_id.clone(), taken: 0 }
    }

    /// The key of the next effect, such as `6c1f0a9be2d34785-1`.
    #[must_use = "a key that is not used still moves the ordinal"]
    pub fn next_key(&mut self) -> String {
        self.taken += 1;
        format!("{}-{}", self.execution, self.taken)
    }
}
