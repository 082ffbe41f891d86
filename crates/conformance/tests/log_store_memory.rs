//! The log-store suite on the shared store over the memory engine.

use std::sync::Arc;

use mainspring_conformance::{log_store, log_store_conformance};
use mainspring_eventlog::{EventLog, KvOptions, KvStore, Limits};
use mainspring_testkit::SharedMemory;

struct Subject {
    engine: SharedMemory,
    log: Arc<dyn EventLog>,
}

fn options() -> KvOptions {
    // Small bounds are reached quickly; the rule is the same.
    let mut limits = Limits::default();
    limits.event_bytes_max = 64 << 10;
    limits.batch_bytes_max = 256 << 10;
    limits.batch_records_max = 300;
    KvOptions { limits, ..KvOptions::default() }
}

impl Subject {
    fn over(engine: SharedMemory) -> Self {
        let log = Arc::new(KvStore::open(engine.clone(), options()).unwrap());
        Self { engine, log }
    }

    async fn fresh() -> Self {
        Self::over(SharedMemory::default())
    }
}

impl log_store::Subject for Subject {
    const OFFERS: &'static [&'static str] = &["follow", "rows", "purge"];

    fn log(&self) -> Arc<dyn EventLog> {
        Arc::clone(&self.log)
    }

    async fn reopen(self) -> Self {
        drop(self.log);
        Self::over(self.engine)
    }
}

log_store_conformance!(Subject::fresh);
