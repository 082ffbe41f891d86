//! Imports.

use futures_util::stream;
use mainspring_api::{BoxStream, Fence, Head, Timestamp};
use mainspring_eventlog::{
    Batch, ImportRecord, ImportRow, Level, LogError, NewSession, SessionRow, StoredRecord, export,
    record_hash,
};
use mainspring_testkit::{SeededRng, sample, verify_all};

use super::Subject;
use super::support::{
    Log, append_random, assert_folded, assert_refused, everything, head, head_at, list_by, mint,
    new_session, records, row, say, send, seq, session, session_of, texts, uids,
};

type Items = Vec<Result<ImportRecord, LogError>>;

fn items(records: &[StoredRecord]) -> Items {
    records.iter().cloned().map(|record| Ok(ImportRecord::Record(record))).collect()
}

fn stream_of(items: Items) -> BoxStream<'static, Result<ImportRecord, LogError>> {
    Box::pin(stream::iter(items))
}

fn row_of(name: &str) -> ImportRow {
    ImportRow { session: new_session(name), create_time: None, parent: None }
}

async fn import(log: &Log, name: &str, items: Items) -> Result<SessionRow, LogError> {
    log.import(sample::fresh_id(), row_of(name), stream_of(items)).await
}

/// "On any error nothing is visible", and the uid stays free.
async fn assert_nothing_of(log: &Log, name: &str) {
    let uid = sample::session(name);
    assert_refused!(log.get(&uid, Level::Strict).await, LogError::SessionNotFound(_));
    let read = log.read(&uid, seq(1), Default::default(), Level::Strict).await;
    assert_refused!(read, LogError::SessionNotFound(_));
    let rows = list_by(log, everything()).await;
    assert!(!uids(&rows).contains(&uid.as_str()));
}

/// A session with several fences, notes and kinds of event.
async fn source(log: &Log, name: &str) -> Vec<StoredRecord> {
    let uid = session(log, name).await;
    let mut rng = SeededRng::new(5);
    for _ in 0..3 {
        mint(log, &uid).await;
        append_random(log, &uid, &mut rng, 4).await;
    }
    let fence = row(log, &uid).await.fence.fence;
    log.annotate(&uid, seq(7), fence, "k", "v").await.unwrap();
    records(log, &uid).await
}

/// "Fences and notes are kept": exported, the copy is the same file.
pub async fn an_import_keeps_every_byte<S: Subject>(subject: S) {
    let log = subject.log();
    let all = source(&log, "s").await;
    let mut items = items(&all);
    items.push(Ok(ImportRecord::Head(all.last().unwrap().head(), None)));
    let imported = import(&log, "copy", items).await.unwrap();
    let copied = records(&log, &imported.session.uid).await;
    assert_eq!(copied, all);
    let lines =
        |records: &[StoredRecord]| -> Vec<_> { records.iter().map(export::record_line).collect() };
    assert_eq!(lines(&copied), lines(&all));
    let head = verify_all(&*log, &imported.session.uid).await.unwrap();
    assert_eq!(Some(head), all.last().map(StoredRecord::head));
}

/// "Uid, create time, fences and notes are kept"; the rest of the row too.
pub async fn an_import_keeps_the_row<S: Subject>(subject: S) {
    let log = subject.log();
    let all = source(&log, "s").await;
    let wanted = ImportRow {
        session: NewSession {
            name: "n".to_owned(),
            labels: [("a".to_owned(), "1".to_owned())].into(),
            ..new_session("copy")
        },
        create_time: Some(Timestamp { seconds: 1_000_000, nanos: 7 }),
        parent: Some((sample::session("elsewhere"), seq(2))),
    };
    let id = sample::fresh_id();
    let imported = log.import(id, wanted.clone(), stream_of(items(&all))).await.unwrap();
    assert_eq!(imported.session, wanted.session);
    assert_eq!(Some(imported.create_time), wanted.create_time);
    assert_eq!(imported.parent, wanted.parent);
    assert_eq!(row(&log, &wanted.session.uid).await, imported);
    let rows = list_by(&log, everything()).await;
    assert_eq!(uids(&rows), [sample::session("s").as_str(), sample::session("copy").as_str()]);
}

/// "A row that comes with the head takes the place of `row`": its uid is the
/// one that is created, and must be free.
pub async fn an_import_takes_the_row_of_its_head<S: Subject>(subject: S) {
    let log = subject.log();
    let all = source(&log, "s").await;
    let ended = |row: ImportRow| {
        let mut items = items(&all);
        items.push(Ok(ImportRecord::Head(all.last().unwrap().head(), Some(Box::new(row)))));
        items
    };
    let refused = import(&log, "copy", ended(row_of("s"))).await;
    assert_refused!(refused, LogError::AlreadyExists(_));
    assert_nothing_of(&log, "copy").await;
    assert_eq!(records(&log, &sample::session("s")).await, all);

    let create_time = Some(Timestamp { seconds: 77, nanos: 0 });
    let wanted = ImportRow { create_time, ..row_of("final") };
    let imported = import(&log, "copy", ended(wanted.clone())).await.unwrap();
    assert_eq!(imported.session, wanted.session);
    assert_eq!(Some(imported.create_time), create_time);
    assert_eq!(records(&log, &wanted.session.uid).await, all);
    assert_nothing_of(&log, "copy").await;
}

/// "Publishes the session in one step": one without records is empty.
pub async fn an_import_of_nothing_is_an_empty_session<S: Subject>(subject: S) {
    let log = subject.log();
    let row = import(&log, "copy", vec![Ok(ImportRecord::Head(Head::EMPTY, None))]).await.unwrap();
    assert_eq!((row.view.head, row.fence.fence), (Head::EMPTY, Fence::NONE));
    say(&log, &row.session.uid, "a").await;
    assert_folded(&log, &row.session.uid).await;
}

/// "Stages `records`": more than fit in memory or one transaction.
pub async fn an_import_of_many_pages_is_whole<S: Subject>(subject: S) {
    let log = subject.log();
    let text = "x".repeat(log.limits().event_bytes_max.min(8_192) / 2);
    let mut at = Head::EMPTY;
    let all: Vec<StoredRecord> = (0..700)
        .map(|_| {
            let batch = texts(at, &[&text]);
            at = batch.head();
            batch.stored().next().unwrap().clone()
        })
        .collect();
    let imported = import(&log, "copy", items(&all)).await.unwrap();
    assert_eq!(imported.view.head, at);
    assert_eq!(records(&log, &imported.session.uid).await, all);
}

/// "Publishes the session": it is a session like any other.
pub async fn an_imported_session_goes_on<S: Subject>(subject: S) {
    let log = subject.log();
    let all = source(&log, "s").await;
    let uid = import(&log, "copy", items(&all)).await.unwrap().session.uid;
    mint(&log, &uid).await;
    append_random(&log, &uid, &mut SeededRng::new(9), 10).await;
    assert_folded(&log, &uid).await;
    assert_eq!(records(&log, &uid).await[..all.len()], all);
    let child = super::support::fork(&log, &uid, head(&log, &uid).await, "child").await;
    assert_folded(&log, &child).await;
}

/// "The fence starts at the highest one that was imported", and nobody holds it.
pub async fn an_import_has_its_highest_fence_in_force<S: Subject>(subject: S) {
    let log = subject.log();
    let mut all = records(&log, &session_of(&log, "s", 3).await).await;
    for (record, fence) in all.iter_mut().zip([4, 9, 2]) {
        record.fence = Fence::new(fence);
    }
    let imported = import(&log, "copy", items(&all)).await.unwrap();
    let uid = imported.session.uid;
    assert_eq!(imported.fence.fence, Fence::new(9));
    assert_eq!(imported.fence.holder, None);
    let batch = texts(imported.view.head, &["x"]);
    let stale = send(&log, &uid, sample::fresh_id(), Fence::new(8), &batch).await;
    assert_refused!(stale, LogError::Fenced { .. });
    assert_eq!(mint(&log, &uid).await, Fence::new(10));
}

/// "`Tampered` at the first bad record": wherever it is, and whatever was done to it.
pub async fn a_tampered_import_is_refused_at_its_place<S: Subject>(subject: S) {
    let log = subject.log();
    let all = records(&log, &session_of(&log, "s", 4).await).await;
    let other = texts(Head::EMPTY, &["other"]).stored().next().unwrap().clone();
    for place in 0..all.len() {
        let mut forged: Vec<(&str, Vec<StoredRecord>)> = Vec::new();
        let mut with = |what, change: &dyn Fn(&mut Vec<StoredRecord>)| {
            let mut records = all.clone();
            change(&mut records);
            forged.push((what, records));
        };
        with("content", &|r| r[place].canonical.clone_from(&other.canonical));
        with("hash", &|r| r[place].hash = other.hash);
        with("link", &|r| r[place].prev_hash = Some(other.hash));
        with("position", &|r| r[place].seq = r[place].seq.next());
        with("twice", &|r| r.insert(place, r[place].clone()));
        if place + 1 < all.len() {
            with("dropped", &|r| drop(r.remove(place)));
            with("swapped", &|r| r.swap(place, place + 1));
        }
        for (what, records) in forged {
            // A record that comes twice is wrong the second time.
            let bad = seq(place as u64 + 1 + u64::from(what == "twice"));
            let imported = import(&log, "copy", items(&records)).await;
            assert_refused!(imported, LogError::Tampered { seq, .. } if *seq == bad);
            assert_nothing_of(&log, "copy").await;
        }
    }
    import(&log, "copy", items(&all)).await.unwrap();
    assert_eq!(records(&log, &sample::session("copy")).await, all);
}

/// "`Tampered` when the last one is not `expect`": a cut tail is noticed.
pub async fn an_import_that_ends_elsewhere_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let all = records(&log, &session_of(&log, "s", 4).await).await;
    let stated = |records: &[StoredRecord], head| {
        let mut items = items(records);
        items.push(Ok(ImportRecord::Head(head, None)));
        items
    };
    let end = all[3].head();
    for (cut, at) in [(&all[..3], end), (&all[..0], end), (&all[..], all[1].head())] {
        assert_refused!(import(&log, "copy", stated(cut, at)).await, LogError::Tampered { .. });
        assert_nothing_of(&log, "copy").await;
    }
    let mut late = stated(&all[..3], all[2].head());
    late.extend(items(&all[3..]));
    assert!(import(&log, "copy", late).await.is_err(), "nothing follows the head");
    assert_nothing_of(&log, "copy").await;
}

/// "Whatever the stream yields": its error is the answer, and nothing is visible.
pub async fn an_import_whose_stream_fails_leaves_nothing<S: Subject>(subject: S) {
    let log = subject.log();
    let all = records(&log, &session_of(&log, "s", 3).await).await;
    for good in 0..=3 {
        let mut items = items(&all[..good]);
        items.push(Err(LogError::Invalid("the stream broke")));
        let imported = import(&log, "copy", items).await;
        assert_refused!(imported, LogError::Invalid("the stream broke"));
        assert_nothing_of(&log, "copy").await;
    }
    assert!(log.create(sample::fresh_id(), new_session("copy")).await.is_ok());
}

/// A record that this version does not know is refused, though its hash holds.
pub async fn an_import_with_an_unknown_record_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let known = texts(Head::EMPTY, &["a"]);
    let at = known.head();
    let newer: &[u8] = br#"{"kind":"EVENT_OF_TOMORROW"}"#;
    let hash = record_hash(newer, at.hash.as_ref(), at.seq.next());
    let mut records: Vec<StoredRecord> = Batch::stored(&known).cloned().collect();
    records.push(StoredRecord {
        seq: at.seq.next(),
        prev_hash: at.hash,
        hash,
        fence: Fence::NONE,
        canonical: newer.to_vec().into(),
        notes: Default::default(),
    });
    let imported = import(&log, "copy", items(&records)).await;
    assert_refused!(imported, LogError::UnsupportedRecord { seq: at, .. } if *at == seq(2));
    assert_nothing_of(&log, "copy").await;
}

/// "`AlreadyExists`": what is there stays as it is.
pub async fn an_import_over_a_session_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let all = source(&log, "s").await;
    let uid = session_of(&log, "there", 2).await;
    let before = (row(&log, &uid).await, records(&log, &uid).await);
    let imported = import(&log, "there", items(&all)).await;
    assert_refused!(imported, LogError::AlreadyExists(taken) if *taken == uid);
    assert_eq!((row(&log, &uid).await, records(&log, &uid).await), before);
}

/// Enough records that some of them must be staged before the last is read.
fn long_journal(log: &Log) -> Vec<StoredRecord> {
    let text = "x".repeat(log.limits().event_bytes_max.min(8_192) / 2);
    let mut at = Head::EMPTY;
    (0..900)
        .map(|_| {
            let batch = texts(at, &[&text]);
            at = batch.head();
            batch.stored().next().unwrap().clone()
        })
        .collect()
}

/// The stream breaks after `count` records.
fn broken_after(all: &[StoredRecord], count: usize) -> Items {
    let mut items = items(&all[..count]);
    items.push(Err(LogError::unavailable("the source is gone")));
    items
}

/// "When the stream fails, what was staged is kept, and the same `id` goes on
/// with it", after `staged`.
pub async fn an_import_goes_on_where_it_stopped<S: Subject>(subject: S) {
    let log = subject.log();
    let (all, id) = (long_journal(&log), sample::fresh_id());
    assert_eq!(log.staged(id).await.unwrap(), Head::EMPTY);
    let broken = stream_of(broken_after(&all, 800));
    assert_refused!(log.import(id, row_of("copy"), broken).await, LogError::Unavailable { .. });
    assert_nothing_of(&log, "copy").await;
    let staged = log.staged(id).await.unwrap();
    let count = usize::try_from(staged.seq.get()).unwrap();
    assert!((1..=800).contains(&count), "part of it is kept, and no more than came");
    assert_eq!(all[count - 1].head(), staged);
    let rest = stream_of(items(&all[count..]));
    let imported = log.import(id, row_of("copy"), rest).await.unwrap();
    assert_eq!(records(&log, &imported.session.uid).await, all);
    assert_folded(&log, &imported.session.uid).await;
    assert_eq!(log.staged(id).await.unwrap(), Head::EMPTY, "it is published");
}

/// "The stream starts at the first record again, or after `staged`."
pub async fn an_import_sent_from_the_start_goes_on<S: Subject>(subject: S) {
    let log = subject.log();
    let (all, id) = (long_journal(&log), sample::fresh_id());
    for count in [300, 600, 850] {
        let broken = stream_of(broken_after(&all, count));
        assert_refused!(log.import(id, row_of("copy"), broken).await, LogError::Unavailable { .. });
    }
    assert!(log.staged(id).await.unwrap().seq > seq(300), "it went on each time");
    let imported = log.import(id, row_of("copy"), stream_of(items(&all))).await.unwrap();
    assert_eq!(records(&log, &imported.session.uid).await, all);
    assert_folded(&log, &imported.session.uid).await;
}

/// "The same `id` goes on with it": with that journal and no other.
pub async fn an_import_does_not_go_on_with_another_journal<S: Subject>(subject: S) {
    let log = subject.log();
    let (all, id) = (long_journal(&log), sample::fresh_id());
    let broken = stream_of(broken_after(&all, 800));
    assert_refused!(log.import(id, row_of("copy"), broken).await, LogError::Unavailable { .. });
    let other = session(&log, "other").await;
    for text in 0..1_000 {
        if text % 100 == 0 {
            say(&log, &other, "another").await;
        }
    }
    let others = records(&log, &other).await;
    let refused = log.import(id, row_of("copy"), stream_of(items(&others))).await;
    assert_refused!(refused, LogError::Invalid(_));
    assert_nothing_of(&log, "copy").await;
    let imported = log.import(id, row_of("copy"), stream_of(items(&all))).await.unwrap();
    assert_eq!(records(&log, &imported.session.uid).await, all, "the right one still goes on");
}

/// "A refused record is not kept", and what came before it is: the right journal
/// goes on.
pub async fn a_refused_import_can_go_on<S: Subject>(subject: S) {
    let log = subject.log();
    let (mut all, id) = (long_journal(&log), sample::fresh_id());
    let sound = all.clone();
    all[850].hash = all[0].hash;
    let refused = log.import(id, row_of("copy"), stream_of(items(&all))).await;
    assert_refused!(refused, LogError::Tampered { .. });
    assert_nothing_of(&log, "copy").await;
    let staged = log.staged(id).await.unwrap();
    assert!(staged.seq <= seq(850));
    assert_eq!(head_at(&sound, staged.seq.get() as usize), staged);
    let imported = log.import(id, row_of("copy"), stream_of(items(&sound))).await.unwrap();
    assert_eq!(records(&log, &imported.session.uid).await, sound);
}

/// "Once published, the same `id` with the same journal answers the same": with
/// another one it is refused, and nothing happens to either.
pub async fn a_done_import_is_not_done_with_another_journal<S: Subject>(subject: S) {
    let log = subject.log();
    let id = sample::fresh_id();
    let all = source(&log, "s").await;
    let done = log.import(id, row_of("copy"), stream_of(items(&all))).await.unwrap();
    let shorter = log.import(id, row_of("copy"), stream_of(items(&all[..5]))).await;
    assert_refused!(shorter, LogError::Invalid(_));
    let other = records(&log, &session_of(&log, "other", 3).await).await;
    let another = log.import(id, row_of("other-copy"), stream_of(items(&other))).await;
    assert_refused!(another, LogError::Invalid(_));
    assert_nothing_of(&log, "other-copy").await;
    let again = log.import(id, row_of("copy"), stream_of(items(&all))).await.unwrap();
    assert_eq!(again, done);
    // What was not staged yet when the answer was lost.
    let rest = log.import(id, row_of("copy"), stream_of(items(&all[5..]))).await.unwrap();
    assert_eq!(rest, done);
}
