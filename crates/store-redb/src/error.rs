//! redb's failures in the words of the contract.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub(crate) use mainspring_eventlog::files::{damaged, io_failed, not_a_store, unavailable};
use mainspring_eventlog::{EngineError, LogError, holder};
use redb::{DatabaseError, StorageError, TableError, TransactionError};

/// Calls redb, which may panic on a file that was damaged behind its back.
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
        Err(panic) => Err(EngineError {
            message: format!("{what}: the file is damaged: {}", panic_text(&*panic)),
            source: None,
        }),
    }
}

/// Whether redb refuses everything because an earlier call failed.
pub(crate) fn is_latched(error: &EngineError) -> bool {
    let Some(source) = &error.source else { return false };
    let storage = source
        .downcast_ref::<StorageError>()
        .or_else(|| match source.downcast_ref::<TransactionError>() {
            Some(TransactionError::Storage(error)) => Some(error),
            _ => None,
        })
        .or_else(|| match source.downcast_ref::<TableError>() {
            Some(TableError::Storage(error)) => Some(error),
            _ => None,
        });
    matches!(storage, Some(StorageError::PreviousIo))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("redb panicked")
}

/// As [`guarded`], for opening the file at `path`.
pub(crate) fn opened<T>(
    path: &Path,
    call: impl FnOnce() -> Result<T, DatabaseError>,
) -> Result<T, LogError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| open_failed(path, error)),
        Err(panic) => Err(damaged(path, panic_text(&*panic))),
    }
}

fn open_failed(path: &Path, error: DatabaseError) -> LogError {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            LogError::Held { path: path.display().to_string(), holder: holder::describe(path) }
        }
        DatabaseError::UpgradeRequired(version) => {
            not_a_store(path, format!("it is a redb file of the old format {version}"))
        }
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            not_a_store(path, "it is not a redb file")
        }
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::UnexpectedEof =>
        {
            damaged(path, "it ends too early")
        }
        DatabaseError::Storage(StorageError::Corrupted(why)) => damaged(path, &why),
        DatabaseError::Storage(StorageError::Io(error)) => io_failed("open", path, error),
        error => unavailable(format!("open {}", path.display()), error),
    }
}
