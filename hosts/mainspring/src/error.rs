//! What a command reports, and with which exit code.

use std::fmt;

use mainspring::HostError;
use mainspring::api::{Classify, Condition, ErrorKind, Outcome, SessionsError, report};
use mainspring::eventlog::LogError;

/// The exit code of a cancelled command.
pub(crate) const EXIT_CANCELLED: u8 = 130;

/// Why a command failed.
#[derive(Debug, Clone)]
pub(crate) struct CliError {
    pub(crate) code: String,
    pub(crate) kind: ErrorKind,
    pub(crate) outcome: Outcome,
    pub(crate) message: String,
    pub(crate) session: Option<String>,
}

impl CliError {
    /// The command was called wrongly.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::of(Condition::InvalidArgument, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::of(Condition::Internal, message)
    }

    pub(crate) fn of(condition: Condition, message: impl Into<String>) -> Self {
        Self {
            code: condition.code().to_owned(),
            kind: condition.kind(),
            outcome: Outcome::NotApplied,
            message: message.into(),
            session: None,
        }
    }

    /// A file that cannot be read or written: named wrongly, or out of reach
    /// for now, as when a disk is full or a pipe's reader has gone.
    pub(crate) fn file(path: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let message = format!("{path}: {error}");
        match error.kind() {
            Io::NotFound
            | Io::PermissionDenied
            | Io::AlreadyExists
            | Io::InvalidInput
            | Io::InvalidData
            | Io::InvalidFilename
            | Io::IsADirectory
            | Io::NotADirectory
            | Io::ReadOnlyFilesystem => Self::usage(message),
            _ => Self::of(Condition::Unavailable, message),
        }
    }

    fn classified(error: &(impl Classify + 'static)) -> Self {
        Self {
            code: error.code().to_owned(),
            kind: error.kind(),
            outcome: error.outcome(),
            message: report(error),
            session: None,
        }
    }

    /// The stable exit codes.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.outcome == Outcome::Unknown {
            return 7;
        }
        match self.kind {
            ErrorKind::InvalidInput | ErrorKind::LimitExceeded => 2,
            ErrorKind::NotFound => 3,
            ErrorKind::Denied | ErrorKind::Unauthenticated => 4,
            ErrorKind::Precondition => 5,
            ErrorKind::Conflict
            | ErrorKind::Fenced
            | ErrorKind::Busy
            | ErrorKind::AlreadyExists => 6,
            ErrorKind::Unavailable | ErrorKind::Deadline => 7,
            ErrorKind::Cancelled => EXIT_CANCELLED,
            _ => 1,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<SessionsError> for CliError {
    fn from(error: SessionsError) -> Self {
        let session = error.session().map(ToString::to_string);
        Self { session, ..Self::classified(&error) }
    }
}

impl From<LogError> for CliError {
    fn from(error: LogError) -> Self {
        Self::classified(&error)
    }
}

impl From<HostError> for CliError {
    fn from(error: HostError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<mainspring::controller::ControllerError> for CliError {
    fn from(error: mainspring::controller::ControllerError) -> Self {
        Self::classified(&error)
    }
}

impl From<mainspring::placement::PlacementError> for CliError {
    fn from(error: mainspring::placement::PlacementError) -> Self {
        Self::classified(&error)
    }
}
