//! Cases V01 to V07b of the runtime contract.

use std::time::Duration;

use mainspring_api::{
    Address, Classify, ComputeState, Fidelity, Resumability, Runtime, RuntimeCapabilities,
    RuntimeError, Seq, SessionSpec, SnapshotRef, report,
};

use crate::support::{Subject, history, lives, socket, spec, uid, until};

async fn state(subject: &Subject, n: u32) -> (ComputeState, String) {
    let status = subject.runtime.status(&uid(n)).await.unwrap();
    assert_eq!(status.instance, "");
    (status.state, status.reason)
}

fn cold(n: u32) -> SnapshotRef {
    SnapshotRef { local: uid(n).to_string(), ..SnapshotRef::default() }
}

#[tokio::test]
async fn v01_create_twice_gives_the_same_compute() {
    let subject = Subject::new(&["listen"]);
    let first = subject.create(&uid(1), "listen").await.unwrap();
    let second = subject.create(&uid(1), "listen").await.unwrap();
    assert_eq!(socket(&first), socket(&second));
    assert_eq!(first.worker, second.worker);
    let pid = subject.started()[0];
    assert!(first.worker.ends_with(&format!("/{pid}")), "{}", first.worker);
    assert!(first.live_describer);
    assert_eq!(first.compute_instance, "");
    assert_eq!(subject.started().len(), 1);
    assert_eq!(subject.runtime.capabilities(), RuntimeCapabilities::default());
}

#[tokio::test]
async fn v02_stop_twice_is_ok() {
    let subject = Subject::new(&["listen"]);
    subject.runtime.stop(&uid(9)).await.unwrap();
    for harness in ["listen", "built-in"] {
        subject.create(&uid(1), harness).await.unwrap();
        subject.runtime.stop(&uid(1)).await.unwrap();
        subject.runtime.stop(&uid(1)).await.unwrap();
        assert_eq!(subject.runtime.list().await.unwrap(), []);
    }
    assert!(!lives(subject.started()[0]));
}

#[tokio::test]
async fn v03_local_fidelity_is_an_error() {
    let subject = Subject::new(&["listen"]);
    for harness in ["listen", "built-in"] {
        subject.create(&uid(1), harness).await.unwrap();
        let error =
            subject.runtime.snapshot(&uid(1), Seq::new(4), Fidelity::Local).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Unsupported { .. }), "{error}");
        assert_eq!(state(&subject, 1).await.0, ComputeState::Live, "nothing was freed");
    }

    let memory = SessionSpec {
        resumability: Resumability::RequiresMemorySnapshot,
        ..spec(&uid(2), "listen")
    };
    subject.runtime.create(&memory, history()).await.unwrap();
    let error =
        subject.runtime.snapshot(&uid(2), Seq::new(4), Fidelity::External).await.unwrap_err();
    assert!(
        matches!(error, RuntimeError::Unsupported { .. }),
        "memory is not dropped silently: {error}"
    );
    assert_eq!(state(&subject, 2).await.0, ComputeState::Live);
}

#[tokio::test]
async fn v04_external_then_restore_serves() {
    let subject = Subject::new(&["listen"]);
    for harness in ["listen", "built-in"] {
        subject.create(&uid(1), harness).await.unwrap();
        for _ in 0..2 {
            let taken = subject.runtime.snapshot(&uid(1), Seq::new(4), Fidelity::External).await;
            assert_eq!(taken.unwrap(), cold(1));
        }
        assert_eq!(state(&subject, 1).await, (ComputeState::None, String::new()));
        let restored =
            subject.runtime.restore(&cold(1), &spec(&uid(1), harness), history()).await.unwrap();
        match harness {
            "listen" => drop(socket(&restored)),
            _ => assert!(
                matches!(&restored.address, Address::InProcess(h) if h.as_harness().is_some())
            ),
        }
    }
    let started = subject.started();
    assert_eq!(started.len(), 2, "the snapshot freed the first child");
    assert!(!lives(started[0]));

    let foreign = SnapshotRef { memory: true, external_uri: "mem://x".into(), ..cold(1) };
    let error =
        subject.runtime.restore(&foreign, &spec(&uid(1), "listen"), history()).await.unwrap_err();
    assert!(matches!(error, RuntimeError::InvalidCheckpoint { .. }), "{error}");
}

#[tokio::test]
async fn v05_fork_failure_leaves_no_child() {
    let subject = Subject::new(&["listen", "fail"]);
    let child = subject.runtime.fork(&cold(1), &spec(&uid(2), "listen"), history()).await.unwrap();
    socket(&child);

    let error =
        subject.runtime.fork(&cold(1), &spec(&uid(3), "fail"), history()).await.unwrap_err();
    assert_eq!(error.code(), "runtime_failed");
    let started = subject.started();
    assert!(!lives(started[1]));
    assert_eq!(subject.runtime.list().await.unwrap(), [uid(2)]);
    assert_eq!(state(&subject, 3).await.0, ComputeState::None);
    let folder = subject.leftovers();
    assert_eq!(std::fs::read_dir(&folder[0]).unwrap().count(), 1, "only the good child's socket");
}

#[tokio::test]
async fn v06_status_says_what_is_and_why() {
    let subject = Subject::new(&["listen", "die-soon"]);
    assert_eq!(state(&subject, 1).await, (ComputeState::None, String::new()));
    subject.create(&uid(1), "built-in").await.unwrap();
    assert_eq!(state(&subject, 1).await, (ComputeState::Live, String::new()));
    subject.create(&uid(2), "listen").await.unwrap();
    assert_eq!(state(&subject, 2).await, (ComputeState::Live, String::new()));

    let before = subject.create(&uid(3), "die-soon").await.unwrap();
    let pid = subject.started()[1];
    let signalled = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(signalled.unwrap().success());
    until("the child is reaped", || !lives(pid)).await;
    let mut seen = state(&subject, 3).await;
    while seen.0 == ComputeState::Live {
        tokio::task::yield_now().await;
        seen = state(&subject, 3).await;
    }
    assert_eq!(seen, (ComputeState::Terminated, "signal 9".to_owned()));

    let after = subject.create(&uid(3), "die-soon").await.unwrap();
    assert_ne!(socket_path(&before), socket_path(&after), "a child that died is replaced");
    assert_eq!(state(&subject, 3).await.0, ComputeState::Live);
    subject.runtime.stop(&uid(3)).await.unwrap();
    assert_eq!(state(&subject, 3).await, (ComputeState::None, String::new()));
}

fn socket_path(incarnation: &mainspring_api::Incarnation) -> String {
    match &incarnation.address {
        Address::Grpc { address, .. } => address.clone(),
        Address::InProcess(_) => panic!("{incarnation:?}"),
    }
}

#[tokio::test]
async fn v07_built_in_is_one_harness_for_all_and_close_is_final() {
    let subject = Subject::new(&[]);
    let (one, two) = (uid(1), uid(2));
    let (a, b) = tokio::join!(subject.create(&one, "built-in"), subject.create(&two, "built-in"),);
    let harness = |incarnation: &mainspring_api::Incarnation| match &incarnation.address {
        Address::InProcess(handle) => handle.as_harness().unwrap(),
        Address::Grpc { .. } => panic!("{incarnation:?}"),
    };
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(std::sync::Arc::ptr_eq(&harness(&a), &harness(&b)));
    assert!(!a.live_describer);
    assert!(a.worker.ends_with(&format!("/{}", std::process::id())));
    assert_eq!(subject.runtime.list().await.unwrap(), [uid(1), uid(2)]);

    let said = subject.runtime.probe(&spec(&uid(1), "built-in")).await.unwrap().unwrap();
    assert_eq!(said.id, "built-in");
    let unnamed = SessionSpec { harness: "built-in".into(), ..SessionSpec::default() };
    assert!(subject.runtime.create(&unnamed, history()).await.is_ok());

    subject.runtime.close().await.unwrap();
    subject.runtime.close().await.unwrap();
    assert!(subject.leftovers().is_empty(), "in process there never was a socket");
    let error = subject.create(&uid(1), "built-in").await.unwrap_err();
    assert!(matches!(error, RuntimeError::Closed));
    assert!(matches!(subject.runtime.status(&uid(1)).await, Err(RuntimeError::Closed)));
    subject.runtime.stop(&uid(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v07b_concurrent_creates_start_one_child_per_session() {
    let subject = Subject::new(&["listen"]);
    let mut creating = tokio::task::JoinSet::new();
    for n in 0..16 {
        let runtime = subject.runtime.clone();
        creating
            .spawn(async move { runtime.create(&spec(&uid(n % 2), "listen"), history()).await });
    }
    for incarnation in creating.join_all().await {
        socket(&incarnation.unwrap());
    }
    let started = subject.started();
    assert_eq!(started.len(), 2);
    assert_eq!(subject.runtime.list().await.unwrap(), [uid(0), uid(1)]);
    assert_eq!(subject.leftovers().len(), 1, "one folder");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(&subject.leftovers()[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    subject.runtime.close().await.unwrap();
    assert!(!lives(started[0]) && !lives(started[1]));
    assert!(subject.leftovers().is_empty(), "sockets and their folder are gone");
    let error = subject.create(&uid(0), "listen").await.unwrap_err();
    assert!(matches!(error, RuntimeError::Closed), "{}", report(&error));
    assert_eq!(subject.started().len(), 2);
}

#[tokio::test]
async fn v07b_close_does_not_wait_for_a_child_that_is_starting() {
    let subject = Subject::with(&["mute"], |mut options| {
        options.ready_within = Duration::from_secs(3600);
        options
    });
    let runtime = subject.runtime.clone();
    let creating =
        tokio::spawn(async move { runtime.create(&spec(&uid(1), "mute"), history()).await });
    until("the child runs", || subject.started().len() == 1).await;
    subject.runtime.close().await.unwrap();
    let error = creating.await.unwrap().unwrap_err();
    assert!(matches!(error, RuntimeError::Closed), "{}", report(&error));
    let pid = subject.started()[0];
    until("the child is gone", || !lives(pid)).await;
}
