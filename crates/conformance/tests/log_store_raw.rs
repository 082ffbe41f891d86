//! What a store makes of bytes that were changed behind its back.

use futures_util::StreamExt as _;
use mainspring_api::{Clock as _, Head, Seq, SessionUid, SystemClock};
use mainspring_eventlog::{
    Engine, EventLog, ImportRecord, ImportRow, Keep, KvOptions, KvStore, Level, ListQuery,
    LogError, NewSession, Space, Verified,
};
use mainspring_testkit::{SharedMemory, append, create, read_all, sample};

/// The engine under a store, opened by hand.
struct Raw(SharedMemory);

impl Raw {
    /// The keys and values of the records, in order.
    fn records(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        self.0
            .read(&mut |kv| {
                kv.scan(Space::Records, &[], &[0xff], &mut |key, value| {
                    all.push((key.to_vec(), value.to_vec()));
                    std::ops::ControlFlow::Continue(())
                })
            })
            .unwrap();
        all
    }

    /// Replaces the value of the record at `index`, or removes it.
    fn set(&self, index: usize, value: Option<Vec<u8>>) {
        let key = self.records()[index].0.clone();
        self.0
            .write(&mut |kv| {
                match &value {
                    Some(value) => kv.put(Space::Records, &key, value)?,
                    None => kv.delete(Space::Records, &key)?,
                }
                Ok(Keep::Yes)
            })
            .unwrap();
    }

    /// Replaces a text inside the record at `index` by one of the same length.
    fn edit(&self, index: usize, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        let mut value = self.records()[index].1.clone();
        let at = value.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        value[at..at + to.len()].copy_from_slice(to.as_bytes());
        self.set(index, Some(value));
    }
}

const LEN: usize = 5;

/// A session of five records, and another one beside it.
async fn store() -> (Raw, KvStore<SharedMemory>, SessionUid) {
    let engine = SharedMemory::default();
    let log = KvStore::open(engine.clone(), KvOptions::default()).unwrap();
    for name in ["a", "b"] {
        let uid = sample::session(name);
        create(&log, &uid).await.unwrap();
        let turn = sample::turn(&sample::execution(1), "hello");
        append(&log, &uid, sample::records(turn)).await.unwrap();
    }
    (Raw(engine), log, sample::session("a"))
}

async fn verdict(log: &dyn EventLog, uid: &SessionUid) -> Result<Verified, LogError> {
    let mut steps = log.verify(uid, Head::EMPTY);
    let mut last = None;
    while let Some(step) = steps.next().await {
        last = Some(step);
    }
    last.unwrap()
}

async fn listed(log: &dyn EventLog) -> usize {
    let project = "default".to_owned();
    let query = ListQuery { project, page_size: 500, ..ListQuery::default() };
    log.list(query, Level::Strict).await.unwrap().rows.len()
}

/// "Unknown enum values refuse as `UnsupportedRecord`, and the rest of the
/// session stays readable and listable."
#[tokio::test]
async fn a_record_of_tomorrow_fails_no_get_and_no_list() {
    let (engine, log, uid) = store().await;
    let before = log.get(&uid, Level::Strict).await.unwrap();
    engine.edit(1, "EVENT_INPUT", "EVENT_1NPUT");
    engine.edit(3, "\"role\"", "\"rule\"");
    assert_eq!(log.get(&uid, Level::Strict).await.unwrap(), before);
    assert_eq!(listed(&log).await, 2);
    let records = read_all(&log, &uid).await.unwrap();
    assert_eq!(records.len(), LEN);
    for (index, record) in records.iter().enumerate() {
        match record.event() {
            Ok(_) => assert!(index != 1 && index != 3),
            Err(LogError::UnsupportedRecord { seq, .. }) => {
                assert!(index == 1 || index == 3);
                assert_eq!(seq, record.seq);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn an_edited_record_is_named() {
    for index in 0..LEN {
        let (engine, log, uid) = store().await;
        engine.edit(index, "\"kind\"", "\"kinb\"");
        let found = verdict(&log, &uid).await.unwrap_err();
        assert!(
            matches!(found, LogError::Tampered { seq, .. }
            if seq == Seq::new(index as u64 + 1)),
            "{found}"
        );
        verdict(&log, &sample::session("b")).await.unwrap();
    }
}

#[tokio::test]
async fn swapped_records_are_named() {
    let (engine, log, uid) = store().await;
    let all = engine.records();
    engine.set(2, Some(all[3].1.clone()));
    engine.set(3, Some(all[2].1.clone()));
    let found = verdict(&log, &uid).await.unwrap_err();
    assert!(matches!(found, LogError::Tampered { seq, .. } if seq == Seq::new(3)), "{found}");
}

/// "A journal that ends before its row's head is `Tampered` at the first missing one."
#[tokio::test]
async fn a_missing_record_is_named_also_at_the_end() {
    for index in 0..LEN {
        let (engine, log, uid) = store().await;
        engine.set(index, None);
        let found = verdict(&log, &uid).await.unwrap_err();
        assert!(
            matches!(found, LogError::Tampered { seq, .. }
            if seq == Seq::new(index as u64 + 1)),
            "{index}: {found}"
        );
        assert_eq!(listed(&log).await, 2);
    }
}

/// "`Corrupt` for a record that cannot be taken apart": what is whole before it
/// is handed out, and no other session suffers.
#[tokio::test]
async fn a_record_cut_short_is_damage_of_its_session_alone() {
    let (engine, log, uid) = store().await;
    let value = engine.records()[2].1.clone();
    for len in [0, 1, 9, 41, 60] {
        engine.set(2, Some(value[..len].to_vec()));
        let error = read_all(&log, &uid).await.unwrap_err();
        assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
        let page = log.read(&uid, Seq::new(1), Default::default(), Level::Strict).await.unwrap();
        assert_eq!(page.len(), 2);
        assert!(verdict(&log, &uid).await.is_err());
        assert_eq!(read_all(&log, &sample::session("b")).await.unwrap().len(), LEN);
        assert_eq!(listed(&log).await, 2);
    }
}

/// Puts back the rows as they were.
fn rewind(engine: &Raw, rows: &[(Vec<u8>, Vec<u8>)]) {
    engine
        .0
        .write(&mut |kv| {
            for (key, value) in rows {
                kv.put(Space::Rows, key, value)?;
            }
            Ok(Keep::Yes)
        })
        .unwrap();
}

fn space(engine: &Raw, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    engine
        .0
        .read(&mut |kv| {
            kv.scan(space, &[], &[0xff], &mut |key, value| {
                all.push((key.to_vec(), value.to_vec()));
                std::ops::ControlFlow::Continue(())
            })
        })
        .unwrap();
    all
}

/// A projection that was rewound is found by the next verification, which
/// every open for a turn makes, and folded forward from the records.
#[tokio::test]
async fn b11_a_row_behind_its_records_is_folded_forward() {
    let (engine, log, uid) = store().await;
    let rows = space(&engine, Space::Rows);
    for number in 2..5 {
        let turn = sample::turn(&sample::execution(number), "more");
        append(&log, &uid, sample::records(turn)).await.unwrap();
    }
    let before = log.get(&uid, Level::Strict).await.unwrap();
    let all = read_all(&log, &uid).await.unwrap();
    drop(log);
    rewind(&engine, &rows);
    let log = KvStore::open(engine.0.clone(), KvOptions::default()).unwrap();
    assert_eq!(log.get(&uid, Level::Strict).await.unwrap().view.head, all[4].head());
    assert_eq!(verdict(&log, &uid).await.unwrap(), Verified::Done(before.view.head));
    assert_eq!(log.get(&uid, Level::Strict).await.unwrap().view, before.view);
    append(&log, &uid, sample::records([sample::input("goes on")])).await.unwrap();
    assert_eq!(read_all(&log, &uid).await.unwrap()[..all.len()], all);
    verdict(&log, &uid).await.unwrap();
}

/// What follows the head and is no part of the chain is refused, not folded.
#[tokio::test]
async fn records_after_the_head_that_are_no_chain_are_tampered() {
    let (engine, log, uid) = store().await;
    let rows = space(&engine, Space::Rows);
    append(&log, &uid, sample::records([sample::input("last")])).await.unwrap();
    drop(log);
    rewind(&engine, &rows);
    engine.edit(LEN, "last", "lost");
    let log = KvStore::open(engine.0.clone(), KvOptions::default()).unwrap();
    for _ in 0..2 {
        let found = verdict(&log, &uid).await.unwrap_err();
        assert!(matches!(found, LogError::Tampered { seq, .. } if seq == Seq::new(6)), "{found}");
    }
    assert_eq!(log.get(&uid, Level::Strict).await.unwrap().view.head.seq, Seq::new(5));
}

async fn delete_and_purge(log: &KvStore<SharedMemory>, uid: &SessionUid) {
    append(log, uid, sample::records([sample::deletion()])).await.unwrap();
    log.purge().unwrap().purge(sample::fresh_id(), uid).await.unwrap();
}

/// "Drops the records": what no fork shows is gone from the engine, at once or
/// with the last fork that shows it.
#[tokio::test]
async fn purged_bytes_are_gone_with_the_last_that_shows_them() {
    let (engine, log, uid) = store().await;
    for number in 2..4 {
        let turn = sample::turn(&sample::execution(number), "more");
        append(&log, &uid, sample::records(turn)).await.unwrap();
    }
    log.annotate(&uid, Seq::new(2), mainspring_api::Fence::NONE, "low", "1").await.unwrap();
    log.annotate(&uid, Seq::new(14), mainspring_api::Fence::NONE, "high", "1").await.unwrap();
    let all = read_all(&log, &uid).await.unwrap();
    let fork = async |parent: &SessionUid, at: Head, name: &str| {
        let child = NewSession::bare(sample::session(name), "default");
        let children = vec![(child, sample::fork_marker(at.seq))];
        log.fork(sample::fresh_id(), parent, at, children).await.unwrap();
        sample::session(name)
    };
    let child = fork(&uid, all[6].head(), "c").await;
    let head = log.head(&child, Level::Strict).await.unwrap();
    let grandchild = fork(&child, head, "d").await;
    let of = |name: &str| {
        let prefix = [sample::session(name).as_str().as_bytes(), &[0]].concat();
        engine.records().iter().filter(|(key, _)| key.starts_with(&prefix)).count()
    };
    delete_and_purge(&log, &uid).await;
    assert_eq!((of("a"), of("c"), of("d")), (7, 1, 1), "the forks show seven of it");
    assert_eq!(space(&engine, Space::Notes).len(), 1);
    delete_and_purge(&log, &child).await;
    assert_eq!((of("a"), of("c"), of("d")), (7, 1, 1), "the last fork shows them still");
    verdict(&log, &grandchild).await.unwrap();
    delete_and_purge(&log, &grandchild).await;
    assert_eq!((of("a"), of("c"), of("d")), (0, 0, 0));
    let beside = [sample::session("b").as_str().as_bytes(), &[0]].concat();
    for gone in [Space::Notes, Space::Executions, Space::Children] {
        let left = space(&engine, gone);
        assert!(left.iter().all(|(key, _)| key.starts_with(&beside)), "{gone:?}: {left:?}");
    }
    verdict(&log, &sample::session("b")).await.unwrap();
}

/// Staged records of an import that nobody went on with for a week are removed
/// when the store is opened; younger ones are kept.
#[tokio::test]
async fn old_staged_imports_are_removed_at_open() {
    let (engine, log, uid) = store().await;
    let text = "x".repeat(3 << 20);
    append(&log, &uid, sample::records([sample::input(&text)])).await.unwrap();
    let all = read_all(&log, &uid).await.unwrap();
    let row = ImportRow {
        session: NewSession::bare(sample::session("copy"), "default"),
        create_time: None,
        parent: None,
    };
    let items: Vec<_> = all
        .into_iter()
        .map(|record| Ok(ImportRecord::Record(record)))
        .chain([Err(LogError::unavailable("gone"))])
        .collect();
    let id = sample::fresh_id();
    log.import(id, row, Box::pin(futures_util::stream::iter(items))).await.unwrap_err();
    drop(log);
    let days = |days: u64| {
        let clock = mainspring_testkit::ManualClock::at_unix(SystemClock.now().seconds);
        clock.advance(std::time::Duration::from_secs(days * 86_400));
        KvOptions { clock: std::sync::Arc::new(clock), ..KvOptions::default() }
    };
    let log = KvStore::open(engine.0.clone(), days(6)).unwrap();
    assert_eq!(log.staged(id).await.unwrap().seq, Seq::new(6));
    drop(log);
    let log = KvStore::open(engine.0.clone(), days(8)).unwrap();
    assert_eq!(log.staged(id).await.unwrap(), Head::EMPTY);
    assert_eq!(engine.records().len(), 11, "those of the two sessions are left");
    assert!(space(&engine, Space::Staging).is_empty());
}
