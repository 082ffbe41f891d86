//! Compaction gives dead space back, and nothing else changes.

use std::path::Path;

use mainspring_api::{SessionUid, SystemClock};
use mainspring_eventlog::{Engine as _, EngineUsage, EventLog as _, LogError, RowPatch};
use mainspring_store_fjall::{FjallConfig, compact};
use mainspring_testkit::{create, read_all, sample, verify_all};

use crate::support::{copy, filled, open, open_small, small};

/// A store of which little is still needed.
async fn used(path: &Path) -> SessionUid {
    let store = open_small(path).unwrap();
    let (uid, _) = filled(&store, "s", 30).await;
    let mut row = create(&store, &sample::session("often")).await.unwrap();
    for number in 0..300 {
        let mut patch = RowPatch::default();
        let text = format!("{number}").repeat(2_000);
        patch.annotations = Some([("note".to_owned(), text)].into());
        row = store.update(sample::fresh_id(), &row.session.uid, row.version, patch).await.unwrap();
    }
    uid
}

async fn usage(path: &Path) -> EngineUsage {
    open(path).unwrap().engine().usage().unwrap()
}

fn run(config: &FjallConfig) -> Result<(u64, u64), LogError> {
    let mut told = Vec::new();
    let answer = compact(config, &SystemClock, &mut |done, total| told.push((done, total)));
    if answer.is_ok() {
        let (done, total) = *told.last().unwrap();
        assert_eq!(done, total);
    }
    assert!(told.is_sorted());
    answer
}

#[tokio::test]
async fn it_gives_dead_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let uid = used(&path).await;
    let (id, before) = {
        let store = open(&path).unwrap();
        (store.store_id(), read_all(&store, &uid).await.unwrap())
    };
    let used = usage(&path).await;
    assert!(used.dead_bytes > 10 * used.live_bytes, "{used:?}");
    let (from, to) = run(&small(&path)).unwrap();
    let now = usage(&path).await;
    assert_eq!(now.live_bytes, used.live_bytes);
    assert!(from > 5 * to && now.disk_bytes < 2 * to, "{from} to {to}, {used:?} to {now:?}");

    let store = open(&path).unwrap();
    assert_eq!(store.store_id(), id);
    assert_eq!(read_all(&store, &uid).await.unwrap(), before);
    verify_all(&store, &uid).await.unwrap();
    filled(&store, "more", 10).await;
    drop(store);
    run(&small(&path)).unwrap();
    let store = open(&path).unwrap();
    verify_all(&store, &sample::session("more")).await.unwrap();
    assert_eq!(read_all(&store, &uid).await.unwrap(), before);
}

/// Whatever a crash leaves opens with all that was there.
#[tokio::test]
async fn a_crash_while_it_runs_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let uid = used(&path).await;
    let before = read_all(&open(&path).unwrap(), &uid).await.unwrap();
    let mut crashes = Vec::new();
    compact(&small(&path), &SystemClock, &mut |_, _| {
        let crashed = dir.path().join(format!("crashed-{}", crashes.len()));
        copy(&path, &crashed);
        crashes.push(crashed);
    })
    .unwrap();
    assert!(!crashes.is_empty());
    for crashed in crashes {
        assert!(crashed.join("data-1").exists() && crashed.join("data-2").exists());
        let store = open(&crashed).unwrap();
        assert_eq!(read_all(&store, &uid).await.unwrap(), before);
        assert!(!crashed.join("data-2").exists(), "what was not finished goes");
    }
    assert!(!path.join("data-1").exists(), "what was replaced goes");
}

#[tokio::test]
async fn what_is_not_there_or_held_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    assert!(matches!(run(&small(&path)).unwrap_err(), LogError::NotAStore { .. }));
    assert!(!path.exists());
    let store = open(&path).unwrap();
    assert!(matches!(run(&small(&path)).unwrap_err(), LogError::Held { .. }));
    drop(store);
    run(&small(&path)).unwrap();
}
