//! What is written is read, and nothing else is.

use proptest::prelude::*;

use super::*;

pub(super) fn uid(name: &str) -> SessionUid {
    SessionUid::new(name).unwrap()
}

pub(super) fn at(seq: u64) -> Head {
    Head::at(Seq::new(seq), Hash::new([seq as u8; 32]))
}

/// One statement of each kind, and of each form that a kind has.
pub(super) fn statements() -> Vec<Statement> {
    let fence = Fence::new(7);
    let child = Child { session: uid("c"), head: at(3), owned: true };
    let genesis = Genesis {
        store_id: StoreId::new("00112233445566778899aabbccddeeff").unwrap(),
        cluster_id: "k".into(),
        partitions: 4,
        partition: 2,
        level: 1,
    };
    let ops = [
        Terms::Create { session: uid("s"), owned: false },
        Terms::Update { session: uid("s"), version: 9, sets_owner: true },
        Terms::Append { session: uid("s"), base: Head::EMPTY, head: at(2), fence, deletes: true },
        Terms::Mint { session: uid("s"), current: fence, at: None },
        Terms::Mint { session: uid("s"), current: fence, at: Some(at(4)) },
        Terms::Fork { parent: uid("s"), at: Seq::new(2), children: vec![child] },
        Terms::Annotate { session: uid("s"), seq: Seq::new(1), fence, notes: 3 },
        Terms::BeginImport { store: uid("i"), generation: 1 },
        Terms::Stage {
            store: uid("i"),
            generation: 1,
            after: at(1),
            head: at(2),
            fence,
            deletes: false,
        },
        Terms::Publish {
            store: uid("i"),
            generation: 1,
            session: uid("s"),
            head: at(2),
            owned: false,
        },
        Terms::Unstage { store: uid("i"), generation: 1 },
        Terms::PutNamed { key: RowKey::new("kind", "name").unwrap(), version: 0 },
    ];
    let others = [
        Statement::Genesis(genesis),
        Statement::Barrier,
        Statement::Digest { offset: 5, digest: [3; 32] },
        Statement::Activate { level: 2 },
        Statement::VoidDigest { offset: 6 },
    ];
    ops.into_iter().map(Statement::Op).chain(others).collect()
}

pub(super) fn written() -> Vec<u8> {
    let drafts: Vec<Draft> = statements()
        .iter()
        .enumerate()
        .map(|(n, statement)| Draft::new(AppendId::new([n as u8; 16]), statement, vec![n as u8; n]))
        .collect();
    write(&[9; 16], 77, Timestamp { seconds: 5, nanos: 6 }, drafts.iter())
}

fn one(statement: &Statement) -> Vec<u8> {
    let draft = Draft::new(AppendId::new([1; 16]), statement, b"payload".to_vec());
    write(&[9; 16], 0, Timestamp { seconds: 0, nanos: 0 }, std::iter::once(&draft))
}

fn read(bytes: &[u8]) -> Option<Frame> {
    Frame::read(Bytes::copy_from_slice(bytes))
}

#[test]
fn a_frame_is_read_as_it_was_written() {
    let frame = Frame::read(written().into()).unwrap();
    assert_eq!((frame.level, frame.writer, frame.number), (RULES_LEVEL, [9; 16], 77));
    assert_eq!(frame.time, Timestamp { seconds: 5, nanos: 6 });
    let read: Vec<Statement> = frame.entries.iter().map(|e| e.statement.clone()).collect();
    assert_eq!(read, statements());
    for (n, entry) in frame.entries.iter().enumerate() {
        assert_eq!(entry.id, AppendId::new([n as u8; 16]));
        assert_eq!(frame.payload(entry), vec![n as u8; n]);
    }
}

#[test]
fn no_part_of_a_frame_is_one() {
    let whole = written();
    for length in 0..whole.len() {
        assert!(read(&whole[..length]).is_none(), "{length} bytes");
    }
    assert!(read(&[&whole[..], &[0]].concat()).is_none());
}

#[test]
fn a_changed_byte_never_reads_beyond_the_frame() {
    let whole = written();
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[place] ^= 1 << bit;
            if let Some(frame) = read(&changed) {
                frame.entries.iter().for_each(|entry| drop(frame.payload(entry).to_vec()));
            }
        }
    }
}

#[test]
fn a_signature_is_passed_over_and_decides_nothing() {
    let plain = written();
    let (head, entries) = plain.split_at(FRAME_HEAD_BYTES);
    let mut signed = [head, &[0xee; 300], entries].concat();
    signed[44..46].copy_from_slice(&300_u16.to_be_bytes());
    signed[46..48].copy_from_slice(&[0xaa, 0xbb]);
    let (plain, signed) = (read(&plain).unwrap(), read(&signed).unwrap());
    assert_eq!(plain.entries.len(), signed.entries.len());
    for (plain_entry, entry) in plain.entries.iter().zip(&signed.entries) {
        assert_eq!(plain.head(plain_entry), signed.head(entry));
        assert_eq!(plain.payload(plain_entry), signed.payload(entry));
    }
    let cut = [&written()[..44], &u16::MAX.to_be_bytes(), &written()[46..]].concat();
    assert!(read(&cut).is_none());
}

#[test]
fn another_magic_or_a_flag_is_no_frame() {
    for (place, value) in [(0, b'm'), (3, 0), (3, 2), (6, 1), (7, 1)] {
        let mut other = written();
        other[place] = value;
        assert!(read(&other).is_none(), "{value} at {place}");
    }
}

#[test]
fn the_level_of_a_frame_is_judged_by_others() {
    let mut higher = written();
    higher[4..6].copy_from_slice(&9_u16.to_be_bytes());
    assert_eq!(read(&higher).unwrap().level, 9);
}

#[test]
fn a_frame_of_nothing_is_one() {
    let none: [Draft; 0] = [];
    let frame = write(&[9; 16], 0, Timestamp { seconds: 0, nanos: 0 }, none.iter());
    assert_eq!(frame.len(), FRAME_HEAD_BYTES);
    assert!(read(&frame).unwrap().entries.is_empty());
}

#[test]
fn a_number_of_entries_alone_takes_little_memory() {
    assert!(ENTRIES_MAX * size_of::<Entry>() <= 1 << 20, "what a frame of 48 bytes can ask for");
    for count in [1, ENTRIES_MAX as u32, ENTRIES_MAX as u32 + 1, u32::MAX] {
        let mut frame = written()[..FRAME_HEAD_BYTES].to_vec();
        frame[40..44].copy_from_slice(&count.to_be_bytes());
        assert!(read(&frame).is_none(), "{count} entries");
    }
}

#[test]
fn a_frame_has_no_more_entries_than_the_bound() {
    let barrier = Draft::new(AppendId::new([1; 16]), &Statement::Barrier, Vec::new());
    let of = |count| {
        let time = Timestamp { seconds: 0, nanos: 0 };
        write(&[9; 16], 0, time, std::iter::repeat_n(&barrier, count))
    };
    assert_eq!(read(&of(ENTRIES_MAX)).unwrap().entries.len(), ENTRIES_MAX);
    assert!(read(&of(ENTRIES_MAX + 1)).is_none());
}

#[test]
fn a_number_of_children_alone_takes_no_memory() {
    let fork = Statement::Op(Terms::Fork {
        parent: uid("s"),
        at: Seq::new(2),
        children: vec![Child { session: uid("c"), head: at(3), owned: true }],
    });
    let mut frame = one(&fork);
    // After the id, the kind, the parent and the position.
    let count = FRAME_HEAD_BYTES + 4 + 16 + 1 + 3 + 8;
    assert_eq!(frame[count..count + 4], 1_u32.to_be_bytes());
    frame[count..count + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(read(&frame).is_none());
}

#[test]
fn an_unknown_kind_makes_a_frame_void() {
    for kind in (0..=255).filter(|kind| !matches!(kind, 1..=5 | 16..=26)) {
        let mut frame = one(&Statement::Barrier);
        frame[FRAME_HEAD_BYTES + 4 + 16] = kind;
        assert!(read(&frame).is_none(), "kind {kind}");
    }
}

#[test]
fn what_two_bytes_could_say_is_said_by_one_alone() {
    let create = Statement::Op(Terms::Create { session: uid("s"), owned: true });
    let frame = one(&create);
    let owned = FRAME_HEAD_BYTES + 4 + 16 + 1 + 3;
    for (value, is_frame) in [(0, true), (1, true), (2, false), (255, false)] {
        let mut frame = frame.clone();
        frame[owned] = value;
        assert_eq!(read(&frame).is_some(), is_frame, "a flag of {value}");
    }
    // A head at 0 has no hash, and one beyond has.
    let mint = one(&Statement::Op(Terms::Mint {
        session: uid("s"),
        current: Fence::NONE,
        at: Some(at(4)),
    }));
    let seq = FRAME_HEAD_BYTES + 4 + 16 + 1 + 3 + 8 + 1;
    let mut frame = mint.clone();
    frame[seq..seq + 8].copy_from_slice(&0_u64.to_be_bytes());
    assert!(read(&frame).is_none());
    let mint = one(&Statement::Op(Terms::Mint {
        session: uid("s"),
        current: Fence::NONE,
        at: Some(Head::EMPTY),
    }));
    let mut frame = mint.clone();
    frame[seq..seq + 8].copy_from_slice(&1_u64.to_be_bytes());
    assert!(read(&frame).is_none());
}

fn any_uid() -> impl Strategy<Value = SessionUid> {
    "[a-z0-9-]{1,40}".prop_filter_map("a uid", |text| SessionUid::new(&text).ok())
}

fn any_head() -> impl Strategy<Value = Head> {
    (any::<u64>(), any::<[u8; 32]>()).prop_map(|(seq, hash)| match seq % 5 {
        0 => Head::EMPTY,
        _ => Head::at(Seq::new(seq), Hash::new(hash)),
    })
}

fn any_children() -> impl Strategy<Value = Vec<Child>> {
    let child = (any_uid(), any_head(), any::<bool>());
    let child = child.prop_map(|(session, head, owned)| Child { session, head, owned });
    prop::collection::vec(child, 0..5)
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>());
    let heads = (any_head(), any_head());
    let uids = (any_uid(), any_uid());
    let key = (".{1,20}", ".{1,20}")
        .prop_filter_map("a key", |(kind, name)| RowKey::new(&kind, &name).ok());
    (0..11_u8, uids, heads, numbers, any_children(), key).prop_map(
        |(kind, (session, store), (base, head), (one, two, three, flag), children, key)| {
            let fence = Fence::new(two);
            match kind {
                0 => Terms::Create { session, owned: flag },
                1 => Terms::Update { session, version: one, sets_owner: flag },
                2 => Terms::Append { session, base, head, fence, deletes: flag },
                3 => Terms::Mint { session, current: fence, at: flag.then_some(base) },
                4 => Terms::Fork { parent: session, at: Seq::new(one), children },
                5 => Terms::Annotate { session, seq: Seq::new(one), fence, notes: three },
                6 => Terms::BeginImport { store, generation: one },
                7 => {
                    Terms::Stage { store, generation: one, after: base, head, fence, deletes: flag }
                }
                8 => Terms::Publish { store, generation: one, session, head, owned: flag },
                9 => Terms::Unstage { store, generation: one },
                _ => Terms::PutNamed { key, version: one },
            }
        },
    )
}

fn any_statement() -> impl Strategy<Value = Statement> {
    let genesis = (any::<[u8; 16]>(), ".{0,30}", any::<u32>(), any::<u32>(), any::<u16>());
    let genesis = genesis.prop_map(|(id, cluster_id, partitions, partition, level)| {
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let store_id = StoreId::new(&hex).unwrap();
        Statement::Genesis(Genesis { store_id, cluster_id, partitions, partition, level })
    });
    let digest = (any::<u64>(), any::<[u8; 32]>())
        .prop_map(|(offset, digest)| Statement::Digest { offset, digest });
    prop_oneof![
        8 => any_terms().prop_map(Statement::Op),
        1 => genesis,
        1 => Just(Statement::Barrier),
        1 => digest,
        1 => any::<u16>().prop_map(|level| Statement::Activate { level }),
        1 => any::<u64>().prop_map(|offset| Statement::VoidDigest { offset }),
    ]
}

type Said = Vec<([u8; 16], Statement, Vec<u8>)>;

fn any_entries() -> impl Strategy<Value = Said> {
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    prop::collection::vec((any::<[u8; 16]>(), any_statement(), payload), 0..6)
}

fn frame_of(writer: [u8; 16], number: u64, nanos: i64, said: &Said) -> Vec<u8> {
    let drafts: Vec<Draft> = said
        .iter()
        .map(|(id, statement, payload)| Draft::new(AppendId::new(*id), statement, payload.clone()))
        .collect();
    let frame = write(&writer, number, Timestamp::from_unix_nanos(nanos), drafts.iter());
    let bytes: usize = drafts.iter().map(Draft::bytes).sum();
    assert_eq!(frame.len(), FRAME_HEAD_BYTES + bytes, "a draft knows what it takes");
    frame
}

/// Reads what may be no frame, and looks at all that it then holds.
fn look(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Some(frame) = read(bytes) else { return Ok(()) };
    let parts: usize = frame
        .entries
        .iter()
        .map(|entry| frame.head(entry).len() + frame.payload(entry).len() + 8)
        .sum();
    prop_assert!(FRAME_HEAD_BYTES + parts <= bytes.len());
    Ok(())
}

proptest! {
    #[test]
    fn any_statements_are_read_as_they_were_written(
        writer in any::<[u8; 16]>(),
        number in any::<u64>(),
        nanos in any::<i64>(),
        said in any_entries(),
    ) {
        let bytes = frame_of(writer, number, nanos, &said);
        let frame = read(&bytes).unwrap();
        prop_assert_eq!((frame.level, frame.writer), (RULES_LEVEL, writer));
        prop_assert_eq!((frame.number, frame.time), (number, Timestamp::from_unix_nanos(nanos)));
        let again: Said = frame
            .entries
            .iter()
            .map(|entry| {
                (*entry.id.as_bytes(), entry.statement.clone(), frame.payload(entry).to_vec())
            })
            .collect();
        prop_assert_eq!(&again, &said);
        prop_assert_eq!(frame_of(writer, number, nanos, &again), bytes);
    }

    #[test]
    fn no_cut_frame_is_one(said in any_entries(), cut in any::<prop::sample::Index>()) {
        let bytes = frame_of([9; 16], 1, 2, &said);
        prop_assert!(read(&bytes[..cut.index(bytes.len())]).is_none());
    }

    #[test]
    fn damage_is_refused_or_read_within_the_frame(
        said in any_entries(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = frame_of([9; 16], 1, 2, &said);
        for (place, value) in places {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        look(&bytes)?;
    }

    #[test]
    fn giant_lengths_are_refused_or_read_within_the_frame(
        said in any_entries(),
        place in any::<prop::sample::Index>(),
        length in prop_oneof![Just(u32::MAX), Just(1 << 31), Just(u32::MAX - 40), any::<u32>()],
    ) {
        let mut bytes = frame_of([9; 16], 1, 2, &said);
        let place = place.index(bytes.len() - 3);
        bytes[place..place + 4].copy_from_slice(&length.to_be_bytes());
        look(&bytes)?;
    }

    #[test]
    fn garbage_is_refused_or_read_within_the_frame(
        garbage in prop::collection::vec(any::<u8>(), 0..400),
        has_magic in any::<bool>(),
    ) {
        let mut bytes = garbage;
        if has_magic {
            bytes.splice(0..0, [&MAGIC[..], &[0, 1, 0, 0]].concat());
        }
        look(&bytes)?;
    }
}
