//! The runtime contract, as far as it needs no network.

use std::sync::Arc;

use mainspring_api::{
    Address, Classify, ComputeState, ErrorKind, Fidelity, Runtime, RuntimeCapabilities,
    RuntimeError, Seq, SessionHistory, SessionSpec, SessionUid, SnapshotRef, async_trait, report,
};
use mainspring_runtime_remote::{AddressError, RemoteConfigError, RemoteRuntime};

/// A remote runtime never asks about history.
#[derive(Debug)]
struct NeverAsked;

#[async_trait]
impl SessionHistory for NeverAsked {
    async fn started_turns(&self) -> Result<u64, RuntimeError> {
        unreachable!("not asked")
    }

    async fn recorded_checkpoint(&self) -> Result<Option<SnapshotRef>, RuntimeError> {
        unreachable!("not asked")
    }

    async fn recorded_instance(&self) -> Result<Option<(String, Seq)>, RuntimeError> {
        unreachable!("not asked")
    }

    async fn turns_since_checkpoint(&self) -> Result<u64, RuntimeError> {
        unreachable!("not asked")
    }
}

fn history() -> Arc<dyn SessionHistory> {
    Arc::new(NeverAsked)
}

fn uid() -> SessionUid {
    SessionUid::new("sess-000000000000000000000001").unwrap()
}

fn spec(harness: &str) -> SessionSpec {
    SessionSpec { uid: Some(uid()), harness: harness.to_owned(), ..SessionSpec::default() }
}

fn runtime() -> RemoteRuntime {
    RemoteRuntime::new([("tcp", "127.0.0.1:50051"), ("later", "")]).unwrap()
}

fn cold() -> SnapshotRef {
    SnapshotRef { local: uid().to_string(), ..SnapshotRef::default() }
}

#[tokio::test]
async fn v01_create_twice_gives_the_same_compute() {
    let runtime = runtime();
    for _ in 0..2 {
        let placed = runtime.create(&spec("tcp"), history()).await.unwrap();
        let Address::Grpc { address, call_metadata } = &placed.address else {
            panic!("{placed:?}")
        };
        assert_eq!(address, "127.0.0.1:50051");
        assert!(call_metadata.is_empty());
        assert!(placed.live_describer);
        assert_eq!(placed.compute_instance, "");
    }
    assert_eq!(runtime.capabilities(), RuntimeCapabilities::default());
    assert!(runtime.memory().is_none());
    assert!(runtime.probe(&spec("tcp")).await.unwrap().is_none());
    assert_eq!(runtime.harnesses().collect::<Vec<_>>(), ["later", "tcp"]);
}

#[tokio::test]
async fn v02_stop_twice_is_ok() {
    let runtime = runtime();
    runtime.stop(&uid()).await.unwrap();
    runtime.stop(&uid()).await.unwrap();
}

#[tokio::test]
async fn v03_local_fidelity_is_an_error() {
    let error = runtime().snapshot(&uid(), Seq::new(4), Fidelity::Local).await.unwrap_err();
    assert_eq!(error.code(), "runtime_unsupported");
}

#[tokio::test]
async fn v04_external_then_restore_serves() {
    let runtime = runtime();
    let taken = runtime.snapshot(&uid(), Seq::new(4), Fidelity::External).await.unwrap();
    assert_eq!(taken, cold());
    runtime.restore(&taken, &spec("tcp"), history()).await.unwrap();

    let foreign = SnapshotRef { memory: true, ..cold() };
    let error = runtime.restore(&foreign, &spec("tcp"), history()).await.unwrap_err();
    assert!(matches!(error, RuntimeError::InvalidCheckpoint { .. }), "{error}");
}

#[tokio::test]
async fn v05_fork_failure_leaves_no_child() {
    let runtime = runtime();
    runtime.fork(&cold(), &spec("tcp"), history()).await.unwrap();
    runtime.fork(&cold(), &spec("later"), history()).await.unwrap_err();
    assert_eq!(runtime.list().await.unwrap(), []);
}

#[tokio::test]
async fn v06_status_is_live_while_it_is_open() {
    let status = runtime().status(&uid()).await.unwrap();
    assert_eq!((status.state, status.reason.as_str()), (ComputeState::Live, ""));
}

#[tokio::test]
async fn v08_without_an_address_and_after_close_it_says_so() {
    let runtime = runtime();
    for harness in ["later", "unknown", ""] {
        let error = runtime.create(&spec(harness), history()).await.unwrap_err();
        assert!(matches!(&error, RuntimeError::NoAddress { harness: named } if named == harness));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    runtime.close().await.unwrap();
    runtime.close().await.unwrap();
    let closed = [
        runtime.create(&spec("tcp"), history()).await.map(drop),
        runtime.restore(&cold(), &spec("tcp"), history()).await.map(drop),
        runtime.fork(&cold(), &spec("tcp"), history()).await.map(drop),
        runtime.snapshot(&uid(), Seq::new(1), Fidelity::External).await.map(drop),
        runtime.status(&uid()).await.map(drop),
        runtime.list().await.map(drop),
    ];
    assert!(closed.iter().all(|answer| matches!(answer, Err(RuntimeError::Closed))), "{closed:?}");
    runtime.stop(&uid()).await.unwrap();
}

#[test]
fn addresses_are_checked_when_it_is_built() {
    let error = RemoteRuntime::new([("a", "a:1"), ("b", "http://b")]).unwrap_err();
    let source = AddressError::Scheme;
    assert_eq!(error, RemoteConfigError::Address { name: "b".into(), source });
    assert_eq!(report(&error), "address of harness \"b\": its scheme is not dns or unix");
    let error = RemoteRuntime::new([("a", "a:1"), ("a", "b:1")]).unwrap_err();
    assert_eq!(error, RemoteConfigError::Duplicate { name: "a".into() });
    let error = RemoteRuntime::new([("", "a:1")]).unwrap_err();
    assert_eq!(error, RemoteConfigError::NoName);
}
