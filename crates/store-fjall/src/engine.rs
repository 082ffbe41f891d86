//! The engine: one fjall keyspace for each space.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::sleep;
use std::time::Duration;

use fjall::{PersistMode, Readable as _};
use mainspring_api::{Clock, report};
use mainspring_eventlog::holder::HolderNote;
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, Keep, KvRead, KvWrite, LogError, Space,
};

use crate::config::FjallConfig;
use crate::error::{guarded, refused};
use crate::folder::{Folder, Missing, copy_aside};
use crate::open::{Open, drop_cached_pages};
use crate::transaction::{Reader, Writer};

/// Full memtables of a space that wait to be written. At four fjall itself
/// waits, for ever if its worker has died.
const SEALED_MAX: usize = 1;
/// Tables of a space that wait to be merged. At twenty fjall slows down.
const UNMERGED_MAX: usize = 15;
/// How long a commit waits for tables to be written and merged.
const STALL_MAX: Duration = Duration::from_secs(60);
const STALL_STEP: Duration = Duration::from_millis(1);

/// An ordered key-value engine over a folder of fjall's.
///
/// After an error of a commit the handle knows nothing: every call is refused
/// until [`Engine::reopen`] has opened the folder again.
pub struct FjallEngine {
    note: Option<HolderNote>,
    open: RwLock<Option<Open>>,
    failed: AtomicBool,
    config: FjallConfig,
    /// Its lock is let go last.
    folder: Mutex<Folder>,
}

impl FjallEngine {
    /// Opens or creates the folder that `config` names.
    ///
    /// # Errors
    /// With everything that was stored unchanged:
    /// - `Held`: another process has it open, or this one.
    /// - `NotAStore`: it is a file, or a folder of other things.
    /// - `UnsupportedSchema`: a newer version wrote it.
    /// - `Corrupt`: it is damaged, other than by a commit that was not finished.
    /// - `Unavailable`: it cannot be reached, as when the directory that it is in is missing.
    pub fn open(config: &FjallConfig, clock: &dyn Clock) -> Result<Self, LogError> {
        let mut folder = Folder::open(&config.path, Missing::Create, |data| {
            let made = Open::fresh(config, data)?;
            made.close(data).map_err(|error| LogError::unavailable(report(&error)))
        })?;
        let note = note_holder(&folder, clock);
        let open = Open::existing(config, &folder.data(), folder.spaces())?;
        folder.spaces_are_complete()?;
        Ok(Self {
            note,
            open: RwLock::new(Some(open)),
            failed: AtomicBool::new(false),
            config: config.clone(),
            folder: Mutex::new(folder),
        })
    }

    fn with<T>(&self, f: impl FnOnce(&Open) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let guard = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = guard.as_ref().ok_or_else(|| refused("the folder is not open"))?;
        if self.failed.load(Ordering::Acquire) {
            return Err(refused("a commit failed and the folder was not opened again"));
        }
        f(open)
    }

    fn folder<T>(&self, f: impl FnOnce(&mut Folder) -> T) -> T {
        f(&mut self.folder.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn transact(
        &self,
        open: &Open,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        let mut writer = Writer::new(open);
        if f(&mut writer)? == Keep::No {
            return Ok(());
        }
        if writer.has_failed() {
            return Err(refused("an operation failed and the transaction was to be kept"));
        }
        let schema = writer.meta(b"schema").and_then(|text| std::str::from_utf8(text).ok());
        if let Some(schema) = schema.and_then(|text| text.parse().ok()) {
            self.folder(|folder| folder.raise_schema(schema))
                .map_err(|error| EngineError::of("note the schema version", error))?;
        }
        let committed = make_room(open, &writer)
            .and_then(|()| guarded("commit", || writer.into_batch().commit()));
        match committed {
            Ok(()) => open.publish(),
            Err(_) => self.failed.store(true, Ordering::Release),
        }
        committed
    }
}

/// Waits until fjall takes a commit without waiting for its workers, and fails
/// if they are dead.
fn make_room(open: &Open, writer: &Writer<'_>) -> Result<(), EngineError> {
    let mut waited = Duration::ZERO;
    while writer.spaces().any(|space| {
        let keyspace = open.space(space);
        keyspace.sealed_memtable_count() > SEALED_MAX || keyspace.l0_table_count() > UNMERGED_MAX
    }) {
        // Writes nothing, and tells whether a worker failed.
        guarded("wait for tables", || open.database.persist(PersistMode::Buffer))?;
        if waited >= STALL_MAX {
            return Err(refused(format!("tables were not written within {STALL_MAX:?}")));
        }
        sleep(STALL_STEP);
        waited += STALL_STEP;
    }
    Ok(())
}

pub(crate) fn note_holder(folder: &Folder, clock: &dyn Clock) -> Option<HolderNote> {
    HolderNote::write(&folder.lock_file(), clock.now())
        .inspect_err(|error| tracing::warn!(%error, "no holder note in the store"))
        .ok()
}

impl Drop for FjallEngine {
    fn drop(&mut self) {
        // While the folder is still locked, so that no other process's note is removed.
        drop(self.note.take());
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let folder = self.folder.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = open.map(|open| open.close(&folder.data())) {
            tracing::warn!(error = %report(&error), "store was not closed cleanly");
        }
    }
}

impl fmt::Debug for FjallEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FjallEngine")
            .field("path", &self.config.path)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Engine for FjallEngine {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.with(|open| f(&Reader::new(open)))
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        self.with(|open| self.transact(open, f))
    }

    fn reopen(&self) -> Result<(), EngineError> {
        // Waits for the transactions that are running; new ones wait for it.
        let mut guard = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let (data, spaces) = self.folder(|folder| (folder.data(), folder.spaces()));
        if let Some(open) = guard.take() {
            open.close(&data)?;
        }
        let again = || {
            drop_cached_pages(&data)?;
            Open::existing(&self.config, &data, spaces)
        };
        *guard = Some(again().map_err(|error| EngineError::of("open again", error))?);
        self.failed.store(false, Ordering::Release);
        Ok(())
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        // Closed while it is copied, so that the copy is one moment of it.
        let mut guard = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let (data, spaces) = self.folder(|folder| (folder.data(), folder.spaces()));
        if let Some(open) = guard.take() {
            open.close(&data)?;
        }
        let copied = copy_aside(&self.config.path, label);
        let again = Open::existing(&self.config, &data, spaces);
        *guard = Some(again.map_err(|error| EngineError::of("open again", error))?);
        copied.map(Some).map_err(|error| EngineError::of("copy the folder aside", error))
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.with(|open| {
            let snapshot = open.snapshot();
            let mut live_bytes = 0;
            for space in Space::ALL {
                guarded("measure", || {
                    for entry in snapshot.iter(open.space(space)) {
                        let (key, value) = entry.into_inner()?;
                        live_bytes += (key.len() + value.len()) as u64;
                    }
                    Ok::<_, fjall::Error>(())
                })?;
            }
            let disk_bytes = self
                .folder(|folder| folder.disk_bytes())
                .map_err(|error| EngineError::of("look at the files", error))?;
            Ok(EngineUsage {
                disk_bytes,
                live_bytes,
                dead_bytes: disk_bytes.saturating_sub(live_bytes),
            })
        })
    }
}
