//! What placement reports.

use mainspring_api::{
    Classify, Condition, ConnectError, ErrorKind, HarnessError, Outcome, RuntimeError,
};
use mainspring_controller::ControllerError;
use mainspring_eventlog::LogError;

use crate::guard::Operation;

/// Why a session was not placed or its turn failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// Another operation holds the session's lease. Nothing was done.
    #[error("session is busy: {operation} has been running for {age_seconds} s")]
    SessionBusy {
        /// What holds it.
        operation: Operation,
        /// For how long.
        age_seconds: i64,
    },
    /// No harness of this name is served here.
    #[error("unknown harness {name:?}; served are: {}", .served.join(", "))]
    UnknownHarness {
        /// The name.
        name: String,
        /// What is served.
        served: Vec<String>,
    },
    /// The harness is registered or configured here, and cannot be served.
    #[error("harness {harness:?} cannot be served here: {reason}")]
    HarnessUnservable {
        /// The harness.
        harness: String,
        /// Why.
        reason: String,
    },
    /// The harness takes no new sessions. Existing ones go on.
    #[error("harness {0:?} is retired: it takes no new sessions")]
    HarnessRetired(String),
    /// A registered harness and another one do not take turns on a session.
    #[error("session is pinned to harness {stored:?}; {asked:?} was asked for")]
    HarnessPinned {
        /// The session's own.
        stored: String,
        /// What was asked for.
        asked: String,
    },
    /// The name is taken.
    #[error("harness {0:?} exists already")]
    HarnessExists(String),
    /// The harness that recorded the pending turn is not served here.
    #[error("harness {0:?}, which recorded the turn, is not served here")]
    RecordedHarnessNotServed(String),
    /// The harness describes itself otherwise than expected. Nothing was placed.
    #[error("harness describes itself as {actual:?}, expected is {expected:?}")]
    DescriptorMismatch {
        /// What was expected.
        expected: String,
        /// What it said.
        actual: String,
    },
    /// The runtime cannot run such a harness. Nothing was placed.
    #[error("harness {harness:?} needs memory snapshots, which runtime {runtime} does not have")]
    Unplaceable {
        /// The harness.
        harness: String,
        /// The runtime.
        runtime: &'static str,
    },
    /// The harness cannot be reached.
    #[error("harness {harness:?} is unavailable")]
    HarnessUnavailable {
        /// The harness.
        harness: String,
        /// What happened.
        #[source]
        source: HarnessError,
    },
    /// The harness could not describe itself.
    #[error("harness {harness:?} cannot describe itself")]
    HarnessDescribeFailed {
        /// The harness.
        harness: String,
        /// What happened.
        #[source]
        source: HarnessError,
    },
    /// The caller went away or ran out of time before the turn began. Nothing was recorded.
    #[error("call ended before the turn began ({})", if *.out_of_time { "deadline" } else { "cancelled" })]
    AdmissionInterrupted {
        /// Whether it was the deadline.
        out_of_time: bool,
    },
    /// The host is going down. Nothing of the turn was recorded.
    #[error("host is shutting down")]
    HostStopping,
    /// The runtime refused or failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// No connection came about.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The turn, or the log under it.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

impl From<LogError> for PlacementError {
    fn from(error: LogError) -> Self {
        Self::Controller(error.into())
    }
}

impl PlacementError {
    /// The condition that this reports.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::SessionBusy { .. } => Condition::SessionBusy,
            Self::UnknownHarness { .. } => Condition::UnknownHarness,
            Self::HarnessUnservable { .. } => Condition::HarnessUnservable,
            Self::HarnessRetired(_) => Condition::HarnessRetired,
            Self::HarnessPinned { .. } => Condition::HarnessPinned,
            Self::HarnessExists(_) => Condition::AlreadyExists,
            Self::RecordedHarnessNotServed(_) => Condition::RecordedHarnessNotServed,
            Self::DescriptorMismatch { .. } => Condition::DescriptorMismatch,
            Self::Unplaceable { .. } => Condition::Unplaceable,
            Self::HarnessUnavailable { .. } => Condition::HarnessUnavailable,
            Self::HarnessDescribeFailed { .. } => Condition::HarnessDescribeFailed,
            Self::AdmissionInterrupted { out_of_time: true } => Condition::DeadlineExceeded,
            Self::AdmissionInterrupted { out_of_time: false } => Condition::Cancelled,
            Self::HostStopping => Condition::Draining,
            Self::Runtime(error) => error.condition(),
            Self::Connect(error) => error.condition(),
            Self::Controller(error) => error.condition(),
        }
    }
}

impl Classify for PlacementError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Controller(error) => error.kind(),
            other => other.condition().kind(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Controller(error) => error.code(),
            other => other.condition().code(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Controller(error) => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}
