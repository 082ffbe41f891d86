//! Compaction: smaller files, and never a lost one.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_api::{Fence, Head, SessionUid, SystemClock};
use mainspring_eventlog::{Batch, Engine as _, EventLog as _, Keep, LogError, Space};
use mainspring_store_redb::{Compacted, RedbConfig, RedbStore, compact};
use mainspring_testkit::{SeededRng, create, read_all, sample, verify_all};

use crate::support::{filled, open};

fn compacted(path: &Path) -> Result<Compacted, LogError> {
    compact(&RedbConfig::at(path), &SystemClock, &mut |_, _| {})
}

/// Sessions among whose pages lie about twice as many that are free.
async fn holey(path: &Path) -> Vec<(SessionUid, Head)> {
    let store = open(path).unwrap();
    let mut all = Vec::new();
    let junk = |number: usize| format!("junk-{number:04}").into_bytes();
    let text = "x".repeat(3_000);
    for number in 0..12 {
        put(&store, &junk(number), Some(&vec![7; 900_000]));
        let uid = sample::session(&format!("s{number}"));
        create(&store, &uid).await.unwrap();
        let events = (0..RECORDS).map(|n| sample::input(&format!("{n}{text}")));
        let batch = Batch::link(Head::EMPTY, sample::records(events)).unwrap();
        let head = store.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
        all.push((uid, head));
    }
    for number in 0..12 {
        put(&store, &junk(number), None);
    }
    all
}

/// Records of each of them.
const RECORDS: usize = 100;

fn put(store: &RedbStore, key: &[u8], value: Option<&[u8]>) {
    let done = store.engine().write(&mut |kv| {
        match value {
            Some(value) => kv.put(Space::Named, key, value)?,
            None => kv.delete(Space::Named, key)?,
        }
        Ok(Keep::Yes)
    });
    done.unwrap();
}

async fn assert_all_there(path: &Path, all: &[(SessionUid, Head)]) {
    let store = open(path).unwrap();
    for (uid, head) in all {
        assert_eq!(store.head(uid, Default::default()).await.unwrap(), *head);
        assert_eq!(verify_all(&store, uid).await.unwrap(), *head);
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".compact");
    name.into()
}

#[tokio::test]
async fn a_file_that_is_mostly_dead_shrinks_and_holds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let all = holey(&path).await;
    let stats = async || open(&path).unwrap().stats(&mut |_| {}).await.unwrap();
    let before = stats().await;
    assert!(before.usage.dead_bytes * 2 > before.usage.disk_bytes, "{before:?}");

    std::fs::write(beside(&path), "left by a crash").unwrap();
    let mut told = Vec::new();
    let config = RedbConfig::at(&path);
    let done = compact(&config, &SystemClock, &mut |done, total| told.push((done, total))).unwrap();
    assert!(!beside(&path).exists());
    assert_eq!(done.after, std::fs::metadata(&path).unwrap().len());
    assert!(told.is_sorted() && told.iter().all(|(done, total)| done <= total), "{told:?}");

    let after = stats().await;
    assert_eq!(done, Compacted { before: done.before, after: after.usage.disk_bytes });
    let gone = before.usage.disk_bytes - after.usage.disk_bytes;
    assert!(gone * 2 > before.usage.dead_bytes, "{before:?} {after:?}");
    assert!(after.usage.dead_bytes < before.usage.dead_bytes - gone / 2, "{before:?} {after:?}");
    let same = |stats: &mainspring_eventlog::StoreStats| {
        (stats.store_id.clone(), stats.sessions, stats.records, stats.canonical_bytes)
    };
    assert_eq!(same(&after), same(&before));
    assert_all_there(&path, &all).await;
    // Nothing is left to gain, and nothing breaks.
    let again = compacted(&path).unwrap();
    assert!(again.after <= again.before, "{again:?}");
    assert_all_there(&path, &all).await;
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left over");
}

#[tokio::test]
async fn what_cannot_be_compacted_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let error = compacted(&path).unwrap_err();
    assert!(matches!(error, LogError::Unavailable { .. }), "{error}");
    assert!(!path.exists(), "it is not created");

    let store = open(&path).unwrap();
    create(&store, &sample::session("s")).await.unwrap();
    assert!(matches!(compacted(&path).unwrap_err(), LogError::Held { .. }));
    drop(store);

    let other = dir.path().join("other");
    std::fs::write(&other, "not a store").unwrap();
    assert!(matches!(compacted(&other).unwrap_err(), LogError::NotAStore { .. }));

    let second = dir.path().join("second.redb");
    std::fs::hard_link(&path, &second).unwrap();
    let error = compacted(&path).unwrap_err();
    assert!(error.to_string().contains("several names"), "{error}");
    std::fs::remove_file(&second).unwrap();

    // A link is followed, and stays one.
    std::os::unix::fs::symlink(&path, &second).unwrap();
    compacted(&second).unwrap();
    assert!(second.symlink_metadata().unwrap().is_symlink());
    open(&path).unwrap().get(&sample::session("s"), Default::default()).await.unwrap();

    let table: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("of-later");
    let database = redb::Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(table).unwrap();
    txn.commit().unwrap();
    drop(database);
    let error = compacted(&path).unwrap_err();
    assert!(matches!(error, LogError::Unsupported(_)), "{error}");
    assert!(!beside(&path).exists());
}

/// What the new file's lock is for: until its name is durable nobody opens it.
#[tokio::test]
async fn a_file_that_is_locked_as_a_compaction_does_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    drop(open(&path).unwrap());
    let locked = std::fs::File::open(&path).unwrap();
    locked.try_lock().unwrap();
    assert!(matches!(open(&path).unwrap_err(), LogError::Held { .. }));
    drop(locked);
    open(&path).unwrap();
}

/// Whoever gets in between two compactions loses nothing that it was told is there.
#[tokio::test]
async fn openers_that_race_with_compactions_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    filled(&open(&path).unwrap(), "first", 3).await;
    let stop = AtomicBool::new(false);
    let mut acknowledged = BTreeSet::new();
    std::thread::scope(|scope| {
        let openers: Vec<_> = (0..2)
            .map(|opener| {
                let (path, stop) = (&path, &stop);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let mut made = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match open(path) {
                            Ok(store) => {
                                let uid = sample::session(&format!("o{opener}-{}", made.len()));
                                runtime.block_on(create(&store, &uid)).unwrap();
                                made.push(uid);
                            }
                            Err(error) => {
                                assert!(matches!(error, LogError::Held { .. }), "{error}")
                            }
                        }
                    }
                    made
                })
            })
            .collect();
        let mut done = 0;
        while done < 15 {
            match compacted(&path) {
                Ok(_) => done += 1,
                Err(error) => assert!(matches!(error, LogError::Held { .. }), "{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        for opener in openers {
            acknowledged.extend(opener.join().unwrap());
        }
    });
    let store = open(&path).unwrap();
    for uid in &acknowledged {
        store.get(uid, Default::default()).await.unwrap();
    }
}

const CHILD: &str = "MAINSPRING_TEST_COMPACT";

/// Not a test of its own: as a child process, it compacts the store that the
/// environment names, and says when it begins.
#[test]
fn child_that_compacts_a_store() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    eprintln!("compacting");
    compacted(Path::new(&path)).unwrap();
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_the_old_file_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let all = holey(&path).await;
    let whole = std::fs::read(&path).unwrap();
    let spawn = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "compacting::child_that_compacts_a_store", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let started = |child: &mut std::process::Child| {
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("compacting") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the child begins");
        }
        lines
    };
    // How long one takes here, so that the kills are spread over it.
    let mut child = spawn();
    let mut rest = started(&mut child);
    let clock = tokio::time::Instant::now();
    assert!(child.wait().unwrap().success());
    let took = clock.elapsed();
    rest.read_to_end(&mut Vec::new()).unwrap();

    let mut rng = SeededRng::new(9);
    let (mut old, mut new) = (0, 0);
    for round in 0..20 {
        std::fs::write(&path, &whole).unwrap();
        let mut child = spawn();
        let _rest = started(&mut child);
        let part = u32::try_from(rng.below(1_100)).unwrap();
        std::thread::sleep(took * part / 1_000);
        child.kill().unwrap();
        child.wait().unwrap();
        match std::fs::metadata(&path).unwrap().len() == whole.len() as u64 {
            true => old += 1,
            false => new += 1,
        }
        assert_all_there(&path, &all).await;
        let store = open(&path).unwrap();
        assert_eq!(read_all(&store, &all[round % all.len()].0).await.unwrap().len(), RECORDS);
        drop(store);
        // The next one is not in the way of what was left, and removes it.
        if round % 6 == 0 {
            compacted(&path).unwrap();
            assert!(!beside(&path).exists());
            assert_all_there(&path, &all).await;
        }
    }
    assert!(old > 0, "some kills came before the rename: {old} {new}");
}
