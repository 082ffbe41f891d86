//! A memory engine that outlives the store on it.

use std::path::PathBuf;
use std::sync::Arc;

use mainspring_eventlog::{Engine, EngineError, EngineUsage, Keep, KvRead, KvWrite, MemoryEngine};

/// Clones share one [`MemoryEngine`], so that a test can open a second store
/// on it after the first was dropped, and look at what it holds.
#[derive(Debug, Clone, Default)]
pub struct SharedMemory(Arc<MemoryEngine>);

#[deny(clippy::missing_trait_methods)]
impl Engine for SharedMemory {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.0.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        self.0.write(f)
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.0.reopen()
    }

    fn is_durable(&self) -> bool {
        self.0.is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        self.0.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.0.usage()
    }
}
