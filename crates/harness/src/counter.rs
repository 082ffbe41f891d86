//! The harness that needs its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_api::{
    Capabilities, Descriptor, EventSink, Harness, HarnessError, Resumability, Start, async_trait,
};

/// Counts its turns in RAM and outputs the count in decimal.
///
/// It shows whether a runtime really keeps memory: a restored counter goes on,
/// a fresh one says 1. Its forks share nothing, but a fork taken while it runs
/// would count the same turn twice, so it is not fork-safe.
#[derive(Debug, Default)]
pub struct Counter {
    turns: AtomicU64,
}

impl Counter {
    /// Its id.
    pub const ID: &str = "counter";

    /// A counter that has counted nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Harness for Counter {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor {
            id: Self::ID.to_owned(),
            version: "1".to_owned(),
            capabilities: Capabilities {
                resumability: Resumability::RequiresMemorySnapshot,
                ..Capabilities::default()
            },
            ..Descriptor::default()
        })
    }

    async fn run(&self, _start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst) + 1;
        sink.output(turn.to_string()).await?;
        Ok(())
    }
}
