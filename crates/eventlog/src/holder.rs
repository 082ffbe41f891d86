//! The note beside a store's file that says which process holds it.
//!
//! The file's lock decides who holds the store; the note names the holder for
//! people. One whose process is gone names nobody, but still says what that
//! process had open: a store, of a version that it could read. A clean close
//! takes the note away, so one beside an unclean file is its last holder's.
//! For stores that are exclusive to a process: they report it as
//! [`LogError::Held`].

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use mainspring_api::Timestamp;
use serde::{Deserialize, Serialize};

use crate::SCHEMA_VERSION;
use crate::canonical::rfc3339;
use crate::error::LogError;

/// A note is far smaller; anything longer is not ours.
const NOTE_BYTES_MAX: u64 = 4_096;

/// The note of this process, removed when it is dropped.
#[derive(Debug)]
pub struct HolderNote {
    path: PathBuf,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    pid: u32,
    /// When the store was opened, RFC 3339.
    since: String,
    /// When the process started, in the system's own count: tells a reused pid.
    process_start: Option<u64>,
    /// The newest schema version that the file may have: that of its holder.
    #[serde(default)]
    schema: Option<u64>,
    /// Which file it is about.
    #[serde(default)]
    file: Option<FileId>,
}

/// A file, however its name came to be. The time of its birth tells a new file
/// that was given the number of a deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    dev: u64,
    ino: u64,
    born_nanos: Option<u64>,
}

impl FileId {
    /// The file with this metadata.
    #[must_use]
    pub fn of(found: &Metadata) -> Self {
        let born = found.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let born_nanos = born.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Self { dev: found.dev(), ino: found.ino(), born_nanos }
    }
}

impl HolderNote {
    /// Writes the note of this process beside the file `store`, whose lock the
    /// caller holds.
    ///
    /// # Errors
    /// Those of the file system, as when the directory cannot be written.
    pub fn write(store: &Path, now: Timestamp) -> io::Result<Self> {
        let pid = std::process::id();
        let note = Note {
            pid,
            since: rfc3339(now),
            process_start: process_start(pid),
            schema: Some(SCHEMA_VERSION),
            file: Some(FileId::of(&fs::metadata(store)?)),
        };
        let path = path_of(store);
        let text = serde_json::to_vec(&note).expect("a note has only plain members");
        // Written beside and renamed, so that a reader never sees half of it.
        let fresh = with_suffix(&path, &format!(".{pid}"));
        fs::write(&fresh, text)?;
        fs::rename(&fresh, &path).inspect_err(|_| {
            let _ = fs::remove_file(&fresh);
        })?;
        Ok(Self { path })
    }
}

impl Drop for HolderNote {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "holder note not removed");
        }
    }
}

/// Who holds `store`, as far as its note tells.
#[must_use]
pub fn describe(store: &Path) -> String {
    let note = read(&path_of(store));
    match note.filter(|note| note.process_start == process_start(note.pid)) {
        Some(note) => format!("pid {}, since {}", note.pid, note.since),
        None => UNKNOWN.to_owned(),
    }
}

/// What [`describe`] says of a holder that left no note, or whose note is of a
/// process that is gone.
const UNKNOWN: &str = "unknown process";

/// How often a store that nobody says they hold is tried again, and how long
/// after each time: 100 ms in all.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Opens a store that may be held for a moment only. A lock whose holder says
/// nothing of itself is one of a process that has not written its note yet, or of
/// one that was just forked and inherits every file until it runs its program.
///
/// # Errors
/// As `open`; [`LogError::Held`] at once if the holder is known.
pub fn open_patiently<T>(mut open: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    for _ in 1..TRIES {
        match open() {
            Err(LogError::Held { holder, .. }) if holder == UNKNOWN => std::thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    open()
}

/// Whether the last holder of `store` had this very file open and knew no
/// schema version that this build does not read.
///
/// It is believed: who writes into the file behind the store's back, as by
/// copying another one over it, takes the note away.
pub fn vouches(store: &Path, file: FileId) -> bool {
    read(&path_of(store)).is_some_and(|note| {
        note.file == Some(file) && note.schema.is_some_and(|schema| schema <= SCHEMA_VERSION)
    })
}

fn read(path: &Path) -> Option<Note> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.len() > NOTE_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn path_of(store: &Path) -> PathBuf {
    with_suffix(store, ".holder")
}

/// `path` with `suffix` after its last name.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// When a process started, in clock ticks since boot; `None` where the system does not say.
fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses and may hold anything;
    // the start time is the 22nd field, the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_nobody_known_is_waited_for_a_moment() {
        let held = |holder: &str| LogError::Held { path: String::new(), holder: holder.to_owned() };
        let mut tries = 0;
        let opened = open_patiently(|| {
            tries += 1;
            if tries < 4 { Err(held(UNKNOWN)) } else { Ok(tries) }
        });
        assert_eq!(opened.unwrap(), 4);
        let mut tries = 0;
        let mut refuse = |holder: &str| {
            tries = 0;
            let refused = open_patiently::<()>(|| {
                tries += 1;
                Err(held(holder))
            });
            assert!(matches!(refused, Err(LogError::Held { .. })));
            tries
        };
        assert_eq!(refuse("pid 7, since then"), 1, "who is known stays");
        assert_eq!(refuse(UNKNOWN), TRIES);
    }

    #[test]
    fn a_note_of_a_dead_process_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("s.redb");
        fs::write(&store, "").unwrap();
        assert_eq!(describe(&store), "unknown process");
        let note = HolderNote::write(&store, Timestamp::default()).unwrap();
        let mine = format!("pid {}, since 1970-01-01T00:00:00Z", std::process::id());
        assert_eq!(describe(&store), mine);

        let mut stale = read(&path_of(&store)).unwrap();
        stale.process_start = Some(1);
        fs::write(path_of(&store), serde_json::to_vec(&stale).unwrap()).unwrap();
        assert_eq!(describe(&store), "unknown process");
        fs::write(path_of(&store), "{").unwrap();
        assert_eq!(describe(&store), "unknown process");
        drop(note);
        assert!(!path_of(&store).exists());
    }

    #[test]
    fn a_note_vouches_for_its_own_file_and_a_version_that_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("s.redb");
        fs::write(&store, "x").unwrap();
        let file = || FileId::of(&fs::metadata(&store).unwrap());
        assert!(!vouches(&store, file()), "there is none");
        let note = HolderNote::write(&store, Timestamp::default()).unwrap();
        assert!(vouches(&store, file()));

        let text = fs::read_to_string(path_of(&store)).unwrap();
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            fs::write(path_of(&store), text.replacen(from, to, 1)).unwrap();
            vouches(&store, file())
        };
        let schema = format!("\"schema\":{SCHEMA_VERSION}");
        assert!(!with(&schema, &format!("\"schema\":{}", SCHEMA_VERSION + 1)), "newer");
        assert!(!with(&schema, "\"schema\":null"), "of an older build");
        assert!(!with("\"ino\":", "\"ino\":1"), "another file");
        assert!(!with("{", "{{"), "damaged");
        assert!(with("{", "{"));
        fs::write(dir.path().join("other"), "x").unwrap();
        fs::rename(dir.path().join("other"), &store).unwrap();
        assert!(!vouches(&store, file()), "the file was replaced");
        drop(note);
    }
}
