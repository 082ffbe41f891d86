//! Listening, health, reflection, and stopping.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{ExecRequest, Sessions as _, Signal};
use mainspring_transport_grpc::{
    LinkOptions, Listener, RemoteSessions, ServeError, ServeOptions, WATCHES_MAX,
};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::address_book::{Over, Running};
use crate::fake::{Fake, caller};

#[tokio::test]
async fn reflection_lists_what_is_served_and_health_says_serving() {
    let running = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures_util::stream::iter([request]);
    let mut client = ServerReflectionClient::new(channel.clone());
    let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let mut names: Vec<_> = list.service.into_iter().map(|s| s.name).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "agentsessions.v1.Sessions",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "mainspring.v1.Operations",
        ]
    );
    let mut health = HealthClient::new(channel);
    for service in ["", "agentsessions.v1.Sessions", "mainspring.v1.Operations"] {
        let answer =
            health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap();
        assert_eq!(answer.into_inner().status, 1, "{service:?}");
    }
}

#[tokio::test]
async fn a_unix_socket_is_private_exclusive_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let address = format!("unix:{}", path.display());
    let listener = Listener::bind(&address).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = Listener::bind(&address).await.unwrap_err();
    assert!(matches!(second, ServeError::InUse { .. }), "{second}");
    drop(listener);
    assert!(!path.exists());
    Listener::bind(&address).await.unwrap();
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let address = format!("unix:{}", path.display());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left behind");
    drop(Listener::bind(&address).await.unwrap());

    let _live = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Listener::bind(&address).await.unwrap_err();
    assert!(matches!(error, ServeError::InUse { .. }), "{error}");
    assert!(path.exists());
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let refused = async |name: &str| {
        let address = format!("unix:{}", dir.path().join(name).display());
        let error = Listener::bind(&address).await.unwrap_err();
        assert!(matches!(error, ServeError::NotOurs { .. }), "{error}");
    };
    std::fs::write(dir.path().join("file"), "precious").unwrap();
    refused("file").await;
    let kept = std::fs::read_to_string(dir.path().join("file")).unwrap();
    assert_eq!(kept, "precious");

    std::os::unix::fs::symlink(dir.path().join("file"), dir.path().join("a.lock")).unwrap();
    refused("a").await;
    std::fs::hard_link(dir.path().join("file"), dir.path().join("b.lock")).unwrap();
    refused("b").await;
}

#[tokio::test]
async fn bad_addresses_do_not_bind() {
    for address in ["", "nonsense", "127.0.0.1", "http://127.0.0.1:0", "unix:"] {
        let error = Listener::bind(address).await.unwrap_err();
        assert!(matches!(error, ServeError::Address(_)), "{address}: {error}");
    }
    let error = Listener::bind("192.0.2.1:1").await.unwrap_err();
    assert!(matches!(error, ServeError::Bind { .. }), "{error}");
}

#[tokio::test]
async fn draining_lets_calls_end_and_cuts_them_at_its_bound() {
    let mut options = ServeOptions::default();
    options.drain_max = Duration::ZERO;
    let fake = Arc::new(Fake::default());
    let running = Running::sessions_with(Over::Tcp, fake.clone(), options).await;
    let remote = RemoteSessions::connect(&running.address, &LinkOptions::default()).await.unwrap();
    let request = ExecRequest { harness: "hang".to_owned(), ..Default::default() };
    let mut updates = remote.exec(&caller(), request).await.unwrap();
    updates.next().await.unwrap().unwrap();
    let error = running.stop().await.unwrap_err();
    assert!(matches!(error, ServeError::DrainTimeout { seconds: 0 }), "{error}");
    fake.detached.notified().await;
    assert!(updates.next().await.unwrap().is_err());
}

#[tokio::test]
async fn health_says_not_serving_until_what_is_served_is_ready() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.address().to_string();
    let (ready, stop) = (Signal::<()>::default(), Signal::<()>::default());
    let serving = tokio::spawn(mainspring_transport_grpc::serve_when(
        ready.wait(),
        Arc::new(Fake::default()),
        listener,
        ServeOptions::default(),
        stop.wait(),
    ));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let mut watched = Vec::new();
    for service in ["", "agentsessions.v1.Sessions", "mainspring.v1.Operations"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        assert_eq!(health.check(request.clone()).await.unwrap().into_inner().status, 2);
        watched.push(health.watch(request).await.unwrap().into_inner());
    }
    for updates in &mut watched {
        assert_eq!(updates.message().await.unwrap().unwrap().status, 2);
    }
    ready.set(());
    for updates in &mut watched {
        assert_eq!(updates.message().await.unwrap().unwrap().status, 1);
    }
    stop.set(());
    for updates in &mut watched {
        assert_eq!(updates.message().await.unwrap().unwrap().status, 2);
    }
    drop((health, watched));
    serving.await.unwrap().unwrap();
}

/// Whoever watches the health of a server, or reads what it serves, is told of
/// its end, and does not hold it up.
#[tokio::test]
async fn streams_of_health_and_reflection_end_with_the_server() {
    let running = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let mut watched = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    let mut reflection = ServerReflectionClient::new(channel);
    let nothing = futures_util::stream::pending::<ServerReflectionRequest>();
    let answers = reflection.server_reflection_info(nothing).await.unwrap();
    let mut answers = answers.into_inner();
    // Their streams are still held when it ends.
    running.stop().await.unwrap();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
    assert!(watched.message().await.unwrap().is_none());
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn streams_of_health_are_bounded_and_checks_are_not() {
    let running = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let mut watched = Vec::new();
    for _ in 0..WATCHES_MAX {
        watched.push(health.watch(HealthCheckRequest::default()).await.unwrap().into_inner());
    }
    let refused = health.watch(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("WATCHES_MAX"), "{refused}");
    let checked = health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(checked.into_inner().status, 1);
    drop(watched);
    // The server learns of that soon.
    while health.watch(HealthCheckRequest::default()).await.is_err() {
        tokio::task::yield_now().await;
    }
}
