//! Appending.

use mainspring_api::{Fence, Head};
use mainspring_eventlog::{Batch, LogError, NewRecord, canonical, record_hash};
use mainspring_testkit::sample;

use super::Subject;
use super::support::{
    Log, assert_refused, events, head, head_at, mint, records, row, say, send, session, session_of,
    texts,
};

/// "On `Ok` every record is durable and all later reads see it; the head after
/// it is returned."
pub async fn an_append_is_read_back<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let fence = mint(&log, &uid).await;
    let mut base = Head::EMPTY;
    for number in 1..=3 {
        let batch = events(base, sample::turn(&sample::execution(number), "hi"));
        let after = send(&log, &uid, sample::fresh_id(), fence, &batch).await.unwrap();
        assert_eq!(after, batch.head());
        assert_eq!(head(&log, &uid).await, after);
        let found = records(&log, &uid).await;
        let added = &found[found.len() - batch.len()..];
        for (record, sent) in added.iter().zip(batch.stored()) {
            assert_eq!((record.seq, record.hash), (sent.seq, sent.hash));
            assert_eq!((record.prev_hash, record.fence), (sent.prev_hash, fence));
            assert_eq!(record.canonical, sent.canonical);
        }
        base = after;
    }
    assert_eq!(records(&log, &uid).await.len(), 15);
}

/// "The canonical bytes are the hashed ones": what comes back hashes to the
/// stored hash without decoding, whatever the text holds.
pub async fn stored_bytes_are_the_hashed_ones<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let odd = ["", "\u{0}\u{1f}\"\\/", "\u{1f600}\u{e000}\u{ffff}", "a\u{301}", "\r\n\t"];
    for text in odd {
        say(&log, &uid, text).await;
    }
    let found = records(&log, &uid).await;
    for (record, text) in found.iter().zip(odd) {
        let event = sample::input(text);
        assert_eq!(record.canonical, canonical::event_bytes(&event).unwrap());
        assert_eq!(record.event().unwrap(), event);
        let hash = record_hash(&record.canonical, record.prev_hash.as_ref(), record.seq);
        assert_eq!(hash, record.hash);
    }
}

async fn assert_conflict(log: &Log, name: &str, batch: &Batch, fence: Fence) {
    let uid = sample::session(name);
    let before = (row(log, &uid).await, records(log, &uid).await);
    let at = before.0.view.head;
    let sent = send(log, &uid, sample::fresh_id(), fence, batch).await;
    assert_refused!(sent, LogError::Conflict { expected, head }
        if *expected == batch.base() && *head == at);
    assert_eq!((row(log, &uid).await, records(log, &uid).await), before);
}

/// "`Conflict`: the journal ends elsewhere", further on.
pub async fn an_append_behind_the_head_conflicts<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let all = records(&log, &uid).await;
    for at in 0..3 {
        assert_conflict(&log, "s", &texts(head_at(&all, at), &["x"]), Fence::NONE).await;
    }
}

/// "`Conflict`: the journal ends elsewhere", before.
pub async fn an_append_ahead_of_the_head_conflicts<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let ahead = texts(head(&log, &uid).await, &["never sent"]);
    assert_conflict(&log, "s", &texts(ahead.head(), &["x"]), Fence::NONE).await;
    session(&log, "empty").await;
    assert_conflict(&log, "empty", &texts(ahead.head(), &["x"]), Fence::NONE).await;
}

/// "The compare-and-swap is on the whole head": a history of equal length is
/// not this one.
pub async fn an_append_at_another_hash_conflicts<S: Subject>(subject: S) {
    let log = subject.log();
    session_of(&log, "s", 2).await;
    let other = texts(Head::EMPTY, &["other", "history"]);
    assert_conflict(&log, "s", &texts(other.head(), &["x"]), Fence::NONE).await;
}

/// "Tested in this order": a writer that is both behind and fenced learns that it is behind.
pub async fn a_conflict_is_tested_before_the_fence<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let old = mint(&log, &uid).await;
    mint(&log, &uid).await;
    assert_conflict(&log, "s", &texts(Head::EMPTY, &["x"]), old).await;
}

/// "`Fenced`: a newer fence exists." Nothing was written.
pub async fn an_old_fence_is_fenced<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let old = mint(&log, &uid).await;
    let new = mint(&log, &uid).await;
    let before = (row(&log, &uid).await, records(&log, &uid).await);
    let batch = texts(before.0.view.head, &["x"]);
    for stale in [old, Fence::NONE] {
        let sent = send(&log, &uid, sample::fresh_id(), stale, &batch).await;
        assert_refused!(sent, LogError::Fenced { current } if *current == new);
    }
    assert_eq!((row(&log, &uid).await, records(&log, &uid).await), before);
    send(&log, &uid, sample::fresh_id(), new, &batch).await.unwrap();
}

/// "A fence above the current one is accepted and does not raise it."
pub async fn a_fence_above_is_accepted_and_raises_nothing<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let fence = mint(&log, &uid).await;
    let above = Fence::new(fence.get() + 41);
    let first = texts(Head::EMPTY, &["a"]);
    let at = send(&log, &uid, sample::fresh_id(), above, &first).await.unwrap();
    assert_eq!(row(&log, &uid).await.fence.fence, fence);
    send(&log, &uid, sample::fresh_id(), fence, &texts(at, &["b"])).await.unwrap();
    let fences: Vec<_> = records(&log, &uid).await.iter().map(|record| record.fence).collect();
    assert_eq!(fences, [above, fence]);
    assert_eq!(mint(&log, &uid).await, fence.next());
}

/// "Readers see the whole batch or none of it": a refused batch leaves no part.
pub async fn a_refused_batch_leaves_no_part<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let at = say(&log, &uid, "a").await;
    let won = texts(at, &["b", "c", "d"]);
    let lost = texts(at, &["1", "2", "3", "4", "5"]);
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &won).await.unwrap();
    let sent = send(&log, &uid, sample::fresh_id(), Fence::NONE, &lost).await;
    assert_refused!(sent, LogError::Conflict { .. });
    let hashes: Vec<_> = records(&log, &uid).await.iter().skip(1).map(|r| r.hash).collect();
    let expected: Vec<_> = won.stored().map(|record| record.hash).collect();
    assert_eq!(hashes, expected);
}

/// An input whose canonical form has exactly this many bytes.
fn input_of(bytes: usize) -> NewRecord {
    let empty = canonical::event_bytes(&sample::input("")).unwrap().len();
    // An empty text part is `{}` and a set one `{"text":".."}`: nine bytes more.
    let probe = canonical::event_bytes(&sample::input("x")).unwrap().len();
    let frame = probe - 1;
    assert!(frame >= empty);
    sample::input(&"x".repeat(bytes - frame)).into()
}

/// "`TooLarge`: an event or the batch exceeds [`Limits`]", by name, with
/// nothing written; an event at the bound is accepted.
///
/// [`Limits`]: mainspring_eventlog::Limits
pub async fn an_event_over_the_bound_is_refused_by_name<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let max = log.limits().event_bytes_max;
    let fits = Batch::link(Head::EMPTY, vec![input_of(max)]).unwrap();
    assert_eq!(fits.bytes(), max);
    let at = send(&log, &uid, sample::fresh_id(), Fence::NONE, &fits).await.unwrap();
    let over = Batch::link(at, vec![sample::input("a").into(), input_of(max + 1)]).unwrap();
    let sent = send(&log, &uid, sample::fresh_id(), Fence::NONE, &over).await;
    assert_refused!(sent, LogError::TooLarge { what: "event", bytes, bytes_max }
        if *bytes == max as u64 + 1 && *bytes_max == max as u64);
    assert_eq!(head(&log, &uid).await, at);
    assert_eq!(records(&log, &uid).await.len(), 1);
}

/// "Batch and record bounds are in `Limits`."
pub async fn a_batch_over_the_bound_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let limits = log.limits();
    let many = (0..=limits.batch_records_max).map(|_| sample::input(""));
    let sent = send(&log, &uid, sample::fresh_id(), Fence::NONE, &events(Head::EMPTY, many)).await;
    assert_refused!(sent, LogError::TooMany { count, count_max, .. }
        if *count == limits.batch_records_max + 1 && *count_max == limits.batch_records_max);

    let size = limits.event_bytes_max.min(limits.batch_bytes_max);
    let count = limits.batch_bytes_max / size + 1;
    let big = Batch::link(Head::EMPTY, (0..count).map(|_| input_of(size)).collect()).unwrap();
    let sent = send(&log, &uid, sample::fresh_id(), Fence::NONE, &big).await;
    assert_refused!(sent, LogError::TooLarge { what: "batch", .. });
    assert_eq!(head(&log, &uid).await, Head::EMPTY);

    let most = (0..limits.batch_records_max).map(|_| sample::input(""));
    let batch = events(Head::EMPTY, most);
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    assert_eq!(records(&log, &uid).await.len(), limits.batch_records_max);
}

/// "Bounds are checked before the fence", before the head and the session too.
pub async fn bounds_are_tested_first<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let old = mint(&log, &uid).await;
    mint(&log, &uid).await;
    let max = log.limits().event_bytes_max;
    let over = Batch::link(Head::EMPTY, vec![input_of(max + 1)]).unwrap();
    for uid in [uid, sample::session("unknown")] {
        let sent = send(&log, &uid, sample::fresh_id(), old, &over).await;
        assert_refused!(sent, LogError::TooLarge { .. });
    }
}

/// "The row's fold moves in the same transaction."
pub async fn the_row_moves_with_an_append<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let before = row(&log, &uid).await;
    let batch = events(Head::EMPTY, sample::turn(&sample::execution(1), "hi"));
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    let after = row(&log, &uid).await;
    assert_eq!(after.view.head, batch.head());
    assert_eq!((after.view.executions, after.view.bytes), (1, batch.bytes() as u64));
    assert_eq!(after.version, before.version, "the version counts changes of metadata alone");
    assert!(after.update_time >= before.update_time);
    super::support::assert_folded(&log, &uid).await;
}
