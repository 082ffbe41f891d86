//! Damaged folders: torn ends open with all that was acknowledged, the rest
//! is an error by name, and nothing panics or is lost in silence.

use std::path::Path;

use mainspring_api::{Classify as _, Fence, Hash, Head, Outcome, SessionUid, report};
use mainspring_eventlog::EventLog as _;
use mainspring_store_fjall::FjallStore;
use mainspring_testkit::{SeededRng, create, read_all, sample, verify_all};

use crate::support::{
    content, contents, copy, filled, last_journal, lay, open, open_small, text_batch, write,
};

async fn hashes(store: &FjallStore, uid: &SessionUid) -> Vec<Hash> {
    read_all(store, uid).await.unwrap().iter().map(|record| record.hash).collect()
}

/// Cuts the journal at fifty places: in the commit that was being written
/// nothing acknowledged is lost, and earlier what is left is a prefix.
#[tokio::test]
async fn a_torn_journal_shows_every_commit_before_the_tear() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("a"), dir.path().join("cut"));
    let store = open(&path).unwrap();
    let (uid, mut at) = filled(&store, "s", 10).await;
    let journal = last_journal(&path);
    let mut ends = vec![(content(&journal).0.len(), 10)];
    for number in 0..6 {
        let batch = text_batch(at, &format!("{number}").repeat(700));
        at = store.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
        ends.push((content(&journal).0.len(), 11 + number));
    }
    let all = hashes(&store, &uid).await;
    copy(&path, &cut);
    drop(store);

    let (journal, base) = (last_journal(&cut), contents(&cut));
    let bytes = content(&journal).0;
    let (start, end) = (ends[0].0, ends.last().unwrap().0);
    for part in 0..=50 {
        let len = start + (end - start) * part / 50;
        let whole = ends.iter().rfind(|(end, _)| *end <= len).unwrap().1;
        // Cut off, or never written where the file was made longer before.
        let tail = [0, 10_000][part % 2];
        std::fs::remove_dir_all(&cut).unwrap();
        lay(&cut, &base);
        write(&journal, &(bytes[..len].to_vec(), len as u64 + tail));
        let store = open(&cut).unwrap();
        assert_eq!(hashes(&store, &uid).await, all[..whole], "cut at {len}");
        let at = verify_all(&store, &uid).await.unwrap();
        let batch = text_batch(at, "afterwards");
        store.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
        drop(store);
        assert_eq!(verify_all(&open(&cut).unwrap(), &uid).await.unwrap(), batch.head());
    }
}

/// Opens a damaged folder and, if it opens, reads all of it: each step answers
/// or refuses by a typed error. Answers what verifies.
async fn look(path: &Path) -> Option<Head> {
    let store = match open(path) {
        Ok(store) => store,
        Err(error) => {
            assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
            // A marker that was damaged may say anything.
            let named = ["corrupt", "not_a_store", "unsupported_schema"].contains(&error.code());
            assert!(named, "{}: {}", error.code(), report(&error));
            return None;
        }
    };
    let uid = sample::session("s");
    let _ = store.get(&uid, Default::default()).await;
    let _ = read_all(&store, &uid).await;
    verify_all(&store, &uid).await.ok()
}

/// A store whose records are in tables and in the journal.
async fn in_tables(path: &Path) -> Head {
    let store = open_small(path).unwrap();
    let (uid, mut at) = filled(&store, "s", 200).await;
    for number in 0..40 {
        let batch = text_batch(at, &format!("{number}").repeat(4_000));
        at = store.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    create(&store, &sample::session("other")).await.unwrap();
    at
}

/// Without one of its files a store opens whole or not at all: fjall would
/// make a new one in the place of some.
#[tokio::test]
async fn a_lost_file_is_never_a_lost_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let at = in_tables(&path).await;
    let whole = dir.path().join("whole");
    copy(&path, &whole);
    assert_eq!(look(&whole).await, Some(at), "with all of its files it opens");
    let mut refused = 0;
    for name in contents(&path.join("data-1")).into_keys() {
        let bad = dir.path().join("bad");
        copy(&path, &bad);
        std::fs::remove_file(bad.join("data-1").join(&name)).unwrap();
        match look(&bad).await {
            Some(found) => {
                // Which files it can do without depends on when it last tidied up.
                assert_eq!(found, at, "without {}", name.display());
            }
            None => refused += 1,
        }
        std::fs::remove_dir_all(&bad).unwrap();
    }
    assert!(refused > 20, "{refused} refused");
}

#[tokio::test]
async fn overwritten_bytes_never_panic_and_never_lose_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let at = in_tables(&path).await;
    let base = contents(&path);
    let names: Vec<_> = base.iter().filter(|(_, file)| !file.0.is_empty()).collect();
    let bad = dir.path().join("bad");
    let mut rng = SeededRng::new(4);
    let mut refused = 0;
    for _ in 0..120 {
        let (name, (bytes, file_len)) = rng.pick(&names);
        let mut bytes = bytes.clone();
        let start = rng.below(bytes.len());
        let len = (1 + rng.below(64)).min(bytes.len() - start);
        rng.fill(&mut bytes[start..start + len]);
        lay(&bad, &base);
        write(&bad.join(name), &(bytes, *file_len));
        match look(&bad).await {
            Some(found) => assert_eq!(found, at, "{} at {start}", name.display()),
            None => refused += 1,
        }
        std::fs::remove_dir_all(&bad).unwrap();
    }
    assert!(refused > 5, "{refused} refused");
}
