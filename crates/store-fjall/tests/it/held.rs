//! One process holds the folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use mainspring_api::{Classify as _, Outcome};
use mainspring_eventlog::{EventLog as _, LogError};
use mainspring_testkit::{create, sample};

use crate::support::{child, contents, open};

const CHILD: &str = "MAINSPRING_TEST_HOLD";

/// Not a test of its own: as a child process, it holds the store that the
/// environment names until its stdin closes.
#[tokio::test]
async fn child_that_holds_a_store() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&path)).unwrap();
    create(&store, &sample::session("of-the-child")).await.unwrap();
    let mut out = std::io::stdout();
    out.write_all(b"\nholding\n").unwrap();
    out.flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// The child, and its output: it would fail to write its own report into a closed pipe.
fn hold_in_a_child(path: &Path) -> (Child, impl Sized) {
    let (child, mut lines) = child("held::child_that_holds_a_store", CHILD, path);
    assert!(lines.any(|line| line.unwrap() == "holding"), "the child holds the store");
    (child, lines)
}

fn note(path: &Path) -> PathBuf {
    path.join("lock.holder")
}

#[track_caller]
fn assert_held(path: &Path, by: &str) {
    let before = contents(path);
    let error = open(path).unwrap_err();
    assert!(
        matches!(&error, LogError::Held { path: named, holder }
        if *named == path.display().to_string() && holder.starts_with(by)),
        "{error}"
    );
    assert_eq!((error.code(), error.outcome()), ("store_held", Outcome::NotApplied));
    assert!(error.to_string().contains("--server"), "{error}");
    assert!(contents(path) == before, "a refused open changed the folder");
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("journal");
    (dir, path)
}

#[tokio::test]
async fn a_folder_that_another_process_holds_is_refused_by_name() {
    let (_dir, path) = folder();
    let (mut child, _output) = hold_in_a_child(&path);
    assert_held(&path, &format!("pid {}, since 20", child.id()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!note(&path).exists(), "a clean close takes its note away");
    let store = open(&path).unwrap();
    store.get(&sample::session("of-the-child"), Default::default()).await.unwrap();
}

#[tokio::test]
async fn a_killed_holder_is_gone_and_its_note_is_ignored() {
    let (_dir, path) = folder();
    let (mut child, _output) = hold_in_a_child(&path);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(note(&path).exists());
    let store = open(&path).unwrap();
    store.get(&sample::session("of-the-child"), Default::default()).await.unwrap();
    assert_held(&path, &format!("pid {}, since 20", std::process::id()));
    drop(store);
    assert!(!note(&path).exists());
}

#[tokio::test]
async fn a_second_open_in_one_process_is_refused() {
    let (_dir, path) = folder();
    let store = open(&path).unwrap();
    assert_held(&path, &format!("pid {}", std::process::id()));
    std::fs::remove_file(note(&path)).unwrap();
    assert_held(&path, "unknown process");
    create(&store, &sample::session("s")).await.unwrap();
    drop(store);
    open(&path).unwrap();
}
