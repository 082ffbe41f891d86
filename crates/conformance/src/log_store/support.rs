//! What the cases share.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{AppendId, Classify as _, Event, Fence, Head, Outcome, Seq, SessionUid};
use mainspring_eventlog::{
    Batch, EventLog, Level, ListQuery, LogError, NewRecord, NewSession, SessionRow, StoredRecord,
};
use mainspring_testkit::{SeededRng, read_all, sample};

pub(super) type Log = Arc<dyn EventLog>;

/// The project of every session that a case does not say otherwise of.
pub(super) const PROJECT: &str = "default";

/// A session that is not there yet.
pub(super) fn new_session(name: &str) -> NewSession {
    NewSession::bare(sample::session(name), PROJECT)
}

/// Creates a session.
pub(super) async fn session(log: &Log, name: &str) -> SessionUid {
    let session = new_session(name);
    log.create(sample::fresh_id(), session.clone()).await.unwrap();
    session.uid
}

/// A batch of inputs with these texts.
pub(super) fn texts(base: Head, texts: &[&str]) -> Batch {
    events(base, texts.iter().map(|text| sample::input(text)))
}

/// A batch of these events.
pub(super) fn events(base: Head, events: impl IntoIterator<Item = Event>) -> Batch {
    Batch::link(base, events.into_iter().map(NewRecord::from).collect()).unwrap()
}

/// Appends one input under the fence in force.
pub(super) async fn say(log: &Log, uid: &SessionUid, text: &str) -> Head {
    mainspring_testkit::append(&**log, uid, sample::records([sample::input(text)])).await.unwrap()
}

/// A session of `len` inputs, one append each.
pub(super) async fn session_of(log: &Log, name: &str, len: usize) -> SessionUid {
    let uid = session(log, name).await;
    for number in 1..=len {
        say(log, &uid, &format!("{name} {number}")).await;
    }
    uid
}

/// Mints over whatever fence is in force.
pub(super) async fn mint(log: &Log, uid: &SessionUid) -> Fence {
    let current = row(log, uid).await.fence.fence;
    log.mint(uid, sample::fresh_id(), current, sample::holder("h")).await.unwrap()
}

pub(super) async fn row(log: &Log, uid: &SessionUid) -> SessionRow {
    log.get(uid, Level::Strict).await.unwrap()
}

pub(super) async fn head(log: &Log, uid: &SessionUid) -> Head {
    log.head(uid, Level::Strict).await.unwrap()
}

pub(super) async fn records(log: &Log, uid: &SessionUid) -> Vec<StoredRecord> {
    read_all(&**log, uid).await.unwrap()
}

/// The head after the record at `seq`.
pub(super) fn head_at(records: &[StoredRecord], seq: usize) -> Head {
    match seq {
        0 => Head::EMPTY,
        seq => records[seq - 1].head(),
    }
}

/// Rows of a project, by pages of `page_size`.
pub(super) async fn list_by(log: &Log, query: ListQuery) -> Vec<SessionRow> {
    let mut rows: Vec<SessionRow> = Vec::new();
    let mut query = query;
    loop {
        let page = log.list(query.clone(), Level::Strict).await.unwrap();
        assert!(page.rows.len() <= query.page_size, "a page has at most its size");
        rows.extend(page.rows);
        match page.next {
            None => return rows,
            next => {
                assert_ne!(next, query.after, "a next page starts further on");
                query.after = next;
            }
        }
    }
}

pub(super) fn everything() -> ListQuery {
    ListQuery { project: PROJECT.to_owned(), page_size: 500, ..ListQuery::default() }
}

pub(super) fn uids(rows: &[SessionRow]) -> Vec<&str> {
    rows.iter().map(|row| row.session.uid.as_str()).collect()
}

/// The longest that something which has happened may take to be seen.
const SEEN_MAX: Duration = Duration::from_secs(5);

/// Waits for something that must come soon.
pub(super) async fn soon<T>(what: &str, comes: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SEEN_MAX, comes).await {
        Ok(there) => there,
        Err(_) => panic!("{what} did not come within {SEEN_MAX:?}"),
    }
}

/// A refusal says that nothing was applied.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, LogError>) -> LogError {
    let error = result.expect_err("it is refused");
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    error
}

macro_rules! assert_refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = $crate::log_store::support::refused($result);
        assert!(matches!(&error, $pattern $(if $guard)?), "refused otherwise: {error:?}");
    }};
}
pub(super) use assert_refused;

/// A session that a fork of `parent` may create.
pub(super) fn child(log: &Log, parent: &SessionUid, name: &str) -> NewSession {
    (0..10_000)
        .map(|draw| {
            new_session(&if draw == 0 { name.to_owned() } else { format!("{name}.{draw}") })
        })
        .find(|session| log.may_be_child(parent, &session.uid))
        .expect("one of many uids may be a child")
}

/// Forks one child with the usual marker.
pub(super) async fn fork(log: &Log, parent: &SessionUid, at: Head, name: &str) -> SessionUid {
    let session = child(log, parent, name);
    let uid = session.uid.clone();
    let children = vec![(session, sample::fork_marker(at.seq))];
    log.fork(sample::fresh_id(), parent, at, children).await.unwrap();
    uid
}

/// Appends a few random events, in batches, as whoever holds the session.
pub(super) async fn append_random(log: &Log, uid: &SessionUid, rng: &mut SeededRng, count: usize) {
    let mut left = count;
    while left > 0 {
        let size = (1 + rng.below(4)).min(left);
        let batch = (0..size).map(|_| sample::random_event(rng));
        mainspring_testkit::append(&**log, uid, sample::records(batch)).await.unwrap();
        left -= size;
    }
}

/// The row's fold is the fold of its records, and the chain holds.
pub(super) async fn assert_folded(log: &Log, uid: &SessionUid) {
    let row = row(log, uid).await;
    let fold = mainspring_testkit::fold_all(&**log, uid).await.unwrap();
    assert_eq!(row.view, fold, "the row of {uid} is the fold of its journal");
    assert_eq!(mainspring_testkit::verify_all(&**log, uid).await.unwrap(), fold.head);
}

/// Sends an append.
pub(super) async fn send(
    log: &Log,
    uid: &SessionUid,
    id: AppendId,
    fence: Fence,
    batch: &Batch,
) -> Result<Head, LogError> {
    log.append(uid, id, fence, batch).await
}

pub(super) const fn seq(number: u64) -> Seq {
    Seq::new(number)
}
