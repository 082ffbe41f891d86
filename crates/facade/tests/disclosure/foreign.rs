//! What is not yours is not there.

use mainspring::api::{SessionUid, Sessions as _, method};
use mainspring_wire::{operations_v1 as ours, v1};
use prost::Message as _;
use tonic::Code;

use crate::host::{Port, World, caller};
use crate::people::Until;
use crate::rows::{no_call, rows};
use crate::wire::{self, framed};

fn unknown() -> SessionUid {
    SessionUid::new("sess-000000000000000000000000").unwrap()
}

#[tokio::test]
async fn a_foreign_session_answers_as_an_unknown_one() {
    let world = World::new().await;
    let (states, approval) = world.states().await;
    let before = world.dump();
    for caller in ["mallory", "nobody"] {
        for row in rows().into_iter().filter(|row| row.names_session) {
            let to = (row.port, row.path, row.is_stream);
            let unknown = unknown();
            let missing = (row.shapes)(unknown.as_str(), &approval);
            for (n, shape) in missing.iter().enumerate() {
                let case = format!("{caller} {} {}", row.path, shape.name);
                world.reads.take();
                let expected = world.call(caller, to, &shape.headers, &shape.message).await;
                let expected_reads = world.reads.take();
                assert_eq!(expected.code(), Some(Code::PermissionDenied), "{case} {expected:?}");
                let expected = expected.without(unknown.as_str());
                for (state, uid) in &states {
                    assert_eq!(uid.as_str().len(), unknown.as_str().len());
                    let shape = (row.shapes)(uid.as_str(), &approval).remove(n);
                    let answer = world.call(caller, to, &shape.headers, &shape.message).await;
                    assert_eq!(answer.without(uid.as_str()), expected, "{case} {state}");
                    let reads = world.reads.take();
                    let apart = reads.abs_diff(expected_reads);
                    assert!(apart <= 1, "{case} {state}: {reads}, not {expected_reads} reads");
                }
            }
        }
    }
    assert!(world.dump() == before, "nothing was changed");
}

#[tokio::test]
async fn the_same_name_from_elsewhere_is_somebody_else() {
    let world = World::new().await;
    let uid = world.ran("alice", "hello").await.0;
    let ca = world.authority.pem();
    let before = world.dump();
    let mut answers = Vec::new();
    for name in ["https://issuer.example#alice", "spiffe://mesh.example/alice"] {
        let certificate = world.authority.client(&[name], Until::Later);
        let address = world.address(Port::Sessions);
        let channel = wire::connect(address, &ca, Some(&certificate)).await.unwrap();
        for uid in [&uid, &unknown()] {
            let message = v1::GetSessionRequest { uid: uid.to_string() }.encode_to_vec();
            let answer =
                wire::call(&channel, method::GET_SESSION, &[], framed(&message), false).await;
            answers.push(answer.unwrap().without(uid.as_str()));
        }
    }
    assert_eq!(answers[0].code(), Some(Code::PermissionDenied));
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert!(world.dump() == before, "nothing was changed");
}

/// Lists, of which nothing may tell that others have sessions.
async fn lists(world: &World, who: &str, page_size: i32, token: &str) -> Vec<(usize, String)> {
    let list =
        v1::ListSessionsRequest { page_size, page_token: token.to_owned(), ..Default::default() };
    let find = ours::FindRequest { page_size, page_token: token.to_owned(), ..Default::default() };
    let answer = |path, message: Vec<u8>| async move {
        let answer = world.call(who, (Port::Sessions, path, false), &[], &message).await;
        assert!(answer.is_ok(), "{answer:?}");
        answer
    };
    let listed: v1::ListSessionsResponse =
        answer(method::LIST_SESSIONS, list.encode_to_vec()).await.message();
    let found: ours::FindResponse = answer(method::FIND, find.encode_to_vec()).await.message();
    vec![
        (listed.sessions.len(), listed.next_page_token),
        (found.sessions.len(), found.next_page_token),
    ]
}

#[tokio::test]
async fn lists_and_their_pages_hold_nothing_foreign() {
    let world = World::new().await;
    let nothing = vec![(0, String::new()); 2];
    for page_size in [0, 1] {
        assert_eq!(lists(&world, "mallory", page_size, "").await, nothing, "of an empty host");
    }
    let _ = world.states().await;
    for _ in 0..120 {
        world.created("bob").await;
    }
    let before = world.dump();
    let tokens: Vec<_> =
        lists(&world, "alice", 1, "").await.into_iter().map(|(_, token)| token).collect();
    assert!(tokens.iter().all(|token| !token.is_empty()), "alice has more");
    for page_size in [0, 1, 500] {
        for token in ["", &tokens[0], &tokens[1]] {
            let page = lists(&world, "mallory", page_size, token).await;
            assert_eq!(page, nothing, "of {page_size} after {token}");
        }
    }
    // A list of one's own is as it is without the others.
    let own = world.created("mallory").await;
    for page_size in [0, 1] {
        let page = lists(&world, "mallory", page_size, "").await;
        assert_eq!(page, vec![(1, String::new()); 2]);
    }
    world.host.service().delete(&caller("mallory"), &own).await.unwrap();
    // Whose sessions are looked for is not for the request to say.
    for subject in ["alice", "bob", "nobody"] {
        let message = ours::FindRequest {
            owner_issuer: crate::people::ISSUER.to_owned(),
            owner_subject: subject.to_owned(),
            ..Default::default()
        };
        let to = (Port::Sessions, method::FIND, false);
        let answer = world.call("mallory", to, &[], &message.encode_to_vec()).await;
        assert_eq!(answer.code(), Some(Code::PermissionDenied), "{subject}");
    }
    let rows_of_others = |dump: Vec<(mainspring::eventlog::Space, Vec<u8>, Vec<u8>)>| {
        let mallory = own.as_str().to_owned();
        let foreign = dump.into_iter().filter(move |(_, key, value)| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&mallory);
            !text(key) && !text(value)
        });
        foreign.collect::<Vec<_>>()
    };
    assert!(rows_of_others(world.dump()) == rows_of_others(before), "nothing was changed");
}

#[tokio::test]
async fn who_may_not_operate_learns_of_no_harness() {
    let world = World::new().await;
    let before = world.dump();
    for who in ["mallory", "alice", "nobody"] {
        for row in rows().into_iter().filter(|row| row.port == Port::Operators) {
            let mut answers = Vec::new();
            for shape in (row.shapes)(unknown().as_str(), &no_call()) {
                let to = (row.port, row.path, row.is_stream);
                let answer = world.call(who, to, &shape.headers, &shape.message).await;
                assert_eq!(answer.code(), Some(Code::PermissionDenied), "{} {answer:?}", row.path);
                answers.push(answer);
            }
            answers.dedup();
            assert_eq!(answers.len(), 1, "{}", row.path);
        }
    }
    assert!(world.dump() == before, "nothing was changed");
}

#[tokio::test]
async fn the_services_of_one_listener_are_not_on_the_other() {
    let world = World::new().await;
    for row in rows() {
        let other = match row.port {
            Port::Sessions => Port::Operators,
            Port::Operators => Port::Sessions,
        };
        let answer = world.call("olga", (other, row.path, row.is_stream), &[], b"").await;
        assert_eq!(answer.code(), Some(Code::Unimplemented), "{}", row.path);
    }
}

/// What the comparison above would not see: that everything is refused anyway.
#[tokio::test]
async fn the_owner_is_served() {
    let world = World::new().await;
    for row in rows() {
        let (uid, approval) = match row.path {
            method::APPROVE | method::CANCEL => world.ran("alice", "refund 5").await,
            _ => world.ran("alice", "hello").await,
        };
        let who = match row.port {
            Port::Sessions => "alice",
            Port::Operators => "olga",
        };
        let shape = (row.shapes)(uid.as_str(), &approval.unwrap_or_else(no_call)).remove(0);
        let to = (row.port, row.path, row.is_stream);
        let answer = world.call(who, to, &shape.headers, &shape.message).await;
        let expected = match row.path {
            // It is no journal, no call is without an answer, the session has an
            // owner, the host cannot reach such a harness, and has this one of
            // its own.
            method::IMPORT
            | method::RESOLVE
            | method::ADOPT
            | method::REGISTER_HARNESS
            | method::RETIRE_HARNESS => Some(Code::FailedPrecondition),
            _ => None,
        };
        match expected {
            None => assert!(answer.is_ok(), "{}: {answer:?}", row.path),
            code => assert_eq!(answer.code(), code, "{}: {answer:?}", row.path),
        }
    }
}
