//! Registering and retiring.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Condition, ErrorKind, ExecRequest, HarnessRegistry as _, HarnessSource, HarnessSpec,
    HarnessState, Placement, RegisterOutcome,
};
use mainspring_eventlog::spec_digest;
use mainspring_sessions::{REGISTRATIONS_MAX, RETIRE_REASON_BYTES_MAX, SPEC_BYTES_MAX};

use super::{Host, assert_is, put_row, remote};
use crate::support::{World, caller, turn};

#[tokio::test(start_paused = true)]
async fn a_new_registration_is_created_and_routable_at_once() {
    let host = Host::new().await;
    assert_is(host.create("agent").await, Condition::UnknownHarness);
    let (made, outcome) = host.register("agent", remote("h:1")).await.unwrap();
    assert_eq!(outcome, RegisterOutcome::Created);
    let hex = made.uid.strip_prefix("harness-").unwrap();
    assert!(hex.len() == 24 && hex.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
    assert_eq!(made.spec_digest, spec_digest(&remote("h:1")));
    assert_eq!(made.spec, Some(remote("h:1")));
    assert_eq!((made.state, made.source), (HarnessState::Active, HarnessSource::Registered));
    assert!(made.create_time.is_some() && made.unservable_reason.is_empty());
    assert_eq!(host.get("agent").await.unwrap(), made);
    let session = host.create("agent").await.unwrap();
    host.exec(&session, "").await.unwrap();
    // A turn that creates its session, too.
    let request = ExecRequest { session: None, harness: "agent".to_owned(), ..turn(&session, "") };
    host.ended(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn names_of_hosts_own_and_bad_names_are_refused_in_order() {
    let host = Host::new().await;
    put_row(&host.world, "reserved-harness", "theirs", "").await;
    let bad = HarnessSpec { placement: None, ..remote("") };
    for name in ["scripted", "echo", "chat", "theirs"] {
        assert_is(host.register(name, remote("h:1")).await, Condition::AlreadyExists);
        // The name comes before the spec.
        assert_is(host.register(name, bad.clone()).await, Condition::AlreadyExists);
        assert_eq!(host.row("harness", name).await, None);
    }
    for name in ["", "Agent", "-a", "a-", "a.b", &"a".repeat(64)] {
        assert_is(host.register(name, remote("h:1")).await, Condition::InvalidArgument);
    }
    host.registered(&"a".repeat(63)).await;
    // The spec comes before the row, and the row before what can be served.
    host.registered("agent").await;
    assert_is(host.register("agent", bad).await, Condition::InvalidArgument);
    host.builder.refused.lock().unwrap().insert("h:2".to_owned());
    assert_is(host.register("agent", remote("h:2")).await, Condition::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn a_spec_says_enough_and_not_too_much() {
    let host = Host::new().await;
    let substrate = |atespace: &str, template: &str| HarnessSpec {
        placement: Some(Placement::Substrate {
            atespace: atespace.to_owned(),
            template: template.to_owned(),
        }),
        ..remote("")
    };
    let with_id = |bytes: usize| HarnessSpec { descriptor_id: "i".repeat(bytes), ..remote("h:1") };
    let overhead = mainspring_eventlog::spec_bytes(&with_id(1)).len() - 1;
    let cases = [
        ("spec.placement is not set", HarnessSpec { placement: None, ..remote("") }),
        ("spec.remote.address is empty", remote("")),
        ("spec.substrate.atespace is empty", substrate("", "t")),
        ("spec.substrate.template is empty", substrate("a", "")),
        (
            "spec.capabilities.resumability is not set",
            HarnessSpec { capabilities: None, ..remote("h:1") },
        ),
        ("SPEC_BYTES_MAX", with_id(SPEC_BYTES_MAX + 1 - overhead)),
    ];
    for (reason, spec) in cases {
        let said = assert_is(host.register("agent", spec).await, Condition::InvalidArgument);
        assert!(said.contains(reason), "{said}");
        assert_eq!(host.row("harness", "agent").await, None);
    }
    host.register("agent", with_id(SPEC_BYTES_MAX - overhead)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_served_here_is_not_stored() {
    let host = Host::new().await;
    let substrate = Placement::Substrate { atespace: "a".to_owned(), template: "t".to_owned() };
    let spec = HarnessSpec { placement: Some(substrate), ..remote("") };
    let said = assert_is(host.register("agent", spec).await, Condition::HarnessUnservable);
    assert!(said.contains("no such substrate here"), "{said}");
    assert_eq!(Condition::HarnessUnservable.kind(), ErrorKind::Precondition);
    assert_eq!(host.row("harness", "agent").await, None);
    assert_is(host.get("agent").await, Condition::HarnessNotFound);
    // The name is not held by it.
    host.registered("agent").await;
}

#[tokio::test(start_paused = true)]
async fn the_same_again_changes_nothing_and_brings_back_what_was_retired() {
    let host = Host::new().await;
    let made = host.registered("agent").await;
    let stored = host.row("harness", "agent").await;
    let placer = || host.harnesses.registered("agent").unwrap().placer.unwrap();
    let first = placer();
    tokio::time::advance(Duration::from_secs(5)).await;
    let (again, outcome) = host.register("agent", remote("h:1")).await.unwrap();
    assert_eq!((again, outcome), (made.clone(), RegisterOutcome::Unchanged));
    assert_eq!(host.row("harness", "agent").await, stored);
    assert!(Arc::ptr_eq(&first, &placer()), "what is served goes on as it is");

    host.retire("agent").await.unwrap();
    assert_is(host.register("agent", remote("h:2")).await, Condition::AlreadyExists);
    let (back, outcome) = host.register("agent", remote("h:1")).await.unwrap();
    // Uid and create time survive; the retirement is forgotten.
    assert_eq!((back, outcome), (made, RegisterOutcome::Reactivated));
    assert_eq!(host.row("harness", "agent").await, stored);
    host.create("agent").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retirement_is_kept_as_it_was_first() {
    let host = Host::new().await;
    host.registered("agent").await;
    let retired = host.retire("agent").await.unwrap();
    assert_eq!(retired.state, HarnessState::Retired);
    assert_eq!(retired.retire_reason, "moved");
    assert!(retired.retire_time.is_some());
    tokio::time::advance(Duration::from_secs(5)).await;
    let again = host.registry.retire(&caller(), "agent", "another reason").await.unwrap();
    assert_eq!(again, retired);
    assert_eq!(host.get("agent").await.unwrap(), retired);
    assert_eq!(host.names(false).await, ["scripted"]);
    assert_eq!(host.names(true).await, ["agent", "scripted"]);

    let retire = async |name: &str, reason: &str| {
        host.registry.retire(&caller(), name, reason).await.map(drop)
    };
    assert_is(retire("scripted", "").await, Condition::FailedPrecondition);
    assert_is(retire("other", "").await, Condition::HarnessNotFound);
    assert_is(retire("", "").await, Condition::InvalidArgument);
    host.registered("talkative").await;
    let over = "r".repeat(RETIRE_REASON_BYTES_MAX + 1);
    let said = assert_is(retire("talkative", &over).await, Condition::InvalidArgument);
    assert!(said.contains("RETIRE_REASON_BYTES_MAX"), "{said}");
    assert_eq!(host.get("talkative").await.unwrap().state, HarnessState::Active);
    retire("talkative", &over[1..]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_calls_at_the_same_time_one_registers() {
    let host = Arc::new(Host::new().await);
    for round in 0..20 {
        let name = format!("agent-{round}");
        let call = |number: usize| {
            let (host, name) = (Arc::clone(&host), name.clone());
            let spec = remote(&format!("race:{}", 1 + number % 2));
            tokio::spawn(async move { host.register(&name, spec).await })
        };
        let (mut created, mut unchanged, mut taken) = (0, 0, 0);
        for call in (0..20).map(call).collect::<Vec<_>>() {
            match call.await.unwrap() {
                Ok((_, RegisterOutcome::Created)) => created += 1,
                Ok((_, RegisterOutcome::Unchanged)) => unchanged += 1,
                Err(error) if error.condition() == Condition::AlreadyExists => taken += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((created, unchanged, taken), (1, 9, 10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_has_so_many_registrations_and_no_more() {
    let world = World::new();
    for number in 0..REGISTRATIONS_MAX {
        put_row(&world, "harness", &format!("h{number}"), "?").await;
    }
    let host = Host::on(&world, &["scripted"], None).await.unwrap();
    let said = assert_is(host.register("agent", remote("h:1")).await, Condition::QuotaExceeded);
    assert!(said.contains("REGISTRATIONS_MAX"), "{said}");
    assert_eq!(host.row("harness", "agent").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_caller_goes_away_is_made_whole() {
    let host = Host::new().await;
    let mut registering = Box::pin(host.register("agent", remote("h:1")));
    assert!(futures_util::poll!(&mut registering).is_pending());
    drop(registering);
    host.service.idle().await;
    host.create("agent").await.unwrap();
    let mut retiring = Box::pin(host.retire("agent"));
    assert!(futures_util::poll!(&mut retiring).is_pending());
    drop(retiring);
    host.service.idle().await;
    assert_is(host.create("agent").await, Condition::HarnessRetired);
    assert_eq!(host.get("agent").await.unwrap().state, HarnessState::Retired);
}
