//! Fields that say what they must not are named, and nothing breaks.

use mainspring::api::method;
use tonic::Code;

use crate::fields::{self, Malformed, Wrong};
use crate::host::{MESSAGE_BYTES_MAX, Port, World};
use crate::rows::{Row, no_call, rows};
use crate::wire::{self, Answer, framed};

/// Numbers of which -1 is one that is taken: nothing but its sign is special.
const MAY_BE_NEGATIVE: [&str; 9] = [
    "page_size",
    "from_seq",
    "at_seq",
    "count",
    "resume_from_seq",
    "deadline_unix",
    "ordinal",
    // Set by the host alone, and not looked at.
    "version",
    "last_seq",
];

/// Who calls a method that is to be looked into.
fn who(row: &Row) -> &'static str {
    match row.port {
        Port::Sessions => "alice",
        Port::Operators => "olga",
    }
}

/// What must come of it; `None` when the field is ignored or its value taken.
fn expected(row: &Row, field: &Malformed) -> Option<Code> {
    let leaf = field.path.last().unwrap().as_str();
    let is_ignored = row.path == method::CREATE_SESSION && is_ignored_by_create(&field.path);
    match field.wrong {
        Wrong::NotText | Wrong::OtherType | Wrong::NotAMessage => Some(Code::InvalidArgument),
        Wrong::NoSuchValue if is_ignored => None,
        Wrong::Negative if is_ignored => None,
        // The registry's lists have a rule of their own.
        Wrong::Negative if row.path == method::LIST_HARNESSES => Some(Code::InvalidArgument),
        Wrong::Negative if MAY_BE_NEGATIVE.contains(&leaf) => None,
        Wrong::Negative | Wrong::NoSuchValue => Some(Code::InvalidArgument),
        Wrong::Huge if is_ignored => None,
        Wrong::Huge if is_kept_with_a_session(row, &field.path) => Some(Code::InvalidArgument),
        Wrong::Huge => None,
    }
}

/// The rest of the session is the host's to say.
fn is_ignored_by_create(path: &[String]) -> bool {
    let taken = ["harness", "model", "identity", "origin", "labels", "annotations"];
    match path {
        [_, metadata, field, ..] if metadata == "metadata" => {
            !["project", "name"].contains(&field.as_str())
        }
        [_, field, ..] => !taken.contains(&field.as_str()),
        _ => false,
    }
}

/// What is in a row, of which a list has many in one message.
fn is_kept_with_a_session(row: &Row, path: &[String]) -> bool {
    match row.path {
        method::CREATE_SESSION => true,
        method::FORK => ["labels", "child_names"].contains(&path[0].as_str()),
        method::IMPORT => path[0] == "target",
        _ => false,
    }
}

/// Whether the text names the field, or the message that it is part of. Of an
/// owner one half misses the other.
fn names(answer: &Answer, field: &Malformed) -> bool {
    let named = |name: &String| answer.text().contains(name.as_str());
    let is_owner = |name: &String| name.starts_with("owner_") && answer.text().contains("owner_");
    field.names.iter().any(|name| named(name) || is_owner(name))
}

async fn sent(world: &World, row: &Row, appended: &[u8]) -> Answer {
    let uid = world.created("alice").await;
    let shape = (row.shapes)(uid.as_str(), &no_call()).remove(0);
    let message = [&shape.message, appended].concat();
    world.call(who(row), (row.port, row.path, row.is_stream), &shape.headers, &message).await
}

#[tokio::test]
async fn malformed_fields_are_named() {
    let world = World::new().await;
    let methods = fields::methods();
    for row in rows() {
        let (_, method) = methods.iter().find(|(path, _)| path == row.path).unwrap();
        let plain = sent(&world, &row, b"").await;
        for field in fields::malformed(&method.input()) {
            let case = format!("{} {} {:?}", row.path, field.path.join("."), field.wrong);
            let answer = sent(&world, &row, &field.bytes).await;
            match expected(&row, &field) {
                Some(code) => {
                    assert_eq!(answer.code(), Some(code), "{case}: {answer:?}");
                    assert!(names(&answer, &field), "{case}: {}", answer.text());
                }
                // A name that nothing has, or a value that is kept or ignored.
                None if answer.code() == Some(Code::InvalidArgument) => {
                    assert!(names(&answer, &field), "{case}: {}", answer.text());
                }
                None => {
                    let codes = [plain.code(), Some(Code::NotFound), Some(Code::Ok), None];
                    assert!(codes.contains(&answer.code()), "{case}: {answer:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn unknown_fields_are_left_out_but_by_the_registry() {
    let world = World::new().await;
    for row in rows() {
        let plain = sent(&world, &row, b"").await;
        let answer = sent(&world, &row, &fields::unknown()).await;
        match row.path {
            method::REGISTER_HARNESS => {
                assert_eq!(answer.code(), Some(Code::InvalidArgument), "{answer:?}");
            }
            path => assert_eq!(answer.code(), plain.code(), "{path}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_message_that_is_none_is_refused_whoever_sends_it() {
    let world = World::new().await;
    let huge = framed(&vec![0; MESSAGE_BYTES_MAX + 1]);
    let compressed = [&[1, 0, 0, 0, 1], &b"?"[..]].concat();
    let bodies = [
        ("no frame", Vec::new()),
        ("half a frame", vec![0, 0, 0]),
        ("cut", framed(b"hello")[..7].to_vec()),
        ("garbage", framed(b"\xff\xff")),
        ("compressed", compressed),
        ("huge", huge),
    ];
    for row in rows() {
        for caller in ["alice", "mallory", "nobody", "olga"] {
            let bearer = world.bearer(caller);
            let headers = [("authorization", bearer.as_str())];
            for (name, body) in &bodies {
                let channel = world.channel(row.port);
                let answer =
                    wire::call(channel, row.path, &headers, body.clone(), row.is_stream).await;
                let answer = answer.unwrap();
                let case = format!("{} {name} from {caller}: {answer:?}", row.path);
                assert_eq!(answer.code(), Some(Code::InvalidArgument), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_request_must_have_is_missed_by_name() {
    let world = World::new().await;
    for row in rows().into_iter().filter(|row| row.names_session) {
        // Without a session an exec is of a new one.
        if row.path == method::EXEC {
            continue;
        }
        let to = (row.port, row.path, row.is_stream);
        for caller in [who(&row), "mallory"] {
            let answer = world.call(caller, to, &[], b"").await;
            assert_eq!(answer.code(), Some(Code::InvalidArgument), "{} {answer:?}", row.path);
            let named = ["uid", "session"].iter().any(|name| answer.text().contains(name));
            assert!(named, "{}: {}", row.path, answer.text());
        }
    }
}
