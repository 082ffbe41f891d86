//! Bytes that never change: hosts of every version read one log.

use super::tests::{statements, uid, written};
use super::*;
use crate::judge::{FoldDigest, Verdict, Void, partition_of};

/// An entry in the log.
struct Golden {
    states: &'static str,
    id: &'static str,
    kind: u8,
    terms: &'static str,
    payload: &'static str,
}

/// Magic, level, flags, writer, number, time, entries, and no signature.
const FRAME_HEAD: &str = "4d534a01 0001 0000 09090909090909090909090909090909 000000000000004d \
                          000000012a05f206 00000011 0000 0000";

const ENTRIES: [Golden; 17] = [
    Golden {
        states: "create",
        id: "00000000000000000000000000000000",
        kind: 0x10,
        terms: "00017300",
        payload: "",
    },
    Golden {
        states: "update",
        id: "01010101010101010101010101010101",
        kind: 0x11,
        terms: "000173000000000000000901",
        payload: "01",
    },
    Golden {
        states: "append",
        id: "02020202020202020202020202020202",
        kind: 0x12,
        terms: "00017300000000000000000000000000000000020102020202020202020202020202020202020202 \
         02020202020202020202020202000000000000000701",
        payload: "0202",
    },
    Golden {
        states: "mint",
        id: "03030303030303030303030303030303",
        kind: 0x13,
        terms: "000173000000000000000700",
        payload: "030303",
    },
    Golden {
        states: "mint where the journal ends",
        id: "04040404040404040404040404040404",
        kind: 0x13,
        terms: "00017300000000000000070100000000000000040104040404040404040404040404040404040404 \
         04040404040404040404040404",
        payload: "04040404",
    },
    Golden {
        states: "fork",
        id: "05050505050505050505050505050505",
        kind: 0x14,
        terms: "00017300000000000000020000000100016300000000000000030103030303030303030303030303 \
         0303030303030303030303030303030303030301",
        payload: "0505050505",
    },
    Golden {
        states: "annotate",
        id: "06060606060606060606060606060606",
        kind: 0x15,
        terms: "000173000000000000000100000000000000070000000000000003",
        payload: "060606060606",
    },
    Golden {
        states: "begin an import",
        id: "07070707070707070707070707070707",
        kind: 0x16,
        terms: "0001690000000000000001",
        payload: "07070707070707",
    },
    Golden {
        states: "stage",
        id: "08080808080808080808080808080808",
        kind: 0x17,
        terms: "00016900000000000000010000000000000001010101010101010101010101010101010101010101 \
         01010101010101010101010100000000000000020102020202020202020202020202020202020202 \
         02020202020202020202020202000000000000000700",
        payload: "0808080808080808",
    },
    Golden {
        states: "publish",
        id: "09090909090909090909090909090909",
        kind: 0x18,
        terms: "000169000000000000000100017300000000000000020102020202020202020202020202020202020202020202020202 \
         0202020202020200",
        payload: "090909090909090909",
    },
    Golden {
        states: "unstage",
        id: "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
        kind: 0x19,
        terms: "0001690000000000000001",
        payload: "0a0a0a0a0a0a0a0a0a0a",
    },
    Golden {
        states: "put a named row",
        id: "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
        kind: 0x1a,
        terms: "00046b696e6400046e616d650000000000000000",
        payload: "0b0b0b0b0b0b0b0b0b0b0b",
    },
    Golden {
        states: "genesis",
        id: "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c",
        kind: 0x01,
        terms: "0020303031313232333334343535363637373838393961616262636364646565666600016b000000 \
         04000000020001",
        payload: "0c0c0c0c0c0c0c0c0c0c0c0c",
    },
    Golden {
        states: "barrier",
        id: "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d",
        kind: 0x02,
        terms: "",
        payload: "0d0d0d0d0d0d0d0d0d0d0d0d0d",
    },
    Golden {
        states: "digest",
        id: "0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e",
        kind: 0x03,
        terms: "00000000000000050303030303030303030303030303030303030303030303030303030303030303",
        payload: "0e0e0e0e0e0e0e0e0e0e0e0e0e0e",
    },
    Golden {
        states: "activate",
        id: "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
        kind: 0x04,
        terms: "0002",
        payload: "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
    },
    Golden {
        states: "void a digest",
        id: "10101010101010101010101010101010",
        kind: 0x05,
        terms: "0000000000000006",
        payload: "10101010101010101010101010101010",
    },
];

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

impl Golden {
    fn head(&self) -> Vec<u8> {
        [bytes_of(self.id), vec![self.kind], bytes_of(self.terms)].concat()
    }
}

/// The whole frame.
fn golden() -> Vec<u8> {
    let mut frame = bytes_of(FRAME_HEAD);
    for entry in &ENTRIES {
        for part in [entry.head(), bytes_of(entry.payload)] {
            frame.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
            frame.extend_from_slice(&part);
        }
    }
    frame
}

#[test]
fn the_form_of_a_message_is_frozen() {
    for (golden, statement) in ENTRIES.iter().zip(statements()) {
        let id = AppendId::new(bytes_of(golden.id).try_into().unwrap());
        let draft = Draft::new(id, &statement, bytes_of(golden.payload));
        assert_eq!(draft.head, golden.head(), "{}", golden.states);
    }
    assert_eq!(written(), golden());
    let frame = Frame::read(golden().into()).unwrap();
    let read: Vec<Statement> = frame.entries.iter().map(|e| e.statement.clone()).collect();
    assert_eq!(read, statements());
    assert_eq!(frame.time, Timestamp { seconds: 5, nanos: 6 });
}

#[test]
fn the_partition_of_a_session_is_frozen() {
    let golden: [(&str, [u32; 4]); 5] = [
        ("s", [0, 1, 5, 701]),
        ("sess-00112233445566778899aabb", [0, 1, 5, 729]),
        ("import-00112233445566778899aabbccddeeff", [0, 2, 6, 2]),
        ("a-session-of-some-length", [0, 3, 11, 543]),
        ("z", [0, 3, 11, 299]),
    ];
    for (name, wanted) in golden {
        let found = [1, 4, 12, 1_024].map(|partitions| partition_of(&uid(name), partitions));
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn the_digest_of_a_fold_is_frozen() {
    let frame = Frame::read(golden().into()).unwrap();
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
    // One that counts, one for each reason, and then ones that count again.
    let verdicts: Vec<Verdict> = std::iter::once(Ok(()))
        .chain(voids.map(Err))
        .chain(std::iter::repeat(Ok(())))
        .take(frame.entries.len())
        .collect();
    let heads = frame.entries.iter().map(|entry| frame.head(entry));
    let first = FoldDigest::default().after(7, heads.zip(verdicts));
    assert_eq!(
        first.0[..],
        bytes_of("d25a393c31e9604b7ca1ba4955af4af0f1e9ac8d90c64d057965f49c031fc632")
    );
    // A message that is no frame.
    let second = first.after(9, std::iter::once((&[][..], Err(Void::Frame))));
    assert_eq!(
        second.0[..],
        bytes_of("826f15ff4f1e8c72c5a400ff95972b10772d00499e0db138441ba727aa8d37bc")
    );
}

/// Whether a frame with one such statement, of these names, is one.
fn is_frame(kind: u8, names: &[&str], rest: &[u8]) -> bool {
    let mut head = [&[1; 16][..], &[kind]].concat();
    names.iter().for_each(|name| put_text(&mut head, name));
    head.extend_from_slice(rest);
    let mut frame = bytes_of(FRAME_HEAD);
    frame[40..44].copy_from_slice(&1_u32.to_be_bytes());
    put_part(&mut frame, &head);
    put_part(&mut frame, &[]);
    Frame::read(frame.into()).is_some()
}

#[test]
fn the_names_that_a_frame_takes_are_frozen() {
    let long = "x".repeat(257);
    let uids = [
        ("", false),
        ("a", true),
        ("azAZ09-_.", true),
        (&long[..128], true),
        (&long[..129], false),
        ("a b", false),
        ("a/b", false),
        ("a\0", false),
        ("\u{e9}", false),
    ];
    for (name, wanted) in uids {
        assert_eq!(is_frame(16, &[name], &[0]), wanted, "a uid {name:?}");
        assert_eq!(is_frame(1, &[name, ""], &[0; 10]), wanted, "a store id {name:?}");
    }
    let keys = [
        ("", false),
        ("a", true),
        ("a b/\u{e9}", true),
        (&long[..256], true),
        (&long[..], false),
        ("a\0b", false),
    ];
    for (name, wanted) in keys {
        assert_eq!(is_frame(26, &[name, "name"], &[0; 8]), wanted, "a kind {name:?}");
        assert_eq!(is_frame(26, &["kind", name], &[0; 8]), wanted, "a name {name:?}");
    }
}
