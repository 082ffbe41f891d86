//! Creating, reading and changing rows.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use mainspring_api::{ExecState, Fence, Head, IdentityRef, Origin, Owner};
use mainspring_eventlog::{Level, LogError, NewSession, ReadLimit, RowPatch};
use mainspring_testkit::sample;

use super::support::{
    assert_refused, everything, head, list_by, new_session, records, row, say, seq, session, texts,
    uids,
};
use super::{PARTS, Subject};

fn full() -> NewSession {
    let map = |key: &str| BTreeMap::from([(key.to_owned(), "\u{1f600} \"v\"\n".to_owned())]);
    NewSession {
        name: "N".to_owned(),
        harness: "echo".to_owned(),
        model: "m".to_owned(),
        labels: map("l"),
        annotations: map("a"),
        origin: Some(Origin {
            source: "s".to_owned(),
            subject: "t".to_owned(),
            uri: "u".to_owned(),
            attributes: map("o"),
        }),
        identity: Some(IdentityRef {
            principal: "p".to_owned(),
            issuer: "i".to_owned(),
            subject: "s".to_owned(),
        }),
        owner: Some(Owner { issuer: "i".to_owned(), subject: "s".to_owned() }),
        ..new_session("full")
    }
}

/// "Optional parts: presence is the capability." What a subject says that it
/// offers is known here, so that no case is skipped by a typing error.
pub async fn offers_are_what_is_there<S: Subject>(subject: S) {
    for part in S::OFFERS {
        assert!(PARTS.contains(part), "{part} is no part that this suite knows");
    }
    let log = subject.log();
    let there = [
        ("follow", log.follow().is_some()),
        ("rows", log.rows().is_some()),
        ("purge", log.purge().is_some()),
        ("liveness", log.liveness().is_some()),
        ("warmth", log.warmth().is_some()),
    ];
    for (part, present) in there {
        assert_eq!(present, S::OFFERS.contains(&part), "{part}");
    }
    assert!(!log.store_id().as_str().is_empty());
}

/// "Creates a session with an empty journal."
pub async fn a_created_session_is_there<S: Subject>(subject: S) {
    let log = subject.log();
    let created = log.create(sample::fresh_id(), full()).await.unwrap();
    assert_eq!(created.session, full());
    assert_eq!(created.view.head, Head::EMPTY);
    assert_eq!(created.view.exec_state(), ExecState::Pending);
    assert_eq!(created.fence.fence, Fence::NONE);
    assert_eq!((&created.fence.holder, &created.parent), (&None, &None));
    for level in [Level::Committed, Level::Strict] {
        assert_eq!(log.get(&full().uid, level).await.unwrap(), created);
        assert_eq!(log.head(&full().uid, level).await.unwrap(), Head::EMPTY);
    }
    assert_eq!(records(&log, &full().uid).await, []);
}

/// "`SessionNotFound`. Nothing is created."
pub async fn an_unknown_session_is_not_found_and_not_created<S: Subject>(subject: S) {
    let log = subject.log();
    let (uid, id) = (sample::session("unknown"), sample::fresh_id());
    let holder = || sample::holder("h");
    let batch = texts(Head::EMPTY, &["a"]);
    use LogError::SessionNotFound as Missing;
    assert_refused!(log.append(&uid, id, Fence::NONE, &batch).await, Missing(_));
    assert_refused!(log.append(&uid, id, Fence::new(9), &batch).await, Missing(_));
    assert_refused!(log.mint(&uid, id, Fence::NONE, holder()).await, Missing(_));
    let acquired = log.acquire_if_head(&uid, id, Fence::NONE, Head::EMPTY, holder()).await;
    assert_refused!(acquired, Missing(_));
    assert_refused!(log.update(id, &uid, 1, RowPatch::default()).await, Missing(_));
    assert_refused!(log.annotate(&uid, seq(1), Fence::NONE, "k", "v").await, Missing(_));
    let child = (new_session("child"), sample::fork_marker(seq(0)));
    assert_refused!(log.fork(id, &uid, Head::EMPTY, vec![child]).await, Missing(_));
    assert_refused!(log.get(&uid, Level::Strict).await, Missing(_));
    assert_refused!(log.head(&uid, Level::Strict).await, Missing(_));
    let read = log.read(&uid, seq(1), ReadLimit::default(), Level::Strict).await;
    assert_refused!(read, Missing(_));
    let verified = log.verify(&uid, Head::EMPTY).next().await.expect("an error");
    assert_refused!(verified, Missing(_));
    assert_eq!(list_by(&log, everything()).await, []);
}

/// "`AlreadyExists` when the uid is taken (by another operation id)."
pub async fn a_taken_uid_already_exists<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "taken").await;
    say(&log, &uid, "a").await;
    let before = row(&log, &uid).await;
    let again = NewSession { name: "other".to_owned(), ..new_session("taken") };
    let refused = log.create(sample::fresh_id(), again).await;
    assert_refused!(refused, LogError::AlreadyExists(taken) if *taken == uid);
    assert_eq!(row(&log, &uid).await, before);
}

/// "Changes a row": what the patch does not name stays, the journal too.
pub async fn an_update_changes_what_it_names<S: Subject>(subject: S) {
    let log = subject.log();
    log.create(sample::fresh_id(), full()).await.unwrap();
    let uid = full().uid;
    say(&log, &uid, "a").await;
    let before = row(&log, &uid).await;
    let labels = BTreeMap::from([("new".to_owned(), "1".to_owned())]);
    let patch = RowPatch {
        name: Some("M".to_owned()),
        labels: Some(labels.clone()),
        ..RowPatch::default()
    };
    let after = log.update(sample::fresh_id(), &uid, before.version, patch).await.unwrap();
    assert_eq!(after.session, NewSession { name: "M".to_owned(), labels, ..full() });
    assert_eq!(after.version, before.version + 1);
    assert_eq!(after.create_time, before.create_time);
    assert_eq!((&after.view, &after.fence), (&before.view, &before.fence));
    assert_eq!(row(&log, &uid).await, after);

    let patch = RowPatch { annotations: Some(BTreeMap::new()), ..RowPatch::default() };
    let last = log.update(sample::fresh_id(), &uid, after.version, patch).await.unwrap();
    assert_eq!(last.session, NewSession { annotations: BTreeMap::new(), ..after.session });
}

/// "`Moved` when the version moved."
pub async fn an_update_of_an_old_version_is_moved<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let old = row(&log, &uid).await.version;
    let patch = |name: &str| RowPatch { name: Some(name.to_owned()), ..RowPatch::default() };
    let won = log.update(sample::fresh_id(), &uid, old, patch("first")).await.unwrap();
    for version in [old, won.version + 1] {
        let lost = log.update(sample::fresh_id(), &uid, version, patch("second")).await;
        assert_refused!(lost, LogError::Moved { .. });
    }
    assert_eq!(row(&log, &uid).await, won);
}

/// "Owner, for a session that has none."
pub async fn an_owner_is_set_once<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let patch = |subject: &str| RowPatch {
        owner: Some(Owner { issuer: "i".to_owned(), subject: subject.to_owned() }),
        ..RowPatch::default()
    };
    let version = row(&log, &uid).await.version;
    let owned = log.update(sample::fresh_id(), &uid, version, patch("a")).await.unwrap();
    assert_eq!(owned.session.owner, patch("a").owner);
    let stolen = log.update(sample::fresh_id(), &uid, owned.version, patch("b")).await;
    assert_refused!(stolen, LogError::Invalid(_));
    assert_eq!(row(&log, &uid).await, owned);
}

/// "Append-only journals, one per session": uids that are prefixes of one
/// another, or differ in their last character alone, are different sessions.
pub async fn uids_that_start_alike_share_nothing<S: Subject>(subject: S) {
    let log = subject.log();
    let names = ["a", "a.", "a-", "a0", "aa", "a_", "a.a", "A"];
    for name in names {
        let uid = session(&log, name).await;
        for number in 0..3 {
            say(&log, &uid, &format!("{name} {number}")).await;
        }
    }
    for name in names {
        let uid = sample::session(name);
        let found: Vec<_> = records(&log, &uid).await.iter().map(|r| r.event().unwrap()).collect();
        let said: Vec<_> = (0..3).map(|n| sample::input(&format!("{name} {n}"))).collect();
        assert_eq!(found, said);
        assert_eq!(head(&log, &uid).await.seq, seq(3));
    }
    let rows = list_by(&log, everything()).await;
    assert_eq!(uids(&rows).len(), names.len());
}
