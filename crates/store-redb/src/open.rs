//! Opening a store file: looked at first, touched only when it is ours.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_eventlog::holder::{self, FileId, with_suffix};
use mainspring_eventlog::{LogError, OpenProgress, Recovering, SCHEMA_VERSION, Space};
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, TableDefinition, TableError, TableHandle,
};
use rustix::fs::{Advice, fadvise};

use crate::error::{damaged, io_failed, not_a_store, opened, unavailable};
use crate::overlay::OverlayBackend;

pub(crate) const OWNER_ONLY: u32 = 0o600;

/// The table of one space.
pub(crate) const fn table(space: Space) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(space.name())
}

/// Opens the store at `path`, which is created when it is not there.
///
/// Nothing is written before the file is known to be a store of a version that
/// this build reads.
pub(crate) fn first_open(
    path: &Path,
    cache_bytes: usize,
    progress: &OpenProgress,
) -> Result<Database, LogError> {
    let mut rest = progress.clone();
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Err(not_a_store(path, "it is not a file")),
        Ok(meta) if meta.len() == 0 => {
            fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY))
                .map_err(|error| io_failed("make private", path, error))?;
        }
        Ok(_) => {
            if check(path, cache_bytes, &progress.part(0.0, 0.5))? == Checked::Repaired {
                rest = progress.part(0.5, 1.0);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path)?,
        Err(error) => return Err(io_failed("look at", path, error)),
    }
    opened(path, || open(path, cache_bytes, Empty::Initialise, Some(&rest)))
}

/// Copies a closed file to `<path>.<label>`, whole and durable or not at all.
/// A copy of that name stays as it is: it is the older one.
pub(crate) fn copy_aside(path: &Path, label: &str) -> io::Result<PathBuf> {
    let copy = with_suffix(path, &format!(".{label}"));
    if copy.exists() {
        return Ok(copy);
    }
    let partial = with_suffix(path, &format!(".{label}.partial"));
    // Also the mode is copied.
    fs::copy(path, &partial)?;
    File::open(&partial)?.sync_all()?;
    fs::rename(&partial, &copy)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(copy)
}

/// What to do with a file of no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Empty {
    /// Make it a store.
    Initialise,
    /// Somebody cut it: an open store is never empty.
    Refuse,
}

/// How often a file is opened that was replaced while it was.
const REPLACED_TRIES: usize = 8;

/// Opens the file itself, without looking.
///
/// A compaction puts another file in its place and lets the old one go. Who
/// opened the old one before that and locked it after would write where nobody
/// looks: so, under the lock, the name must still be of the file that is locked.
pub(crate) fn open(
    path: &Path,
    cache_bytes: usize,
    empty: Empty,
    progress: Option<&OpenProgress>,
) -> Result<Database, DatabaseError> {
    for _ in 0..REPLACED_TRIES {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if let Some(database) = claim(path, file, cache_bytes, empty, progress)? {
            return Ok(database);
        }
        tracing::info!(path = %path.display(), "store was replaced while it was opened");
    }
    Err(DatabaseError::DatabaseAlreadyOpen)
}

/// Locks and opens `file`; `None` when `path` is another file's name by then.
fn claim(
    path: &Path,
    file: File,
    cache_bytes: usize,
    empty: Empty,
    progress: Option<&OpenProgress>,
) -> Result<Option<Database>, DatabaseError> {
    let found = file.metadata()?;
    if empty == Empty::Refuse && found.len() == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let builder = recovering(cache_bytes, progress);
    let database = builder.create_with_backend(FileBackend::new(file)?)?;
    let same = FileId::of(&fs::metadata(path)?) == FileId::of(&found);
    Ok(same.then_some(database))
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

/// A builder that tells how far a repair is.
fn recovering(cache_bytes: usize, progress: Option<&OpenProgress>) -> Builder {
    let mut builder = builder(cache_bytes);
    if let Some(progress) = progress.cloned() {
        builder.set_repair_callback(move |repair| {
            progress.tell(Recovering { fraction: repair.progress() });
        });
    }
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
        Err(LinkError::Taken) => return check(path, 0, &OpenProgress::ignored()).map(drop),
        Err(LinkError::Failed(error)) => return Err(error),
    }
    // The new name must be as durable as what will be acknowledged under it.
    sync_directory(path)
}

/// Makes the name of `path` durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), LogError> {
    File::open(directory(path))
        .and_then(|dir| dir.sync_all())
        .map_err(|error| io_failed("make durable", path, error))
}

/// The directory of `path`.
pub(crate) fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
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

/// How a file was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checked {
    /// As it is, or by its last holder's note: nothing was read twice.
    Cheaply,
    /// By repairing it in memory.
    Repaired,
}

/// Reads the schema version of an existing file without changing a byte of it.
///
/// A file that was not closed cleanly can only be read once it is repaired,
/// which takes as long as the repair itself. Its last holder's note saves that:
/// it says that this very file is a store of a version that this build reads.
fn check(path: &Path, cache_bytes: usize, progress: &OpenProgress) -> Result<Checked, LogError> {
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
        return checked.map(|()| Checked::Cheaply);
    }
    let found = file.metadata().map_err(|error| io_failed("look at", path, error))?;
    if holder::vouches(path, FileId::of(&found)) {
        tracing::info!(path = %path.display(), "store was not closed cleanly");
        return Ok(Checked::Cheaply);
    }
    tracing::info!(path = %path.display(), "store was not closed cleanly, checking it in memory");
    let bytes_max = overlay_bytes_max(&file, path)?;
    let database = opened(path, || {
        recovering(cache_bytes, Some(progress))
            .create_with_backend(OverlayBackend::new(file, bytes_max)?)
    })?;
    let checked = check_tables(path, &database);
    opened(path, || database.close())?;
    checked.map(|()| Checked::Repaired)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As when a compaction ends between the opening of the file and its lock.
    #[test]
    fn a_file_that_was_replaced_before_it_was_locked_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (path, fresh) = (dir.path().join("s.redb"), dir.path().join("fresh"));
        create(&path).map_err(drop).unwrap();
        create(&fresh).map_err(drop).unwrap();
        let read_write = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let old = read_write();
        let claim = |file| claim(&path, file, 0, Empty::Refuse, None).unwrap();
        assert!(claim(read_write()).is_some());
        fs::rename(&fresh, &path).unwrap();
        assert!(claim(old).is_none());
        assert!(claim(read_write()).is_some());
    }
}
