//! Lists of rows.

use std::collections::BTreeMap;

use futures_util::stream;
use mainspring_api::{EndState, ExecState, Owner, Timestamp};
use mainspring_eventlog::{ImportRow, ListQuery, NewSession};
use mainspring_testkit::sample;

use super::Subject;
use super::support::{Log, everything, list_by, new_session, row, say, session, session_of, uids};

async fn create(log: &Log, session: NewSession) {
    log.create(sample::fresh_id(), session).await.unwrap();
}

/// "By create time descending, then uid ascending."
pub async fn a_list_is_newest_first_then_by_uid<S: Subject>(subject: S) {
    let log = subject.log();
    // An import states its create time.
    let at = |seconds, nanos| Timestamp { seconds, nanos };
    let times = [
        ("b", at(100, 0)),
        ("a", at(100, 0)),
        ("old", at(-5, 999_999_999)),
        ("older", at(-5, 0)),
        ("new", at(100, 1)),
        ("c", at(100, 0)),
        ("newest", at(4_000_000_000, 0)),
    ];
    for (name, time) in times {
        let row = ImportRow { session: new_session(name), create_time: Some(time), parent: None };
        log.import(sample::fresh_id(), row, Box::pin(stream::empty())).await.unwrap();
    }
    let order = ["newest", "new", "a", "b", "c", "old", "older"].map(sample::session);
    for page_size in [1, 2, 3, 500] {
        let rows = list_by(&log, ListQuery { page_size, ..everything() }).await;
        assert_eq!(uids(&rows), order.each_ref().map(|uid| uid.as_str()), "pages of {page_size}");
    }
}

/// "Walking the pages shows every session that existed throughout exactly once."
pub async fn pages_show_each_session_once<S: Subject>(subject: S) {
    let log = subject.log();
    for number in 0..23 {
        session(&log, &format!("s{number}")).await;
    }
    let all = list_by(&log, everything()).await;
    assert_eq!(all.len(), 23);
    assert!(all.is_sorted_by(|a, b| {
        (b.create_time, a.session.uid.as_str()) < (a.create_time, b.session.uid.as_str())
    }));
    for page_size in [1, 2, 22, 23, 24] {
        assert_eq!(list_by(&log, ListQuery { page_size, ..everything() }).await, all);
    }
}

/// "Rows that match": a listed row is the row, with its fold.
pub async fn a_list_row_is_what_get_answers<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    assert_eq!(list_by(&log, everything()).await, [row(&log, &uid).await]);
}

/// "Project": exactly, never as a prefix.
pub async fn a_list_has_one_project<S: Subject>(subject: S) {
    let log = subject.log();
    let projects = ["p", "pp", "p\u{0}", "p/q", "\u{1f600}", " p"];
    for (number, project) in projects.iter().enumerate() {
        let project = (*project).to_owned();
        create(&log, NewSession { project, ..new_session(&format!("s{number}")) }).await;
    }
    for (number, project) in projects.iter().enumerate() {
        let query = ListQuery { project: (*project).to_owned(), ..everything() };
        let rows = list_by(&log, query).await;
        assert_eq!(uids(&rows), [sample::session(&format!("s{number}")).as_str()], "{project:?}");
    }
    let none = ListQuery { project: "q".to_owned(), ..everything() };
    assert_eq!(list_by(&log, none).await, []);
}

/// "Owner; `None` means all": issuer and subject, exactly.
pub async fn a_list_filters_by_owner<S: Subject>(subject: S) {
    let log = subject.log();
    let owner = |issuer: &str, subject: &str| {
        Some(Owner { issuer: issuer.to_owned(), subject: subject.to_owned() })
    };
    let owners = [owner("i", "a"), owner("i", "A"), owner("j", "a"), owner("ia", ""), None];
    for (number, owner) in owners.iter().enumerate() {
        let owner = owner.clone();
        create(&log, NewSession { owner, ..new_session(&format!("s{number}")) }).await;
    }
    for (number, owner) in owners.iter().enumerate().filter(|(_, owner)| owner.is_some()) {
        let query = ListQuery { owner: owner.clone(), page_size: 1, ..everything() };
        let rows = list_by(&log, query).await;
        assert_eq!(uids(&rows), [sample::session(&format!("s{number}")).as_str()]);
    }
    assert_eq!(list_by(&log, everything()).await.len(), owners.len());
}

/// "Turn states; empty means all": the state is the one that the journal implies now.
pub async fn a_list_filters_by_state<S: Subject>(subject: S) {
    let log = subject.log();
    let turn = sample::execution(1);
    session(&log, "pending").await;
    for (name, events) in [
        ("running", vec![sample::start(&turn, 0)]),
        ("completed", sample::turn(&turn, "x")),
        ("failed", vec![sample::start(&turn, 0), sample::end(&turn, EndState::Failed)]),
    ] {
        let uid = session(&log, name).await;
        mainspring_testkit::append(&*log, &uid, sample::records(events)).await.unwrap();
    }
    let listed = async |states: &[ExecState]| {
        let query = ListQuery { states: states.to_vec(), page_size: 1, ..everything() };
        let mut found: Vec<String> = uids(&list_by(&log, query).await)
            .into_iter()
            .map(|uid| uid.trim_start_matches("sess-").to_owned())
            .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(listed(&[ExecState::Pending]).await, ["pending"]);
    assert_eq!(listed(&[ExecState::Running]).await, ["running"]);
    assert_eq!(listed(&[ExecState::Failed, ExecState::Completed]).await, ["completed", "failed"]);
    assert_eq!(listed(&[ExecState::Awaiting]).await, [""; 0]);
    assert_eq!(listed(&[]).await.len(), 4);

    let end = sample::records([sample::end(&turn, EndState::Canceled)]);
    mainspring_testkit::append(&*log, &sample::session("running"), end).await.unwrap();
    assert_eq!(listed(&[ExecState::Running]).await, [""; 0]);
    assert_eq!(listed(&[ExecState::Canceled]).await, ["running"]);
}

/// "Harness; empty means all."
pub async fn a_list_filters_by_harness<S: Subject>(subject: S) {
    let log = subject.log();
    for (name, harness) in [("a", "echo"), ("b", "chat"), ("c", "")] {
        let harness = harness.to_owned();
        create(&log, NewSession { harness, ..new_session(name) }).await;
    }
    let query = ListQuery { harness: "chat".to_owned(), ..everything() };
    assert_eq!(uids(&list_by(&log, query).await), [sample::session("b").as_str()]);
    assert_eq!(list_by(&log, everything()).await.len(), 3);
}

/// "Labels that must all be there."
pub async fn a_list_filters_by_all_labels<S: Subject>(subject: S) {
    let log = subject.log();
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    for (name, own) in [
        ("both", labels(&[("a", "1"), ("b", "2")])),
        ("one", labels(&[("a", "1")])),
        ("other", labels(&[("a", "2"), ("b", "2")])),
        ("none", labels(&[])),
    ] {
        create(&log, NewSession { labels: own, ..new_session(name) }).await;
    }
    let query = |wanted| ListQuery { labels: wanted, page_size: 2, ..everything() };
    let both = list_by(&log, query(labels(&[("a", "1"), ("b", "2")]))).await;
    assert_eq!(uids(&both), [sample::session("both").as_str()]);
    assert_eq!(list_by(&log, query(labels(&[("a", "1")]))).await.len(), 2);
    assert_eq!(list_by(&log, query(labels(&[("a", "")]))).await.len(), 0);
    assert_eq!(list_by(&log, query(labels(&[]))).await.len(), 4);
}

/// "Walking the pages shows every session that existed throughout exactly
/// once", also while sessions are created and change.
pub async fn pages_during_creates_miss_none<S: Subject>(subject: S) {
    let log = subject.log();
    for number in 0..40 {
        session(&log, &format!("old{number}")).await;
    }
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for number in 0..60 {
                session(&log, &format!("new{number}")).await;
                say(&log, &sample::session(&format!("old{}", number % 40)), "x").await;
            }
        }
    });
    let mut walks = 0;
    while walks < 3 || !writer.is_finished() {
        for page_size in [1, 2, 7] {
            let rows = list_by(&log, ListQuery { page_size, ..everything() }).await;
            let mut found = uids(&rows);
            let shown = found.len();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), shown, "no session is shown twice");
            let old = found.iter().filter(|uid| uid.starts_with("sess-old")).count();
            assert_eq!(old, 40, "every old session is shown");
        }
        walks += 1;
    }
    writer.await.unwrap();
    assert_eq!(list_by(&log, everything()).await.len(), 100);
}
