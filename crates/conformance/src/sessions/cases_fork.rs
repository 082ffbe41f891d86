//! Fork.

use std::collections::BTreeMap;

use mainspring_api::{
    ComputeState, Condition, CreateRequest, ForkRequest, IdentityRef, Origin, Seq,
};

use super::support::{fork_of, refused, unknown};
use super::{Setup, Subject};

/// "`identity` present (even empty) -> INVALID_ARGUMENT", before the session is looked for.
pub async fn a_fork_takes_no_identity<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let identity = Some(IdentityRef::default());
    let request = ForkRequest { identity, ..fork_of(&unknown()) };
    refused(world.me.fork(request).await, Condition::InvalidArgument);
}

/// "`at_seq` <= 0 -> head; `count` <= 0 -> 1" and "last_seq = at_seq + 1".
pub async fn a_fork_is_at_the_head_and_one<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    for at_seq in [0, -5] {
        let request = ForkRequest { at_seq, count: -1, ..fork_of(&session) };
        let children = world.me.fork(request).await.unwrap();
        assert_eq!(children.len(), 1);
        assert_eq!(children[0].fork_seq, Seq::new(4));
        assert_eq!(children[0].last_seq, Seq::new(5));
        assert_eq!(children[0].compute_state, ComputeState::Cold);
        assert_eq!(world.journal(&children[0].uid).await, "ES IN OUT END FORK");
    }
    let request = ForkRequest { at_seq: 2, count: 3, ..fork_of(&session) };
    let children = world.me.fork(request).await.unwrap();
    assert_eq!(children.len(), 3);
    for child in &children {
        assert_eq!(world.journal(&child.uid).await, "ES IN FORK");
        assert_eq!((child.fork_seq, child.last_seq), (Seq::new(2), Seq::new(3)));
    }
    assert_eq!(world.journal(&session).await, "ES IN OUT END", "the parent is as it was");
}

/// "> 128 -> INVALID_ARGUMENT; `child_names` length 0 or count. ... at_seq above the head -> INVALID_ARGUMENT"
pub async fn a_fork_that_cannot_be_makes_nothing<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for request in [
        ForkRequest { count: 129, ..fork_of(&session) },
        ForkRequest { count: i32::MAX, ..fork_of(&session) },
        ForkRequest { count: 2, child_names: names(&["a"]), ..fork_of(&session) },
        ForkRequest { child_names: names(&["a", "b"]), ..fork_of(&session) },
        ForkRequest { at_seq: 5, ..fork_of(&session) },
        ForkRequest { at_seq: i64::MAX, ..fork_of(&session) },
    ] {
        refused(world.me.fork(request).await, Condition::InvalidArgument);
    }
    assert_eq!(world.count().await, 1);
    let all = ForkRequest { count: 128, ..fork_of(&session) };
    assert_eq!(world.me.fork(all).await.unwrap().len(), 128);
}

/// "project, harness, model, annotations, origin from the parent; labels only from the request; name from child_names
/// or empty; identity never"
pub async fn a_child_has_what_its_parent_had<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let map = |key: &str| BTreeMap::from([(key.to_owned(), "1".to_owned())]);
    let origin = Origin { source: "mail".to_owned(), ..Origin::default() };
    let parent = world.me.create(CreateRequest {
        project: "default".to_owned(),
        name: "parent".to_owned(),
        harness: "other".to_owned(),
        model: "small".to_owned(),
        labels: map("old"),
        annotations: map("annotation"),
        origin: Some(origin.clone()),
        identity: Some(IdentityRef { principal: "p".to_owned(), ..IdentityRef::default() }),
        idempotency_key: None,
    });
    let parent = parent.await.unwrap();
    world.me.run(&parent.uid, "out a").await.ok();
    let request = ForkRequest {
        labels: map("new"),
        count: 2,
        child_names: vec!["x".to_owned(), "y".to_owned()],
        ..fork_of(&parent.uid)
    };
    let children = world.me.fork(request).await.unwrap();
    let names: Vec<_> = children.iter().map(|child| &*child.name).collect();
    assert_eq!(names, ["x", "y"]);
    for child in children {
        assert_eq!(world.me.get(&child.uid).await.unwrap(), child);
        assert_eq!(
            (&*child.project, &*child.harness, &*child.model),
            ("default", "other", "small")
        );
        assert_eq!((child.labels, child.annotations), (map("new"), map("annotation")));
        assert_eq!((child.origin, child.identity), (Some(origin.clone()), None));
        assert_eq!(child.parent_uid, Some(parent.uid.clone()));
    }
}

/// Parent and child go on apart, and a fork of a fork has one marker for each.
pub async fn b15_forks_of_forks_share_their_prefix<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let child = world.me.fork(fork_of(&session)).await.unwrap().remove(0).uid;
    let grandchild = world.me.fork(fork_of(&child)).await.unwrap().remove(0).uid;
    world.me.run(&child, "out b").await.ok();
    world.me.run(&grandchild, "out c").await.ok();
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
    assert_eq!(world.journal(&grandchild).await, "ES IN OUT END FORK FORK ES IN OUT END");
    let (a, b) = (world.records(&session).await, world.records(&grandchild).await);
    assert!(a.iter().zip(&b).all(|(a, b)| a.hash == b.hash));
}
