//! What a store makes of bytes that were changed behind its back.

use futures_util::StreamExt as _;
use mainspring_api::{Head, Seq, SessionUid};
use mainspring_eventlog::{
    Engine, EventLog, Keep, KvOptions, KvStore, Level, ListQuery, LogError, Space, Verified,
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
