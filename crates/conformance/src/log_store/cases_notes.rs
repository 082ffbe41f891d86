//! Notes beside records.

use mainspring_api::{Fence, Head};
use mainspring_eventlog::{Batch, LogError, NewRecord};
use mainspring_testkit::{sample, verify_all};

use super::Subject;
use super::support::{
    Log, assert_refused, events, fork, head, mint, records, row, send, seq, session, session_of,
};

const COMMIT_TIME: &str = "commit_time";

/// "Each record may carry notes: commit time" is there for every record that
/// this store committed, and never runs behind the session's creation.
pub async fn every_record_has_a_commit_time<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let batch = events(Head::EMPTY, sample::turn(&sample::execution(1), "hi"));
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    let child = fork(&log, &uid, batch.head(), "c").await;
    for uid in [uid, child] {
        for record in records(&log, &uid).await {
            let time = &record.notes[COMMIT_TIME];
            let plain = time.len() >= 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T';
            assert!(plain, "{time} is RFC 3339 in UTC");
        }
    }
}

fn noted(base: Head, notes: &[(&str, &str)]) -> Batch {
    let mut record = NewRecord::from(sample::input("noted"));
    for (key, value) in notes {
        record.notes.insert((*key).to_owned(), (*value).to_owned());
    }
    Batch::link(base, vec![sample::input("plain").into(), record]).unwrap()
}

/// "Small unhashed side data of a record, durable with it": of that record alone.
pub async fn notes_of_an_append_are_read_back<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let notes = [("usage", "{\"in\":1}"), ("", "empty key"), ("empty", ""), ("\u{1f600}", "\0")];
    let batch = noted(Head::EMPTY, &notes);
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    let found = records(&log, &uid).await;
    for (key, value) in notes {
        assert_eq!(found[1].notes[key], value);
        assert!(!found[0].notes.contains_key(key));
    }
    assert_eq!(found[1].head(), batch.head());
}

async fn note(log: &Log, at: u64, key: &str, value: &str) -> Result<(), LogError> {
    log.annotate(&sample::session("s"), seq(at), Fence::NONE, key, value).await
}

/// "Adds a note to a record": that one, and no hash, head or row moves.
pub async fn an_annotation_is_read_back_and_not_hashed<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let before = (row(&log, &uid).await, records(&log, &uid).await);
    note(&log, 2, "started", "once").await.unwrap();
    note(&log, 2, "start", "prefix").await.unwrap();
    note(&log, 3, "", "empty key").await.unwrap();
    let mut expected = before.1;
    expected[1].notes.insert("started".to_owned(), "once".to_owned());
    expected[1].notes.insert("start".to_owned(), "prefix".to_owned());
    expected[2].notes.insert(String::new(), "empty key".to_owned());
    assert_eq!(records(&log, &uid).await, expected);
    let after = row(&log, &uid).await;
    assert_eq!((&after.view, &after.fence), (&before.0.view, &before.0.fence));
    assert_eq!(verify_all(&*log, &uid).await.unwrap(), after.view.head);
}

/// "Once": the same again is settled, "`Moved` when the note exists with another value".
pub async fn an_annotation_is_made_once<S: Subject>(subject: S) {
    let log = subject.log();
    session_of(&log, "s", 2).await;
    note(&log, 1, "k", "v").await.unwrap();
    note(&log, 1, "k", "v").await.unwrap();
    assert_refused!(note(&log, 1, "k", "w").await, LogError::Moved { .. });
    note(&log, 2, "k", "w").await.unwrap();
    let found = records(&log, &sample::session("s")).await;
    assert_eq!((&*found[0].notes["k"], &*found[1].notes["k"]), ("v", "w"));
}

/// "`Moved` when the note exists with another value", also when it came with the append.
pub async fn a_note_of_the_append_stands<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let batch = noted(Head::EMPTY, &[("k", "v")]);
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    assert_refused!(note(&log, 2, "k", "w").await, LogError::Moved { .. });
    note(&log, 2, "k", "v").await.unwrap();
    assert_refused!(note(&log, 2, COMMIT_TIME, "never").await, LogError::Moved { .. });
    assert_eq!(records(&log, &uid).await[1].notes["k"], "v");
}

/// "Under the fence in force": `Fenced` below it, and nothing is added.
pub async fn an_annotation_under_an_old_fence_is_fenced<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let old = mint(&log, &uid).await;
    let new = mint(&log, &uid).await;
    let before = records(&log, &uid).await;
    let stale = log.annotate(&uid, seq(1), old, "k", "v").await;
    assert_refused!(stale, LogError::Fenced { current } if *current == new);
    assert_eq!(records(&log, &uid).await, before);
    log.annotate(&uid, seq(1), new, "k", "v").await.unwrap();
}

/// "`Invalid` when there is no such record."
pub async fn an_annotation_needs_its_record<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let at = head(&log, &uid).await;
    for missing in [0, 3, 1 << 40, i64::MAX.cast_unsigned()] {
        assert_refused!(note(&log, missing, "k", "v").await, LogError::Invalid(_));
    }
    assert_eq!(head(&log, &uid).await, at);
}
