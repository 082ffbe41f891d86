//! Lists that do not look at the whole project: an owner's sessions, open ones,
//! and what a host looks for in every project.

use futures_util::stream;
use mainspring_api::{
    ApprovalRequest, ApprovalResult, EndState, Event, EventBody, ExecState, ExecutionId, Mediation,
    Owner, SessionUid, ToolCall, ToolResult,
};
use mainspring_eventlog::{ImportRecord, ImportRow, ListQuery, Mark, NewSession, RowPatch};
use mainspring_testkit::sample;

use super::Subject;
use super::support::{
    Log, child, everything, fork, head, list_by, new_session, records, row, say, session, uids,
};

fn owner(subject: &str) -> Option<Owner> {
    Some(Owner { issuer: "i".to_owned(), subject: subject.to_owned() })
}

async fn create(log: &Log, session: NewSession) -> SessionUid {
    log.create(sample::fresh_id(), session).await.unwrap().session.uid
}

async fn append(log: &Log, uid: &SessionUid, events: Vec<Event>) {
    mainspring_testkit::append(&**log, uid, sample::records(events)).await.unwrap();
}

async fn delete(log: &Log, uid: &SessionUid) {
    append(log, uid, vec![sample::deletion()]).await;
}

/// What a gate records, one after the other: call, request, decision, receipt.
fn gate(execution: &ExecutionId) -> [Event; 4] {
    let id = || "c".to_owned();
    [
        EventBody::ToolCall(Some(ToolCall {
            id: id(),
            tool: "t".to_owned(),
            mediation: Mediation::RequiresApproval,
            idempotency_key: "k".to_owned(),
            ..ToolCall::default()
        })),
        EventBody::ApprovalRequest(Some(ApprovalRequest {
            tool_call_id: id(),
            reason: String::new(),
        })),
        EventBody::ApprovalResult(Some(ApprovalResult {
            tool_call_id: id(),
            approved: true,
            reason: String::new(),
            request_seq: 3,
        })),
        EventBody::ToolResult(Some(ToolResult { id: id(), ..ToolResult::default() })),
    ]
    .map(|body| Event::in_execution(execution, body))
}

/// A session that waits for a decision.
async fn awaiting(log: &Log, session: NewSession) -> SessionUid {
    let uid = create(log, session).await;
    let turn = sample::execution(1);
    let [call, request, ..] = gate(&turn);
    append(log, &uid, vec![sample::start(&turn, 0), call, request]).await;
    uid
}

/// Names of a list's sessions, sorted.
async fn names(log: &Log, query: ListQuery) -> Vec<String> {
    let rows = list_by(log, query).await;
    let names = uids(&rows).into_iter().map(|uid| uid.trim_start_matches("sess-").to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// "Owner": wherever a session has its owner from, and in its own project alone.
pub async fn an_owners_list_has_every_session_of_theirs<S: Subject>(subject: S) {
    let log = subject.log();
    create(&log, NewSession { owner: owner("a"), ..new_session("created") }).await;
    create(&log, NewSession { owner: owner("b"), ..new_session("foreign") }).await;
    let elsewhere = NewSession::bare(sample::session("elsewhere"), "other");
    create(&log, NewSession { owner: owner("a"), ..elsewhere }).await;
    let adopted = session(&log, "adopted").await;
    let patch = RowPatch { owner: owner("a"), ..RowPatch::default() };
    log.update(sample::fresh_id(), &adopted, 1, patch).await.unwrap();
    let parent = session(&log, "unowned").await;
    say(&log, &parent, "x").await;
    let at = head(&log, &parent).await;
    let owned = NewSession { owner: owner("a"), ..child(&log, &parent, "forked") };
    let forked = owned.uid.as_str().trim_start_matches("sess-").to_owned();
    let children = vec![(owned, sample::fork_marker(at.seq))];
    log.fork(sample::fresh_id(), &parent, at, children).await.unwrap();
    let owned = NewSession { owner: owner("a"), ..new_session("imported") };
    let import = ImportRow { session: owned, create_time: None, parent: None };
    log.import(sample::fresh_id(), import, Box::pin(stream::empty())).await.unwrap();

    for page_size in [1, 500] {
        let of = |subject| ListQuery { owner: owner(subject), page_size, ..everything() };
        let all = ["adopted", "created", &forked, "imported"];
        assert_eq!(names(&log, of("a")).await, all);
        assert_eq!(names(&log, of("b")).await, ["foreign"]);
        let other = ListQuery { project: "other".to_owned(), ..of("a") };
        assert_eq!(names(&log, other).await, ["elsewhere"]);
        let rows = list_by(&log, of("a")).await;
        let order = list_by(&log, everything()).await;
        let order: Vec<_> = order.into_iter().filter(|row| rows.contains(row)).collect();
        assert_eq!(rows, order, "it has the order of every list");
    }
    drop(log);
    let log = subject.reopen().await.log();
    assert_eq!(names(&log, ListQuery { owner: owner("a"), ..everything() }).await.len(), 4);
}

/// "Turn states": an open turn comes into its list and goes out of it with the
/// append that says so.
pub async fn an_open_list_moves_with_each_append<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let other = session(&log, "other").await;
    append(&log, &other, vec![sample::start(&sample::execution(9), 0)]).await;
    let listed = async |log: &Log| {
        let of = |states: &[ExecState]| ListQuery {
            states: states.to_vec(),
            page_size: 2,
            ..everything()
        };
        let running = names(log, of(&[ExecState::Running])).await;
        let awaiting = names(log, of(&[ExecState::Awaiting])).await;
        let mut either = [running.clone(), awaiting.clone()].concat();
        either.sort_unstable();
        assert_eq!(names(log, of(&[ExecState::Awaiting, ExecState::Running])).await, either);
        let named = |names: &[String], state| names.contains(&"s".to_owned()).then_some(state);
        assert!(running.contains(&"other".to_owned()), "others stay where they are");
        named(&running, "running").or(named(&awaiting, "awaiting")).unwrap_or("not")
    };
    assert_eq!(listed(&log).await, "not");
    for number in 1..=2 {
        let turn = sample::execution(number);
        let [call, request, decision, receipt] = gate(&turn);
        for (event, stands) in [
            (sample::start(&turn, 0), "running"),
            (call, "running"),
            (request, "awaiting"),
            (decision, "running"),
            (receipt, "running"),
            (sample::end(&turn, EndState::Completed), "not"),
        ] {
            append(&log, &uid, vec![event]).await;
            assert_eq!(listed(&log).await, stands);
        }
    }
    // A turn of one batch was never open; one that another takes over is not any more.
    append(&log, &uid, sample::turn(&sample::execution(3), "x")).await;
    assert_eq!(listed(&log).await, "not");
    append(&log, &uid, vec![sample::start(&sample::execution(4), 0)]).await;
    append(&log, &uid, sample::turn(&sample::execution(5), "x")).await;
    assert_eq!(listed(&log).await, "not");
    append(&log, &uid, vec![sample::start(&sample::execution(6), 0)]).await;
    drop(log);
    let log = subject.reopen().await.log();
    assert_eq!(listed(&log).await, "running");
}

/// A child and an import are open where their last turn is.
pub async fn forks_and_imports_are_listed_as_open<S: Subject>(subject: S) {
    let log = subject.log();
    let parent = session(&log, "parent").await;
    append(&log, &parent, vec![sample::start(&sample::execution(1), 0)]).await;
    let at = head(&log, &parent).await;
    append(&log, &parent, vec![sample::end(&sample::execution(1), EndState::Completed)]).await;
    let forked = fork(&log, &parent, at, "child").await;
    let items = records(&log, &forked).await.into_iter().map(ImportRecord::Record).map(Ok);
    let items = Box::pin(stream::iter(items.collect::<Vec<_>>()));
    let import = ImportRow { session: new_session("import"), create_time: None, parent: None };
    let imported = log.import(sample::fresh_id(), import, items).await.unwrap().session.uid;
    let running = ListQuery { states: vec![ExecState::Running], ..everything() };
    let mut found = names(&log, running).await;
    found.sort_unstable();
    let mut open = [&forked, &imported].map(|uid| uid.as_str().trim_start_matches("sess-"));
    open.sort_unstable();
    assert_eq!(found, open);
}

/// "Walking the pages shows every session that existed throughout exactly
/// once", and nobody else's, while sessions are created.
pub async fn pages_of_an_owner_during_creates_miss_none<S: Subject>(subject: S) {
    let log = subject.log();
    let of =
        |subject: &str, name: String| NewSession { owner: owner(subject), ..new_session(&name) };
    for number in 0..30 {
        create(&log, of("a", format!("old{number}"))).await;
        create(&log, of("b", format!("foreign{number}"))).await;
    }
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for number in 0..40 {
                create(&log, of("b", format!("other{number}"))).await;
                create(&log, of("a", format!("new{number}"))).await;
                say(&log, &sample::session(&format!("old{}", number % 30)), "x").await;
            }
        }
    });
    let mut walks = 0;
    while walks < 3 || !writer.is_finished() {
        for page_size in [1, 2, 7] {
            let query = ListQuery { owner: owner("a"), page_size, ..everything() };
            let rows = list_by(&log, query).await;
            assert!(rows.iter().all(|row| row.session.owner == owner("a")));
            let mut found = uids(&rows);
            let shown = found.len();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), shown, "no session is shown twice");
            let old = found.iter().filter(|uid| uid.starts_with("sess-old")).count();
            assert_eq!(old, 30, "every old session is shown");
        }
        walks += 1;
    }
    writer.await.unwrap();
    let query = ListQuery { owner: owner("a"), ..everything() };
    assert_eq!(list_by(&log, query).await.len(), 70);
}

async fn marked(log: &Log, mark: Mark, limit: usize) -> Vec<SessionUid> {
    let mut found: Vec<SessionUid> = Vec::new();
    loop {
        let page = log.marked(mark, found.last(), limit).await.unwrap();
        assert!(page.len() <= limit, "a page has at most its size");
        if page.is_empty() {
            return found;
        }
        for listed in page {
            assert_eq!(listed, row(log, &listed.session.uid).await);
            found.push(listed.session.uid);
        }
        assert!(found.is_sorted() && found.len() < 100, "by uid, and each once: {found:?}");
    }
}

/// "Rows of every project that carry `mark`, by uid."
pub async fn marked_rows_are_found_in_every_project<S: Subject>(subject: S) {
    let log = subject.log();
    session(&log, "idle").await;
    let mut waiting = Vec::new();
    for (number, project) in ["default", "p", "q", "", "p"].into_iter().enumerate() {
        let project = if project.is_empty() { "p/q" } else { project };
        let uid = sample::session(&format!("w{number}"));
        waiting.push(awaiting(&log, NewSession::bare(uid, project)).await);
    }
    for limit in [1, 2, 500] {
        assert_eq!(marked(&log, Mark::Awaiting, limit).await, waiting, "pages of {limit}");
        assert!(marked(&log, Mark::Deleted, limit).await.is_empty());
    }
    let [_, _, decision, _] = gate(&sample::execution(1));
    append(&log, &waiting[1], vec![decision]).await;
    // What is deleted waits for nobody any more.
    delete(&log, &waiting[0]).await;
    delete(&log, &waiting[3]).await;
    let deleted = [waiting[0].clone(), waiting[3].clone()];
    let left = [waiting[2].clone(), waiting[4].clone()];
    drop(log);
    let log = subject.reopen().await.log();
    for limit in [1, 500] {
        assert_eq!(marked(&log, Mark::Awaiting, limit).await, left);
        assert_eq!(marked(&log, Mark::Deleted, limit).await, deleted);
    }
    if let Some(purge) = log.purge() {
        purge.purge(sample::fresh_id(), &deleted[0]).await.unwrap();
        assert_eq!(marked(&log, Mark::Deleted, 500).await, deleted[1..]);
    }
}
