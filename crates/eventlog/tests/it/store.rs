//! The store over an engine in memory: the paths that the suite does not name.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, Event, EventBody, ExecutionId, Fence, Head, Message, OsEntropy, Seq, SessionUid,
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

/// The latest, older ones, and those of a parent up to the fork, as they were there.
#[tokio::test]
async fn an_execution_is_found_by_its_id() {
    let (log, uid) = session().await;
    let execution = |n: u8| ExecutionId::new(&format!("e{n}")).unwrap();
    let of = |n: u8| {
        let body = EventBody::Input(Some(Message::user("x")));
        Event::in_execution(&execution(n), body).into()
    };
    let batch = Batch::link(Head::EMPTY, vec![of(1), of(2)]).unwrap();
    let at = log.append(&uid, id(), Fence::NONE, &batch).await.unwrap();
    let child = NewSession::bare(SessionUid::random(&OsEntropy), "default");
    let marker = input("marker");
    let forked = log.fork(id(), &uid, at, vec![(child, marker)]).await.unwrap().remove(0);
    let batch = Batch::link(at, vec![of(2), of(3)]).unwrap();
    log.append(&uid, id(), Fence::NONE, &batch).await.unwrap();
    let found = async |session: &SessionUid, n: u8| {
        let view = log.execution(session, &execution(n)).await.unwrap();
        view.map(|view| (view.first_seq.get(), view.last_seq.get()))
    };
    assert_eq!(found(&uid, 1).await, Some((1, 1)));
    assert_eq!(found(&uid, 2).await, Some((2, 3)));
    assert_eq!(found(&uid, 3).await, Some((4, 4)));
    assert_eq!(found(&uid, 4).await, None);
    let child = forked.session.uid;
    assert_eq!(found(&child, 1).await, Some((1, 1)));
    assert_eq!(found(&child, 2).await, Some((2, 2)), "as it was at the fork");
    assert_eq!(found(&child, 3).await, None);
    let missing = SessionUid::random(&OsEntropy);
    let refused = log.execution(&missing, &execution(1)).await;
    assert!(matches!(refused, Err(LogError::SessionNotFound(_))));
}
