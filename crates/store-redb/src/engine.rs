//! The engine: one redb table for each space.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use mainspring_api::{Clock, report};
use mainspring_eventlog::holder::{HolderNote, open_patiently};
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, Keep, KvRead, KvWrite, LogError, OpenProgress, Space, Visit,
};
use redb::{
    Database, DatabaseError, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    StorageBackend, Table, TableError, WriteTransaction,
};

use crate::access::{get_of, scan_of};
use crate::config::RedbConfig;
use crate::error::{guarded, is_latched, unavailable};
use crate::open::{Empty, builder, copy_aside, drop_cached_pages, first_open, open, table};

type Bytes = &'static [u8];

/// An ordered key-value engine over one redb database.
///
/// After an error of a write the handle knows nothing: every call is refused
/// until [`Engine::reopen`] has opened the file again.
pub struct RedbEngine {
    note: Option<HolderNote>,
    /// The file, where there is one.
    path: Option<PathBuf>,
    database: RwLock<Option<Database>>,
    failed: AtomicBool,
    again: Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>,
}

impl RedbEngine {
    /// Opens or creates the file that `config` names.
    ///
    /// # Errors
    /// With the file's bytes unchanged:
    /// - `Held`: another process has it open, or this one.
    /// - `NotAStore`: it is not a redb file, or one of another program.
    /// - `UnsupportedSchema`: a newer version wrote it.
    /// - `Corrupt`: it is damaged beyond what redb repairs.
    /// - `Unavailable`: it cannot be reached, as when its directory is missing.
    pub fn open(config: &RedbConfig, clock: &dyn Clock) -> Result<Self, LogError> {
        Self::open_with(config, clock, &OpenProgress::ignored())
    }

    /// As [`RedbEngine::open`], telling `progress` while a file that was not
    /// closed cleanly is repaired.
    ///
    /// # Errors
    /// As [`RedbEngine::open`].
    pub fn open_with(
        config: &RedbConfig,
        clock: &dyn Clock,
        progress: &OpenProgress,
    ) -> Result<Self, LogError> {
        let RedbConfig { path, cache_bytes } = config.clone();
        let database = open_patiently(|| first_open(&path, cache_bytes, progress))?;
        let note = HolderNote::write(&path, clock.now())
            .inspect_err(|error| tracing::warn!(%error, "no holder note beside the store"))
            .ok();
        let file = path.clone();
        let again = move || {
            drop_cached_pages(&path)?;
            open(&path, cache_bytes, Empty::Refuse, None)
        };
        Ok(Self::of(note, Some(file), database, again))
    }

    /// An engine over backends that `backend` makes: one now, and one for each
    /// time that it must be opened again. What a backend still caches of writes
    /// whose sync failed must be gone from the next one.
    ///
    /// # Errors
    /// `Unavailable` when there is no backend or redb does not open it.
    pub fn with_backends<B: StorageBackend>(
        cache_bytes: usize,
        backend: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Result<Self, LogError> {
        let again = move || builder(cache_bytes).create_with_backend(backend()?);
        let database =
            guarded("open", &again).map_err(|error| unavailable("open".to_owned(), error))?;
        Ok(Self::of(None, None, database, again))
    }

    fn of(
        note: Option<HolderNote>,
        path: Option<PathBuf>,
        database: Database,
        again: impl Fn() -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            note,
            path,
            database: RwLock::new(Some(database)),
            failed: AtomicBool::new(false),
            again: Box::new(again),
        }
    }

    fn read_once(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.with(|database| {
            let txn = guarded("begin a read", || database.begin_read())?;
            f(&Reader { txn, tables: Default::default() })
        })
    }

    /// Runs `f` on the open database.
    pub(crate) fn with<T>(
        &self,
        f: impl FnOnce(&Database) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let refused = |why: &str| EngineError { message: why.to_owned(), source: None };
        let guard = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = guard.as_ref().ok_or_else(|| refused("the file is not open"))?;
        if self.failed.load(Ordering::Acquire) {
            return Err(refused("a write failed and the file was not opened again"));
        }
        f(database)
    }
}

impl RedbEngine {
    /// Takes the note away while the file is still held.
    pub(crate) fn unnote(&mut self) {
        drop(self.note.take());
    }
}

impl Drop for RedbEngine {
    fn drop(&mut self) {
        // While the file is still locked, so that no other process's note is removed.
        self.unnote();
        close(self.database.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Closes what is open. A handle that failed writes nothing more; redb leaves
/// the file for the next open to recover.
fn close(database: &mut Option<Database>) {
    let closed = database.take().map(|database| guarded("close", || database.close()));
    if let Some(Err(error)) = closed {
        tracing::warn!(error = %report(&error), "store was not closed cleanly");
    }
}

impl fmt::Debug for RedbEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbEngine")
            .field("note", &self.note)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Engine for RedbEngine {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        match self.read_once(f) {
            // After one failed read redb refuses all others. Every commit was
            // durable, so a fresh handle shows what this one did; whoever writes
            // behind looks where it stands before it goes on.
            Err(error) if is_latched(&error) && !self.failed.load(Ordering::Acquire) => {
                tracing::warn!(error = %report(&error), "store opened again after a failed read");
                self.reopen()?;
                self.read_once(f)
            }
            answer => answer,
        }
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        self.with(|database| {
            let outcome = transact(database, f);
            if outcome.handle_failed {
                self.failed.store(true, Ordering::Release);
            }
            outcome.result
        })
    }

    fn reopen(&self) -> Result<(), EngineError> {
        // Waits for the transactions that are running; new ones wait for it.
        let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
        close(&mut guard);
        *guard = Some(guarded("open again", &self.again)?);
        self.failed.store(false, Ordering::Release);
        Ok(())
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        // Closed while it is copied, so that the copy opens without a repair.
        let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
        close(&mut guard);
        let copied = copy_aside(path, label);
        *guard = Some(guarded("open again", &self.again)?);
        copied.map(Some).map_err(|error| EngineError::of("copy the file aside", error))
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.with(|database| {
            let stats = guarded("measure", || {
                let txn = database.begin_write()?;
                let stats = txn.stats()?;
                txn.abort()?;
                Ok::<_, redb::Error>(stats)
            })?;
            let allocated = stats.allocated_pages() * stats.page_size() as u64;
            let disk_bytes = match &self.path {
                None => allocated,
                Some(path) => std::fs::metadata(path)
                    .map_err(|error| EngineError::of("look at the file", error))?
                    .len(),
            };
            // A compaction moves pages; what is unused inside of one stays so.
            let dead_bytes = disk_bytes.saturating_sub(allocated);
            Ok(EngineUsage { disk_bytes, live_bytes: stats.stored_bytes(), dead_bytes })
        })
    }
}

struct Written {
    result: Result<(), EngineError>,
    /// Whether redb itself failed, so that its handle is not to be trusted.
    handle_failed: bool,
}

fn transact(
    database: &Database,
    f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
) -> Written {
    let begun = guarded("begin a write", || {
        let mut txn = database.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        Ok::<_, redb::Error>(txn)
    });
    let mut txn = match begun {
        Ok(txn) => txn,
        Err(error) => return Written { result: Err(error), handle_failed: true },
    };
    let mut writer = Writer { txn: &txn, tables: Default::default(), failed: Cell::new(false) };
    let decided = f(&mut writer);
    let op_failed = writer.failed.get();
    let closed = guarded("end a write", || {
        drop(writer);
        Ok::<_, redb::Error>(())
    });
    match (decided, closed) {
        (Ok(keep @ (Keep::Yes | Keep::Behind)), Ok(())) if !op_failed => {
            let result = guarded("commit", || {
                if keep == Keep::Behind {
                    txn.set_durability(Durability::None)?;
                }
                Ok::<_, redb::Error>(txn.commit()?)
            });
            Written { handle_failed: result.is_err(), result }
        }
        (decided, closed) => {
            let aborted = guarded("abort", || txn.abort());
            let handle_failed = op_failed || closed.is_err() || aborted.is_err();
            let swallowed = || EngineError {
                message: "an operation failed and the transaction was to be kept".to_owned(),
                source: None,
            };
            let result = match decided {
                Ok(Keep::Yes | Keep::Behind) => closed.and_then(|()| Err(swallowed())),
                Ok(Keep::No) => closed.and(aborted),
                Err(error) => Err(error),
            };
            Written { result, handle_failed }
        }
    }
}

/// Opens each table when it is first asked for.
struct Reader {
    txn: ReadTransaction,
    tables: [OnceCell<Option<ReadOnlyTable<Bytes, Bytes>>>; Space::ALL.len()],
}

impl Reader {
    /// The table of a space; `None` while nothing was ever written to it.
    fn table(&self, space: Space) -> Result<Option<&ReadOnlyTable<Bytes, Bytes>>, EngineError> {
        let cell = &self.tables[space as usize];
        if cell.get().is_none() {
            let opened = guarded("open a table", || match self.txn.open_table(table(space)) {
                Ok(table) => Ok(Some(table)),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error),
            })?;
            let _ = cell.set(opened);
        }
        Ok(cell.get().and_then(Option::as_ref))
    }
}

impl KvRead for Reader {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self.table(space)? {
            Some(table) => get_of(table, key),
            None => Ok(None),
        }
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        match self.table(space)? {
            Some(table) => scan_of(table, from, to, visit),
            None => Ok(()),
        }
    }
}

/// As [`Reader`], inside a transaction.
struct Writer<'txn> {
    txn: &'txn WriteTransaction,
    tables: [OnceCell<Table<'txn, Bytes, Bytes>>; Space::ALL.len()],
    /// Whether redb failed in it: then it is never committed.
    failed: Cell<bool>,
}

impl<'txn> Writer<'txn> {
    fn note<T>(&self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        result.inspect_err(|_| self.failed.set(true))
    }

    fn table(&self, space: Space) -> Result<&Table<'txn, Bytes, Bytes>, EngineError> {
        let cell = &self.tables[space as usize];
        if cell.get().is_none() {
            let opened = guarded("open a table", || self.txn.open_table(table(space)));
            let _ = cell.set(self.note(opened)?);
        }
        Ok(cell.get().expect("opened just above"))
    }

    fn table_mut(&mut self, space: Space) -> Result<&mut Table<'txn, Bytes, Bytes>, EngineError> {
        self.table(space)?;
        Ok(self.tables[space as usize].get_mut().expect("opened just above"))
    }
}

impl KvRead for Writer<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.note(get_of(self.table(space)?, key))
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.note(scan_of(self.table(space)?, from, to, visit))
    }
}

impl KvWrite for Writer<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let table = self.table_mut(space)?;
        let put = guarded("write", || table.insert(key, value).map(drop));
        self.note(put)
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        let table = self.table_mut(space)?;
        let deleted = guarded("delete", || table.remove(key).map(drop));
        self.note(deleted)
    }
}
