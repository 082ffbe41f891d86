//! The stores under test.
//!
//! Another embedded store is a variant of [`Store`] with its arm in `opened`,
//! and the bare engine that it stands beside in [`Store::peer`].

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use mainspring_api::SystemClock;
use mainspring_eventlog::{Engine, EventLog, KvOptions, KvStore, MemoryEngine};
use mainspring_store_fjall::{FjallConfig, FjallEngine};
use mainspring_store_redb::{RedbConfig, RedbEngine};

use crate::run::peer::Peer;
use crate::run::twin::{Tap, Tapped};

/// The kinds of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// One redb file.
    Redb,
    /// A folder of fjall's.
    Fjall,
    /// Nothing but memory.
    Memory,
}

/// What a store's figures are held to; `None` where nothing is promised.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// Beside what.
    pub floor: Peer,
    /// Latency of one append, as a multiple of the floor's.
    pub append: f64,
    /// Throughput of 64 callers, as a share of the floor's.
    pub grouped: f64,
}

impl Store {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Redb, Self::Fjall, Self::Memory];

    /// Its name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::Memory => "memory",
        }
    }

    /// The bare engine that it stands on.
    pub const fn peer(self) -> Peer {
        match self {
            Self::Redb => Peer::Redb,
            Self::Fjall => Peer::Fjall,
            Self::Memory => Peer::Memory,
        }
    }

    /// What its figures are held to.
    pub const fn promise(self) -> Option<Promise> {
        match self {
            Self::Redb => Some(Promise { floor: Peer::Redb, append: 1.2, grouped: 0.85 }),
            Self::Fjall => Some(Promise { floor: Peer::File, append: 1.3, grouped: 0.8 }),
            Self::Memory => None,
        }
    }

    /// Whether it writes to a disk.
    pub const fn is_durable(self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Those that write to a disk.
    pub fn durable() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|store| store.is_durable())
    }

    /// Opens or creates it in `dir`.
    pub fn open(self, dir: &Path) -> Result<Arc<dyn EventLog>> {
        self.opened(dir, None)
    }

    /// As [`Store::open`], with a tap.
    ///
    /// # Errors
    /// The store's.
    pub fn open_tapped(self, dir: &Path, tap: &Arc<Tap>) -> Result<Arc<dyn EventLog>> {
        self.opened(dir, Some(tap))
    }

    fn opened(self, dir: &Path, tap: Option<&Arc<Tap>>) -> Result<Arc<dyn EventLog>> {
        match self {
            Self::Redb => {
                let config = RedbConfig::at(dir.join("store.redb"));
                over(RedbEngine::open(&config, &SystemClock)?, tap)
            }
            Self::Fjall => {
                let config = FjallConfig::at(dir.join("store.fjall"));
                over(FjallEngine::open(&config, &SystemClock)?, tap)
            }
            Self::Memory => over(MemoryEngine::default(), tap),
        }
    }
}

fn over(engine: impl Engine, tap: Option<&Arc<Tap>>) -> Result<Arc<dyn EventLog>> {
    let options = KvOptions::default();
    Ok(match tap {
        None => Arc::new(KvStore::open(engine, options)?),
        Some(tap) => {
            let engine = Tapped { engine, tap: Arc::clone(tap), records: true };
            Arc::new(KvStore::open(engine, options)?)
        }
    })
}
