//! Opening a store file: looked at first, touched only when it is ours.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_eventlog::holder::with_suffix;
use mainspring_eventlog::{LogError, SCHEMA_VERSION, Space};
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, TableDefinition, TableError, TableHandle,
};
use rustix::fs::{Advice, fadvise};

use crate::error::{damaged, io_failed, not_a_store, opened, unavailable};
use crate::overlay::OverlayBackend;

const OWNER_ONLY: u32 = 0o600;

/// The table of one space.
pub(crate) const fn table(space: Space) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(space.name())
}

/// Opens the store at `path`, which is created when it is not there.
///
/// Nothing is written before the file is known to be a store of a version that
/// this build reads.
pub(crate) fn first_open(path: &Path, cache_bytes: usize) -> Result<Database, LogError> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Err(not_a_store(path, "it is not a file")),
        Ok(meta) if meta.len() == 0 => {
            fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY))
                .map_err(|error| io_failed("make private", path, error))?;
        }
        Ok(_) => check(path, cache_bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path)?,
        Err(error) => return Err(io_failed("look at", path, error)),
    }
    opened(path, || open(path, cache_bytes, Empty::Initialise))
}

/// What to do with a file of no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Empty {
    /// Make it a store.
    Initialise,
    /// Somebody cut it: an open store is never empty.
    Refuse,
}

/// Opens the file itself, without looking.
pub(crate) fn open(
    path: &Path,
    cache_bytes: usize,
    empty: Empty,
) -> Result<Database, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if empty == Empty::Refuse && file.metadata()?.len() == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    builder(cache_bytes).create_with_backend(FileBackend::new(file)?)
}

/// Drops the pages of the file that the system has cached: after a failed sync
/// they may show bytes that never reached the disk.
pub(crate) fn drop_cached_pages(path: &Path) -> io::Result<()> {
    Ok(fadvise(File::open(path)?, 0, None, Advice::DontNeed)?)
}

pub(crate) fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder
}

/// Makes a redb file without tables at `path`, in one step: a crash leaves no
/// file or a whole one, and of two processes only one creates it.
fn create(path: &Path) -> Result<(), LogError> {
    static CREATES: AtomicU64 = AtomicU64::new(0);
    let number = CREATES.fetch_add(1, Ordering::Relaxed);
    let fresh = with_suffix(path, &format!(".new.{}.{number}", std::process::id()));
    let made = create_at(&fresh, path);
    let _ = fs::remove_file(&fresh);
    match made {
        Ok(()) => {}
        Err(LinkError::Taken) => return check(path, 0),
        Err(LinkError::Failed(error)) => return Err(error),
    }
    // The new name must be as durable as what will be acknowledged under it.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
        .and_then(|dir| dir.sync_all())
        .map_err(|error| io_failed("make durable", path, error))
}

enum LinkError {
    /// Another process was faster.
    Taken,
    Failed(LogError),
}

fn create_at(fresh: &Path, path: &Path) -> Result<(), LinkError> {
    let _ = fs::remove_file(fresh);
    let failed = |error| LinkError::Failed(io_failed("create", path, error));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(OWNER_ONLY)
        .open(fresh)
        .map_err(failed)?;
    opened(fresh, || builder(0).create_with_backend(FileBackend::new(file.try_clone()?)?)?.close())
        .map_err(LinkError::Failed)?;
    file.sync_all().map_err(failed)?;
    // A link, unlike a rename, never replaces what another process just made.
    match fs::hard_link(fresh, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(LinkError::Taken),
        // Some file systems have no links. There a race is lost by its loser at the lock.
        Err(_) => fs::rename(fresh, path).map_err(failed),
    }
}

/// Reads the schema version of an existing file without changing a byte of it.
fn check(path: &Path, cache_bytes: usize) -> Result<(), LogError> {
    let file = File::open(path).map_err(|error| io_failed("open", path, error))?;
    let clean = {
        let backend = file.try_clone().map_err(|error| io_failed("open", path, error))?;
        opened(path, || {
            match builder(cache_bytes).open_read_only_with_backend(FileBackend::new(backend)?) {
                Ok(database) => Ok(Some(database)),
                // Not closed cleanly.
                Err(DatabaseError::RepairAborted) => Ok(None),
                Err(error) => Err(error),
            }
        })?
    };
    if let Some(database) = clean {
        let checked = check_tables(path, &database);
        opened(path, || database.close())?;
        return checked;
    }
    tracing::info!(path = %path.display(), "store was not closed cleanly, checking it in memory");
    let bytes_max = overlay_bytes_max(&file, path)?;
    let database = opened(path, || {
        builder(cache_bytes).create_with_backend(OverlayBackend::new(file, bytes_max)?)
    })?;
    let checked = check_tables(path, &database);
    opened(path, || database.close())?;
    checked
}

/// Memory that a repair may use: it writes the allocator's bitmaps, about two
/// bits for a page of 4 KiB, and a handful of pages.
fn overlay_bytes_max(file: &File, path: &Path) -> Result<usize, LogError> {
    let len = file.metadata().map_err(|error| io_failed("look at", path, error))?.len();
    Ok((16 << 20) + usize::try_from(len / 2_048).unwrap_or(usize::MAX >> 1))
}

fn check_tables(path: &Path, database: &impl ReadableDatabase) -> Result<(), LogError> {
    let failed = |error: redb::Error| match error {
        redb::Error::Corrupted(why) => damaged(path, &why),
        error => unavailable(format!("read {}", path.display()), error),
    };
    let foreign = || not_a_store(path, "it is a redb file of another program");
    opened(path, || {
        let check = || -> Result<Result<(), LogError>, redb::Error> {
            let txn = database.begin_read()?;
            let meta = match txn.open_table(table(Space::Meta)) {
                Ok(meta) => meta,
                Err(TableError::Storage(error)) => return Err(error.into()),
                Err(TableError::TableDoesNotExist(_)) => {
                    let ours = |name: &str| Space::ALL.iter().any(|space| space.name() == name);
                    let bare = txn.list_tables()?.all(|found| ours(found.name()))
                        && txn.list_multimap_tables()?.next().is_none();
                    return Ok(if bare { Ok(()) } else { Err(foreign()) });
                }
                Err(_) => return Ok(Err(foreign())),
            };
            let Some(value) = meta.get(b"schema".as_slice())? else { return Ok(Err(foreign())) };
            let found = std::str::from_utf8(value.value()).ok().and_then(|text| text.parse().ok());
            Ok(match found {
                None => Err(damaged(path, "its schema version is not a number")),
                Some(found) if found > SCHEMA_VERSION => {
                    Err(LogError::UnsupportedSchema { found, supported: SCHEMA_VERSION })
                }
                Some(_) => Ok(()),
            })
        };
        Ok(check())
    })?
    .map_err(failed)?
}
