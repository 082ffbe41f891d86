//! The rows that a store puts, for its bare peer.
//!
//! A twin is a memory store that is given the same operations and keeps what
//! each of them put, so that a peer commits the very keys and values.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, EventLog, Keep, KvOptions, KvRead, KvStore, KvWrite,
    MemoryEngine, Space, Visit,
};

use crate::run::peer::{Put, Txn};

/// A store whose writes are kept.
#[derive(Debug)]
pub struct Twin {
    /// The store.
    pub log: Arc<dyn EventLog>,
    tap: Arc<Tap>,
}

impl Twin {
    /// An empty one.
    ///
    /// # Errors
    /// The store's.
    pub fn new() -> Result<Self> {
        let tap = Arc::new(Tap::default());
        tap.keep(true);
        let engine =
            Tapped { engine: MemoryEngine::default(), tap: Arc::clone(&tap), records: false };
        let twin = Self { log: Arc::new(KvStore::open(engine, KvOptions::default())?), tap };
        let _opened = twin.take();
        Ok(twin)
    }

    /// What was put since the last call.
    #[must_use]
    pub fn take(&self) -> Txn {
        self.tap.take().concat()
    }
}

/// Counts an engine's transactions, and keeps what they put while it is asked to.
#[derive(Debug, Default)]
pub struct Tap {
    commits: AtomicU64,
    keeps: AtomicBool,
    txns: Mutex<Vec<Txn>>,
}

impl Tap {
    /// Transactions that were kept by their engine so far.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Whether to keep what is put from now on.
    pub fn keep(&self, keeps: bool) {
        self.keeps.store(keeps, Ordering::SeqCst);
    }

    /// What was put since the last call, by transactions.
    #[must_use]
    pub fn take(&self) -> Vec<Txn> {
        std::mem::take(&mut *self.txns.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An engine with a tap.
#[derive(Debug)]
pub(crate) struct Tapped<E> {
    pub(crate) engine: E,
    pub(crate) tap: Arc<Tap>,
    /// Whether records are put into the engine, too.
    pub(crate) records: bool,
}

impl<E: Engine> Engine for Tapped<E> {
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
        let keeps = self.tap.keeps.load(Ordering::SeqCst);
        let (mut puts, mut kept) = (Txn::new(), false);
        self.engine.write(&mut |kv| {
            puts.clear();
            let keep = match keeps {
                true => f(&mut Puts { kv, puts: &mut puts, records: self.records })?,
                false => f(kv)?,
            };
            kept = keep == Keep::Yes;
            Ok(keep)
        })?;
        self.tap.commits.fetch_add(u64::from(kept), Ordering::Relaxed);
        if kept && keeps {
            self.tap.txns.lock().unwrap_or_else(PoisonError::into_inner).push(puts);
        }
        Ok(())
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.engine.reopen()
    }

    fn is_durable(&self) -> bool {
        self.engine.is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<std::path::PathBuf>, EngineError> {
        self.engine.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.engine.usage()
    }
}

/// A transaction whose puts are kept.
struct Puts<'a> {
    kv: &'a mut dyn KvWrite,
    puts: &'a mut Txn,
    records: bool,
}

impl KvRead for Puts<'_> {
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

impl KvWrite for Puts<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.puts.push(Put { space, key: key.to_vec(), value: value.to_vec() });
        // No operation on a twin reads a record back, and a long journal need
        // not stand in memory.
        let skipped = space == Space::Records && !self.records;
        if skipped { Ok(()) } else { self.kv.put(space, key, value) }
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        self.kv.delete(space, key)
    }
}
