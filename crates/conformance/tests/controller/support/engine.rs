//! Sessions on an engine that a case edits behind the store's back.

use std::ops::ControlFlow;
use std::sync::Arc;

use mainspring_api::SystemClock;
use mainspring_eventlog::{Engine, EventLog, Keep, KvOptions, KvStore, MemoryEngine, Space};
use mainspring_store_fjall::{FjallConfig, FjallEngine};
use mainspring_store_redb::{RedbConfig, RedbEngine};
use tempfile::TempDir;

use super::{Fixture, Kept};

/// The bytes under a store.
pub(crate) struct Bytes {
    engine: Arc<dyn Engine>,
    open: Box<Open>,
    _dir: TempDir,
}

type Open = dyn Fn() -> Arc<dyn EventLog> + Send + Sync;

/// What an engine held at some time.
pub(crate) type Dump = Vec<(Space, Vec<(Vec<u8>, Vec<u8>)>)>;

fn on<E: Engine>(engine: E) -> (Arc<dyn Engine>, Box<Open>) {
    let engine = Arc::new(engine);
    let under = Arc::clone(&engine);
    let open = move || -> Arc<dyn EventLog> {
        Arc::new(KvStore::open(Arc::clone(&under), KvOptions::default()).unwrap())
    };
    (engine, Box::new(open))
}

impl Bytes {
    /// An empty session of the same cell on an engine of its own.
    pub(crate) async fn under(session: &Fixture) -> (Fixture, Self) {
        let dir = tempfile::tempdir().unwrap();
        let (engine, open) = match session.cell.kept {
            Kept::Memory | Kept::Elsewhere => on(MemoryEngine::default()),
            Kept::Redb => {
                let config = RedbConfig::at(dir.path().join("journal.redb"));
                on(RedbEngine::open(&config, &SystemClock).unwrap())
            }
            Kept::Fjall => {
                let config = FjallConfig::at(dir.path().join("journal"));
                on(FjallEngine::open(&config, &SystemClock).unwrap())
            }
        };
        let session = session.through(open());
        mainspring_testkit::create(&*session.log, &session.uid).await.unwrap();
        (session, Self { engine, open, _dir: dir })
    }

    /// The same session through a new handle of the store, which remembers nothing.
    pub(crate) fn reopened(&self, session: &Fixture) -> Fixture {
        session.through((self.open)())
    }

    fn all(&self, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        self.engine
            .read(&mut |kv| {
                kv.scan(space, &[], &[0xff], &mut |key, value| {
                    all.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                })
            })
            .unwrap();
        all
    }

    /// Edits the record at `seq` of the only session; its length stays.
    pub(crate) fn edit(&self, seq: u64) {
        let records = self.all(Space::Records);
        let (key, mut value) = records[seq as usize - 1].clone();
        let at = value.windows(6).position(|part| part == b"\"kind\"").unwrap();
        value[at + 1] = b'K';
        self.engine
            .write(&mut |kv| {
                kv.put(Space::Records, &key, &value)?;
                Ok(Keep::Yes)
            })
            .unwrap();
    }

    /// Everything that is stored.
    pub(crate) fn dump(&self) -> Dump {
        Space::ALL.into_iter().map(|space| (space, self.all(space))).collect()
    }

    /// Puts back what was stored, as a copy of the files does.
    pub(crate) fn restore(&self, dump: &Dump) {
        let now = self.dump();
        self.engine
            .write(&mut |kv| {
                for (space, rows) in &now {
                    for (key, _) in rows {
                        kv.delete(*space, key)?;
                    }
                }
                for (space, rows) in dump {
                    for (key, value) in rows {
                        kv.put(*space, key, value)?;
                    }
                }
                Ok(Keep::Yes)
            })
            .unwrap();
    }
}
