//! fjall's failures in the words of the contract.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub(crate) use mainspring_eventlog::files::{damaged, io_failed, not_a_store, unavailable};
use mainspring_eventlog::{EngineError, LogError};

/// Calls fjall, which may panic on files that were damaged behind its back.
pub(crate) fn guarded<T, E>(
    what: &str,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, EngineError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    // Nothing of ours is left half done: the transaction is given up on any error.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| EngineError::of(what, error)),
        Err(panic) => Err(refused(format!("{what}: {}", panic_text(&*panic)))),
    }
}

/// As [`guarded`], for files below `path` that are opened or copied.
pub(crate) fn opened<T>(
    path: &Path,
    call: impl FnOnce() -> Result<T, fjall::Error>,
) -> Result<T, LogError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| open_failed(path, error)),
        Err(panic) => Err(damaged(path, panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("fjall panicked")
}

fn open_failed(path: &Path, error: fjall::Error) -> LogError {
    use fjall::{Error, LsmError};
    match error {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => match error.kind() {
            // A file that is gone, or a place in it that cannot be.
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => {
                damaged(path, &error.to_string())
            }
            // Not the system's word, but that of who decodes.
            _ if error.raw_os_error().is_none() => damaged(path, &error.to_string()),
            _ => io_failed("open", path, error),
        },
        // The folder's own lock is held by then: a closed handle still lets go of this one.
        error @ (Error::Locked | Error::Poisoned) => {
            unavailable(format!("open {}", path.display()), error)
        }
        error => damaged(path, &error.to_string()),
    }
}

/// An engine error of our own.
pub(crate) fn refused(message: impl Into<String>) -> EngineError {
    EngineError { message: message.into(), source: None }
}
