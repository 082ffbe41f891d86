//! Minting fences.

use mainspring_api::{Fence, Head};
use mainspring_eventlog::LogError;
use mainspring_testkit::sample;

use super::Subject;
use super::support::{
    assert_refused, head, mint, records, row, say, send, session, session_of, texts,
};

/// "Mints the next fence for `holder`": from 1, by one, with who and since when.
pub async fn fences_rise_by_one_and_name_their_holder<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let before = row(&log, &uid).await;
    for number in 1..=4 {
        let holder = sample::holder(&format!("h{number}"));
        let current = Fence::new(number - 1);
        let fence = log.mint(&uid, sample::fresh_id(), current, holder.clone()).await.unwrap();
        assert_eq!(fence, Fence::new(number));
        let row = row(&log, &uid).await;
        assert_eq!(row.fence.fence, fence);
        assert_eq!(row.fence.holder, Some(holder));
        assert!(row.fence.since.is_some_and(|since| since >= before.create_time));
        assert_eq!(row.view, before.view);
    }
    assert_eq!(mint(&log, &session(&log, "other").await).await, Fence::new(1));
}

/// "`Moved` when another fence was minted meanwhile."
pub async fn a_mint_over_a_moved_fence_is_moved<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    mint(&log, &uid).await;
    let fence = mint(&log, &uid).await;
    let before = row(&log, &uid).await;
    for wrong in [Fence::NONE, Fence::new(1), fence.next()] {
        let minted = log.mint(&uid, sample::fresh_id(), wrong, sample::holder("late")).await;
        assert_refused!(minted, LogError::Moved { .. });
    }
    assert_eq!(row(&log, &uid).await, before);
}

/// "`Fenced`: a newer fence exists": the writer before writes nothing more.
pub async fn a_mint_stops_the_writer_before<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let old = mint(&log, &uid).await;
    let at = send(&log, &uid, sample::fresh_id(), old, &texts(Head::EMPTY, &["a"])).await.unwrap();
    let new = mint(&log, &uid).await;
    let sent = send(&log, &uid, sample::fresh_id(), old, &texts(at, &["b"])).await;
    assert_refused!(sent, LogError::Fenced { .. });
    send(&log, &uid, sample::fresh_id(), new, &texts(at, &["c"])).await.unwrap();
    assert_eq!(records(&log, &uid).await.len(), 2);
}

/// "As `mint`, and only if the journal still ends at `head`."
pub async fn an_acquire_at_the_head_mints<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let acquire = async |current, at, name: &str| {
        log.acquire_if_head(&uid, sample::fresh_id(), current, at, sample::holder(name)).await
    };
    assert_eq!(acquire(Fence::NONE, Head::EMPTY, "a").await.unwrap(), Fence::new(1));
    let at = say(&log, &uid, "x").await;
    assert_eq!(acquire(Fence::new(1), at, "b").await.unwrap(), Fence::new(2));
    assert_eq!(row(&log, &uid).await.fence.holder, Some(sample::holder("b")));
}

/// "So that a losing caller does not stop a healthy writer."
pub async fn an_acquire_at_a_moved_head_changes_nothing<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let fence = mint(&log, &uid).await;
    let at =
        send(&log, &uid, sample::fresh_id(), fence, &texts(Head::EMPTY, &["a"])).await.unwrap();
    let before = row(&log, &uid).await;
    let ahead = texts(at, &["never sent"]).head();
    for wrong in [Head::EMPTY, ahead] {
        let late = sample::holder("late");
        let lost = log.acquire_if_head(&uid, sample::fresh_id(), fence, wrong, late).await;
        assert_refused!(lost, LogError::Conflict { head, .. } if *head == at);
    }
    assert_eq!(row(&log, &uid).await, before);
    send(&log, &uid, sample::fresh_id(), fence, &texts(at, &["b"])).await.unwrap();
}

/// "The compare-and-swap is on the whole head", for an acquire too.
pub async fn an_acquire_at_another_hash_conflicts<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let other = texts(Head::EMPTY, &["other"]).head();
    let holder = sample::holder("h");
    let lost = log.acquire_if_head(&uid, sample::fresh_id(), Fence::NONE, other, holder).await;
    assert_refused!(lost, LogError::Conflict { .. });
    assert_eq!(row(&log, &uid).await.fence.fence, Fence::NONE);
}

/// "`Moved` when the fence did", at the right head.
pub async fn an_acquire_over_a_moved_fence_is_moved<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let fence = mint(&log, &uid).await;
    let (at, holder) = (head(&log, &uid).await, sample::holder("h"));
    let lost = log.acquire_if_head(&uid, sample::fresh_id(), Fence::NONE, at, holder).await;
    assert_refused!(lost, LogError::Moved { .. });
    assert_eq!(row(&log, &uid).await.fence.fence, fence);
}
