//! The fold in the row, and lists that survive ill-formed journals.

use futures_util::stream;
use mainspring_api::{EndState, Event, EventKind, Head, SessionUid};
use mainspring_eventlog::{ImportRecord, ImportRow};
use mainspring_testkit::{SeededRng, append, sample};

use super::Subject;
use super::support::{
    Log, append_random, assert_folded, everything, fork, head, head_at, list_by, new_session,
    records, row, session,
};

/// "A pure left fold over records, advanced by each append": after any
/// appends, the row is what a fresh fold of the records gives.
pub async fn the_row_is_the_fold_of_its_journal<S: Subject>(subject: S) {
    let log = subject.log();
    for seed in 0..12 {
        let uid = session(&log, &format!("s{seed}")).await;
        let mut rng = SeededRng::new(seed);
        for _ in 0..6 {
            append_random(&log, &uid, &mut rng, 5).await;
            assert_folded(&log, &uid).await;
        }
    }
    for listed in list_by(&log, everything()).await {
        assert_eq!(listed, row(&log, &listed.session.uid).await);
    }
}

/// The same for trees of forks, in which executions that were begun by an
/// ancestor go on in it and in its children, each for itself.
pub async fn children_fold_what_they_inherited_and_added<S: Subject>(subject: S) {
    let log = subject.log();
    for seed in 0..8 {
        let mut rng = SeededRng::new(1_000 + seed);
        let mut family = vec![session(&log, &format!("t{seed}")).await];
        for step in 0..14 {
            let uid = rng.pick(&family).clone();
            if step > 1 && rng.percent(45) {
                let source = records(&log, &uid).await;
                let at = head_at(&source, rng.below(source.len() + 1));
                family.push(fork(&log, &uid, at, &format!("t{seed}-{step}")).await);
            } else {
                let count = 3 + rng.below(6);
                append_random(&log, &uid, &mut rng, count).await;
            }
        }
        for uid in &family {
            assert_folded(&log, uid).await;
        }
    }
}

/// Inputs that each execution of a well-formed journal declares.
const DECLARED: i64 = 4;

/// An event that is well placed after what the session itself shows: a start,
/// an input that was declared, an end once all of them are there.
async fn well_placed(log: &Log, uid: &SessionUid, rng: &mut SeededRng) -> Event {
    let turn = sample::execution(rng.next_u64() % 4);
    let (mut started, mut ended, mut inputs) = (false, false, 0);
    for record in records(log, uid).await {
        let event = record.event().unwrap();
        if event.execution_id.as_ref() == Some(&turn) {
            started = true;
            ended |= event.kind() == EventKind::End;
            inputs += i64::from(event.kind() == EventKind::Input);
        }
    }
    let mut whole = sample::turn(&turn, "x");
    if !started {
        sample::start(&turn, DECLARED)
    } else if inputs < DECLARED {
        whole.swap_remove(1)
    } else if !ended {
        sample::end(&turn, EndState::Completed)
    } else {
        whole.swap_remove(3)
    }
}

/// A fold that took an execution's inputs from the wrong place would see too
/// few or too many: in a tree of forks where each session is well formed by
/// what it shows, no row names a fault.
pub async fn well_formed_trees_have_no_fault<S: Subject>(subject: S) {
    let log = subject.log();
    for seed in 0..8 {
        let mut rng = SeededRng::new(2_000 + seed);
        let mut family = vec![session(&log, &format!("w{seed}")).await];
        for step in 0..60 {
            let uid = rng.pick(&family).clone();
            if step > 4 && rng.percent(20) {
                let source = records(&log, &uid).await;
                let at = head_at(&source, source.len() - rng.below(source.len().min(5)));
                family.push(fork(&log, &uid, at, &format!("w{seed}-{step}")).await);
            } else {
                let event = well_placed(&log, &uid, &mut rng).await;
                append(&*log, &uid, sample::records([event])).await.unwrap();
            }
        }
        for uid in &family {
            assert_eq!(row(&log, uid).await.view.evidence_fault, None, "seed {seed} {uid}");
            assert_folded(&log, uid).await;
        }
    }
}

/// An execution goes on in a grandchild from what the child had added to it,
/// and from no more than that.
pub async fn an_inherited_execution_goes_on_from_what_is_shown<S: Subject>(subject: S) {
    let log = subject.log();
    let (a, b) = (sample::execution(1), sample::execution(2));
    let input = || sample::turn(&a, "x").swap_remove(1);
    let add = async |uid: &SessionUid, events: Vec<Event>| {
        append(&*log, uid, sample::records(events)).await.unwrap();
    };
    let first = session(&log, "g0").await;
    add(&first, vec![sample::start(&a, 3), input(), sample::start(&b, 0)]).await;
    let second = fork(&log, &first, head(&log, &first).await, "g1").await;
    add(&second, vec![input()]).await;
    let at = head(&log, &second).await;
    let third = fork(&log, &second, at, "g2").await;
    add(&second, vec![input()]).await;
    add(&first, vec![input(), input()]).await;
    let fourth = fork(&log, &second, at, "g3").await;
    for uid in [&third, &fourth] {
        add(uid, vec![input()]).await;
    }
    for uid in [first, second, third, fourth] {
        add(&uid, vec![sample::end(&a, EndState::Completed)]).await;
        assert_eq!(row(&log, &uid).await.view.evidence_fault, None, "{uid}");
        assert_folded(&log, &uid).await;
    }
}

/// An imported session's row is the fold of what was imported.
pub async fn an_import_folds_its_records<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    append_random(&log, &uid, &mut SeededRng::new(77), 50).await;
    let all = records(&log, &uid).await;
    let row_of = ImportRow { session: new_session("copy"), create_time: None, parent: None };
    let items: Vec<_> = all.into_iter().map(|record| Ok(ImportRecord::Record(record))).collect();
    let copy = log.import(sample::fresh_id(), row_of, Box::pin(stream::iter(items))).await.unwrap();
    assert_eq!(copy.view, row(&log, &uid).await.view);
    let copy = copy.session.uid;
    append_random(&log, &copy, &mut SeededRng::new(78), 30).await;
    assert_folded(&log, &copy).await;
}

/// "List never fails for one bad session": ill-formed evidence is a fault in
/// the view, and the session stays readable.
pub async fn ill_formed_evidence_is_kept_and_never_fails_a_list<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let turn = sample::execution(1);
    let ill = [
        sample::input("before any start"),
        sample::start(&turn, 2),
        sample::start(&turn, 1),
        sample::end(&turn, EndState::Completed),
        sample::input("after one"),
    ];
    mainspring_testkit::append(&*log, &uid, sample::records(ill)).await.unwrap();
    assert!(row(&log, &uid).await.view.evidence_fault.is_some());
    assert_folded(&log, &uid).await;
    assert_ne!(head(&log, &uid).await, Head::EMPTY);
    assert_eq!(list_by(&log, everything()).await, [row(&log, &uid).await]);
}
