//! The store: the shared log store over the redb engine.

use mainspring_eventlog::{KvOptions, KvStore, LogError, OpenProgress};

use crate::config::RedbConfig;
use crate::engine::RedbEngine;

/// A log store in one redb file.
///
/// Dropping it closes the file, once what is queued was committed. Over an
/// engine that was opened otherwise, `RedbStore::open` makes one.
pub type RedbStore = KvStore<RedbEngine>;

/// Opens or creates the store that `config` names.
///
/// # Errors
/// As [`RedbEngine::open`] and [`KvStore::open`].
pub fn open_store(config: &RedbConfig, options: KvOptions) -> Result<RedbStore, LogError> {
    open_store_with(config, options, &OpenProgress::ignored())
}

/// As [`open_store`], telling `progress` while a file that was not closed
/// cleanly is repaired.
///
/// # Errors
/// As [`open_store`].
pub fn open_store_with(
    config: &RedbConfig,
    options: KvOptions,
    progress: &OpenProgress,
) -> Result<RedbStore, LogError> {
    let engine = RedbEngine::open_with(config, &*options.clock, progress)?;
    KvStore::open(engine, options)
}
