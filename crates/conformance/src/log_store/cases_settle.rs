//! Settling: the same operation again, with the same id, answers the same.

use futures_util::stream;
use mainspring_api::{Fence, Head};
use mainspring_eventlog::{ImportRecord, ImportRow, LogError, RowPatch};
use mainspring_testkit::sample;

use super::Subject;
use super::support::{
    assert_refused, child, everything, head, head_at, list_by, mint, new_session, records, row,
    say, send, session, session_of, texts,
};

/// "If the first copy took effect, the answer is the one that it would have
/// given", also when the journal went on.
pub async fn an_append_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let id = sample::fresh_id();
    let batch = texts(head(&log, &uid).await, &["a", "b"]);
    let first = send(&log, &uid, id, Fence::NONE, &batch).await.unwrap();
    assert_eq!(send(&log, &uid, id, Fence::NONE, &batch).await.unwrap(), first);
    say(&log, &uid, "later").await;
    say(&log, &uid, "and later").await;
    let all = records(&log, &uid).await;
    assert_eq!(send(&log, &uid, id, Fence::NONE, &batch).await.unwrap(), first);
    assert_eq!(records(&log, &uid).await, all);
    assert_eq!(all.len(), 5);
}

/// "Looked at before any Conflict": an append that took effect stays Ok when
/// its writer was fenced since.
pub async fn an_append_again_after_a_newer_fence_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let (id, fence) = (sample::fresh_id(), mint(&log, &uid).await);
    let batch = texts(Head::EMPTY, &["a"]);
    let first = send(&log, &uid, id, fence, &batch).await.unwrap();
    let newer = mint(&log, &uid).await;
    assert_eq!(send(&log, &uid, id, fence, &batch).await.unwrap(), first);
    let next = texts(first, &["b"]);
    send(&log, &uid, sample::fresh_id(), newer, &next).await.unwrap();
    assert_eq!(send(&log, &uid, id, fence, &batch).await.unwrap(), first);
    assert_eq!(records(&log, &uid).await.len(), 2);
}

/// "Equal bytes are no proof, two hosts may write the same."
pub async fn equal_bytes_of_another_append_conflict<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let batch = texts(Head::EMPTY, &["same"]);
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    let other = send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await;
    assert_refused!(other, LogError::Conflict { .. });
    assert_eq!(records(&log, &uid).await.len(), 1);
}

/// "No copy can ever count, for heads never return": one that lost loses again.
pub async fn an_append_that_lost_never_counts<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let at = say(&log, &uid, "a").await;
    let (lost, id) = (texts(Head::EMPTY, &["b"]), sample::fresh_id());
    for _ in 0..3 {
        let sent = send(&log, &uid, id, Fence::NONE, &lost).await;
        assert_refused!(sent, LogError::Conflict { head, .. } if *head == at);
    }
    let old = mint(&log, &uid).await;
    mint(&log, &uid).await;
    let (fenced, id) = (texts(at, &["c"]), sample::fresh_id());
    for _ in 0..2 {
        let sent = send(&log, &uid, id, old, &fenced).await;
        assert_refused!(sent, LogError::Fenced { .. });
    }
    assert_eq!(head(&log, &uid).await, at);
}

/// A create sent again makes nothing, and answers with the session.
pub async fn a_create_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let id = sample::fresh_id();
    let first = log.create(id, new_session("s")).await.unwrap();
    assert_eq!(log.create(id, new_session("s")).await.unwrap(), first);
    say(&log, &first.session.uid, "a").await;
    let again = log.create(id, new_session("s")).await.unwrap();
    assert_eq!((&again.session, again.create_time), (&first.session, first.create_time));
    assert_eq!(records(&log, &first.session.uid).await.len(), 1);
    assert_eq!(list_by(&log, everything()).await.len(), 1);
}

/// An update sent again does not count twice, though its version moved.
pub async fn an_update_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let (id, version) = (sample::fresh_id(), row(&log, &uid).await.version);
    let patch = RowPatch { name: Some("n".to_owned()), ..RowPatch::default() };
    let first = log.update(id, &uid, version, patch.clone()).await.unwrap();
    assert_eq!(log.update(id, &uid, version, patch).await.unwrap(), first);
    assert_eq!(row(&log, &uid).await.version, version + 1);
}

/// "Its id kept beside it so that the same call again answers the same."
pub async fn a_mint_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let id = sample::fresh_id();
    let mint = || log.mint(&uid, id, Fence::NONE, sample::holder("h"));
    let fence = mint().await.unwrap();
    assert_eq!(mint().await.unwrap(), fence);
    send(&log, &uid, sample::fresh_id(), fence, &texts(Head::EMPTY, &["a"])).await.unwrap();
    assert_eq!(mint().await.unwrap(), fence);
    assert_eq!(row(&log, &uid).await.fence.fence, fence);
}

/// An acquire sent again answers the same, also when its own writer moved the head.
pub async fn an_acquire_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let (id, at) = (sample::fresh_id(), head(&log, &uid).await);
    let acquire = || log.acquire_if_head(&uid, id, Fence::NONE, at, sample::holder("h"));
    let fence = acquire().await.unwrap();
    assert_eq!(acquire().await.unwrap(), fence);
    send(&log, &uid, sample::fresh_id(), fence, &texts(at, &["a"])).await.unwrap();
    assert_eq!(acquire().await.unwrap(), fence);
    assert_eq!(row(&log, &uid).await.fence.fence, fence);
}

/// A fork sent again makes no second child; by another id the uid is taken.
pub async fn a_fork_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let at = head_at(&records(&log, &uid).await, 2);
    let id = sample::fresh_id();
    let children = || {
        let of = |name| (child(&log, &uid, name), sample::fork_marker(at.seq));
        vec![of("c1"), of("c2")]
    };
    let first = log.fork(id, &uid, at, children()).await.unwrap();
    say(&log, &uid, "parent goes on").await;
    assert_eq!(log.fork(id, &uid, at, children()).await.unwrap(), first);
    let other = log.fork(sample::fresh_id(), &uid, at, children()).await;
    assert_refused!(other, LogError::AlreadyExists(_));
    assert_eq!(list_by(&log, everything()).await.len(), 3);
    assert_eq!(records(&log, &first[0].session.uid).await.len(), 3);
}

/// An import sent again answers with the session; by another id the uid is taken.
pub async fn an_import_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let all = records(&log, &uid).await;
    let id = sample::fresh_id();
    let import = |id| {
        let row = ImportRow { session: new_session("copy"), create_time: None, parent: None };
        let items: Vec<_> = all.iter().cloned().map(|r| Ok(ImportRecord::Record(r))).collect();
        log.import(id, row, Box::pin(stream::iter(items)))
    };
    let first = import(id).await.unwrap();
    assert_eq!(import(id).await.unwrap(), first);
    assert_refused!(import(sample::fresh_id()).await, LogError::AlreadyExists(_));
    assert_eq!(records(&log, &sample::session("copy")).await, all);
}
