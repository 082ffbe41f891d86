//! The store: the shared log store over the fjall engine.

use mainspring_eventlog::{KvOptions, KvStore, LogError};

use crate::config::FjallConfig;
use crate::engine::FjallEngine;

/// A log store in one folder of fjall's.
///
/// Dropping it closes the folder, once what is queued was committed.
pub type FjallStore = KvStore<FjallEngine>;

/// Opens or creates the store that `config` names.
///
/// # Errors
/// As [`FjallEngine::open`] and [`KvStore::open`].
pub fn open_store(config: &FjallConfig, options: KvOptions) -> Result<FjallStore, LogError> {
    let engine = FjallEngine::open(config, &*options.clock)?;
    KvStore::open(engine, options)
}
