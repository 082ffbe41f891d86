//! What is acknowledged is there after the store was opened again.

use std::collections::BTreeMap;

use futures_util::stream;
use mainspring_api::{Fence, Head};
use mainspring_eventlog::{
    ImportRecord, ImportRow, Level, LogError, NamedRow, NewSession, RowKey, RowPatch, SessionRow,
    StoredRecord,
};
use mainspring_testkit::{SeededRng, sample};

use super::Subject;
use super::support::{
    Log, append_random, assert_folded, assert_refused, child, everything, fork, head, head_at,
    list_by, mint, new_session, records, row, say, send, seq, session, session_of, texts, uids,
};

type Picture = Vec<(SessionRow, Vec<StoredRecord>)>;

/// All that a store shows.
async fn picture(log: &Log) -> Picture {
    let mut all = Vec::new();
    for row in list_by(log, everything()).await {
        let records = records(log, &row.session.uid).await;
        assert_eq!(self::row(log, &row.session.uid).await, row);
        all.push((row, records));
    }
    all
}

/// Reopens, and the store shows the same.
async fn assert_kept<S: Subject>(subject: S) -> S {
    let before = picture(&subject.log()).await;
    let subject = subject.reopen().await;
    assert_eq!(picture(&subject.log()).await, before);
    subject
}

/// "The random id of this store, drawn at its creation."
pub async fn a_store_keeps_its_id<S: Subject>(subject: S) {
    let id = subject.log().store_id();
    let subject = subject.reopen().await;
    assert_eq!(subject.log().store_id(), id);
    let subject = subject.reopen().await;
    assert_eq!(subject.log().store_id(), id);
}

/// A created row, and each change of it.
pub async fn creates_and_updates_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let labels = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let created = NewSession { labels, ..new_session("s") };
    log.create(sample::fresh_id(), created).await.unwrap();
    session(&log, "other").await;
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    assert_eq!(list_by(&log, everything()).await.len(), 2);
    let uid = sample::session("s");
    let version = row(&log, &uid).await.version;
    let patch = RowPatch { name: Some("n".to_owned()), ..RowPatch::default() };
    log.update(sample::fresh_id(), &uid, version, patch).await.unwrap();
    drop(log);
    let subject = assert_kept(subject).await;
    assert_eq!(row(&subject.log(), &uid).await.session.name, "n");
}

/// "On `Ok` every record is durable."
pub async fn appends_are_durable<S: Subject>(subject: S) {
    let mut subject = subject;
    let mut rng = SeededRng::new(3);
    session(&subject.log(), "s").await;
    session(&subject.log(), "t").await;
    for round in 1..=4 {
        let log = subject.log();
        for name in ["s", "t"] {
            append_random(&log, &sample::session(name), &mut rng, 6).await;
        }
        drop(log);
        subject = assert_kept(subject).await;
        let log = subject.log();
        for name in ["s", "t"] {
            let uid = sample::session(name);
            assert_eq!(head(&log, &uid).await.seq, seq(6 * round));
            assert_folded(&log, &uid).await;
        }
    }
}

/// A minted fence stays in force: its predecessor stays fenced.
pub async fn fences_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let old = mint(&log, &uid).await;
    let holder = sample::holder("b");
    let new = log
        .acquire_if_head(&uid, sample::fresh_id(), old, Head::EMPTY, holder.clone())
        .await
        .unwrap();
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    assert_eq!(row(&log, &uid).await.fence.holder, Some(holder));
    let batch = texts(Head::EMPTY, &["x"]);
    let stale = send(&log, &uid, sample::fresh_id(), old, &batch).await;
    assert_refused!(stale, LogError::Fenced { current } if *current == new);
    send(&log, &uid, sample::fresh_id(), new, &batch).await.unwrap();
    assert_eq!(mint(&log, &uid).await, new.next());
}

/// Children, what they inherited, and what they added.
pub async fn forks_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 4).await;
    let at = head_at(&records(&log, &uid).await, 3);
    let child = fork(&log, &uid, at, "c").await;
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    assert_eq!(records(&log, &child).await.len(), 4);
    say(&log, &child, "on").await;
    let grandchild = fork(&log, &child, head(&log, &child).await, "g").await;
    say(&log, &uid, "parent").await;
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    for uid in [uid, child, grandchild] {
        assert_folded(&log, &uid).await;
    }
}

async fn copy(log: &Log, id: mainspring_api::AppendId, records: &[StoredRecord]) -> SessionRow {
    let row = ImportRow { session: new_session("copy"), create_time: None, parent: None };
    let items: Vec<_> =
        records.iter().cloned().map(|record| Ok(ImportRecord::Record(record))).collect();
    log.import(id, row, Box::pin(stream::iter(items))).await.unwrap()
}

/// An imported session with all its records, fences and notes.
pub async fn imports_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let all = records(&log, &uid).await;
    copy(&log, sample::fresh_id(), &all).await;
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    assert_eq!(records(&log, &sample::session("copy")).await, all);
    assert_folded(&log, &sample::session("copy")).await;
}

/// Notes, given with an append and later.
pub async fn annotations_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    log.annotate(&uid, seq(2), Fence::NONE, "k", "v").await.unwrap();
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    assert_eq!(records(&log, &uid).await[1].notes["k"], "v");
    let other = log.annotate(&uid, seq(2), Fence::NONE, "k", "w").await;
    assert_refused!(other, LogError::Moved { .. });
}

/// "Send the same operation again": also after the store was opened again, as
/// a host does whose process died before the answer came.
pub async fn operation_ids_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let [create, update, mint, append, fork, import] = [1, 2, 3, 4, 5, 6].map(sample::id);
    let uid = sample::session("s");
    log.create(create, new_session("s")).await.unwrap();
    let patch = || RowPatch { name: Some("n".to_owned()), ..RowPatch::default() };
    let version = row(&log, &uid).await.version;
    log.update(update, &uid, version, patch()).await.unwrap();
    let fence = log.mint(&uid, mint, Fence::NONE, sample::holder("h")).await.unwrap();
    let batch = texts(Head::EMPTY, &["a", "b"]);
    let at = send(&log, &uid, append, fence, &batch).await.unwrap();
    let children = vec![(child(&log, &uid, "c"), sample::fork_marker(at.seq))];
    log.fork(fork, &uid, at, children.clone()).await.unwrap();
    let all = records(&log, &uid).await;
    copy(&log, import, &all).await;
    drop(log);

    let subject = assert_kept(subject).await;
    let log = subject.log();
    let before = picture(&log).await;
    log.create(create, new_session("s")).await.unwrap();
    log.update(update, &uid, version, patch()).await.unwrap();
    let again = log.mint(&uid, mint, Fence::NONE, sample::holder("h")).await.unwrap();
    assert_eq!(again, fence);
    assert_eq!(send(&log, &uid, append, fence, &batch).await.unwrap(), at);
    log.fork(fork, &uid, at, children).await.unwrap();
    copy(&log, import, &all).await;
    assert_eq!(picture(&log).await, before);
    let other = send(&log, &uid, sample::fresh_id(), fence, &batch).await;
    assert_refused!(other, LogError::Conflict { .. });
}

/// "With nothing written": what was refused is not there after the store was
/// opened again either, nor what a failed import had staged.
pub async fn refused_operations_leave_nothing_behind<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let at = head(&log, &uid).await;
    mint(&log, &uid).await;
    let behind = texts(Head::EMPTY, &["behind"]);
    let fenced = texts(at, &["fenced"]);
    for batch in [&behind, &fenced] {
        send(&log, &uid, sample::fresh_id(), Fence::NONE, batch).await.unwrap_err();
    }
    let twice = (new_session("c"), sample::fork_marker(at.seq));
    log.fork(sample::fresh_id(), &uid, at, vec![twice.clone(), twice]).await.unwrap_err();
    let row_of = ImportRow { session: new_session("copy"), create_time: None, parent: None };
    let items = vec![
        Ok(ImportRecord::Record(records(&log, &uid).await[0].clone())),
        Err(LogError::Invalid("the stream broke")),
    ];
    let import = log.import(sample::fresh_id(), row_of, Box::pin(stream::iter(items))).await;
    import.unwrap_err();
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    assert_eq!(uids(&list_by(&log, everything()).await), [uid.as_str()]);
    assert_eq!(head(&log, &uid).await, at);
    for name in ["c", "copy", "unknown"] {
        let found = log.get(&sample::session(name), Level::Strict).await;
        assert_refused!(found, LogError::SessionNotFound(_));
        log.create(sample::fresh_id(), new_session(name)).await.unwrap();
    }
}

/// "When the process dies, what was staged is kept."
pub async fn staged_imports_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let text = "x".repeat(log.limits().event_bytes_max.min(8_192) / 2);
    let mut at = Head::EMPTY;
    let all: Vec<_> = (0..900)
        .map(|_| {
            let batch = texts(at, &[&text]);
            at = batch.head();
            batch.stored().next().unwrap().clone()
        })
        .collect();
    let id = sample::fresh_id();
    let row = || ImportRow { session: new_session("copy"), create_time: None, parent: None };
    let items = |from: usize, to: usize| {
        all[from..to].iter().cloned().map(|record| Ok(ImportRecord::Record(record)))
    };
    let broken = items(0, 800).chain([Err(LogError::unavailable("gone"))]).collect::<Vec<_>>();
    log.import(id, row(), Box::pin(stream::iter(broken))).await.unwrap_err();
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    let staged = usize::try_from(log.staged(id).await.unwrap().seq.get()).unwrap();
    assert!(staged > 0, "what was staged is kept");
    let rest = items(staged, 900).collect::<Vec<_>>();
    let imported = log.import(id, row(), Box::pin(stream::iter(rest))).await.unwrap();
    assert_eq!(records(&log, &imported.session.uid).await, all);
}

/// "Versions of a key only rise", also over a restart.
pub async fn named_rows_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(rows) = log.rows() else { return };
    let (a, b) = (RowKey::new("k", "a").unwrap(), RowKey::new("k", "b").unwrap());
    let value = Some(mainspring_api::Bytes::from_static(b"v"));
    rows.put_named(sample::fresh_id(), &a, 0, value.clone()).await.unwrap();
    rows.put_named(sample::fresh_id(), &b, 0, value.clone()).await.unwrap();
    rows.put_named(sample::fresh_id(), &b, 1, None).await.unwrap();
    drop(log);
    let subject = assert_kept(subject).await;
    let log = subject.log();
    let rows = log.rows().expect("it has them still");
    let found = rows.named(&a).await.unwrap();
    assert_eq!(found, value.map(|value| NamedRow { version: 1, value }));
    assert_eq!(rows.named(&b).await.unwrap(), None);
    assert_refused!(rows.put_named(sample::fresh_id(), &b, 0, None).await, LogError::Moved { .. });
    assert_eq!(rows.put_named(sample::fresh_id(), &b, 2, None).await.unwrap(), 3);
}

/// "The uid stays taken", also over a restart.
pub async fn purges_are_durable<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(purge) = log.purge() else { return };
    let uid = session_of(&log, "s", 3).await;
    let child = super::support::fork(&log, &uid, head(&log, &uid).await, "child").await;
    let shown = records(&log, &child).await;
    let deletion = sample::records([sample::deletion()]);
    mainspring_testkit::append(&*log, &uid, deletion).await.unwrap();
    let left = purge.purge(sample::fresh_id(), &uid).await.unwrap();
    drop(log);
    let subject = subject.reopen().await;
    let log = subject.log();
    assert_eq!(row(&log, &uid).await, left);
    assert_eq!(records(&log, &child).await, shown);
    let read = log.read(&uid, Default::default(), Default::default(), Level::Strict).await;
    assert_refused!(read, LogError::Deleted(_));
}
