//! Files that are not stores, and stores that were damaged: errors, no panics.

use std::path::Path;

use mainspring_api::{Classify as _, Outcome};
use mainspring_eventlog::{EventLog as _, LogError};
use mainspring_testkit::{SeededRng, read_all, sample, verify_all};

use crate::support::{filled, open};

#[test]
fn a_file_that_is_not_redb_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let long = vec![0; 1 << 20];
    let text = b"SQLite format 3\0".repeat(1_000);
    for content in [b"x".as_slice(), b"redb\x1a\n", b"{\"a\":1}\n", &text, &long] {
        std::fs::write(&path, content).unwrap();
        let error = open(&path).unwrap_err();
        assert!(
            matches!(&error, LogError::NotAStore { path: named, .. }
            if *named == path.display().to_string()),
            "{error}"
        );
        assert_eq!((error.code(), error.outcome()), ("not_a_store", Outcome::NotApplied));
        assert_eq!(std::fs::read(&path).unwrap(), content);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

/// Opens a damaged file and, if it opens, reads all of it: each step answers
/// or refuses by a typed error.
async fn look(path: &Path) -> bool {
    let store = match open(path) {
        Ok(store) => store,
        Err(error) => {
            assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
            return false;
        }
    };
    let uid = sample::session("s");
    let _ = store.get(&uid, Default::default()).await;
    let _ = read_all(&store, &uid).await;
    verify_all(&store, &uid).await.is_ok()
}

#[tokio::test]
async fn a_truncated_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    filled(&open(&path).unwrap(), "s", 200).await;
    let whole = std::fs::read(&path).unwrap();
    let cut = dir.path().join("cut.redb");
    let steps = (1..40).map(|part| whole.len() * part / 40);
    for len in steps.chain([1, 8, 9, 10, 63, 64, 320, 4_095, 4_096, 4_097, whole.len() - 1]) {
        std::fs::write(&cut, &whole[..len]).unwrap();
        assert!(!look(&cut).await, "a file cut to {len} of {} bytes verified", whole.len());
    }
}

#[tokio::test]
async fn overwritten_bytes_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    filled(&open(&path).unwrap(), "s", 60).await;
    let whole = std::fs::read(&path).unwrap();
    let bad = dir.path().join("bad.redb");
    let mut rng = SeededRng::new(4);
    for _ in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..1 + rng.below(4) {
            let start = rng.below(bytes.len() - 64);
            let len = 1 + rng.below(64);
            rng.fill(&mut bytes[start..start + len]);
        }
        std::fs::write(&bad, &bytes).unwrap();
        look(&bad).await;
    }
}
