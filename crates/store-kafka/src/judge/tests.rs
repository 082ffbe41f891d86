//! One test for each rule.

use std::collections::HashMap;
use std::convert::Infallible;

use mainspring_api::{Fence, Head, Seq, SessionUid};
use mainspring_eventlog::replica::{Child, Terms};

use super::samples::{
    acquire, append, begin, create, delete, fork, head, mint, note, publish, put, stage, uid,
    unstage, update,
};
use super::*;

/// The states of a partition, in memory.
#[derive(Clone, Default)]
pub(super) struct Fold(pub(super) HashMap<Name, State>);

impl States for Fold {
    type Error = Infallible;

    fn get(&mut self, name: &Name) -> Result<Option<State>, Infallible> {
        Ok(self.0.get(name).copied())
    }

    fn put(&mut self, name: Name, state: State) {
        self.0.insert(name, state);
    }
}

pub(super) const ONLY: Place = Place { partition: 0, partitions: 1 };
const EMPTY: Head = Head::EMPTY;

impl Fold {
    /// A partition in which all of these count.
    #[track_caller]
    fn of(terms: &[Terms]) -> Self {
        let mut fold = Self::default();
        terms.iter().for_each(|terms| fold.takes(terms));
        fold
    }

    pub(super) fn judge(&mut self, place: Place, terms: &Terms) -> Verdict {
        judge(self, place, terms).expect("it is in memory")
    }

    #[track_caller]
    fn takes(&mut self, terms: &Terms) {
        assert_eq!(self.judge(ONLY, terms), Ok(()), "{terms:?}");
    }

    #[track_caller]
    fn refuses(&mut self, terms: &Terms, why: Void) {
        let before = self.0.clone();
        assert_eq!(self.judge(ONLY, terms), Err(why), "{terms:?}");
        assert_eq!(self.0, before, "what does not count changes nothing");
    }

    /// What is known of the session of the samples.
    fn session(&self) -> State {
        self.0[&Name::session(&uid("s"))]
    }
}

/// A session with one record, under the fence 1.
fn begun() -> Fold {
    Fold::of(&[create("s"), mint(0), append(EMPTY, head(1, b'a'), 1)])
}

/// An import of one record, with the fence 3.
fn staged() -> Fold {
    Fold::of(&[begin(0), stage(0, EMPTY, head(1, b'a'), 3)])
}

#[test]
fn what_is_not_there_takes_nothing() {
    let mut none = Fold::default();
    for terms in [append(EMPTY, head(1, b'a'), 0), mint(0), update(1, false), note(1, 0, 0)] {
        none.refuses(&terms, Void::NotFound);
    }
    none.refuses(&fork(0, &[("x", b'a')]), Void::NotFound);
    for terms in [stage(0, EMPTY, head(1, b'a'), 0), unstage(0), publish(0, EMPTY)] {
        none.refuses(&terms, Void::NotFound);
    }
}

#[test]
fn an_import_that_is_left_or_done_takes_nothing_more() {
    let mut left = staged();
    left.takes(&unstage(0));
    let mut done = staged();
    done.takes(&publish(0, head(1, b'a')));
    for mut fold in [left, done] {
        for generation in [0, 1] {
            fold.refuses(&stage(generation, EMPTY, head(1, b'a'), 0), Void::NotFound);
            fold.refuses(&unstage(generation), Void::NotFound);
        }
        fold.refuses(&publish(0, head(1, b'a')), Void::NotFound);
        fold.refuses(&publish(1, head(1, b'a')), Void::NotFound);
    }
}

#[test]
fn what_is_there_is_not_made_again() {
    let mut fold = begun();
    fold.takes(&create("x"));
    fold.refuses(&create("s"), Void::Exists);
    for children in [&[("x", b'a')][..], &[("y", b'a'), ("x", b'a')], &[("s", b'a')]] {
        fold.refuses(&fork(1, children), Void::Exists);
    }
    fold.takes(&begin(0));
    fold.refuses(&begin(0), Void::Exists);
    fold.refuses(&publish(0, EMPTY), Void::Exists);
}

#[test]
fn a_fork_names_each_child_once() {
    begun().refuses(&fork(1, &[("x", b'a'), ("x", b'b')]), Void::Exists);
}

#[test]
fn an_import_that_is_done_is_not_begun_again() {
    let mut done = staged();
    done.takes(&publish(0, head(1, b'a')));
    done.refuses(&begin(0), Void::Exists);
    done.refuses(&begin(1), Void::Exists);
}

#[test]
fn a_journal_goes_on_where_it_ends() {
    let end = head(1, b'a');
    let wrong = Void::Head(end);
    for base in [EMPTY, head(1, b'b'), head(2, b'a')] {
        begun().refuses(&append(base, head(3, b'a'), 1), wrong);
        begun().refuses(&acquire(1, base), wrong);
    }
    let mut fold = begun();
    fold.takes(&acquire(1, end));
    fold.takes(&append(end, head(9, b'a'), 2));
    assert_eq!(fold.session().head, head(9, b'a'));
}

#[test]
fn what_is_staged_goes_on_where_it_ends() {
    for base in [EMPTY, head(1, b'b'), head(2, b'a')] {
        staged().refuses(&stage(0, base, head(3, b'a'), 0), Void::Head(head(1, b'a')));
        staged().refuses(&publish(0, base), Void::Head(head(1, b'a')));
    }
}

#[test]
fn an_older_fence_is_refused_and_the_same_one_is_not() {
    let mut fold = begun();
    fold.takes(&mint(1));
    let newest = Void::Fence(Fence::new(2));
    for fence in [0, 1] {
        fold.refuses(&append(head(1, b'a'), head(2, b'a'), fence), newest);
        fold.refuses(&note(1, fence, 0), newest);
    }
    fold.takes(&note(1, 2, 0));
    fold.takes(&append(head(1, b'a'), head(2, b'a'), 2));
}

#[test]
fn a_mint_compares_the_fence_before_it() {
    for current in [0, 2, u64::MAX] {
        begun().refuses(&mint(current), Void::Fence(Fence::new(1)));
        begun().refuses(&acquire(current, head(1, b'a')), Void::Fence(Fence::new(1)));
    }
    let mut fold = begun();
    fold.takes(&mint(1));
    assert_eq!(fold.session().fence, Fence::new(2));
}

#[test]
fn a_wrong_head_is_told_before_a_wrong_fence() {
    begun().refuses(&append(EMPTY, head(2, b'a'), 0), Void::Head(head(1, b'a')));
    begun().refuses(&acquire(0, EMPTY), Void::Head(head(1, b'a')));
}

#[test]
fn a_row_moves_by_its_version() {
    let mut fold = begun();
    for version in [0, 2, u64::MAX] {
        fold.refuses(&update(version, false), Void::Version);
        fold.refuses(&put(version.max(1)), Void::Version);
    }
    fold.takes(&update(1, false));
    fold.takes(&update(2, false));
    fold.takes(&put(0));
    fold.takes(&put(1));
    fold.refuses(&put(1), Void::Version);
}

#[test]
fn a_note_compares_how_many_there_are() {
    let mut fold = begun();
    fold.refuses(&note(1, 1, 1), Void::Version);
    fold.takes(&note(1, 1, 0));
    fold.refuses(&note(1, 1, 0), Void::Version);
    fold.takes(&note(1, 1, 1));
}

#[test]
fn a_step_of_an_import_counts_in_its_generation() {
    let mut fold = staged();
    fold.refuses(&stage(1, head(1, b'a'), head(2, b'a'), 0), Void::Version);
    fold.refuses(&unstage(1), Void::Version);
    fold.takes(&unstage(0));
    fold.refuses(&begin(0), Void::Version);
    fold.refuses(&begin(2), Void::Version);
    fold.takes(&begin(1));
    fold.refuses(&stage(0, EMPTY, head(1, b'a'), 0), Void::Version);
    fold.refuses(&unstage(0), Void::Version);
    fold.takes(&stage(1, EMPTY, head(1, b'b'), 0));
    fold.refuses(&publish(0, head(1, b'b')), Void::Version);
    fold.takes(&publish(1, head(1, b'b')));
    assert_eq!(fold.session().fence, Fence::NONE, "nothing is left of what was unstaged");
}

#[test]
fn an_owner_is_given_once() {
    let mut fold = Fold::of(&[create("s"), update(1, true), update(2, false)]);
    fold.refuses(&update(3, true), Void::Owner);
    fold.takes(&update(3, false));
    let owned = Terms::Create { session: uid("s"), owned: true };
    Fold::of(&[owned]).refuses(&update(1, true), Void::Owner);
}

#[test]
fn a_deleted_session_has_no_more_children() {
    let mut fold = Fold::of(&[create("s"), delete(EMPTY, head(1, b'a'))]);
    fold.refuses(&fork(1, &[("x", b'a')]), Void::Deleted);
    fold.takes(&append(head(1, b'a'), head(2, b'a'), 0));
    fold.refuses(&fork(1, &[("x", b'a')]), Void::Deleted);
}

#[test]
fn a_deleted_session_is_imported_as_one() {
    let Terms::Stage { store, generation, after, head, fence, .. } =
        stage(0, EMPTY, head(1, b'a'), 3)
    else {
        unreachable!("the sample stages")
    };
    let deleting = Terms::Stage { store, generation, after, head, fence, deletes: true };
    let mut fold = Fold::of(&[begin(0), deleting, publish(0, head)]);
    fold.refuses(&fork(1, &[("x", b'a')]), Void::Deleted);
}

#[test]
fn a_head_goes_forward() {
    let end = head(2, b'a');
    let mut fold = Fold::of(&[create("s"), append(EMPTY, end, 0)]);
    for to in [EMPTY, head(1, b'b'), head(2, b'b'), end] {
        fold.refuses(&append(end, to, 0), Void::Beyond);
    }
    let mut fold = Fold::of(&[begin(0), stage(0, EMPTY, end, 0)]);
    for to in [EMPTY, head(1, b'b'), head(2, b'b'), end] {
        fold.refuses(&stage(0, end, to, 0), Void::Beyond);
    }
}

#[test]
fn a_note_is_of_a_record_that_is_there() {
    begun().refuses(&note(0, 1, 0), Void::Beyond);
    begun().refuses(&note(2, 1, 0), Void::Beyond);
    begun().refuses(&note(u64::MAX, 1, 0), Void::Beyond);
}

#[test]
fn a_fork_is_of_what_is_there() {
    begun().refuses(&fork(2, &[("x", b'a')]), Void::Beyond);
    let mut fold = begun();
    fold.takes(&fork(1, &[("x", b'a'), ("y", b'b')]));
    fold.takes(&fork(0, &[("z", b'c')]));
    let child = fold.0[&Name::session(&uid("y"))];
    let wanted =
        State { head: head(2, b'b'), fence: Fence::new(1), version: 1, ..State::default() };
    assert_eq!(child, wanted);
}

#[test]
fn a_child_ends_right_after_its_fork() {
    for seq in [0, 1, 3, u64::MAX] {
        let end = if seq == 0 { EMPTY } else { head(seq, b'x') };
        let child = Child { session: uid("x"), head: end, owned: false };
        let terms = Terms::Fork { parent: uid("s"), at: Seq::new(1), children: vec![child] };
        begun().refuses(&terms, Void::Beyond);
    }
}

#[test]
fn a_fork_has_some_children_and_not_too_many() {
    begun().refuses(&fork(1, &[]), Void::Beyond);
    let names: Vec<String> = (0..=CHILDREN_MAX).map(|n| format!("x{n}")).collect();
    let children: Vec<(&str, u8)> = names.iter().map(|name| (&name[..], b'x')).collect();
    begun().refuses(&fork(1, &children), Void::Beyond);
    begun().takes(&fork(1, &children[1..]));
}

#[test]
fn positions_and_imported_fences_end_where_readers_do() {
    let last = head(NUMBER_MAX, b'a');
    let beyond = head(NUMBER_MAX + 1, b'a');
    let mut fold = Fold::of(&[create("s")]);
    fold.refuses(&append(EMPTY, beyond, 0), Void::Beyond);
    fold.refuses(&append(EMPTY, head(u64::MAX, b'a'), 0), Void::Beyond);
    fold.takes(&append(EMPTY, last, 0));
    fold.refuses(&append(last, beyond, 0), Void::Beyond);
    fold.refuses(&fork(NUMBER_MAX, &[("x", b'a')]), Void::Beyond);
    fold.takes(&fork(NUMBER_MAX - 1, &[("x", b'a')]));
    let mut fold = Fold::of(&[begin(0)]);
    fold.refuses(&stage(0, EMPTY, beyond, 0), Void::Beyond);
    fold.refuses(&stage(0, EMPTY, last, NUMBER_MAX + 1), Void::Beyond);
    fold.takes(&stage(0, EMPTY, last, NUMBER_MAX));
}

/// Two uids, of partition 0 and of partition 1 of two.
fn one_of_each() -> [SessionUid; 2] {
    [0, 1].map(|partition| {
        let mut uids = (0..).map(|n| uid(&format!("uid-{n}")));
        uids.find(|uid| partition_of(uid, 2) == partition).expect("half of them are")
    })
}

#[test]
fn what_belongs_elsewhere_is_misplaced() {
    let [here, there] = one_of_each();
    let head = head(1, b'a');
    let of = |session: &SessionUid| {
        let session = session.clone();
        [
            Terms::Create { session: session.clone(), owned: false },
            Terms::Update { session: session.clone(), version: 1, sets_owner: false },
            Terms::Mint { session: session.clone(), current: Fence::NONE, at: None },
            Terms::Append {
                session: session.clone(),
                base: EMPTY,
                head,
                fence: Fence::new(1),
                deletes: false,
            },
            Terms::Annotate { session, seq: Seq::new(1), fence: Fence::new(1), notes: 0 },
        ]
    };
    let places = [0, 1].map(|partition| Place { partition, partitions: 2 });
    for (place, own, other) in [(places[0], &here, &there), (places[1], &there, &here)] {
        // The other's session is known, so that only the place speaks against it.
        let mut fold = Fold::default();
        fold.0.insert(Name::session(other), begun().session());
        let before = fold.0.clone();
        for terms in of(other) {
            assert_eq!(fold.judge(place, &terms), Err(Void::Misplaced), "{terms:?}");
        }
        let publish = Terms::Publish {
            store: uid("i"),
            generation: 0,
            session: other.clone(),
            head,
            owned: false,
        };
        assert_eq!(fold.judge(place, &publish), Err(Void::Misplaced));
        assert_eq!(fold.0, before);
        for terms in of(own) {
            assert_eq!(fold.judge(place, &terms), Ok(()), "{terms:?}");
        }
    }
}

#[test]
fn a_fork_lies_in_one_partition() {
    let [here, there] = one_of_each();
    let place = Place { partition: 0, partitions: 2 };
    let mut fold = Fold::default();
    for session in [&here, &there] {
        fold.0.insert(Name::session(session), begun().session());
    }
    let child = |session: &SessionUid| Child {
        session: SessionUid::new(&format!("{session}")).unwrap(),
        head: head(2, b'x'),
        owned: false,
    };
    let of = |parent: &SessionUid, children: &[&SessionUid]| Terms::Fork {
        parent: parent.clone(),
        at: Seq::new(1),
        children: children.iter().map(|session| child(session)).collect(),
    };
    assert_eq!(fold.judge(place, &of(&there, &[&here])), Err(Void::Misplaced));
    assert_eq!(fold.judge(place, &of(&here, &[&here, &there])), Err(Void::Misplaced));
    assert_eq!(fold.judge(place, &of(&here, &[&here])), Err(Void::Exists));
}

#[test]
fn named_rows_lie_in_the_first_partition() {
    for partition in [1, 2] {
        let place = Place { partition, partitions: 3 };
        assert_eq!(Fold::default().judge(place, &put(0)), Err(Void::Misplaced));
    }
    let place = Place { partition: 0, partitions: 3 };
    assert_eq!(Fold::default().judge(place, &put(0)), Ok(()));
}

#[test]
fn an_import_is_staged_in_any_partition() {
    for partition in 0..3 {
        let (place, mut fold) = (Place { partition, partitions: 3 }, Fold::default());
        for terms in [begin(0), stage(0, EMPTY, head(1, b'a'), 0), unstage(0)] {
            assert_eq!(fold.judge(place, &terms), Ok(()), "{terms:?}");
        }
    }
}

#[test]
fn the_names_of_two_things_are_two() {
    let row = |kind, name| Name::row(&mainspring_eventlog::RowKey::new(kind, name).unwrap());
    let names = [
        Name::session(&uid("s")),
        Name::import(&uid("s")),
        row("s", "s"),
        row("ss", "s"),
        row("s", "ss"),
    ];
    let distinct: std::collections::HashSet<&Name> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
}
