//! The log-store suite on fjall.

use std::sync::Arc;

use mainspring_conformance::{log_store, log_store_conformance};
use mainspring_eventlog::{EventLog, KvOptions, Limits};
use mainspring_store_fjall::{FjallConfig, FjallStore, open_store};
use tempfile::TempDir;

struct Subject {
    store: Arc<FjallStore>,
    dir: TempDir,
}

fn open(dir: &TempDir) -> Arc<FjallStore> {
    // Small bounds are reached quickly; the rule is the same.
    let mut limits = Limits::default();
    limits.event_bytes_max = 64 << 10;
    limits.batch_bytes_max = 256 << 10;
    limits.batch_records_max = 300;
    let options = KvOptions { limits, ..KvOptions::default() };
    let mut config = FjallConfig::at(dir.path().join("journal"));
    // Cases that write more than a little also write tables.
    config.memtable_bytes_max = 64 << 10;
    Arc::new(open_store(&config, options).unwrap())
}

impl Subject {
    async fn fresh() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { store: open(&dir), dir }
    }
}

impl log_store::Subject for Subject {
    const OFFERS: &'static [&'static str] = &["follow", "rows", "purge"];

    fn log(&self) -> Arc<dyn EventLog> {
        self.store.clone()
    }

    async fn reopen(self) -> Self {
        let Self { store, dir } = self;
        Arc::into_inner(store).expect("no case keeps a handle over a reopen");
        Self { store: open(&dir), dir }
    }
}

log_store_conformance!(Subject::fresh);
