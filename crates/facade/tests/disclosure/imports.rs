//! An import tells nothing of what others have, or are about to have.

use futures_util::TryStreamExt as _;
use mainspring::api::{
    Bytes, ExportRequest, Head, Operations as _, SessionUid, Sessions as _, method,
};
use mainspring_wire::{operations_v1 as ours, v1};
use prost::Message as _;
use tonic::Code;

use crate::host::{Port, World, caller};
use crate::wire::Answer;

/// A journal of somebody's, without the line that names its session.
async fn nameless(world: &World, who: &str, text: &str) -> Bytes {
    let (session, _) = world.ran(who, text).await;
    let request = ExportRequest { session, after: Head::EMPTY };
    let lines = world.host.service().export(&caller(who), request).await.unwrap();
    let lines: Vec<Bytes> = lines.try_collect().await.unwrap();
    lines[..lines.len() - 1].concat().into()
}

async fn import(world: &World, who: &str, session: &str, id: &str, lines: Bytes) -> Answer {
    let target = ours::import_request::Target {
        session: session.to_owned(),
        harness: "gate".to_owned(),
        id: id.to_owned(),
        ..Default::default()
    };
    let message = ours::ImportRequest { target: Some(target), lines };
    let to = (Port::Sessions, method::IMPORT, false);
    world.call(who, to, &[], &message.encode_to_vec()).await
}

#[tokio::test]
async fn an_import_id_of_somebody_elses_is_as_good_as_a_fresh_one() {
    let world = World::new().await;
    let theirs = nameless(&world, "alice", "hello").await;
    let own = nameless(&world, "mallory", "hello").await;
    let [done, begun, fresh] = ["11".repeat(16), "22".repeat(16), "33".repeat(16)];
    let published = import(&world, "alice", "", &done, theirs.clone()).await;
    assert!(published.is_ok(), "{published:?}");
    let cut = [&theirs[..], b"no line\n"].concat();
    assert!(!import(&world, "alice", "", &begun, cut.into()).await.is_ok());

    let expected = import(&world, "mallory", "", &fresh, Bytes::new()).await;
    assert_eq!(expected.code(), Some(Code::FailedPrecondition));
    for id in [&done, &begun] {
        assert_eq!(import(&world, "mallory", "", id, Bytes::new()).await, expected);
    }
    for id in [&done, &begun, &fresh] {
        let answer = import(&world, "mallory", "", id, own.clone()).await;
        assert!(answer.is_ok(), "{answer:?}");
        let session = answer.message::<v1::Session>().metadata.unwrap().uid;
        let session = SessionUid::new(&session).unwrap();
        world.host.service().get(&caller("mallory"), &session).await.unwrap();
    }
    // It still goes on for its owner.
    let again = import(&world, "alice", "", &done, theirs.clone()).await;
    assert_eq!(again.body, published.body);
    let rest = import(&world, "alice", "", &begun, theirs).await;
    assert!(rest.is_ok(), "{rest:?}");
}

#[tokio::test]
async fn an_import_onto_a_foreign_session_is_denied_whatever_its_state() {
    let world = World::new().await;
    let own = nameless(&world, "mallory", "hello").await;
    let (states, _) = world.states().await;
    let before = world.dump();
    let mut answers = Vec::new();
    for (state, uid) in &states {
        let answer = import(&world, "mallory", uid.as_str(), "", own.clone()).await;
        assert_eq!(answer.code(), Some(Code::PermissionDenied), "{state} {answer:?}");
        answers.push(answer.without(uid.as_str()));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert!(world.dump() == before, "nothing was changed");
    // No uid can be chosen: neither a free one nor one's own.
    let mine = world.created("mallory").await;
    for uid in [mine.as_str(), "sess-0123456789abcdef01234567"] {
        let answer = import(&world, "mallory", uid, "", own.clone()).await;
        assert_eq!(answer.without(uid), answers[0]);
    }
}
