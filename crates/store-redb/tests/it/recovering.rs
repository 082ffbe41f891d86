//! Files that were not closed cleanly: told of, and repaired once where a note
//! of their last holder says what they are.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use mainspring_api::Head;
use mainspring_eventlog::{
    EventLog as _, KvOptions, LogError, OpenProgress, Recovering, SCHEMA_VERSION,
};
use mainspring_store_redb::{RedbConfig, RedbStore, open_store_with};
use serde_json::{Value, json};

use crate::support::{filled, open};

fn note(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".holder");
    name.into()
}

/// What the note of `path` says of the file.
fn file_of(path: &Path) -> Value {
    let found = std::fs::metadata(path).unwrap();
    let born = found.created().ok().map(|at| at.duration_since(UNIX_EPOCH).unwrap().as_nanos());
    json!({"dev": found.dev(), "ino": found.ino(), "born_nanos": born.map(|n| n as u64)})
}

/// Opens `path`; also what was told meanwhile.
fn watched(path: &Path) -> (Result<RedbStore, LogError>, Vec<f64>) {
    let told: Arc<Mutex<Vec<f64>>> = Arc::default();
    let progress = OpenProgress::new({
        let told = Arc::clone(&told);
        move |Recovering { fraction }| told.lock().unwrap().push(fraction)
    });
    let store = open_store_with(&RedbConfig::at(path), KvOptions::default(), &progress);
    let told = told.lock().unwrap().clone();
    assert!(told.is_sorted() && told.iter().all(|part| (0.0..=1.0).contains(part)), "{told:?}");
    (store, told)
}

/// A file as a crash leaves it, with its holder's note.
struct Crashed {
    dir: tempfile::TempDir,
    path: PathBuf,
    note: Value,
    uid: mainspring_api::SessionUid,
    head: Head,
}

impl Crashed {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (live, path) = (dir.path().join("live.redb"), dir.path().join("s.redb"));
        let store = open(&live).unwrap();
        let (uid, head) = filled(&store, "s", 20).await;
        std::fs::copy(&live, &path).unwrap();
        let mut found: Value =
            serde_json::from_slice(&std::fs::read(note(&live)).unwrap()).unwrap();
        assert_eq!(found["file"], file_of(&live));
        assert_eq!(found["schema"], json!(SCHEMA_VERSION));
        found["file"] = file_of(&path);
        found["process_start"] = json!(1);
        Self { dir, path, note: found, uid, head }
    }

    /// Opens the file beside a note of this content.
    async fn with_note(&self, content: Option<&str>) -> Vec<f64> {
        if let Some(content) = content {
            std::fs::write(note(&self.path), content).unwrap();
        }
        let (store, told) = watched(&self.path);
        let store = store.unwrap();
        assert_eq!(store.head(&self.uid, Default::default()).await.unwrap(), self.head);
        told
    }
}

#[tokio::test]
async fn a_file_that_was_closed_tells_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    assert_eq!(watched(&path).1, [0.0; 0], "a new one");
    assert_eq!(watched(&path).1, [0.0; 0], "a closed one");
}

#[tokio::test]
async fn a_note_of_this_very_file_saves_the_second_repair() {
    let crashed = Crashed::new().await;
    let once = crashed.with_note(Some(&crashed.note.to_string())).await;
    let crashed = Crashed::new().await;
    let twice = crashed.with_note(None).await;
    assert!(!once.is_empty(), "the repair is told of");
    assert_eq!(twice.len(), 2 * once.len(), "{once:?} {twice:?}");
    assert!(once.iter().any(|part| *part > 0.5) && twice.iter().any(|part| *part < 0.5));
    assert_eq!(watched(&crashed.path).1, [0.0; 0], "it was closed");
    assert!(crashed.dir.path().exists());
}

#[tokio::test]
async fn a_note_that_proves_nothing_is_not_believed() {
    let changes = [
        ("/file/ino", json!(1)),
        ("/file/dev", json!(1)),
        ("/file/born_nanos", json!(1)),
        ("/file", Value::Null),
        ("/schema", json!(SCHEMA_VERSION + 1)),
        ("/schema", Value::Null),
    ];
    for (member, value) in changes {
        let crashed = Crashed::new().await;
        let mut note = crashed.note.clone();
        *note.pointer_mut(member).unwrap() = value;
        assert_eq!(crashed.with_note(Some(&note.to_string())).await.len(), 6, "{note}");
    }
    for content in ["", "{", "[]", &"x".repeat(5_000)] {
        let crashed = Crashed::new().await;
        assert_eq!(crashed.with_note(Some(content)).await.len(), 6, "{content:.10}");
    }
}

/// The note of a newer build, beside the file that it upgraded.
#[tokio::test]
async fn a_newer_version_is_refused_untouched_whatever_its_note_says() {
    for schema in [json!(SCHEMA_VERSION + 1), Value::Null] {
        let crashed = Crashed::new().await;
        let meta: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("meta");
        let newer = crashed.dir.path().join("newer.redb");
        {
            let database = redb::Database::open(&crashed.path).unwrap();
            let txn = database.begin_write().unwrap();
            let version = (SCHEMA_VERSION + 1).to_string();
            txn.open_table(meta).unwrap().insert(&b"schema"[..], version.as_bytes()).unwrap();
            txn.commit().unwrap();
            std::fs::copy(&crashed.path, &newer).unwrap();
        }
        let mut holder = crashed.note.clone();
        holder["file"] = file_of(&newer);
        holder["schema"] = schema;
        std::fs::write(note(&newer), holder.to_string()).unwrap();
        let before = std::fs::read(&newer).unwrap();
        let error = watched(&newer).0.unwrap_err();
        assert!(matches!(error, LogError::UnsupportedSchema { .. }), "{error}");
        assert!(std::fs::read(&newer).unwrap() == before, "a refused open changed the file");
    }
}
