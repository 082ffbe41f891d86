//! The store's folder: whose it is, which version, and which data in it counts.
//!
//! ```text
//! PATH/mainspring.json    the marker: format, schema version, name of the data, number of spaces
//! PATH/lock               locked by the process that has the store open
//! PATH/lock.holder        the note that names it
//! PATH/data-N/            a folder of fjall's; the one that the marker names counts
//! ```
//!
//! The marker is replaced in one step, so a crash while a store is created or
//! compacted leaves either what was or what will be.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mainspring_eventlog::holder::{self, open_patiently, with_suffix};
use mainspring_eventlog::{LogError, SCHEMA_VERSION, Space};
use serde::{Deserialize, Serialize};

use crate::error::{damaged, io_failed, not_a_store};

const MARKER: &str = "mainspring.json";
const MARKER_NEW: &str = "mainspring.json.new";
const LOCK: &str = "lock";
const FIRST_DATA: &str = "data-1";
/// What a crash may leave of a store that was being created, and what a fresh
/// file system has of itself.
const UNFINISHED: [&str; 6] =
    [MARKER_NEW, LOCK, "lock.holder", FIRST_DATA, "data-1.new", "lost+found"];

const FORMAT: &str = "mainspring-store-fjall";
/// A marker is far smaller; anything longer is not ours.
const MARKER_BYTES_MAX: u64 = 4_096;

const OWNER_ONLY_FOLDER: u32 = 0o700;
const OWNER_ONLY_FILE: u32 = 0o600;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    format: String,
    /// At least the schema version of what is stored: raised before that is.
    schema: u64,
    /// The name of the folder that counts.
    data: String,
    /// How many spaces are in it.
    spaces: usize,
}

/// What is to be done about a folder that is no store yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// A store's folder, locked for this process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    marker: Marker,
    _lock: File,
}

impl Folder {
    /// Locks the folder at `path`. One that is no store becomes one, if it may,
    /// with data that `make` puts into the folder it is given.
    ///
    /// Nothing is written before the folder is known to be a store of a version
    /// that this build reads, or one that is not there.
    pub(crate) fn open(
        path: &Path,
        missing: Missing,
        make: impl FnOnce(&Path) -> Result<(), LogError>,
    ) -> Result<Self, LogError> {
        let found = look(path)?;
        if found.is_none() {
            if missing == Missing::Refuse {
                return Err(not_a_store(path, "there is no store"));
            }
            make_private(path)?;
        }
        let path = path.canonicalize().map_err(|error| io_failed("find", path, error))?;
        let lock = open_patiently(|| lock(&path))?;
        // Another process may have created or compacted it before it was locked here.
        let marker = match look(&path)? {
            Some(marker) => marker,
            None => create(&path, make)?,
        };
        let folder = Self { path, marker, _lock: lock };
        folder.remove_other_data();
        Ok(folder)
    }

    /// The folder that counts.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join(&self.marker.data)
    }

    /// How many spaces must be in it.
    pub(crate) fn spaces(&self) -> usize {
        self.marker.spaces
    }

    /// The file whose holder is noted.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// Where other data is put before it counts.
    pub(crate) fn next_data(&self) -> PathBuf {
        let number = self.marker.data.strip_prefix("data-").and_then(|text| text.parse().ok());
        self.path.join(format!("data-{}", number.unwrap_or(0_u64).wrapping_add(1)))
    }

    /// Lets the data at `data` count, and removes what did before.
    pub(crate) fn switch_to(&mut self, data: &Path) -> Result<(), LogError> {
        let name = data.file_name().and_then(|name| name.to_str());
        let data = name.expect("named by `next_data`").to_owned();
        self.mark(Marker { data, spaces: Space::ALL.len(), ..self.marker.clone() })?;
        self.remove_other_data();
        Ok(())
    }

    /// Refuses builds that do not know `schema`, before it is stored.
    pub(crate) fn raise_schema(&mut self, schema: u64) -> Result<(), LogError> {
        if schema <= self.marker.schema {
            return Ok(());
        }
        self.mark(Marker { schema, ..self.marker.clone() })
    }

    /// Notes that every space is there.
    pub(crate) fn spaces_are_complete(&mut self) -> Result<(), LogError> {
        if self.marker.spaces >= Space::ALL.len() {
            return Ok(());
        }
        self.mark(Marker { spaces: Space::ALL.len(), ..self.marker.clone() })
    }

    /// Bytes of all files in it, as the disk counts them: journals are made
    /// longer than they are full.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        each_file(&self.path, &mut |path| {
            match fs::metadata(path) {
                Ok(meta) => bytes += meta.blocks() * 512,
                // Tables go as they are merged.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        Ok(bytes)
    }

    fn mark(&mut self, marker: Marker) -> Result<(), LogError> {
        write_marker(&self.path, &marker)?;
        self.marker = marker;
        Ok(())
    }

    /// Removes what a compaction left that was not finished, or was.
    fn remove_other_data(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_data = name.to_str().is_some_and(|name| {
                let number = name.strip_prefix("data-").map(|rest| rest.trim_end_matches(".new"));
                number.is_some_and(|number| number.parse::<u64>().is_ok())
                    && name != self.marker.data
            });
            if is_data && let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "old data is left");
            }
        }
    }
}

/// Calls `f` with each file below `folder`, none if it is not there.
pub(crate) fn each_file(
    folder: &Path,
    f: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), f)?;
        } else {
            f(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes the names in new data durable. fjall syncs its files and the folder
/// of each keyspace, but not the one that lists the keyspaces.
pub(crate) fn sync_names(data: &Path) -> io::Result<()> {
    File::open(data.join("keyspaces"))?.sync_all()?;
    File::open(data)?.sync_all()
}

/// Copies a closed store to `<path>.<label>`, whole and durable or not at all.
/// A copy of that name stays as it is: it is the older one.
pub(crate) fn copy_aside(path: &Path, label: &str) -> io::Result<PathBuf> {
    let copy = with_suffix(path, &format!(".{label}"));
    if copy.exists() {
        return Ok(copy);
    }
    let partial = with_suffix(path, &format!(".{label}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    copy_folder(path, &partial)?;
    fs::rename(&partial, &copy)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(copy)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

/// Reads the marker; `None` for a folder that may become a store.
fn look(path: &Path) -> Result<Option<Marker>, LogError> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_dir() => return Err(not_a_store(path, "it is not a folder")),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_failed("look at", path, error)),
    }
    let file = path.join(MARKER);
    let bytes = match fs::metadata(&file) {
        Ok(meta) if meta.len() > MARKER_BYTES_MAX => {
            return Err(not_a_store(path, format!("its {MARKER} is of another program")));
        }
        Ok(_) => fs::read(&file).map_err(|error| io_failed("read", &file, error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return may_become_a_store(path).map(|()| None);
        }
        Err(error) => return Err(io_failed("look at", &file, error)),
    };
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|_| damaged(&file, "it is not JSON"))?;
    if value["format"] != FORMAT {
        return Err(not_a_store(path, format!("its {MARKER} is of another program")));
    }
    // The version comes first: what else is in it is for that version to say.
    match value["schema"].as_u64() {
        None => return Err(damaged(&file, "its schema version is not a number")),
        Some(found) if found > SCHEMA_VERSION => {
            return Err(LogError::UnsupportedSchema { found, supported: SCHEMA_VERSION });
        }
        Some(_) => {}
    }
    let marker: Marker =
        serde_json::from_value(value).map_err(|error| damaged(&file, &error.to_string()))?;
    let is_name = Path::new(&marker.data).file_name().is_some_and(|name| *name == *marker.data);
    if !is_name || !path.join(&marker.data).is_dir() {
        return Err(damaged(&file, "the data that it names is not there"));
    }
    Ok(Some(marker))
}

/// Whether a folder without marker is empty, or was about to become a store.
fn may_become_a_store(path: &Path) -> Result<(), LogError> {
    let entries = fs::read_dir(path).map_err(|error| io_failed("look into", path, error))?;
    for entry in entries {
        let name = entry.map_err(|error| io_failed("look into", path, error))?.file_name();
        if !UNFINISHED.iter().any(|known| *name == **known) {
            return Err(not_a_store(path, format!("it is a folder without {MARKER}")));
        }
    }
    Ok(())
}

/// Makes the folder, or an empty one private.
fn make_private(path: &Path) -> Result<(), LogError> {
    match DirBuilder::new().mode(OWNER_ONLY_FOLDER).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY_FOLDER))
                .map_err(|error| io_failed("make private", path, error));
        }
        Err(error) => return Err(io_failed("create", path, error)),
    }
    // The new name must be as durable as what will be acknowledged under it.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
        .and_then(|dir| dir.sync_all())
        .map_err(|error| io_failed("make durable", path, error))
}

fn lock(path: &Path) -> Result<File, LogError> {
    let file = path.join(LOCK);
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(OWNER_ONLY_FILE)
        .open(&file)
        .map_err(|error| io_failed("open", &file, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(LogError::Held {
            path: path.display().to_string(),
            holder: holder::describe(&file),
        }),
        Err(TryLockError::Error(error)) => Err(io_failed("lock", &file, error)),
    }
}

/// Makes the first data, and lets it count only when all of it is durable.
fn create(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), LogError>,
) -> Result<Marker, LogError> {
    let data = path.join(FIRST_DATA);
    if !data.exists() {
        let fresh = with_suffix(&data, ".new");
        match fs::remove_dir_all(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_failed("remove", &fresh, error));
            }
            _ => {}
        }
        make(&fresh)?;
        sync_names(&fresh)
            .and_then(|()| fs::rename(&fresh, &data))
            .and_then(|()| File::open(path)?.sync_all())
            .map_err(|error| io_failed("create", &data, error))?;
    }
    let marker = Marker {
        format: FORMAT.to_owned(),
        schema: SCHEMA_VERSION,
        data: FIRST_DATA.to_owned(),
        spaces: Space::ALL.len(),
    };
    write_marker(path, &marker)?;
    Ok(marker)
}

fn write_marker(path: &Path, marker: &Marker) -> Result<(), LogError> {
    let (fresh, file) = (path.join(MARKER_NEW), path.join(MARKER));
    let text = serde_json::to_vec(marker).expect("a marker has only plain members");
    let write = || {
        let mut new = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(OWNER_ONLY_FILE)
            .open(&fresh)?;
        new.write_all(&text)?;
        new.sync_all()?;
        fs::rename(&fresh, &file)?;
        File::open(path)?.sync_all()
    };
    write().map_err(|error| io_failed("write", &file, error))
}
