//! The optional part `purge`.

use futures_util::StreamExt as _;
use mainspring_api::{DeletionState, Fence, Head, Owner, SessionUid};
use mainspring_eventlog::{Level, LogError, NewSession, ReadLimit, RowPatch};
use mainspring_testkit::{sample, verify_all};

use super::Subject;
use super::support::{
    Log, assert_folded, assert_refused, events, everything, fork, head, head_at, list_by, mint,
    new_session, records, row, say, send, session, texts, uids,
};

/// A session of three records that is to be deleted; its head.
async fn deleted(log: &Log, name: &str) -> (SessionUid, Head) {
    let owner = Some(Owner { issuer: "i".to_owned(), subject: "s".to_owned() });
    let new = NewSession { name: "N".to_owned(), owner, ..new_session(name) };
    log.create(sample::fresh_id(), new.clone()).await.unwrap();
    for text in ["a", "b", "c"] {
        say(log, &new.uid, text).await;
    }
    let head = delete(log, &new.uid).await;
    (new.uid, head)
}

async fn delete(log: &Log, uid: &SessionUid) -> Head {
    let batch = events(head(log, uid).await, [sample::deletion()]);
    let fence = row(log, uid).await.fence.fence;
    send(log, uid, sample::fresh_id(), fence, &batch).await.unwrap()
}

/// "`Invalid` unless the session is to be deleted."
pub async fn a_purge_needs_a_deletion<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(purge) = log.purge() else { return };
    let uid = session(&log, "s").await;
    say(&log, &uid, "a").await;
    assert_refused!(purge.purge(sample::fresh_id(), &uid).await, LogError::Invalid(_));
    assert_eq!(records(&log, &uid).await.len(), 1);
    let nobody = sample::session("nobody");
    assert_refused!(purge.purge(sample::fresh_id(), &nobody).await, LogError::SessionNotFound(_));
}

/// "Keeps a tombstone: uid, project, owner, create time, head and deletion."
pub async fn a_purged_session_is_a_tombstone<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(purge) = log.purge() else { return };
    let (uid, at) = deleted(&log, "s").await;
    let before = row(&log, &uid).await;
    let left = purge.purge(sample::fresh_id(), &uid).await.unwrap();
    assert_eq!(left, row(&log, &uid).await);
    assert!(left.purged && !before.purged);
    assert_eq!((left.view.head, left.view.deletion), (at, DeletionState::Pending));
    assert_eq!(left.create_time, before.create_time);
    assert_eq!(left.session.owner, before.session.owner);
    let bare = NewSession { owner: left.session.owner.clone(), ..new_session("s") };
    assert_eq!(left.session, bare, "the rest is gone");
    assert_eq!(uids(&list_by(&log, everything()).await), [uid.as_str()]);
}

/// "Refuses what needs its records"; the uid stays taken.
pub async fn a_purged_session_takes_nothing_more<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(purge) = log.purge() else { return };
    let (uid, at) = deleted(&log, "s").await;
    purge.purge(sample::fresh_id(), &uid).await.unwrap();
    let id = sample::fresh_id;
    let read = log.read(&uid, Default::default(), ReadLimit::default(), Level::Strict).await;
    assert_refused!(read, LogError::Deleted(_));
    let verified = log.verify(&uid, Head::EMPTY).next().await.expect("an answer");
    assert_refused!(verified, LogError::Deleted(_));
    let sent = send(&log, &uid, id(), Fence::NONE, &texts(at, &["x"])).await;
    assert_refused!(sent, LogError::Deleted(_));
    let minted = log.mint(&uid, id(), Fence::NONE, sample::holder("h")).await;
    assert_refused!(minted, LogError::Deleted(_));
    let version = row(&log, &uid).await.version;
    let updated = log.update(id(), &uid, version, RowPatch::default()).await;
    assert_refused!(updated, LogError::Deleted(_));
    let children = vec![(new_session("child"), sample::fork_marker(at.seq))];
    assert_refused!(log.fork(id(), &uid, at, children).await, LogError::Deleted(_));
    assert_refused!(log.create(id(), new_session("s")).await, LogError::AlreadyExists(_));
    if let Some(follow) = log.follow() {
        let first = follow.follow(&uid, Head::EMPTY).next().await.expect("an answer");
        assert_refused!(first, LogError::Deleted(_));
    }
}

/// "What a fork still shows is kept until that fork is purged too."
pub async fn a_purge_keeps_what_forks_show<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(purge) = log.purge() else { return };
    let parent = session(&log, "s").await;
    for number in 0..4 {
        let batch = events(
            head(&log, &parent).await,
            sample::turn(&sample::execution(number), "a turn of the parent"),
        );
        send(&log, &parent, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    let all = records(&log, &parent).await;
    let low = fork(&log, &parent, head_at(&all, 7), "low").await;
    let high = fork(&log, &parent, head_at(&all, 13), "high").await;
    let deep = fork(&log, &high, head(&log, &high).await, "deep").await;
    let shown = [&low, &high, &deep];
    let mut before = Vec::new();
    for uid in shown {
        before.push(records(&log, uid).await);
    }
    delete(&log, &parent).await;
    purge.purge(sample::fresh_id(), &parent).await.unwrap();
    for (uid, before) in shown.iter().zip(&before) {
        assert_eq!(&records(&log, uid).await, before);
        assert_folded(&log, uid).await;
    }
    // The middle of a chain, while its own fork lives on.
    delete(&log, &high).await;
    purge.purge(sample::fresh_id(), &high).await.unwrap();
    for (uid, before) in [(&low, &before[0]), (&deep, &before[2])] {
        assert_eq!(&records(&log, uid).await, before);
        // Executions of the dead are still known: they can go on, and be forked.
        mint(&log, uid).await;
        let turn = sample::turn(&sample::execution(99), "goes on");
        mainspring_testkit::append(&*log, uid, sample::records(turn)).await.unwrap();
        assert_folded(&log, uid).await;
    }
    let grandchild = fork(&log, &deep, head_at(&records(&log, &deep).await, 9), "last").await;
    assert_folded(&log, &grandchild).await;
    delete(&log, &low).await;
    purge.purge(sample::fresh_id(), &low).await.unwrap();
    verify_all(&*log, &deep).await.unwrap();
    verify_all(&*log, &grandchild).await.unwrap();
}

/// "Sent again it answers the same."
pub async fn a_purge_again_answers_the_same<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(purge) = log.purge() else { return };
    let (uid, _) = deleted(&log, "s").await;
    let id = sample::fresh_id();
    let first = purge.purge(id, &uid).await.unwrap();
    assert_eq!(purge.purge(id, &uid).await.unwrap(), first);
    assert_eq!(purge.purge(sample::fresh_id(), &uid).await.unwrap(), first);
}
