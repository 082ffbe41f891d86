//! What these tests share.

use std::path::Path;
use std::time::Duration;

use mainspring_api::{Fence, Head, SessionUid};
use mainspring_eventlog::{Batch, KvOptions, LogError};
use mainspring_store_redb::{RedbConfig, RedbEngine, RedbStore, open_store};
use mainspring_testkit::{FaultyDisk, sample};

pub(crate) fn open(path: &Path) -> Result<RedbStore, LogError> {
    open_store(&RedbConfig::at(path), KvOptions::default())
}

/// A store on `disk`, whose engine drops cached pages before it opens again.
pub(crate) fn open_on(disk: &FaultyDisk, reopen_max: Duration) -> Result<RedbStore, LogError> {
    let shared = disk.clone();
    let engine = RedbEngine::with_backends(1 << 20, move || {
        shared.drop_caches();
        Ok(shared.backend())
    })?;
    RedbStore::open(engine, KvOptions { reopen_max, ..KvOptions::default() })
}

pub(crate) fn text_batch(base: Head, text: &str) -> Batch {
    Batch::link(base, sample::records([sample::input(text)])).unwrap()
}

/// Appends inputs to a new session and returns its uid and head.
pub(crate) async fn filled(log: &RedbStore, name: &str, len: usize) -> (SessionUid, Head) {
    use mainspring_eventlog::EventLog as _;
    let uid = sample::session(name);
    mainspring_testkit::create(log, &uid).await.unwrap();
    let mut at = Head::EMPTY;
    for number in 0..len {
        let batch = text_batch(at, &format!("{name} {number}"));
        at = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    (uid, at)
}
