//! The four questions that can be asked of any error.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

/// What sort of failure it is. Transports and exit codes map these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It does not exist, or the caller may not know that it does.
    NotFound,
    /// It exists already.
    AlreadyExists,
    /// The head, version or fence has moved.
    Conflict,
    /// A newer writer exists.
    Fenced,
    /// Someone else is driving it right now.
    Busy,
    /// No verified caller.
    Unauthenticated,
    /// The caller may not.
    Denied,
    /// This build or backend cannot do it.
    Unsupported,
    /// The request is malformed.
    InvalidInput,
    /// A value exceeds its bound.
    LimitExceeded,
    /// The state does not allow it.
    Precondition,
    /// A dependency cannot be reached now.
    Unavailable,
    /// Stored bytes are damaged.
    Corrupt,
    /// Cancelled.
    Cancelled,
    /// Out of time.
    Deadline,
    /// Anything else.
    Internal,
}

/// Whether a failed operation took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing was changed, and nothing will be.
    NotApplied,
    /// It may have taken effect. Send the same again to settle it.
    Unknown,
    /// It took effect, and what it began then failed; the journal says how far
    /// it came. Sending the same again does it again.
    Applied,
}

/// What every error of the workspace answers.
pub trait Classify: Error {
    /// What sort of failure?
    fn kind(&self) -> ErrorKind;

    /// Which one exactly? Stable and documented, such as `journal_tampered`.
    fn code(&self) -> &'static str;

    /// Did it take effect?
    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

/// A classified error as a trait object.
pub trait Classified: Classify + Send + Sync + 'static {}

impl<E: Classify + Send + Sync + 'static> Classified for E {}

/// A shared classified error: sticky failures are returned many times.
pub type SharedError = Arc<dyn Classified>;

/// An error with its whole chain of causes, as one line.
#[must_use]
pub fn report(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let _ = write!(line, ": {inner}");
        cause = inner.source();
    }
    line
}
