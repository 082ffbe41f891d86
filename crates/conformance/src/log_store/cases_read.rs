//! Heads, reads and verification.

use futures_util::{StreamExt as _, TryStreamExt as _};
use mainspring_api::{Fence, Head, Seq, SessionUid};
use mainspring_eventlog::{Level, LogError, ReadLimit, StoredRecord, Verified};
use mainspring_testkit::{sample, verify_all};

use super::Subject;
use super::support::{
    Log, assert_refused, head, head_at, records, row, seq, session, session_of, texts,
};

async fn mixed(log: &Log, name: &str) -> SessionUid {
    let uid = session(log, name).await;
    let mut at = Head::EMPTY;
    for number in 0..60_usize {
        let text = "x".repeat(number * number % 700);
        let batch = texts(at, &vec![text.as_str(); 1 + number % 3]);
        at = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    uid
}

async fn read(log: &Log, uid: &SessionUid, from: Seq, limit: ReadLimit) -> Vec<StoredRecord> {
    log.read(uid, from, limit, Level::Committed).await.unwrap()
}

/// "Records from `from` on, in order, as many as `limit` allows": the union of
/// pages is the journal.
pub async fn pages_of_any_size_make_the_journal<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = mixed(&log, "s").await;
    let all = records(&log, &uid).await;
    assert_eq!(all.len(), 120);
    assert!(all.iter().zip(1..).all(|(record, number)| record.seq == seq(number)));
    for size in [1, 7, 1_000] {
        let mut pages: Vec<StoredRecord> = Vec::new();
        loop {
            let from = pages.last().map_or(seq(1), |last| last.seq.next());
            let limit = ReadLimit { records: size, bytes: usize::MAX };
            let page = read(&log, &uid, from, limit).await;
            assert!(page.len() <= size);
            let Some(first) = page.first() else { break };
            assert_eq!(first.seq, from, "pages of {size}");
            pages.extend(page);
        }
        assert_eq!(pages, all, "pages of {size}");
    }
}

/// "At least one where there is one": a record larger than the limit comes alone.
pub async fn a_read_stops_at_its_bytes_but_returns_one<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = mixed(&log, "s").await;
    let all = records(&log, &uid).await;
    for limit in [
        ReadLimit { records: 100, bytes: 0 },
        ReadLimit { records: 100, bytes: 1 },
        ReadLimit { records: 0, bytes: 1 << 20 },
    ] {
        for from in [1, 60, 120] {
            assert_eq!(read(&log, &uid, seq(from), limit).await, [all[from as usize - 1].clone()]);
        }
    }
    let bytes = 2_000;
    let page = read(&log, &uid, seq(30), ReadLimit { records: 100, bytes }).await;
    let sizes: Vec<usize> = page.iter().map(|record| record.canonical.len()).collect();
    assert!(sizes.len() > 1, "several small records fit");
    let but_last: usize = sizes[..sizes.len() - 1].iter().sum();
    assert!(but_last < bytes, "a read stops once its bytes are reached");
}

/// "Records from `from` on": beyond the end there are none.
pub async fn a_read_beyond_the_end_is_empty<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    for from in [4, 5, 1 << 40, i64::MAX.cast_unsigned()] {
        assert_eq!(read(&log, &uid, seq(from), ReadLimit::default()).await, []);
    }
    let empty = session(&log, "empty").await;
    assert_eq!(read(&log, &empty, seq(1), ReadLimit::default()).await, []);
}

/// "From `from` on (0 is 1)."
pub async fn a_read_from_zero_starts_at_one<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let all = records(&log, &uid).await;
    assert_eq!(read(&log, &uid, Seq::ZERO, ReadLimit::default()).await, all);
    assert_eq!(read(&log, &uid, seq(2), ReadLimit::default()).await, all[1..]);
}

/// "The head of a journal, as its row holds it."
pub async fn head_row_and_records_agree<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = mixed(&log, "s").await;
    let last = records(&log, &uid).await.last().unwrap().head();
    for level in [Level::Committed, Level::Strict] {
        assert_eq!(log.head(&uid, level).await.unwrap(), last);
        assert_eq!(log.get(&uid, level).await.unwrap().view.head, last);
    }
}

/// "Recomputes the chain up to the row's head. Yields progress and ends with `Done`."
pub async fn a_verification_ends_at_the_head<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = mixed(&log, "s").await;
    let steps: Vec<Verified> = log.verify(&uid, Head::EMPTY).try_collect().await.unwrap();
    let at = head(&log, &uid).await;
    assert_eq!(steps.last(), Some(&Verified::Done(at)));
    let mut so_far = Seq::ZERO;
    for step in &steps[..steps.len() - 1] {
        let Verified::Checked { seq, head } = step else { panic!("done twice: {steps:?}") };
        assert!(so_far < *seq && *seq <= *head && *head == at.seq, "{steps:?}");
        so_far = *seq;
    }
    let empty = session(&log, "empty").await;
    assert_eq!(verify_all(&*log, &empty).await.unwrap(), Head::EMPTY);
}

/// "After `after`, which is known to hold."
pub async fn a_verification_goes_on_after_a_known_head<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 5).await;
    let all = records(&log, &uid).await;
    for known in 0..=5 {
        let after = head_at(&all, known);
        let steps: Vec<Verified> = log.verify(&uid, after).try_collect().await.unwrap();
        assert_eq!(steps.last(), Some(&Verified::Done(head_at(&all, 5))));
    }
}

async fn verdict(log: &Log, uid: &SessionUid, after: Head) -> Result<Verified, LogError> {
    let mut steps = log.verify(uid, after);
    let mut last = None;
    while let Some(step) = steps.next().await {
        last = Some(step);
    }
    last.expect("a verification answers")
}

/// "`Tampered`, naming the first bad position": a journal that does not go on
/// from what was known is not the one that was known.
pub async fn a_verification_after_another_head_is_tampered<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 4).await;
    let other = texts(Head::EMPTY, &["another", "history"]).head();
    let found = verdict(&log, &uid, other).await;
    assert_refused!(found, LogError::Tampered { seq: at, .. } if *at == seq(3));
    // At the head itself only the row's hash can tell.
    let other = texts(Head::EMPTY, &["another", "history", "of", "four"]).head();
    let found = verdict(&log, &uid, other).await;
    assert_refused!(found, LogError::Tampered { seq: at, .. } if *at == seq(4));
}

/// "A shorter log than the verified one is tampered", at the first missing position.
pub async fn a_journal_shorter_than_known_is_tampered<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let known = texts(row(&log, &uid).await.view.head, &["x", "y"]).head();
    let found = verdict(&log, &uid, known).await;
    assert_refused!(found, LogError::Tampered { seq: at, .. } if *at == seq(3));
}
