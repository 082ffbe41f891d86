//! Stores of older versions are migrated, and a copy is kept.

use futures_util::stream;
use mainspring_api::{EndState, ExecState, Head, Owner, Seq};
use mainspring_eventlog::{
    Engine, EventLog, ImportRecord, ImportRow, Keep, KvOptions, KvStore, Level, ListQuery,
    LogError, Mark, NewSession, SCHEMA_VERSION, Space,
};
use mainspring_testkit::{SharedMemory, append, fold_all, read_all, sample, verify_all};

/// Every key and value of a store that version 0.1.0 wrote: a session of three
/// turns with an owner, a label and a note, forks and forks of forks, an
/// import, a fork of it, and an import that was under way.
const SCHEMA_1: &str = include_str!("data/schema-1.txt");

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn load(dump: &str) -> SharedMemory {
    let engine = SharedMemory::default();
    engine
        .write(&mut |kv| {
            for line in dump.lines().filter(|line| !line.starts_with('#')) {
                let [space, key, value] = line.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("a line has three parts: {line}");
                };
                let space = Space::ALL.into_iter().find(|s| s.name() == space).unwrap();
                kv.put(space, &unhex(key), &unhex(value))?;
            }
            Ok(Keep::Yes)
        })
        .unwrap();
    engine
}

fn open(engine: &SharedMemory) -> KvStore<SharedMemory> {
    KvStore::open(engine.clone(), KvOptions::default()).unwrap()
}

fn meta(engine: &SharedMemory, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    engine
        .read(&mut |kv| {
            found = kv.get(Space::Meta, key)?;
            Ok(())
        })
        .unwrap();
    found
}

fn space(engine: &SharedMemory, space: Space) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    engine
        .read(&mut |kv| {
            kv.scan(space, &[], &[0xff], &mut |key, _| {
                keys.push(key.to_vec());
                std::ops::ControlFlow::Continue(())
            })
        })
        .unwrap();
    keys
}

const SESSIONS: [&str; 7] = ["a", "b", "child1", "child2", "grandchild", "imported", "of-import"];

#[tokio::test]
async fn a_store_of_schema_1_is_read_whole() {
    let engine = load(SCHEMA_1);
    assert_eq!(meta(&engine, b"schema").as_deref(), Some(&b"1"[..]));
    let id = meta(&engine, b"store_id");
    let log = open(&engine);
    assert_eq!(meta(&engine, b"schema"), Some(SCHEMA_VERSION.to_string().into_bytes()));
    assert_eq!(meta(&engine, b"store_id"), id);
    for name in SESSIONS {
        let uid = sample::session(name);
        let row = log.get(&uid, Level::Strict).await.unwrap();
        assert_eq!(verify_all(&log, &uid).await.unwrap(), row.view.head);
        assert_eq!(fold_all(&log, &uid).await.unwrap(), row.view, "{name}");
    }
    let a = log.get(&sample::session("a"), Level::Strict).await.unwrap();
    assert_eq!((a.session.name.as_str(), a.fence.fence.get()), ("first", 3));
    assert_eq!(a.session.owner.unwrap().subject, "sub");
    let records = read_all(&log, &sample::session("a")).await.unwrap();
    assert_eq!(records[2].notes["started"], "yes");
    assert!(records.iter().all(|record| record.notes.contains_key("commit_time")));
    assert!(log.get(&sample::session("never"), Level::Strict).await.is_err());
    drop(log);
    open(&engine);
}

#[tokio::test]
async fn a_migrated_store_goes_on() {
    let engine = load(SCHEMA_1);
    let log = open(&engine);
    for name in SESSIONS {
        let uid = sample::session(name);
        let turn = sample::turn(&sample::execution(77), "after the migration");
        append(&log, &uid, sample::records(turn)).await.unwrap();
        assert_eq!(
            fold_all(&log, &uid).await.unwrap(),
            log.get(&uid, Level::Strict).await.unwrap().view
        );
    }
    // The operation ids that it knew settle still.
    let parent = sample::session("a");
    let records = read_all(&log, &parent).await.unwrap();
    let at = records[6].head();
    let children = ["child1", "child2"].map(|name| {
        (NewSession::bare(sample::session(name), "default"), sample::fork_marker(at.seq))
    });
    let again = log.fork(sample::id(30), &parent, at, children.to_vec()).await.unwrap();
    assert_eq!(again.len(), 2);
    // So does an import, and the one that was under way starts over.
    let row = |name: &str| ImportRow {
        session: NewSession::bare(sample::session(name), "default"),
        create_time: None,
        parent: None,
    };
    let nothing = || Box::pin(stream::iter(Vec::<Result<ImportRecord, LogError>>::new()));
    let again = log.import(sample::id(40), row("imported"), nothing()).await.unwrap();
    assert_eq!(again.session.uid, sample::session("imported"));
    assert_eq!(log.staged(sample::id(42)).await.unwrap(), Head::EMPTY);
    let items = records.iter().cloned().map(|record| Ok(ImportRecord::Record(record)));
    let items = Box::pin(stream::iter(items.collect::<Vec<_>>()));
    log.import(sample::id(42), row("never"), items).await.unwrap();
}

/// What version 3 looks up is found in a store of before.
#[tokio::test]
async fn a_store_of_schema_2_lists_what_it_did_not_index() {
    let engine = SharedMemory::default();
    let log = open(&engine);
    let owner = Owner { issuer: "i".to_owned(), subject: "s".to_owned() };
    for name in ["idle", "owned", "running", "deleted"] {
        let mut session = NewSession::bare(sample::session(name), "default");
        session.owner = (name == "owned").then(|| owner.clone());
        log.create(sample::fresh_id(), session).await.unwrap();
    }
    let start = sample::records([sample::start(&sample::execution(1), 0)]);
    append(&log, &sample::session("running"), start).await.unwrap();
    let deletion = sample::records([sample::deletion()]);
    append(&log, &sample::session("deleted"), deletion).await.unwrap();
    drop(log);
    let index = space(&engine, Space::Index);
    assert_eq!(index.len(), 3);
    engine
        .write(&mut |kv| {
            for key in &index {
                kv.delete(Space::Index, key)?;
            }
            kv.put(Space::Meta, b"schema", b"2")?;
            // A damaged row is left as it is.
            kv.put(Space::Rows, b"damaged", b"{}")?;
            Ok(Keep::Yes)
        })
        .unwrap();
    let log = open(&engine);
    assert_eq!(space(&engine, Space::Index), index);
    let listed = async |query: ListQuery| {
        let query = ListQuery { project: "default".to_owned(), page_size: 10, ..query };
        let page = log.list(query, Level::Strict).await.unwrap();
        page.rows.into_iter().map(|row| row.session.uid).collect::<Vec<_>>()
    };
    let of = ListQuery { owner: Some(owner), ..ListQuery::default() };
    assert_eq!(listed(of).await, [sample::session("owned")]);
    let running = ListQuery { states: vec![ExecState::Running], ..ListQuery::default() };
    assert_eq!(listed(running).await, [sample::session("running")]);
    let deleted = log.marked(Mark::Deleted, None, 10).await.unwrap();
    assert_eq!(deleted[0].session.uid, sample::session("deleted"));
    // From here on they move.
    let end = sample::records([sample::end(&sample::execution(1), EndState::Completed)]);
    append(&log, &sample::session("running"), end).await.unwrap();
    assert_eq!(space(&engine, Space::Index).len(), 2);
}

/// What forks show is found by the purge of a session that was forked before.
#[tokio::test]
async fn a_purge_knows_the_forks_of_before_the_migration() {
    let engine = load(SCHEMA_1);
    let log = open(&engine);
    for parent in ["a", "child1", "imported"] {
        let uid = sample::session(parent);
        append(&log, &uid, sample::records([sample::deletion()])).await.unwrap();
        log.purge().unwrap().purge(sample::fresh_id(), &uid).await.unwrap();
    }
    for fork in ["child2", "grandchild", "of-import"] {
        let uid = sample::session(fork);
        verify_all(&log, &uid).await.unwrap();
        assert_eq!(
            fold_all(&log, &uid).await.unwrap(),
            log.get(&uid, Level::Strict).await.unwrap().view
        );
        assert_eq!(read_all(&log, &uid).await.unwrap()[0].seq, Seq::new(1));
    }
}
