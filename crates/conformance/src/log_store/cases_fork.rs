//! Forks.

use mainspring_api::{Fence, Head};
use mainspring_eventlog::{LogError, NewSession};
use mainspring_testkit::{SeededRng, sample, verify_all};

use super::Subject;
use super::support::{
    Log, append_random, assert_folded, assert_refused, child, events, everything, fork, head,
    head_at, list_by, mint, new_session, records, row, say, send, seq, session, session_of, texts,
};

/// "Creates children that share the parent's records up to `at`, each with its
/// first fence and its marker as one more record."
pub async fn a_fork_shares_the_prefix_and_adds_its_marker<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 5).await;
    let parents = records(&log, &uid).await;
    let at = head_at(&parents, 3);
    let wanted = NewSession { name: "child".to_owned(), ..child(&log, &uid, "c") };
    let marker = sample::fork_marker(at.seq);
    let rows = log
        .fork(sample::fresh_id(), &uid, at, vec![(wanted.clone(), marker.clone())])
        .await
        .unwrap();
    let [created] = rows.as_slice() else { panic!("one child, not {rows:?}") };
    assert_eq!(created.session, wanted);
    assert_eq!(created.parent, Some((uid.clone(), at.seq)));
    assert_eq!(&row(&log, &wanted.uid).await, created);

    let own = records(&log, &wanted.uid).await;
    for (mine, theirs) in own.iter().zip(&parents[..3]) {
        assert_eq!(
            (mine.seq, mine.hash, mine.prev_hash),
            (theirs.seq, theirs.hash, theirs.prev_hash)
        );
        assert_eq!(mine.canonical, theirs.canonical);
    }
    let expected = events(at, [marker]);
    assert_eq!(own.len(), 4);
    assert_eq!(own[3].head(), expected.head());
    assert_eq!(own[3].prev_hash, at.hash);
    assert_eq!(created.view.head, expected.head());
    assert_folded(&log, &wanted.uid).await;
    assert_eq!(list_by(&log, everything()).await.len(), 2);
}

/// "A child shows its own first fence for the whole prefix", and may write under it.
pub async fn a_child_shows_its_own_first_fence<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    for _ in 0..5 {
        let fence = mint(&log, &uid).await;
        let batch = texts(head(&log, &uid).await, &["x"]);
        send(&log, &uid, sample::fresh_id(), fence, &batch).await.unwrap();
    }
    let at = head(&log, &uid).await;
    let child = fork(&log, &uid, at, "c").await;
    let first = row(&log, &child).await.fence.fence;
    assert!(first > Fence::NONE);
    let fences: Vec<Fence> = records(&log, &child).await.iter().map(|r| r.fence).collect();
    assert_eq!(fences, [first; 6]);
    let fences: Vec<u64> = records(&log, &uid).await.iter().map(|r| r.fence.get()).collect();
    assert_eq!(fences, [1, 2, 3, 4, 5]);

    let batch = texts(head(&log, &child).await, &["own"]);
    send(&log, &child, sample::fresh_id(), first, &batch).await.unwrap();
    let newer = mint(&log, &child).await;
    assert_eq!(newer, first.next());
    let batch = texts(batch.head(), &["stale"]);
    let stale = send(&log, &child, sample::fresh_id(), first, &batch).await;
    assert_refused!(stale, LogError::Fenced { .. });
    assert_eq!(row(&log, &uid).await.fence.fence, Fence::new(5));
}

/// "The prefix is shared": nothing of the parent changes.
pub async fn a_fork_leaves_the_parent_as_it_was<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let fence = mint(&log, &uid).await;
    let before = (row(&log, &uid).await, records(&log, &uid).await);
    for at in 0..=3 {
        fork(&log, &uid, head_at(&before.1, at), &format!("c{at}")).await;
    }
    assert_eq!((row(&log, &uid).await, records(&log, &uid).await), before);
    let batch = texts(before.0.view.head, &["on"]);
    send(&log, &uid, sample::fresh_id(), fence, &batch).await.unwrap();
}

/// "Records up to `at`": up to 0 there are none.
pub async fn a_fork_at_zero_has_its_marker_alone<S: Subject>(subject: S) {
    let log = subject.log();
    let full = session_of(&log, "s", 2).await;
    let empty = session(&log, "empty").await;
    for (parent, name) in [(full, "c1"), (empty, "c2")] {
        let child = fork(&log, &parent, Head::EMPTY, name).await;
        let own = records(&log, &child).await;
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].seq, own[0].prev_hash), (seq(1), None));
        assert_eq!(own[0].event().unwrap(), sample::fork_marker(seq(0)));
        assert_folded(&log, &child).await;
    }
}

/// "Chains of forks": each generation shows all that it inherited, then its own.
pub async fn forks_of_forks_hold_together<S: Subject>(subject: S) {
    let log = subject.log();
    let mut uid = session_of(&log, "g0", 4).await;
    let mut expected: Vec<_> = records(&log, &uid).await.iter().map(|r| r.hash).collect();
    for generation in 1..=6 {
        let at = head(&log, &uid).await;
        uid = fork(&log, &uid, at, &format!("g{generation}")).await;
        say(&log, &uid, &format!("generation {generation}")).await;
        let own: Vec<_> = records(&log, &uid).await.iter().map(|r| r.hash).collect();
        assert_eq!(own.len(), expected.len() + 2);
        assert_eq!(own[..expected.len()], expected);
        assert_folded(&log, &uid).await;
        expected = own;
    }
}

/// "Append-only journals, one per session": what one adds, no other shows.
pub async fn parent_and_children_go_on_apart<S: Subject>(subject: S) {
    let log = subject.log();
    let parent = session_of(&log, "s", 3).await;
    let at = head(&log, &parent).await;
    let children = vec![
        (child(&log, &parent, "c1"), sample::fork_marker(at.seq)),
        (child(&log, &parent, "c2"), sample::fork_marker(at.seq)),
    ];
    let rows = log.fork(sample::fresh_id(), &parent, at, children).await.unwrap();
    let all = [parent, rows[0].session.uid.clone(), rows[1].session.uid.clone()];
    for round in 0..3 {
        for uid in &all {
            say(&log, uid, &format!("{uid} {round}")).await;
        }
    }
    for uid in &all {
        let said: Vec<_> = records(&log, uid).await[3..]
            .iter()
            .map(|record| record.event().unwrap())
            .filter(|event| *event != sample::fork_marker(at.seq))
            .collect();
        let own: Vec<_> = (0..3).map(|n| sample::input(&format!("{uid} {n}"))).collect();
        assert_eq!(said, own);
        assert_folded(&log, uid).await;
    }
}

/// "Records up to `at`", also below the position at which the parent itself was forked.
pub async fn a_fork_below_an_old_fork_reaches_the_right_records<S: Subject>(subject: S) {
    let log = subject.log();
    let first = session_of(&log, "g0", 6).await;
    let at = head_at(&records(&log, &first).await, 4);
    let second = fork(&log, &first, at, "g1").await;
    say(&log, &second, "second goes on").await;
    say(&log, &first, "first goes on").await;
    let third = fork(&log, &second, head(&log, &second).await, "g2").await;
    say(&log, &third, "third goes on").await;
    let source = records(&log, &third).await;
    assert_eq!(source.len(), 8);
    for position in 0..=source.len() {
        let uid = fork(&log, &third, head_at(&source, position), &format!("f{position}")).await;
        let own = records(&log, &uid).await;
        let hashes = |records: &[mainspring_eventlog::StoredRecord]| -> Vec<_> {
            records.iter().map(|record| record.hash).collect()
        };
        assert_eq!(hashes(&own[..position]), hashes(&source[..position]));
        assert_eq!(own.len(), position + 1);
        assert_folded(&log, &uid).await;
    }
}

async fn assert_no_child(log: &Log) {
    let rows = list_by(log, everything()).await;
    assert!(rows.iter().all(|row| row.parent.is_none()), "no child was created");
}

/// "`Invalid` when `at` is beyond the head."
pub async fn a_fork_beyond_the_head_is_refused<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let beyond = texts(head(&log, &uid).await, &["never sent"]).head();
    let children = vec![(child(&log, &uid, "c"), sample::fork_marker(beyond.seq))];
    let forked = log.fork(sample::fresh_id(), &uid, beyond, children).await;
    assert_refused!(forked, LogError::Invalid(_));
    assert_no_child(&log).await;
}

/// "`Conflict` when the record at `at` is another one."
pub async fn a_fork_at_another_hash_conflicts<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    for len in 1..=3 {
        let other = texts(Head::EMPTY, &vec!["other"; len]).head();
        let children = vec![(child(&log, &uid, "c"), sample::fork_marker(other.seq))];
        let forked = log.fork(sample::fresh_id(), &uid, other, children).await;
        assert_refused!(forked, LogError::Conflict { .. });
    }
    assert_no_child(&log).await;
}

/// "All or none": "`AlreadyExists` when a child's uid is taken."
pub async fn a_fork_makes_all_children_or_none<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let taken = child(&log, &uid, "taken");
    log.create(sample::fresh_id(), taken.clone()).await.unwrap();
    let before = row(&log, &taken.uid).await;
    let at = head(&log, &uid).await;
    let of = |session| (session, sample::fork_marker(at.seq));
    for taken in [taken.clone(), new_session("s")] {
        let children = vec![of(child(&log, &uid, "a")), of(taken), of(child(&log, &uid, "b"))];
        let forked = log.fork(sample::fresh_id(), &uid, at, children).await;
        assert_refused!(forked, LogError::AlreadyExists(_));
    }
    assert_no_child(&log).await;
    assert_eq!(row(&log, &taken.uid).await, before);
    // What was refused has taken no uid.
    let children = vec![of(child(&log, &uid, "a")), of(child(&log, &uid, "b"))];
    assert_eq!(log.fork(sample::fresh_id(), &uid, at, children).await.unwrap().len(), 2);
}

/// "All or none": two children cannot be one session.
pub async fn a_fork_with_one_uid_twice_makes_none<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let at = head(&log, &uid).await;
    let twin = || (child(&log, &uid, "twin"), sample::fork_marker(at.seq));
    let forked = log.fork(sample::fresh_id(), &uid, at, vec![twin(), twin()]).await;
    assert_refused!(forked, LogError::Invalid(_) | LogError::AlreadyExists(_));
    assert_no_child(&log).await;
}

/// "`Invalid` when there are no children or too many."
pub async fn a_fork_makes_up_to_its_bound<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let at = head(&log, &uid).await;
    let max = log.limits().children_max;
    let children = |count: usize| -> Vec<_> {
        (0..count)
            .map(|n| (child(&log, &uid, &format!("c{n}")), sample::fork_marker(at.seq)))
            .collect()
    };
    for count in [0, max + 1] {
        let forked = log.fork(sample::fresh_id(), &uid, at, children(count)).await;
        assert_refused!(forked, LogError::Invalid(_) | LogError::TooLarge { .. });
        assert_no_child(&log).await;
    }
    let rows = log.fork(sample::fresh_id(), &uid, at, children(max)).await.unwrap();
    assert_eq!(rows.len(), max);
    for row in &rows {
        assert_eq!(verify_all(&*log, &row.session.uid).await.unwrap(), row.view.head);
    }
    assert_eq!(list_by(&log, everything()).await.len(), max + 1);
}

/// "Refused when the parent is deleted."
pub async fn a_deleted_parent_is_not_forked<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 2).await;
    let before = head(&log, &uid).await;
    let deleted = events(before, [sample::deletion()]);
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &deleted).await.unwrap();
    for at in [before, deleted.head()] {
        let children = vec![(child(&log, &uid, "c"), sample::fork_marker(at.seq))];
        assert!(log.fork(sample::fresh_id(), &uid, at, children).await.is_err());
    }
    assert_no_child(&log).await;
}

/// "A child shows the parent's notes": the commit times, and what was added later.
pub async fn a_child_brings_the_notes_along<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    log.annotate(&uid, seq(2), Fence::NONE, "seen", "yes").await.unwrap();
    let parents = records(&log, &uid).await;
    let child = fork(&log, &uid, head_at(&parents, 3), "c").await;
    let grandchild = fork(&log, &child, head_at(&parents, 2), "g").await;
    for uid in [child, grandchild] {
        for (mine, theirs) in records(&log, &uid).await.iter().zip(&parents[..2]) {
            assert_eq!(mine.notes, theirs.notes);
        }
    }
    assert_eq!(parents[1].notes["seen"], "yes");
}

/// "The row's fold" of a child is the fold of what it shows, for a fork at
/// every position of a journal of several executions.
pub async fn every_fork_position_folds_afresh<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let mut rng = SeededRng::new(11);
    append_random(&log, &uid, &mut rng, 40).await;
    let source = records(&log, &uid).await;
    for position in 0..=source.len() {
        let at = head_at(&source, position);
        let child = fork(&log, &uid, at, &format!("c{position}")).await;
        assert_folded(&log, &child).await;
    }
    assert_folded(&log, &uid).await;
}
