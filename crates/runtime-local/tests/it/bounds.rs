//! Children that fail, stay, or are too many.

use std::time::Duration;

use mainspring_api::{Classify, ErrorKind, Runtime, RuntimeError, SessionSpec, report};
use mainspring_runtime_local::{ChildSpec, LocalConfigError, LocalRuntime, STDERR_TAIL_BYTES};

use crate::support::{Subject, child, history, lives, spec, uid, until};

#[tokio::test]
async fn a_child_that_ends_before_it_is_ready_says_why() {
    let subject = Subject::new(&["fail"]);
    let error = subject.create(&uid(1), "fail").await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("runtime_failed", RuntimeError::Failed { message: String::new(), source: None }.kind())
    );
    let told = report(&error);
    assert!(told.contains("exit status 3"), "{told}");
    assert!(told.contains("THE END"), "{told}");
    assert!(told.len() < STDERR_TAIL_BYTES + 300, "{}", told.len());
}

#[tokio::test]
async fn a_child_that_never_serves_is_ended_in_time() {
    let subject = Subject::with(&["mute"], |mut options| {
        options.ready_within = Duration::from_millis(300);
        options
    });
    let error = subject.create(&uid(1), "mute").await.unwrap_err();
    assert!(report(&error).contains("accepted no connection within 300ms"), "{}", report(&error));
    until("no child is left", || subject.started().iter().all(|pid| !lives(*pid))).await;
    assert_eq!(subject.runtime.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_child_that_ignores_every_word_is_killed() {
    let subject = Subject::with(&["stubborn"], |mut options| {
        options.stop_grace = Duration::from_millis(200);
        options
    });
    subject.create(&uid(1), "stubborn").await.unwrap();
    subject.runtime.stop(&uid(1)).await.unwrap();
    assert!(!lives(subject.started()[0]));
    assert!(
        subject.log().contains(&"terminated in vain".to_owned()),
        "SIGTERM came before SIGKILL"
    );
}

#[tokio::test]
async fn what_a_child_started_does_not_outlive_it() {
    let subject = Subject::new(&["leave-behind"]);
    subject.create(&uid(1), "leave-behind").await.unwrap();
    let left =
        subject.log().iter().find_map(|line| line.strip_prefix("left ")?.parse().ok()).unwrap();
    assert!(lives(left));
    subject.runtime.stop(&uid(1)).await.unwrap();
    until("the grandchild is gone", || !lives(left)).await;
}

#[tokio::test]
async fn dropping_the_runtime_or_a_create_kills_its_children() {
    let subject = Subject::new(&["listen", "mute"]);
    subject.create(&uid(1), "listen").await.unwrap();
    let runtime = subject.runtime.clone();
    let creating =
        tokio::spawn(async move { runtime.create(&spec(&uid(2), "mute"), history()).await });
    until("both run", || subject.started().len() == 2).await;
    creating.abort();
    let started = subject.started();
    until("the half-started child is gone", || !lives(started[1])).await;
    assert!(lives(started[0]));
    assert_eq!(subject.runtime.list().await.unwrap(), [uid(1)]);
    drop(subject);
    until("the served child is gone", || !lives(started[0])).await;
}

#[tokio::test]
async fn the_environment_carries_an_address_and_no_secret_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = mainspring_runtime_local::LocalOptions::default();
    options.env_withheld.push("CARGO_MANIFEST_DIR".to_owned());
    options.socket_parent = Some(dir.path().to_owned());
    let spec_of_child = child("show-environment", dir.path())
        .env("GIVEN", "yes")
        .env("HARNESS_SESSION", "sess-leak");
    let runtime =
        LocalRuntime::builder().child("h", spec_of_child).options(options).build().unwrap();
    runtime.create(&spec(&uid(1), "h"), history()).await.unwrap();
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("HARNESS_ADDR=unix:///"), "{log}");
    assert!(log.contains("HARNESS_SESSION=\n"), "{log}");
    assert!(log.contains("CARGO_MANIFEST_DIR=\n"), "{log}");
    assert!(log.contains("GIVEN=yes\n"), "{log}");
    runtime.close().await.unwrap();
}

#[tokio::test]
async fn children_are_bounded_and_a_freed_place_can_be_taken() {
    let subject = Subject::with(&["listen", "fail"], |mut options| {
        options.children_max = 1;
        options
    });
    subject.create(&uid(1), "listen").await.unwrap();
    let error = subject.create(&uid(2), "listen").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("children_max"), "{error}");
    subject.create(&uid(1), "listen").await.unwrap();
    subject.runtime.stop(&uid(1)).await.unwrap();
    subject.create(&uid(2), "fail").await.unwrap_err();
    subject.create(&uid(3), "listen").await.unwrap();
    subject.runtime.close().await.unwrap();
}

#[tokio::test]
async fn a_session_whose_harness_changed_gets_the_new_one() {
    let subject = Subject::new(&["listen", "die-soon"]);
    subject.create(&uid(1), "listen").await.unwrap();
    subject.create(&uid(1), "die-soon").await.unwrap();
    subject.create(&uid(1), "built-in").await.unwrap();
    assert!(subject.started().iter().all(|pid| !lives(*pid)));
    assert_eq!(subject.started().len(), 2);
    assert_eq!(subject.runtime.list().await.unwrap(), [uid(1)]);
}

#[tokio::test]
async fn what_cannot_be_placed_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("x".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let subject = Subject::with(&["listen"], |mut options| {
        options.socket_parent = Some(deep);
        options
    });
    let error = subject.create(&uid(1), "listen").await.unwrap_err();
    assert!(report(&error).contains("socket path"), "{}", report(&error));
    let error = subject.create(&uid(1), "unknown").await.unwrap_err();
    assert!(matches!(error, RuntimeError::NoAddress { harness } if harness == "unknown"));
    let unnamed = SessionSpec { harness: "listen".into(), ..SessionSpec::default() };
    let error = subject.runtime.create(&unnamed, history()).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unsupported { .. }), "{error}");
    assert!(subject.runtime.probe(&unnamed).await.unwrap().is_none());

    let runtime =
        LocalRuntime::builder().child("h", ChildSpec::new("/no/such/program")).build().unwrap();
    let error = runtime.create(&spec(&uid(1), "h"), history()).await.unwrap_err();
    assert!(report(&error).contains("/no/such/program"), "{}", report(&error));
}

#[test]
fn configuration_is_checked_when_it_is_built() {
    let build = |name: &str, spec: ChildSpec| {
        LocalRuntime::builder()
            .child("a", ChildSpec::new("x"))
            .child(name, spec)
            .build()
            .unwrap_err()
    };
    assert_eq!(build("", ChildSpec::new("x")), LocalConfigError::NoName);
    assert_eq!(build("a", ChildSpec::new("x")), LocalConfigError::Duplicate { name: "a".into() });
    assert_eq!(build("b", ChildSpec::new("")), LocalConfigError::NoProgram);
    for bad in [
        ChildSpec::new("x\0"),
        ChildSpec::new("x").args(["\0"]),
        ChildSpec::new("x").env("A=B", "c"),
        ChildSpec::new("x").env("", "c"),
    ] {
        assert!(matches!(build("b", bad), LocalConfigError::Unspawnable { .. }));
    }
    assert_eq!(ChildSpec::parse("  ").unwrap_err(), LocalConfigError::NoProgram);
    let parsed = ChildSpec::parse("python3 'my agent.py' -v").unwrap();
    assert_eq!(parsed, ChildSpec::new("python3").args(["my agent.py", "-v"]));
}
