//! Who proves nothing is told nothing, and one thing only.

use mainspring::api::{ApprovalRef, SessionUid};
use serde_json::json;
use tonic::Code;

use crate::host::{MESSAGE_BYTES_MAX, Port, World};
use crate::people::{Authority, Until, bad_tokens};
use crate::rows::{Row, no_call, rows};
use crate::wire::{self, Answer, framed};

/// Bodies of every kind: whether one can be read is not looked at.
fn bodies(row: &Row, uid: &SessionUid, approval: &ApprovalRef) -> Vec<Vec<u8>> {
    let mut bodies: Vec<_> = (row.shapes)(uid.as_str(), approval)
        .into_iter()
        .take(1)
        .map(|shape| framed(&shape.message))
        .collect();
    bodies.extend([Vec::new(), framed(b""), framed(b"\xff\xff"), vec![9; 7]]);
    bodies.push(framed(&vec![0; MESSAGE_BYTES_MAX + 1]));
    bodies
}

#[track_caller]
fn assert_refused(answer: &Answer, first: &mut Option<Answer>, case: &str) {
    assert_eq!(answer.code(), Some(Code::Unauthenticated), "{case}: {answer:?}");
    let first = first.get_or_insert_with(|| answer.clone());
    assert_eq!(answer, first, "{case}");
}

#[tokio::test]
async fn bad_credentials_have_one_answer_on_every_rpc() {
    let world = World::new().await;
    let (states, approval) = world.states().await;
    let unknown = SessionUid::new("sess-000000000000000000000000").unwrap();
    let before = world.dump();
    world.reads.take();
    let bad = bad_tokens(&world.signer);
    let mut first = None;
    for row in rows() {
        // The session decides nothing, so each kind of credential meets another.
        let sessions = states.iter().map(|(_, uid)| uid).chain([&unknown]).cycle();
        for ((name, values), uid) in bad.iter().zip(sessions) {
            for (n, body) in bodies(&row, uid, &approval).into_iter().enumerate() {
                let headers: Vec<_> =
                    values.iter().map(|value| ("authorization", value.as_str())).collect();
                let channel = world.channel(row.port);
                let answer = wire::call(channel, row.path, &headers, body, row.is_stream).await;
                let case = format!("{} {name} body {n}", row.path);
                assert_refused(&answer.expect(&case), &mut first, &case);
            }
        }
    }
    let first = first.unwrap();
    assert_eq!(first.text(), "the%20call%20has%20no%20valid%20credentials");
    assert_eq!(world.reads.take(), 0, "the store was asked nothing");
    assert!(world.dump() == before, "nothing was changed");
}

#[tokio::test]
async fn bad_certificates_have_the_same_answer_or_no_connection() {
    let world = World::new().await;
    let (states, approval) = world.states().await;
    let before = world.dump();
    world.reads.take();
    let uid = &states[0].1;
    let ca = world.authority.pem();
    let mut first = None;
    for port in [Port::Sessions, Port::Operators] {
        let row = rows().into_iter().find(|row| row.port == port).unwrap();
        let body = bodies(&row, uid, &approval).remove(0);
        let channel = wire::connect(world.address(port), &ca, None).await.unwrap();
        let answer = wire::call(&channel, row.path, &[], body, row.is_stream).await.unwrap();
        assert_refused(&answer, &mut first, row.path);
    }
    let spiffe = "spiffe://mesh.example/carol";
    let ours = &world.authority;
    for (name, certificate) in [
        ("has run out for the host", ours.client(&[spiffe], Until::BeforeNow)),
        ("names two", ours.client(&[spiffe, "spiffe://mesh.example/dave"], Until::Later)),
        ("names nobody", ours.client(&[], Until::Later)),
    ] {
        for port in [Port::Sessions, Port::Operators] {
            let channel = wire::connect(world.address(port), &ca, Some(&certificate)).await;
            let channel = channel.unwrap();
            for row in rows().into_iter().filter(|row| row.port == port) {
                for body in bodies(&row, uid, &approval) {
                    let answer = wire::call(&channel, row.path, &[], body, row.is_stream).await;
                    let case = format!("{} {name}", row.path);
                    assert_refused(&answer.expect(&case), &mut first, &case);
                }
            }
        }
    }
    // What the handshake refuses calls nothing.
    for (name, certificate) in [
        ("is another authority's", Authority::new("ours").client(&[spiffe], Until::Later)),
        ("has run out", ours.client(&[spiffe], Until::Past)),
        ("is a server's", ours.server()),
    ] {
        for port in [Port::Sessions, Port::Operators] {
            let connected = wire::connect(world.address(port), &ca, Some(&certificate)).await;
            // The client may believe to be connected until it reads.
            let Ok(channel) = connected else { continue };
            let row = rows().into_iter().find(|row| row.port == port).unwrap();
            let body = bodies(&row, uid, &approval).remove(0);
            let bearer = world.bearer("alice");
            let headers = [("authorization", bearer.as_str())];
            let answer = wire::call(&channel, row.path, &headers, body, row.is_stream).await;
            assert!(answer.is_err(), "a certificate that {name}: {answer:?}");
        }
    }
    // A token that does not hold is not made up for by a certificate.
    let good = ours.client(&[spiffe], Until::Later);
    let channel = wire::connect(world.address(Port::Sessions), &ca, Some(&good)).await.unwrap();
    let row = rows().into_iter().find(|row| row.names_session).unwrap();
    for (name, values) in bad_tokens(&world.signer) {
        let headers: Vec<_> =
            values.iter().map(|value| ("authorization", value.as_str())).collect();
        let body = bodies(&row, uid, &approval).remove(0);
        let answer = wire::call(&channel, row.path, &headers, body, row.is_stream).await.unwrap();
        match values.is_empty() {
            true => assert_eq!(answer.code(), Some(Code::PermissionDenied), "{answer:?}"),
            false => assert_refused(&answer, &mut first, name),
        }
    }
    assert!(world.dump() == before, "nothing was changed");
}

#[tokio::test]
async fn a_token_within_the_leeway_is_taken() {
    let world = World::new().await;
    let uid = world.created("alice").await;
    let row = rows().into_iter().find(|row| row.names_session).unwrap();
    for change in [json!({"exp": crate::people::NOW - 59}), json!({"nbf": crate::people::NOW + 59})]
    {
        let bearer = format!("Bearer {}", world.signer.token("alice", &change));
        let approval = no_call();
        let body = bodies(&row, &uid, &approval).remove(0);
        let headers = [("authorization", bearer.as_str())];
        let answer = wire::call(world.channel(row.port), row.path, &headers, body, false).await;
        assert!(answer.unwrap().is_ok());
    }
}
