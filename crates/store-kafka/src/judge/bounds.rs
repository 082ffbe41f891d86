//! What holds of any numbers: verdicts, stored states, and digests.

use mainspring_api::{Fence, Hash, Head, Seq};
use mainspring_eventlog::replica::{Child, Terms};
use proptest::prelude::*;

use super::samples::{begin, create, publish, put, uid, unstage, update};
use super::tests::{Fold, ONLY};
use super::*;

fn any_head() -> impl Strategy<Value = Head> {
    let hash = prop_oneof![Just([1; 32]), any::<[u8; 32]>()];
    let number = any_number();
    (number, hash).prop_map(|(seq, hash)| match seq {
        0 => Head::EMPTY,
        seq => Head::at(Seq::new(seq), Hash::new(hash)),
    })
}

/// Numbers near the bounds more often than others.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4_u64,
        (NUMBER_MAX - 2)..(NUMBER_MAX + 3),
        (u64::MAX - 2)..=u64::MAX,
        any::<u64>(),
    ]
}

fn any_state() -> impl Strategy<Value = State> {
    (any_head(), any_number(), any_number(), any_number(), any::<u8>()).prop_map(
        |(head, fence, version, notes, flags)| State {
            head,
            fence: Fence::new(fence),
            version,
            notes,
            flags,
        },
    )
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let numbers = (any_number(), any_number(), any_number(), any::<bool>());
    (0..11_u8, any_head(), any_head(), numbers).prop_map(|(kind, base, end, numbers)| {
        let (one, two, three, flag) = numbers;
        let (session, store, fence) = (uid("s"), uid("i"), Fence::new(two));
        match kind {
            0 => create("s"),
            1 => update(one, flag),
            2 => Terms::Append { session, base, head: end, fence, deletes: flag },
            3 => Terms::Mint { session, current: fence, at: flag.then_some(base) },
            4 => {
                let child = Child { session: uid("x"), head: end, owned: flag };
                Terms::Fork { parent: session, at: Seq::new(one), children: vec![child] }
            }
            5 => Terms::Annotate { session, seq: Seq::new(one), fence, notes: three },
            6 => begin(one),
            7 => Terms::Stage {
                store,
                generation: one,
                after: base,
                head: end,
                fence,
                deletes: flag,
            },
            8 => publish(one, base),
            9 => unstage(one),
            _ => put(one),
        }
    })
}

/// As terms would be that meet this state, where they state the same things.
fn meeting(terms: Terms, state: &State) -> Terms {
    match terms {
        Terms::Append { session, head, deletes, .. } => {
            Terms::Append { session, base: state.head, head, fence: state.fence, deletes }
        }
        Terms::Mint { session, .. } => {
            Terms::Mint { session, current: state.fence, at: Some(state.head) }
        }
        Terms::Update { sets_owner, .. } => update(state.version, sets_owner),
        Terms::Annotate { session, fence, .. } => {
            Terms::Annotate { session, seq: state.head.seq, fence, notes: state.notes }
        }
        Terms::Fork { parent, children, .. } => {
            Terms::Fork { parent, at: state.head.seq, children }
        }
        Terms::BeginImport { .. } => begin(state.version),
        Terms::Stage { store, head, fence, deletes, .. } => {
            let (generation, after) = (state.version, state.head);
            Terms::Stage { store, generation, after, head, fence, deletes }
        }
        Terms::Publish { .. } => publish(state.version, state.head),
        Terms::Unstage { .. } => unstage(state.version),
        Terms::PutNamed { .. } => put(state.version),
        create @ Terms::Create { .. } => create,
    }
}

proptest! {
    #[test]
    fn no_number_is_too_large_to_be_judged(
        state in any_state(),
        terms in any_terms(),
        meets in any::<bool>(),
    ) {
        let row = mainspring_eventlog::RowKey::new("kind", "name").unwrap();
        let names = [Name::session(&uid("s")), Name::import(&uid("i")), Name::row(&row)];
        let mut fold = Fold(names.into_iter().map(|name| (name, state)).collect());
        if matches!(terms, Terms::Publish { .. }) {
            fold.0.remove(&Name::session(&uid("s")));
        }
        let terms = if meets { meeting(terms, &state) } else { terms };
        let before = fold.0.clone();
        let verdict = fold.judge(ONLY, &terms);
        if verdict.is_err() {
            prop_assert_eq!(&before, &fold.0);
        }
        // These start with nothing staged; of them, only the generation goes on.
        let starts = matches!(terms, Terms::BeginImport { .. } | Terms::Unstage { .. });
        for (name, before) in before {
            let after = fold.0[&name];
            prop_assert!(after.version >= before.version, "{terms:?}");
            let rose = after.head.seq >= before.head.seq && after.fence >= before.fence;
            prop_assert!(starts || rose && after.notes >= before.notes, "{terms:?}");
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_stored(state in any_state()) {
        prop_assert_eq!(State::decode(&state.encode()), Some(state));
    }

    #[test]
    fn only_what_was_stored_reads_as_a_state(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            prop::collection::vec(0..2_u8, 33),
            prop::collection::vec(any::<u8>(), 65),
        ],
    ) {
        if let Some(state) = State::decode(&bytes) {
            prop_assert_eq!(state.encode(), bytes);
        } else {
            let is_whole = bytes.len() == 65 || (bytes.len() == 33 && bytes[1..9] == [0; 8]);
            prop_assert!(!is_whole);
        }
    }
}

#[test]
fn the_bounds_of_the_rules_are_frozen() {
    assert_eq!((NUMBER_MAX, CHILDREN_MAX, ROWS_PARTITION), (1 << 53, 128, 0));
    assert_eq!((crate::frame::RULES_LEVEL, crate::frame::ENTRIES_MAX), (1, 4_096));
}

#[test]
fn every_verdict_has_its_own_code() {
    let voids = [
        Void::NotFound,
        Void::Exists,
        Void::Head(Head::EMPTY),
        Void::Fence(Fence::NONE),
        Void::Version,
        Void::Owner,
        Void::Deleted,
        Void::Beyond,
        Void::Misplaced,
        Void::Frame,
    ];
    assert_eq!(voids.map(Void::code), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn a_digest_tells_every_history_from_every_other() {
    let start = FoldDigest::default();
    let of =
        |offset, entries: &[(&'static [u8], Verdict)]| start.after(offset, entries.iter().copied());
    let (a, b): (&[u8], &[u8]) = (b"a", b"b");
    let digests = [
        start,
        of(7, &[(a, Ok(())), (b, Ok(()))]),
        of(8, &[(a, Ok(())), (b, Ok(()))]),
        of(7, &[(b, Ok(())), (a, Ok(()))]),
        of(7, &[(a, Ok(())), (b, Err(Void::Exists))]),
        of(7, &[(a, Ok(())), (b, Err(Void::NotFound))]),
        of(7, &[(a, Err(Void::NotFound)), (b, Ok(()))]),
        of(7, &[(a, Ok(()))]),
        of(7, &[(b"ab", Ok(()))]),
        of(7, &[(b"", Err(Void::Frame))]),
        of(7, &[]),
        of(7, &[(a, Ok(()))]).after(8, [(b, Ok(()))].into_iter()),
        of(7, &[(b, Ok(()))]).after(8, [(a, Ok(()))].into_iter()),
    ];
    let distinct: std::collections::HashSet<[u8; 32]> = digests.iter().map(|d| d.0).collect();
    assert_eq!(distinct.len(), digests.len());
    assert_eq!(of(7, &[(a, Ok(()))]), of(7, &[(a, Ok(()))]));
}
