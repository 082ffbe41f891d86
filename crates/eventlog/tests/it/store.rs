//! The store over an engine in memory: the paths that the suite does not name.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    AppendId, Event, EventBody, ExecutionId, Fence, Head, Message, OsEntropy, Owner, Seq,
    SessionUid,
};
use mainspring_eventlog::{
    Batch, EventLog, Holder, ImportRecord, ImportRow, KvOptions, KvStore, LIST_PAGE_BYTES_MAX,
    Level, ListQuery, LogError, MemoryEngine, NewSession, PROJECT_BYTES_MAX, ReadLimit, RowPatch,
    SESSION_METADATA_BYTES_MAX, SESSION_NAME_BYTES_MAX, Verified,
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

fn too_large<T: std::fmt::Debug>(answer: Result<T, LogError>) -> &'static str {
    match answer {
        Err(LogError::TooLarge { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// However a session comes to be, and whoever looks for one: names and
/// metadata have bounds, and what exceeds them is refused by its name.
#[tokio::test]
async fn metadata_beyond_its_bound_is_refused_by_name() {
    let (log, parent) = session().await;
    let head = Batch::link(Head::EMPTY, vec![input("a").into()]).unwrap();
    let head = log.append(&parent, id(), Fence::NONE, &head).await.unwrap();
    let bare = || NewSession::bare(SessionUid::random(&OsEntropy), "default");
    let owner = |issuer: usize, subject: usize| {
        Some(Owner { issuer: "i".repeat(issuer), subject: "s".repeat(subject) })
    };
    let name = SESSION_NAME_BYTES_MAX;
    let labels = |bytes: usize| [("k".to_owned(), "v".repeat(bytes))].into();
    for (what, session) in [
        ("project", NewSession { project: "p".repeat(70_000), ..bare() }),
        ("project", NewSession { project: "p".repeat(PROJECT_BYTES_MAX + 1), ..bare() }),
        ("name", NewSession { name: "n".repeat(name + 1), ..bare() }),
        ("harness", NewSession { harness: "n".repeat(name + 1), ..bare() }),
        ("model", NewSession { model: "n".repeat(name + 1), ..bare() }),
        ("owner_issuer", NewSession { owner: owner(name + 1, 1), ..bare() }),
        ("owner_subject", NewSession { owner: owner(1, name + 1), ..bare() }),
        (
            "session metadata (mostly labels)",
            NewSession { labels: labels(SESSION_METADATA_BYTES_MAX), ..bare() },
        ),
    ] {
        assert_eq!(too_large(log.create(id(), session.clone()).await), what);
        let row = ImportRow { session: session.clone(), create_time: None, parent: None };
        let named = ImportRecord::Head(Head::EMPTY, Some(Box::new(row.clone())));
        let none = Box::pin(futures_util::stream::empty());
        assert_eq!(too_large(log.import(id(), row, none).await), what);
        let plain = ImportRow { session: bare(), create_time: None, parent: None };
        let lines = Box::pin(futures_util::stream::iter([Ok(named)]));
        assert_eq!(too_large(log.import(id(), plain, lines).await), what);
        let children = vec![(session.clone(), input("marker"))];
        assert_eq!(too_large(log.fork(id(), &parent, head, children).await), what);
        if matches!(what, "project" | "harness" | "owner_issuer" | "owner_subject") {
            let NewSession { project, harness, owner, .. } = session;
            let query = ListQuery { project, harness, owner, page_size: 1, ..Default::default() };
            assert_eq!(too_large(log.list(query, Level::Committed).await), what);
        }
    }
    for (what, patch) in [
        ("name", RowPatch { name: Some("n".repeat(name + 1)), ..Default::default() }),
        ("owner_subject", RowPatch { owner: owner(1, name + 1), ..Default::default() }),
        (
            "session metadata (mostly annotations)",
            RowPatch {
                annotations: Some(labels(SESSION_METADATA_BYTES_MAX)),
                ..Default::default()
            },
        ),
    ] {
        assert_eq!(too_large(log.update(id(), &parent, 1, patch).await), what);
    }
    assert_eq!(log.get(&parent, Level::Strict).await.unwrap().version, 1);
    // The bounds themselves are within.
    let whole = NewSession {
        project: "p".repeat(PROJECT_BYTES_MAX),
        owner: owner(name, name),
        harness: "h".repeat(name),
        ..bare()
    };
    let row = log.create(id(), whole.clone()).await.unwrap();
    let NewSession { project, owner, harness, .. } = whole;
    let query = ListQuery { project, owner, harness, page_size: 1, ..Default::default() };
    assert_eq!(log.list(query, Level::Committed).await.unwrap().rows, [row]);
}

/// However many rows are asked for, a page holds a bounded number of bytes.
#[tokio::test]
async fn a_page_of_large_rows_ends_early() {
    let (log, _) = session().await;
    let label = "v".repeat(SESSION_METADATA_BYTES_MAX - 100);
    let rows = LIST_PAGE_BYTES_MAX / label.len() + 10;
    for _ in 0..rows {
        let session = NewSession {
            labels: [("k".to_owned(), label.clone())].into(),
            ..NewSession::bare(SessionUid::random(&OsEntropy), "large")
        };
        log.create(id(), session).await.unwrap();
    }
    let query = ListQuery { project: "large".to_owned(), page_size: 500, ..Default::default() };
    let first = log.list(query.clone(), Level::Committed).await.unwrap();
    let bytes: usize = first.rows.iter().map(|row| row.session.metadata_bytes()).sum();
    assert!(bytes <= LIST_PAGE_BYTES_MAX, "{bytes}");
    assert!(first.rows.len() > rows / 2);
    let after = first.next.expect("there are more");
    let rest = log.list(ListQuery { after: Some(after), ..query }, Level::Committed).await.unwrap();
    assert_eq!((first.rows.len() + rest.rows.len(), rest.next), (rows, None));
}
