//! After a commit that failed the store opens again and answers from what is
//! there. Writes fail beyond a limit on the size of files, which is the
//! process's own: each test of it is a child process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mainspring_api::{Classify as _, Fence, Head, Outcome, SessionUid};
use mainspring_eventlog::{EventLog as _, KvOptions, Level, LogError};
use mainspring_store_fjall::{FjallStore, open_store};
use mainspring_testkit::{SeededRng, create, read_all, sample, verify_all};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::{child, content, filled, last_journal, open, small, text_batch};

const CHILD: &str = "MAINSPRING_TEST_LIMITED";

/// Fails writes beyond `bytes` of a file; `None` lets all through.
fn limit(bytes: Option<u64>) {
    let mut limit = getrlimit(Resource::Fsize);
    limit.current = bytes;
    setrlimit(Resource::Fsize, limit).unwrap();
}

/// In a child, the store's path; else runs the test of that name in one.
fn in_a_child(test: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(CHILD) {
        return Some(path.into());
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut child, lines) = child(&format!("commit_errors::{test}"), CHILD, &dir.path().join("a"));
    let output: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{}", output.join("\n"));
    None
}

fn open_limited(path: &Path) -> FjallStore {
    let options = KvOptions { reopen_max: Duration::from_millis(20), ..KvOptions::default() };
    open_store(&small(path), options).unwrap()
}

fn written(path: &Path) -> u64 {
    content(&last_journal(path)).0.len() as u64
}

/// Sends one append again under its id until it is there; the limit goes after
/// the first failure. Answers what failed.
async fn settle(log: &FjallStore, uid: &SessionUid, at: &mut Head, text: &str) -> Vec<LogError> {
    let (id, batch) = (sample::fresh_id(), text_batch(*at, text));
    let mut errors = Vec::new();
    for _ in 0..20 {
        match log.append(uid, id, Fence::NONE, &batch).await {
            Ok(after) => {
                *at = after;
                return errors;
            }
            Err(error) => {
                assert!(matches!(error, LogError::Unavailable { .. }), "{error}");
                errors.push(error);
                limit(None);
            }
        }
    }
    panic!("never settled: {errors:?}");
}

/// Cuts a commit's write at many places.
#[tokio::test]
async fn a_commit_that_was_written_in_part_is_not_there() {
    let Some(path) = in_a_child("a_commit_that_was_written_in_part_is_not_there") else { return };
    let log = open_limited(&path);
    let (uid, mut at) = filled(&log, "s", 3).await;
    let mut failed = 0;
    for more in [0, 1, 5, 13, 14, 60, 300, 700, 5_000, 8_191, 8_192, 11_000] {
        let before = at;
        limit(Some(written(&path) + more));
        let (id, batch) = (sample::fresh_id(), text_batch(at, &"y".repeat(12_000)));
        let error = log.append(&uid, id, Fence::NONE, &batch).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::NotApplied, "the store opened again: {error}");
        assert_eq!(log.head(&uid, Level::Strict).await.unwrap(), before);
        assert_eq!(verify_all(&log, &uid).await.unwrap(), before);
        limit(None);
        at = log.append(&uid, id, Fence::NONE, &batch).await.unwrap();
        failed += 1;
    }
    assert_eq!(read_all(&log, &uid).await.unwrap().len(), 3 + failed);
    drop(log);
    assert_eq!(verify_all(&open(&path).unwrap(), &uid).await.unwrap(), at);
}

/// Tables cannot be written either: the workers die, and come back.
#[tokio::test]
async fn a_worker_that_failed_is_survived() {
    let Some(path) = in_a_child("a_worker_that_failed_is_survived") else { return };
    let log = open_limited(&path);
    let (uid, mut at) = filled(&log, "s", 3).await;
    let mut rng = SeededRng::new(5);
    let mut failures = 0;
    for _ in 0..12 {
        // Journals are longer than tables at first; later it is the other way round.
        limit(Some(written(&path) + rng.below(60_000) as u64));
        for number in 0..20 {
            failures += settle(&log, &uid, &mut at, &format!("{number}").repeat(3_000)).await.len();
        }
        limit(None);
    }
    assert!(failures > 5, "{failures} failures");
    assert_eq!(read_all(&log, &uid).await.unwrap().len(), 3 + 12 * 20);
    assert_eq!(verify_all(&log, &uid).await.unwrap(), at);
    drop(log);
    assert_eq!(verify_all(&open(&path).unwrap(), &uid).await.unwrap(), at);
}

/// While the folder cannot be opened again, answers say so, reads are refused
/// rather than taken from the handle that failed, and the store comes back.
#[tokio::test]
async fn a_folder_that_stays_broken_is_unknown_and_refuses_reads() {
    let test = "a_folder_that_stays_broken_is_unknown_and_refuses_reads";
    let Some(path) = in_a_child(test) else { return };
    let log = open_limited(&path);
    let (uid, at) = filled(&log, "s", 2).await;
    let (version, away) = (path.join("data-1/version"), path.join("data-1/away"));
    std::fs::rename(&version, &away).unwrap();
    limit(Some(written(&path) + 100));
    let (id, batch) = (sample::fresh_id(), text_batch(at, &"lost reply".repeat(50)));
    let error = log.append(&uid, id, Fence::NONE, &batch).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    for error in [
        log.get(&uid, Level::Strict).await.unwrap_err(),
        log.head(&uid, Level::Committed).await.unwrap_err(),
        read_all(&log, &uid).await.unwrap_err(),
    ] {
        assert!(matches!(error, LogError::Unavailable { outcome: Outcome::NotApplied, .. }));
    }
    let other = create(&log, &sample::session("other")).await.unwrap_err();
    assert_eq!(other.outcome(), Outcome::NotApplied, "nothing was tried: {other}");

    limit(None);
    std::fs::rename(&away, &version).unwrap();
    let after = log.append(&uid, id, Fence::NONE, &batch).await.unwrap();
    assert_eq!(after, batch.head());
    assert_eq!(read_all(&log, &uid).await.unwrap().len(), 3);
    create(&log, &sample::session("other")).await.unwrap();
}
