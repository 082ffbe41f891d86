//! Files of other versions and other programs, and files that are not there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mainspring_api::{Classify as _, ErrorKind, Outcome};
use mainspring_eventlog::{EventLog as _, LogError, SCHEMA_VERSION};
use mainspring_testkit::{create, sample};
use redb::{Database, TableDefinition};

use crate::support::{filled, open};

const META: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("meta");

fn set_schema(database: &Database, value: Option<&[u8]>) {
    let txn = database.begin_write().unwrap();
    let mut meta = txn.open_table(META).unwrap();
    match value {
        Some(value) => drop(meta.insert(b"schema".as_slice(), value).unwrap()),
        None => drop(meta.remove(b"schema".as_slice()).unwrap()),
    }
    drop(meta);
    txn.commit().unwrap();
}

/// Makes a closed file one of this schema.
pub(crate) fn edit_schema(path: &Path, value: &[u8]) {
    set_schema(&Database::open(path).unwrap(), Some(value));
}

/// Refuses to open `path`, leaving its bytes and its directory as they are.
#[track_caller]
fn refuse(path: &Path) -> LogError {
    let list = || {
        let mut names: Vec<_> = std::fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let before = (std::fs::read(path).unwrap(), list());
    let error = open(path).unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(before == (std::fs::read(path).unwrap(), list()), "a refused open changed something");
    error
}

/// A copy of the file of an open database: as a crash leaves it.
fn unclean_copy(path: &Path, change: impl FnOnce(&Database)) -> std::path::PathBuf {
    let database = Database::open(path).unwrap();
    change(&database);
    let copy = path.with_extension("crashed");
    std::fs::copy(path, &copy).unwrap();
    copy
}

#[tokio::test]
async fn a_newer_version_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    filled(&open(&path).unwrap(), "s", 20).await;
    let newer = (SCHEMA_VERSION + 1).to_string();
    let crashed = unclean_copy(&path, |database| set_schema(database, Some(newer.as_bytes())));
    for file in [&path, &crashed] {
        let error = refuse(file);
        assert!(matches!(error, LogError::UnsupportedSchema { found, supported }
            if found == SCHEMA_VERSION + 1 && supported == SCHEMA_VERSION));
        assert_eq!(error.code(), "unsupported_schema");
    }
}

#[tokio::test]
async fn a_file_that_was_not_closed_is_opened_with_all_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let (uid, at) = filled(&open(&path).unwrap(), "s", 20).await;
    let crashed = unclean_copy(&path, |_| {});
    let store = open(&crashed).unwrap();
    assert_eq!(store.head(&uid, Default::default()).await.unwrap(), at);
    create(&store, &sample::session("t")).await.unwrap();
}

#[tokio::test]
async fn a_version_that_is_no_number_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    drop(open(&path).unwrap());
    for odd in [b"".as_slice(), b"one", b"-1", b"\xff", b"99999999999999999999999"] {
        set_schema(&Database::open(&path).unwrap(), Some(odd));
        assert!(matches!(refuse(&path), LogError::Corrupt { .. }), "{odd:?}");
    }
    set_schema(&Database::open(&path).unwrap(), None);
    assert!(matches!(refuse(&path), LogError::NotAStore { .. }));
}

#[tokio::test]
async fn a_redb_file_of_another_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.redb");
    let table: TableDefinition<'_, u64, &str> = TableDefinition::new("things");
    let database = Database::create(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(table).unwrap().insert(1, "one").unwrap();
    txn.commit().unwrap();
    let crashed = dir.path().join("crashed.redb");
    std::fs::copy(&path, &crashed).unwrap();
    drop(database);
    for file in [&path, &crashed] {
        let error = refuse(file);
        assert!(matches!(&error, LogError::NotAStore { why, .. } if why.contains("another")));
        assert_eq!(error.code(), "not_a_store");
    }
}

/// What a crash during creation may leave: a redb file without tables.
#[tokio::test]
async fn a_redb_file_without_tables_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let database = Database::create(&path).unwrap();
    let crashed = dir.path().join("crashed.redb");
    std::fs::copy(&path, &crashed).unwrap();
    drop(database);
    for file in [&path, &crashed] {
        create(&open(file).unwrap(), &sample::session("s")).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_is_created_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent.redb");
    let empty = dir.path().join("empty.redb");
    std::fs::write(&empty, b"").unwrap();
    std::fs::set_permissions(&empty, std::fs::Permissions::from_mode(0o644)).unwrap();
    for path in [&absent, &empty] {
        create(&open(path).unwrap(), &sample::session("s")).await.unwrap();
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        open(path).unwrap().get(&sample::session("s"), Default::default()).await.unwrap();
    }
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is left over: {left:?}");
}

#[test]
fn a_missing_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(&dir.path().join("no/such/s.redb")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("its directory must exist"), "{error}");
    assert!(!dir.path().join("no").exists());
    assert!(matches!(open(dir.path()).unwrap_err(), LogError::NotAStore { .. }));
}

/// Of several that create one file at once, one has it and the others are told.
#[test]
fn one_creator_wins() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.redb");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || open(&path))
            })
            .collect();
        let opened: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for refused in opened.iter().filter_map(|opened| opened.as_ref().err()) {
            assert!(matches!(refused, LogError::Held { .. }), "{refused}");
        }
        assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1);
        drop(opened);
        open(&path).unwrap();
    }
}
