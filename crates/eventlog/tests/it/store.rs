//! The store over an engine in memory: the paths that the suite does not name.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, Event, EventBody, Fence, Head, Message, OsEntropy, Seq, SessionUid,
};
use mainspring_eventlog::{
    Batch, EventLog, Holder, KvOptions, KvStore, Level, LogError, MemoryEngine, NewSession,
    ReadLimit, Verified,
};

fn input(text: &str) -> Event {
    Event::of(EventBody::Input(Some(Message::user(text))))
}

fn id() -> AppendId {
    AppendId::random(&OsEntropy)
}

async fn session() -> (Arc<dyn EventLog>, SessionUid) {
    let log = KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap();
    let uid = SessionUid::random(&OsEntropy);
    log.create(id(), NewSession::bare(uid.clone(), "default")).await.unwrap();
    (Arc::new(log), uid)
}

#[tokio::test]
async fn a_journal_is_written_read_and_verified() {
    let (log, uid) = session().await;
    let holder = Holder { id: "a".to_owned(), name: "host/1".to_owned() };
    let fence = log.mint(&uid, id(), Fence::NONE, holder).await.unwrap();
    let mut head = Head::EMPTY;
    for n in 0..5 {
        let batch = Batch::link(head, vec![input(&n.to_string()).into()]).unwrap();
        head = log.append(&uid, id(), fence, &batch).await.unwrap();
    }
    let records = log.read(&uid, Seq::ZERO, ReadLimit::default(), Level::Committed).await.unwrap();
    assert_eq!(records.len(), 5);
    assert_eq!(records[4].head(), head);
    let last = log.verify(&uid, Head::EMPTY).map(Result::unwrap).collect::<Vec<_>>().await;
    assert_eq!(last.last(), Some(&Verified::Done(head)));
}

#[tokio::test]
async fn the_same_append_again_settles() {
    let (log, uid) = session().await;
    let batch = Batch::link(Head::EMPTY, vec![input("a").into()]).unwrap();
    let first = id();
    let head = log.append(&uid, first, Fence::NONE, &batch).await.unwrap();
    let next = Batch::link(head, vec![input("b").into()]).unwrap();
    log.append(&uid, id(), Fence::NONE, &next).await.unwrap();
    assert_eq!(log.append(&uid, first, Fence::NONE, &batch).await.unwrap(), head);
    let other = log.append(&uid, id(), Fence::NONE, &batch).await;
    assert!(matches!(other, Err(LogError::Conflict { .. })));
}
