//! Who calls: settled before anything else, and never by the call itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainspring_api::{
    Authenticator, AuthnError, CallerIdentity, Classify as _, Condition, CreateRequest,
    Credentials, Outcome, Secret, Sessions, SessionsError, Timestamp, Verified, async_trait,
};
use mainspring_transport_grpc::{ConnectOptions, RemoteSessions, ServeOptions, TokenSource};
use mainspring_wire::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

use crate::address_book::{Over, Running};
use crate::fake::{Fake, assert_condition, caller, uid};
use crate::fake_operations::{FakeOperations, FakeRegistry};
use crate::script::Script;

/// Knows `good-NAME`.
#[derive(Debug, Default)]
pub(crate) struct Gatekeeper {
    asked: AtomicUsize,
}

pub(crate) const EXPIRES: Timestamp = Timestamp { seconds: 99, nanos: 0 };

#[async_trait]
impl Authenticator for Gatekeeper {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Verified, AuthnError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let subject = match (&credentials.bearer, &credentials.certificate) {
            (Some(bearer), _) => match bearer.expose() {
                "unchecked" => return Err(AuthnError::Unavailable("the keys cannot be had")),
                "hang" => std::future::pending().await,
                token => token.strip_prefix("good-").map(ToOwned::to_owned),
            },
            (None, Some(certificate)) => Some(format!("{} bytes of DER", certificate.len())),
            (None, None) => panic!("somebody without credentials is never asked about"),
        };
        let subject = subject.ok_or(AuthnError::Unauthenticated("the signature does not hold"))?;
        let identity = CallerIdentity { issuer: "gate".to_owned(), subject };
        Ok(Verified { identity, expires: Some(EXPIRES) })
    }
}

fn guarded() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.authenticator = Some(Arc::new(Gatekeeper::default()));
    options
}

async fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Paths of every method of the services in `names`.
fn methods(names: &[&str]) -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut paths = Vec::new();
    for file in &set.file {
        for service in &file.service {
            let service_name = format!("{}.{}", file.package(), service.name());
            if names.contains(&&service_name[..]) {
                let paths_of = service.method.iter();
                paths.extend(paths_of.map(|m| format!("/{service_name}/{}", m.name())));
            }
        }
    }
    assert!(!paths.is_empty());
    paths
}

/// Calls any method with an empty message, which is malformed for most of them.
async fn call(channel: &Channel, path: &str, credentials: &[&[u8]]) -> Result<(), Status> {
    let mut request = Request::new(());
    for value in credentials {
        let value: MetadataValue<Ascii> = MetadataValue::try_from(*value).unwrap();
        request.metadata_mut().append("authorization", value);
    }
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = path.parse().unwrap();
    let answer = client.server_streaming(request, path, ProstCodec::<(), ()>::default()).await?;
    answer.into_inner().message().await.map(|_| ())
}

#[tokio::test]
async fn every_method_of_every_service_refuses_who_does_not_prove_who_they_are() {
    let sessions = Arc::new(Fake::default());
    let (operations, registry) =
        (Arc::new(FakeOperations::default()), Arc::new(FakeRegistry::default()));
    let mut options = guarded();
    options.operations = Some(operations.clone());
    let beside = Running::sessions_with(Over::Tcp, sessions.clone(), options).await;
    let operators =
        Running::operators(Over::Tcp, registry.clone(), operations.clone(), guarded()).await;
    let harness =
        Running::harness_with(Over::Tcp, Script::new(async |_, _| Ok(())), guarded()).await;
    let services: [(&Running, &[&str]); 3] = [
        (&beside, &["agentsessions.v1.Sessions", "mainspring.v1.Operations"]),
        (&operators, &["agentsessions.v1.HarnessRegistry", "mainspring.v1.Administration"]),
        (&harness, &["agentsessions.v1.Harness"]),
    ];
    let long = [b"Bearer good-".to_vec(), vec![b'x'; 8 << 10]].concat();
    let bad: [&[&[u8]]; 11] = [
        &[],
        &[b""],
        &[b"Bearer"],
        &[b"Bearer "],
        &[b"Basic good-x"],
        &[b"Bearer bad"],
        &[b"Bearer good-a b"],
        &[b"good-x"],
        &[b"Bearer good-x", b"Bearer good-x"],
        &[b"Bearer good-\xff"],
        &[&long],
    ];
    let mut walked = 0;
    for (running, names) in services {
        let channel = channel(&running.address).await;
        for path in methods(names) {
            let mut answers = Vec::new();
            for credentials in bad {
                let status = call(&channel, &path, credentials).await.unwrap_err();
                assert_eq!(status.code(), Code::Unauthenticated, "{path} {status:?}");
                assert_eq!(status.message(), "the call has no valid credentials");
                answers.push(status.details().to_vec());
            }
            answers.dedup();
            assert_eq!(answers.len(), 1, "{path}: nothing tells one from another");
            // With good ones the form of the request matters, and nothing before it.
            let result = call(&channel, &path, &[b"Bearer good-x"]).await;
            let code = result.err().map_or(Code::Ok, |status| status.code());
            assert_ne!(code, Code::Unauthenticated, "{path}");
            walked += 1;
        }
        // Who watches whether a host lives needs no identity.
        let mut health = HealthClient::new(channel);
        health.check(HealthCheckRequest::default()).await.unwrap();
    }
    assert_eq!(walked, 26);
}

/// What a server offers is told to those who may call it.
#[tokio::test]
async fn reflection_needs_credentials_where_the_sessions_do() {
    let running = Running::sessions_with(Over::Tcp, Arc::new(Fake::default()), guarded()).await;
    let channel = channel(&running.address).await;
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for credentials in [&[][..], &[&b"Bearer bad"[..]]] {
        let status = call(&channel, path, credentials).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    // An empty message asks for nothing, which reflection itself refuses.
    let status = call(&channel, path, &[b"Bearer good-x"]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}

#[tokio::test]
async fn a_refused_caller_reaches_no_service() {
    let fake = Arc::new(Fake::default());
    let running = Running::sessions_with(Over::Tcp, fake.clone(), guarded()).await;
    let channel = channel(&running.address).await;
    for path in methods(&["agentsessions.v1.Sessions", "mainspring.v1.Operations"]) {
        call(&channel, &path, &[b"Bearer bad"]).await.unwrap_err();
    }
    assert_eq!(fake.last(), "");
}

#[tokio::test]
async fn the_verified_identity_and_its_expiry_reach_the_service() {
    for over in [Over::Tcp, Over::Unix] {
        let fake = Arc::new(Fake::default());
        let running = Running::sessions_with(over, fake.clone(), guarded()).await;
        let mut options = ConnectOptions::default();
        options.bearer = Some(Arc::new(Secret::new("good-ann".to_owned())));
        let remote = RemoteSessions::connect(&running.address, options).await.unwrap();
        // What the client believes of itself does not travel.
        let mut claimed = caller();
        claimed.identity =
            Some(CallerIdentity { issuer: "gate".to_owned(), subject: "root".to_owned() });
        remote.get(&claimed, &uid("s")).await.unwrap();
        remote.describe(&claimed, &uid("s")).await.unwrap();
        let callers = std::mem::take(&mut *fake.callers.lock().unwrap());
        let methods: Vec<_> = callers.iter().map(|caller| caller.method).collect();
        let expected =
            ["/agentsessions.v1.Sessions/GetSession", "/mainspring.v1.Operations/Describe"];
        assert_eq!(methods, expected);
        for caller in callers {
            let identity = caller.identity.unwrap();
            assert_eq!((&identity.issuer[..], &identity.subject[..]), ("gate", "ann"));
            assert_eq!(caller.expires, Some(EXPIRES));
            assert_eq!(caller.request_id.as_str(), "request-1");
        }
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_scheme_is_read_as_http_has_it() {
    let running = Running::sessions_with(Over::Tcp, Arc::new(Fake::default()), guarded()).await;
    let channel = channel(&running.address).await;
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let value = format!("{scheme} good-x");
        let path = "/agentsessions.v1.Sessions/ListSessions";
        call(&channel, path, &[value.as_bytes()]).await.unwrap();
    }
}

#[tokio::test]
async fn without_an_authenticator_credentials_are_not_looked_at() {
    let fake = Arc::new(Fake::default());
    let running = Running::sessions(Over::Tcp, fake.clone()).await;
    let channel = channel(&running.address).await;
    let path = "/agentsessions.v1.Sessions/ListSessions";
    call(&channel, path, &[b"Basic nonsense", b"Bearer good-x"]).await.unwrap();
    let caller = fake.callers.lock().unwrap().pop().unwrap();
    assert_eq!((caller.identity, caller.expires), (None, None));
}

async fn with_token(token: &str) -> (Running, Arc<Fake>, RemoteSessions) {
    let fake = Arc::new(Fake::default());
    let mut options = guarded();
    options.link.keep_alive_interval = None;
    let running = Running::sessions_with(Over::Tcp, fake.clone(), options).await;
    let mut options = ConnectOptions::default();
    options.link.keep_alive_interval = None;
    options.bearer = Some(Arc::new(Secret::new(token.to_owned())));
    let remote = RemoteSessions::connect(&running.address, options).await.unwrap();
    (running, fake, remote)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_checked_now_is_unavailable_and_changes_nothing() {
    for (token, seconds) in [("unchecked", 0), ("hang", 10)] {
        let (_running, fake, remote) = with_token(token).await;
        let started = tokio::time::Instant::now();
        let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
        assert_condition(&error, Condition::Unavailable);
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert_eq!(error.to_string(), "credentials cannot be checked now");
        assert_eq!(started.elapsed().as_secs(), seconds, "{token}");
        assert_eq!(fake.last(), "");
    }
    let (_running, _, remote) = with_token("bad").await;
    let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
    assert_condition(&error, Condition::Unauthenticated);
    assert_eq!(error.outcome(), Outcome::NotApplied);
}

#[tokio::test]
async fn a_token_never_goes_to_another_machine_in_plain_text() {
    let mut options = ConnectOptions::default();
    options.link.connect_timeout = Duration::from_millis(1);
    options.bearer = Some(Arc::new(Secret::new("good-x".to_owned())));
    for address in
        ["h.example:443", "http://h.example:80", "10.0.0.1:443", "[2001:db8::1]:443", "0.0.0.0:1"]
    {
        let error = RemoteSessions::connect(address, &options).await.unwrap_err();
        assert_condition(&error, Condition::InvalidArgument);
        let words = "a bearer token is not sent in plain text to another machine; use https";
        assert!(error.to_string().ends_with(words), "{error}");
    }
    // These stay here: nobody listens, and that is all.
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("none.sock").display());
    for address in ["127.0.0.1:1", "localhost:1", "[::1]:1", "http://127.0.0.2:1", &socket] {
        let error = RemoteSessions::connect(address, &options).await.unwrap_err();
        assert_condition(&error, Condition::Unavailable);
    }
}

/// Gives another token each time, and fails in the end.
#[derive(Debug, Default)]
struct Rotating(AtomicUsize);

#[async_trait]
impl TokenSource for Rotating {
    async fn token(&self) -> Result<Secret, SessionsError> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            3 => std::future::pending().await,
            2 => Err(SessionsError::new(Condition::PermissionDenied, "the login is over")),
            n => Ok(Secret::new(format!("good-{n}"))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_source_of_tokens_is_asked_before_every_call() {
    let fake = Arc::new(Fake::default());
    let running = Running::sessions_with(Over::Tcp, fake.clone(), guarded()).await;
    let mut options = ConnectOptions::default();
    options.link.keep_alive_interval = None;
    options.bearer = Some(Arc::new(Rotating::default()));
    let remote = RemoteSessions::connect(&running.address, options).await.unwrap();
    for n in 0..2 {
        remote.get(&caller(), &uid("s")).await.unwrap();
        let seen = fake.callers.lock().unwrap().pop().unwrap();
        assert_eq!(seen.identity.unwrap().subject, n.to_string());
    }
    let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
    assert_condition(&error, Condition::PermissionDenied);
    assert_eq!(error.to_string(), "the login is over");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
    assert_condition(&error, Condition::Unavailable);
    assert_eq!(error.to_string(), "no bearer token within TOKEN_MAX, 10 s");
    assert!(fake.callers.lock().unwrap().is_empty(), "nothing was sent");
}
