//! Compaction: what is live is copied into a fresh file, which then takes the
//! old one's name.
//!
//! # Why nothing is lost
//!
//! - The old file is open, and so locked, from before the copy until after the
//!   new one has its name: nobody writes meanwhile what would not be copied.
//! - The new file is whole, closed and synced before it is renamed, and a rename
//!   is one step: a crash leaves the old file or the new one under the name.
//! - The new file is locked too, from before it has the name until the name is
//!   durable: nothing can be acknowledged in it that a power cut would take
//!   away by bringing the old name back.
//! - Who opened the old file before the rename and gets its lock when it is let
//!   go finds that the name is another file's now, and opens again
//!   ([`crate::open`]). So nobody goes on in the file without a name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use mainspring_api::{Clock, report};
use mainspring_eventlog::holder::with_suffix;
use mainspring_eventlog::{EngineError, LogError, Space};
use redb::backends::FileBackend;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable as _, ReadableTableMetadata as _,
    TableError, TableHandle as _,
};

use crate::config::RedbConfig;
use crate::engine::RedbEngine;
use crate::error::{guarded, io_failed};
use crate::open::{OWNER_ONLY, builder, directory, sync_directory, table};

/// Bytes of keys and values that one transaction of the copy holds.
const COPY_BYTES_MAX: u64 = 4 << 20;

/// What a compaction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of the file before.
    pub before: u64,
    /// Bytes of the file after.
    pub after: u64,
}

/// Copies the store that `config` names into a fresh file without its dead
/// space, and puts that in its place if it is smaller. `progress` is told how
/// many bytes of keys and values are copied, of how many.
///
/// A crash at any point leaves the old file or the new one. What an earlier
/// compaction left at `<path>.compact` is removed.
///
/// # Errors
/// With the store as it was:
/// - As [`RedbEngine::open`]: `Held` while another process has it open.
/// - `Invalid`: the file has several names, of which one alone would be replaced.
/// - `Unsupported`: it holds a table that this build does not know.
/// - `Unavailable`: there is too little space beside it, or it cannot be read
///   or written.
pub fn compact(
    config: &RedbConfig,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Compacted, LogError> {
    if !config.path.try_exists().unwrap_or(false) {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        return Err(io_failed("compact", &config.path, missing));
    }
    let mut old = RedbEngine::open(config, clock)?;
    // A link to the store stays one: the file that it names is replaced.
    let path = fs::canonicalize(&config.path)
        .map_err(|error| io_failed("look at", &config.path, error))?;
    let found = fs::metadata(&path).map_err(|error| io_failed("look at", &path, error))?;
    if found.nlink() > 1 {
        return Err(LogError::Invalid(
            "the store's file has several names (hard links); leave it one, and compact again",
        ));
    }
    let fresh = Fresh::create(&path)?;
    let copied = old.with(|database| {
        let txn = guarded("begin a read", || database.begin_read())?;
        Ok(fresh.fill(&txn, config.cache_bytes, progress))
    });
    let file = copied.map_err(|error| failed(&path, &error))??;
    let made = file.metadata().map_err(|error| io_failed("look at", &fresh.path, error))?;
    if made.len() >= found.len() {
        // Large values leave gaps in any file; this one has none that a copy closes.
        return Ok(Compacted { before: found.len(), after: found.len() });
    }
    // Beside the new file it would speak of the old one.
    old.unnote();
    let after = fresh.replace(&file, &path, &found)?;
    // Only now is the old file let go, and after it the new one.
    drop(old);
    drop(file);
    Ok(Compacted { before: found.len(), after })
}

fn failed(path: &Path, error: &EngineError) -> LogError {
    LogError::unavailable(format!("compact {}: {}", path.display(), report(error)))
}

/// The file beside the store, removed unless it became the store.
struct Fresh {
    path: PathBuf,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Gone already when it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

impl Fresh {
    fn create(store: &Path) -> Result<Self, LogError> {
        let path = with_suffix(store, ".compact");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_failed("remove", &path, error))
            }
            _ => Ok(Self { path }),
        }
    }

    /// Copies all that `txn` shows. The file is whole, closed, synced and
    /// locked afterwards.
    fn fill(
        &self,
        txn: &ReadTransaction,
        cache_bytes: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<File, LogError> {
        let failed = |error| failed(&self.path, &error);
        let (total, overhead) = known_bytes(txn).map_err(failed)??;
        self.enough_space(total + overhead)?;
        let create = |error| io_failed("create", &self.path, error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(OWNER_ONLY)
            .open(&self.path)
            .map_err(create)?;
        let backend = file.try_clone().map_err(create)?;
        let mut database = guarded("create", || {
            builder(cache_bytes).create_with_backend(FileBackend::new(backend)?)
        })
        .map_err(failed)?;
        let mut copy = Copy { done: 0, total, progress };
        for space in Space::ALL {
            copy.space(txn, &database, space).map_err(failed)?;
        }
        // What transactions replaced on the way lies in the middle of the file.
        // Moving pages is no risk here: this file is not the store yet.
        guarded("squeeze", || database.compact()).map_err(failed)?;
        guarded("close", || database.close()).map_err(failed)?;
        file.try_lock().map_err(|error| io_failed("lock", &self.path, error.into()))?;
        file.sync_all().map_err(|error| io_failed("make durable", &self.path, error))?;
        Ok(file)
    }

    fn enough_space(&self, live: u64) -> Result<(), LogError> {
        let stat = rustix::fs::statvfs(directory(&self.path))
            .map_err(|error| io_failed("measure", &self.path, error.into()))?;
        let (free, need) = (stat.f_bavail.saturating_mul(stat.f_frsize), needed_bytes(live));
        if free >= need {
            return Ok(());
        }
        Err(LogError::unavailable(format!(
            "compacting needs about {need} bytes beside the store, and {} has {free} free",
            directory(&self.path).display()
        )))
    }

    /// Gives `file` the store's owner and mode, and its name.
    fn replace(self, file: &File, store: &Path, found: &fs::Metadata) -> Result<u64, LogError> {
        let failed = |what: &'static str| {
            let path = &self.path;
            move |error| io_failed(what, path, error)
        };
        let own = file.metadata().map_err(failed("look at"))?;
        if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
            fchown(file, Some(found.uid()), Some(found.gid())).map_err(failed("hand over"))?;
        }
        file.set_permissions(found.permissions()).map_err(failed("hand over"))?;
        file.sync_all().map_err(failed("make durable"))?;
        fs::rename(&self.path, store).map_err(failed("rename"))?;
        sync_directory(store)?;
        Ok(own.len())
    }
}

/// What the copy may take: pages are not full, and the file grows in steps.
const fn needed_bytes(live: u64) -> u64 {
    live.saturating_add(live / 2).saturating_add(16 << 20)
}

/// Bytes of all keys and values, and of what holds them.
fn known_bytes(txn: &ReadTransaction) -> Result<Result<(u64, u64), LogError>, EngineError> {
    let ours = |name: &str| Space::ALL.iter().any(|space| space.name() == name);
    let known = guarded("list tables", || {
        Ok::<_, redb::StorageError>(
            txn.list_tables()?.all(|found| ours(found.name()))
                && txn.list_multimap_tables()?.next().is_none(),
        )
    })?;
    if !known {
        // It may be of use to the build that wrote it.
        return Ok(Err(LogError::Unsupported("compacting a file with tables that it knows not")));
    }
    let mut bytes = (0, 0);
    for space in Space::ALL {
        if let Some(table) = open_table(txn, space)? {
            let stats = guarded("measure", || table.stats())?;
            bytes.0 += stats.stored_bytes();
            bytes.1 += stats.metadata_bytes();
        }
    }
    Ok(Ok(bytes))
}

type Bytes = &'static [u8];

fn open_table(
    txn: &ReadTransaction,
    space: Space,
) -> Result<Option<redb::ReadOnlyTable<Bytes, Bytes>>, EngineError> {
    guarded("open a table", || match txn.open_table(table(space)) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error),
    })
}

struct Copy<'a> {
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Copy<'_> {
    /// Copies one table, in transactions of bounded size, and counts it.
    fn space(
        &mut self,
        from: &ReadTransaction,
        to: &Database,
        space: Space,
    ) -> Result<(), EngineError> {
        let Some(source) = open_table(from, space)? else { return Ok(()) };
        let mut entries = guarded("scan", || source.iter())?;
        let mut more = true;
        while more {
            let begun = self.done;
            more = guarded("copy", || {
                let txn = to.begin_write()?;
                let mut target = txn.open_table(table(space))?;
                let mut more = true;
                while more && self.done - begun < COPY_BYTES_MAX {
                    match entries.next().transpose()? {
                        Some((key, value)) => {
                            target.insert(key.value(), value.value())?;
                            self.done += (key.value().len() + value.value().len()) as u64;
                        }
                        None => more = false,
                    }
                }
                drop(target);
                txn.commit()?;
                Ok::<_, redb::Error>(more)
            })?;
            // Rows changed in place are measured with some slack.
            (self.progress)(self.done.min(self.total), self.total);
        }
        let counts = guarded("count", || {
            let copied = to.begin_read()?.open_table(table(space))?.len()?;
            Ok::<_, redb::Error>((source.len()?, copied))
        })?;
        if counts.0 != counts.1 {
            let message = format!("{} entries of {:?} became {}", counts.0, space.name(), counts.1);
            return Err(EngineError { message, source: None });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_told_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = Fresh::create(&dir.path().join("s.redb")).unwrap();
        fresh.enough_space(1 << 20).unwrap();
        let error = fresh.enough_space(u64::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("bytes beside the store"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
