//! What a store that keeps files says when something is wrong with one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use mainspring_api::Outcome;

use crate::error::LogError;

/// A file or folder could not be reached, before anything was applied; `what`
/// was to be done with it.
#[must_use]
pub fn io_failed(what: &str, path: &Path, error: io::Error) -> LogError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => " (its directory must exist)",
        _ => "",
    };
    unavailable(format!("{what} {}{hint}", path.display()), error)
}

/// It is of another program.
#[must_use]
pub fn not_a_store(path: &Path, why: impl Into<String>) -> LogError {
    LogError::NotAStore { path: path.display().to_string(), why: why.into() }
}

/// It is a store whose bytes are not what they were.
#[must_use]
pub fn damaged(path: &Path, why: &str) -> LogError {
    LogError::Corrupt { what: format!("{}: {why}", path.display()) }
}

/// The store cannot be used now; nothing was applied.
#[must_use]
pub fn unavailable(
    message: String,
    source: impl std::error::Error + Send + Sync + 'static,
) -> LogError {
    LogError::Unavailable { message, outcome: Outcome::NotApplied, source: Some(Arc::new(source)) }
}
