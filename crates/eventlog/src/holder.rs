//! The note beside a store's file that says which process holds it.
//!
//! The file's lock decides who holds the store; the note only names the holder
//! for people. A note whose process is gone is ignored. For stores that are
//! exclusive to a process: they report it as [`LogError::Held`](crate::LogError::Held).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainspring_api::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::rfc3339;

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
}

impl HolderNote {
    /// Writes the note of this process beside the file `store`, whose lock the
    /// caller holds.
    ///
    /// # Errors
    /// Those of the file system, as when the directory cannot be written.
    pub fn write(store: &Path, now: Timestamp) -> io::Result<Self> {
        let pid = std::process::id();
        let note = Note { pid, since: rfc3339(now), process_start: process_start(pid) };
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

/// Who holds the file `store`, as far as its note tells.
#[must_use]
pub fn describe(store: &Path) -> String {
    match read(&path_of(store)) {
        Some(note) => format!("pid {}, since {}", note.pid, note.since),
        None => "unknown process".to_owned(),
    }
}

fn read(path: &Path) -> Option<Note> {
    if fs::metadata(path).ok()?.len() > NOTE_BYTES_MAX {
        return None;
    }
    let note: Note = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (note.process_start == process_start(note.pid)).then_some(note)
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
    fn a_note_of_a_dead_process_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("s.store");
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
}
