//! CreateSession and GetSession.

use std::collections::BTreeMap;

use mainspring_api::{
    ComputeState, Condition, CreateRequest, DeletionState, ExecState, IdentityRef, Origin, Seq,
};

use super::support::refused;
use super::{Setup, Subject};

/// "Honoured: metadata.project, metadata.name, harness, model, labels, annotations, origin, identity." and
/// "Result: exec PENDING, compute NONE, last_seq 0."
pub async fn a_created_session_is_as_it_was_asked_for<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let map = |key: &str| BTreeMap::from([(key.to_owned(), "1".to_owned())]);
    let origin = Origin {
        source: "mail".to_owned(),
        subject: "a letter".to_owned(),
        uri: "https://mail.test/1".to_owned(),
        attributes: map("folder"),
    };
    let identity = IdentityRef { principal: "p".to_owned(), ..IdentityRef::default() };
    let created = world.me.create(CreateRequest {
        project: "letters".to_owned(),
        name: "mine".to_owned(),
        harness: "other".to_owned(),
        model: "small".to_owned(),
        labels: map("label"),
        annotations: map("annotation"),
        origin: Some(origin.clone()),
        identity: Some(identity.clone()),
        idempotency_key: None,
    });
    let created = created.await.unwrap();
    let session = world.me.get(&created.uid).await.unwrap();
    assert_eq!(session, created);
    assert_eq!((&*session.project, &*session.name), ("letters", "mine"));
    assert_eq!((&*session.harness, &*session.model), ("other", "small"));
    assert_eq!((session.labels, session.annotations), (map("label"), map("annotation")));
    assert_eq!((session.origin, session.identity), (Some(origin), Some(identity)));
    assert_eq!(session.exec_state, ExecState::Pending);
    assert_eq!(session.compute_state, ComputeState::None);
    assert_eq!(session.deletion_state, DeletionState::Active);
    assert_eq!((session.last_seq, session.parent_uid), (Seq::ZERO, None));
    let uid = session.uid.as_str();
    let hex = uid.strip_prefix("sess-").expect("its uid begins with sess-");
    assert!(hex.len() == 24 && hex.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
}

/// "An empty project is never stored: the store default applies"
pub async fn an_empty_project_is_the_default_one<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.create(CreateRequest::default()).await.unwrap();
    assert_eq!(session.project, "default");
}

/// "Not idempotent, names need not be unique."
pub async fn a_create_again_makes_another<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let request = CreateRequest { name: "twin".to_owned(), ..CreateRequest::default() };
    let first = world.me.create(request.clone()).await.unwrap();
    let second = world.me.create(request).await.unwrap();
    assert_ne!(first.uid, second.uid);
    assert_eq!(world.count().await, 2);
}

/// "Harness is resolved now, not at the first turn."
pub async fn a_create_on_an_unknown_harness_is_refused<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let request = CreateRequest { harness: "nobody".to_owned(), ..CreateRequest::default() };
    refused(world.me.create(request).await, Condition::UnknownHarness);
    assert_eq!(world.count().await, 0);
}

/// "a set but empty message is stored as empty and comes back unset"
pub async fn an_empty_identity_comes_back_unset<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let identity = Some(IdentityRef::default());
    let request = CreateRequest { identity, ..CreateRequest::default() };
    let session = world.me.create(request).await.unwrap();
    assert_eq!(world.me.get(&session.uid).await.unwrap().identity, None);
}
