//! Opening and closing the fjall folder of a store.

use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, Snapshot};
use mainspring_eventlog::{EngineError, LogError, Space};
use rustix::fs::{Advice, fadvise};

use crate::config::FjallConfig;
use crate::error::{damaged, guarded, io_failed, opened};
use crate::folder::each_file;
use crate::{journal, manifest};

/// The least that fjall accepts.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// Tables that are kept open.
const FILES_MAX: usize = 64;
/// One writes tables while the other merges them.
const WORKERS: usize = 2;
/// How long a closed folder may keep its journals open.
const RELEASE_MAX: Duration = Duration::from_secs(2);
const RELEASE_STEP: Duration = Duration::from_millis(1);

/// An open folder of fjall's.
pub(crate) struct Open {
    /// What readers see. Taken between two commits: fjall's own newest view may
    /// cut through one, for a table that is written moves it to a sequence
    /// number that a commit in progress is already below.
    visible: Mutex<Arc<Snapshot>>,
    spaces: [Keyspace; Space::ALL.len()],
    pub(crate) database: Database,
}

impl Open {
    /// Opens the folder at `data`, which holds at least `spaces` spaces.
    pub(crate) fn existing(
        config: &FjallConfig,
        data: &Path,
        spaces: usize,
    ) -> Result<Self, LogError> {
        manifest::check(data, spaces)?;
        journal::check(data)?;
        let open = opened(data, || Self::at(config, data, Some(spaces)))?;
        open.ok_or_else(|| damaged(data, "spaces are gone"))
    }

    /// Makes a folder at `data`, which is not there.
    pub(crate) fn fresh(config: &FjallConfig, data: &Path) -> Result<Self, LogError> {
        let open = opened(data, || Self::at(config, data, None))?;
        Ok(open.expect("nothing was asked for"))
    }

    /// `None` when there are less spaces than there must be.
    fn at(
        config: &FjallConfig,
        data: &Path,
        spaces: Option<usize>,
    ) -> Result<Option<Self>, fjall::Error> {
        let database = Database::builder(data)
            .cache_size(config.cache_bytes)
            .max_journaling_size(config.journal_bytes_max.max(JOURNAL_BYTES_MIN))
            .max_cached_files(Some(FILES_MAX))
            .worker_threads(WORKERS)
            // Said here, since another crate of the build may switch on fjall's features.
            .journal_compression(CompressionType::None)
            .open()?;
        if spaces.is_some_and(|spaces| database.keyspace_count() < spaces) {
            return Ok(None);
        }
        let mut opened = Vec::with_capacity(Space::ALL.len());
        for space in Space::ALL {
            opened.push(database.keyspace(space.name(), || options(config, space))?);
        }
        let Ok(spaces) = opened.try_into() else { unreachable!("as many as there are") };
        let visible = Mutex::new(Arc::new(database.snapshot()));
        Ok(Some(Self { visible, spaces, database }))
    }

    pub(crate) fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    /// The state after the last commit.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.visible.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows the commit that just ended. No other one is in progress.
    pub(crate) fn publish(&self) {
        let now = Arc::new(self.database.snapshot());
        *self.visible.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Closes the folder, and waits until nothing of it is in use any more.
    pub(crate) fn close(self, data: &Path) -> Result<(), EngineError> {
        let dropped = guarded("close", || {
            drop(self);
            Ok::<_, fjall::Error>(())
        });
        // A worker that ends may still hold the journal, and writes what a
        // failed commit left in its buffer when it lets go.
        let mut waited = Duration::ZERO;
        while is_in_use(data) {
            if waited >= RELEASE_MAX {
                return Err(crate::error::refused("the closed journals are still in use"));
            }
            sleep(RELEASE_STEP);
            waited += RELEASE_STEP;
        }
        dropped
    }
}

fn options(config: &FjallConfig, space: Space) -> KeyspaceCreateOptions {
    let memtable_bytes_max = match space {
        Space::Records => config.memtable_bytes_max,
        _ => config.memtable_bytes_max / 4,
    };
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable_bytes_max)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
}

/// Makes the files say what the disk does: after a failed sync, cached pages
/// may show bytes that never reached it.
pub(crate) fn drop_cached_pages(data: &Path) -> Result<(), LogError> {
    let drop_pages = || {
        for journal in journal::list(data)? {
            File::open(journal)?.sync_all()?;
        }
        each_file(data, &mut |path| Ok(fadvise(File::open(path)?, 0, None, Advice::DontNeed)?))
    };
    drop_pages().map_err(|error| io_failed("drop cached pages of", data, error))
}

/// Whether this process has a journal in `data` open; `false` where the system
/// does not say.
fn is_in_use(data: &Path) -> bool {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return false };
    open.flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|file| file.parent() == Some(data) && file.extension().is_some_and(|ext| ext == "jnl"))
}
