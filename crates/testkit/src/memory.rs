//! A memory engine that outlives the store on it.

use std::sync::Arc;

use mainspring_eventlog::MemoryEngine;

/// Clones share one [`MemoryEngine`], so that a test can open a second store
/// on it after the first was dropped, and look at what it holds.
pub type SharedMemory = Arc<MemoryEngine>;
