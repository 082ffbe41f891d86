//! The journals of all sessions, as hosts see them when the race is over.

use std::path::Path;
use std::sync::Arc;

use mainspring_api::{AppendId, OsEntropy, SystemClock};
use mainspring_eventlog::{
    Engine, EventLog as _, Level, MemoryEngine, NewSession, SessionRow, StoredRecord,
};
use mainspring_store_kafka::{KafkaConfig, KafkaStore};
use mainspring_store_redb::{RedbConfig, RedbEngine};
use mainspring_testkit::{read_all, verify_all};

use crate::plan::{SESSIONS, session};

/// One session, as a host sees it.
#[derive(Debug, PartialEq)]
pub(crate) struct Journal {
    pub(crate) row: SessionRow,
    pub(crate) records: Vec<StoredRecord>,
}

/// A host whose view is empty.
pub(crate) async fn fresh(config: &KafkaConfig) -> KafkaStore {
    open(config, Arc::new(MemoryEngine::default())).await
}

/// A host that goes on with the view in a file.
pub(crate) async fn with_view(config: &KafkaConfig, file: &Path) -> KafkaStore {
    let view = RedbEngine::open(&RedbConfig::at(file), &SystemClock);
    open(config, Arc::new(view.expect("the view of a host that ended can be opened"))).await
}

async fn open(config: &KafkaConfig, view: Arc<dyn Engine>) -> KafkaStore {
    KafkaStore::open(config.clone(), view).await.expect("a store opens when all is well")
}

/// Makes the sessions that hosts race on.
pub(crate) async fn create_sessions(config: &KafkaConfig) {
    let store = fresh(config).await;
    for number in 0..SESSIONS {
        let new = NewSession::bare(session(number), "chaos");
        let id = AppendId::random(&OsEntropy);
        store.create(id, new).await.expect("a session can be made when all is well");
    }
}

/// All journals of a host, each with its chain verified.
pub(crate) async fn collect(store: &KafkaStore) -> Vec<Journal> {
    let mut journals = Vec::with_capacity(SESSIONS);
    for number in 0..SESSIONS {
        let uid = session(number);
        let row = store.get(&uid, Level::Strict).await.expect("a row can be read");
        let verified = verify_all(store, &uid).await.expect("the chain holds");
        assert_eq!(row.view.head, verified, "the row of {uid} ends where its chain does");
        let records = read_all(store, &uid).await.expect("a journal can be read");
        journals.push(Journal { row, records });
    }
    journals
}
