//! The rows that a store puts, for its bare peer.
//!
//! A twin is a memory store that is given the same operations and keeps what
//! each of them put, so that a peer commits the very keys and values.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, EventLog, Keep, KvOptions, KvRead, KvStore, KvWrite,
    MemoryEngine, Space, Visit,
};

use crate::peer::{Put, Txn};

/// A store whose writes are kept.
pub(crate) struct Twin {
    pub(crate) log: Arc<dyn EventLog>,
    puts: Arc<Mutex<Txn>>,
}

impl Twin {
    pub(crate) fn new() -> Result<Self> {
        let puts = Arc::default();
        let engine = Tapped { engine: MemoryEngine::default(), puts: Arc::clone(&puts) };
        let twin = Self { log: Arc::new(KvStore::open(engine, KvOptions::default())?), puts };
        twin.take();
        Ok(twin)
    }

    /// What was put since the last call.
    pub(crate) fn take(&self) -> Txn {
        std::mem::take(&mut *self.puts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Tapped {
    engine: MemoryEngine,
    puts: Arc<Mutex<Txn>>,
}

impl Engine for Tapped {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.engine.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.write(&mut |kv| f(&mut Tap { kv, puts: &mut puts }))
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.engine.reopen()
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn backup(&self, label: &str) -> Result<Option<std::path::PathBuf>, EngineError> {
        self.engine.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.engine.usage()
    }
}

struct Tap<'a> {
    kv: &'a mut dyn KvWrite,
    puts: &'a mut Txn,
}

impl KvRead for Tap<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.kv.get(space, key)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.kv.scan(space, from, to, visit)
    }
}

impl KvWrite for Tap<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.puts.push(Put { space, key: key.to_vec(), value: value.to_vec() });
        // No operation here reads a record back, and a long journal need not
        // stand in memory.
        if space == Space::Records { Ok(()) } else { self.kv.put(space, key, value) }
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        self.kv.delete(space, key)
    }
}
