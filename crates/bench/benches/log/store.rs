//! The stores under test.
//!
//! Another embedded store is a variant of [`Store`] with its arm in `opened`,
//! and the bare engine that it stands beside in [`Store::peer`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use mainspring_api::SystemClock;
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, EventLog, Keep, KvOptions, KvRead, KvStore, KvWrite,
    MemoryEngine,
};
use mainspring_store_fjall::{FjallConfig, FjallEngine};
use mainspring_store_redb::{RedbConfig, RedbEngine};

use crate::peer::Peer;

/// The kinds of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// One redb file.
    Redb,
    /// A folder of fjall's.
    Fjall,
    /// Nothing but memory.
    Memory,
}

/// What a store's figures are held to; `None` where nothing is promised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// Beside what.
    pub(crate) floor: Peer,
    /// Latency of one append, as a multiple of the floor's.
    pub(crate) append: f64,
    /// Throughput of 64 callers, as a share of the floor's.
    pub(crate) grouped: f64,
}

impl Store {
    pub(crate) const ALL: [Self; 3] = [Self::Redb, Self::Fjall, Self::Memory];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::Memory => "memory",
        }
    }

    /// The bare engine that it stands on.
    pub(crate) const fn peer(self) -> Peer {
        match self {
            Self::Redb => Peer::Redb,
            Self::Fjall => Peer::Fjall,
            Self::Memory => Peer::Memory,
        }
    }

    pub(crate) const fn promise(self) -> Option<Promise> {
        match self {
            Self::Redb => Some(Promise { floor: Peer::Redb, append: 1.2, grouped: 0.85 }),
            Self::Fjall => Some(Promise { floor: Peer::File, append: 1.3, grouped: 0.8 }),
            Self::Memory => None,
        }
    }

    pub(crate) const fn is_durable(self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Those that write to a disk.
    pub(crate) fn durable() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|store| store.is_durable())
    }

    /// Opens or creates it in `dir`.
    pub(crate) fn open(self, dir: &Path) -> Result<Arc<dyn EventLog>> {
        self.opened(dir, None)
    }

    /// As [`Store::open`], counting commits.
    pub(crate) fn open_counted(
        self,
        dir: &Path,
        commits: &Arc<AtomicU64>,
    ) -> Result<Arc<dyn EventLog>> {
        self.opened(dir, Some(commits))
    }

    fn opened(self, dir: &Path, commits: Option<&Arc<AtomicU64>>) -> Result<Arc<dyn EventLog>> {
        match self {
            Self::Redb => {
                let config = RedbConfig::at(dir.join("store.redb"));
                over(RedbEngine::open(&config, &SystemClock)?, commits)
            }
            Self::Fjall => {
                let config = FjallConfig::at(dir.join("store.fjall"));
                over(FjallEngine::open(&config, &SystemClock)?, commits)
            }
            Self::Memory => over(MemoryEngine::default(), commits),
        }
    }
}

fn over(engine: impl Engine, commits: Option<&Arc<AtomicU64>>) -> Result<Arc<dyn EventLog>> {
    let options = KvOptions::default();
    Ok(match commits {
        None => Arc::new(KvStore::open(engine, options)?),
        Some(commits) => {
            Arc::new(KvStore::open(Counted { engine, commits: Arc::clone(commits) }, options)?)
        }
    })
}

/// An engine that counts the transactions that it keeps.
#[derive(Debug)]
struct Counted<E> {
    engine: E,
    commits: Arc<AtomicU64>,
}

impl<E: Engine> Engine for Counted<E> {
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
        self.engine.write(&mut |kv| {
            let keep = f(kv)?;
            self.commits.fetch_add(u64::from(keep == Keep::Yes), Ordering::Relaxed);
            Ok(keep)
        })
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.engine.reopen()
    }

    fn is_durable(&self) -> bool {
        self.engine.is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        self.engine.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.engine.usage()
    }
}
