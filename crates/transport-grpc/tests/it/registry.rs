//! The operators' registry of harnesses, through server and client.

use std::sync::Arc;

use mainspring_api::{
    Capabilities, Classify as _, Condition, HarnessRegistry, HarnessSpec, HarnessState, Outcome,
    Placement, RegisterOutcome,
};
use mainspring_transport_grpc::{LinkOptions, RemoteHarnessRegistry, ServeOptions};
use mainspring_wire::v1;
use mainspring_wire::v1::harness_registry_client::HarnessRegistryClient;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::address_book::{BOTH, Over, Running};
use crate::fake::{Fake, assert_condition, caller};
use crate::fake_operations::{FakeOperations, FakeRegistry, registration};

async fn connected(over: Over) -> (Running, Arc<FakeRegistry>, RemoteHarnessRegistry) {
    let fake = Arc::new(FakeRegistry::default());
    let operations = Arc::new(FakeOperations::default());
    let running = Running::operators(over, fake.clone(), operations, ServeOptions::default()).await;
    let remote =
        RemoteHarnessRegistry::connect(&running.address, &LinkOptions::default()).await.unwrap();
    (running, fake, remote)
}

fn spec() -> HarnessSpec {
    HarnessSpec {
        placement: Some(Placement::Remote { address: "h:1".to_owned() }),
        capabilities: Some(Capabilities::default()),
        descriptor_id: "d".to_owned(),
    }
}

#[tokio::test]
async fn every_method_both_transports() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let caller = caller();
        let (harness, outcome) = remote.register(&caller, "n", spec()).await.unwrap();
        assert_eq!(harness, registration("n", Some(spec())));
        assert_eq!(outcome, RegisterOutcome::Unchanged);
        let name = "/agentsessions.v1.HarnessRegistry";
        assert_eq!(fake.last(), format!("{name}/RegisterHarness {:?}", ("n", spec())));

        let got = remote.get(&caller, "n", true).await.unwrap();
        assert_eq!(got, registration("n", None));
        assert_eq!(fake.last(), format!("{name}/GetHarness {:?}", ("n", true)));
        let error = remote.get(&caller, "unknown", false).await.unwrap_err();
        assert_condition(&error, Condition::UnknownHarness);

        let (page, next) = remote.list(&caller, -3, "t", true).await.unwrap();
        assert_eq!(page, [registration("a", None), registration("b", None)]);
        assert_eq!(next, "more");
        assert_eq!(fake.last(), format!("{name}/ListHarnesses {:?}", (-3, "t", true)));

        let retired = remote.retire(&caller, "n", "old").await.unwrap();
        assert_eq!((retired.state, &retired.retire_reason[..]), (HarnessState::Retired, "old"));
        assert_eq!(fake.last(), format!("{name}/RetireHarness {:?}", ("n", "old")));
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_spec_that_does_not_say_what_it_must_is_refused() {
    let (running, fake, _) = connected(Over::Tcp).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let client = HarnessRegistryClient::new(endpoint.connect().await.unwrap());
    let check = async |spec: Option<v1::HarnessSpec>, words: &str| {
        let request = v1::RegisterHarnessRequest { name: "n".to_owned(), spec };
        let status = client.clone().register_harness(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(words), "{words}: {}", status.message());
    };
    check(None, "spec: missing").await;
    for resumability in [0, 9] {
        let capabilities = Some(v1::Capabilities { resumability, ..Default::default() });
        let spec = v1::HarnessSpec { capabilities, ..Default::default() };
        check(Some(spec), "spec.capabilities.resumability: ").await;
    }
    assert_eq!(fake.last(), "", "nothing reached the registry");
}

/// A spec of tomorrow, within a request of today.
#[derive(Clone, PartialEq, prost::Message)]
struct Tomorrow {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    spec: Option<TomorrowsSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TomorrowsSpec {
    #[prost(string, tag = "4")]
    descriptor_id: String,
    #[prost(string, tag = "99")]
    sandbox: String,
}

#[tokio::test]
async fn a_field_that_is_not_known_is_refused_and_not_left_out() {
    let (running, fake, _) = connected(Over::Tcp).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let register = async |sandbox: String| {
        let spec = Some(TomorrowsSpec { descriptor_id: "d".to_owned(), sandbox });
        let request = tonic::Request::new(Tomorrow { name: "n".to_owned(), spec });
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<Tomorrow, v1::RegisterHarnessResponse>::default();
        let path = "/agentsessions.v1.HarnessRegistry/RegisterHarness".parse().unwrap();
        client.unary(request, path, codec).await
    };
    let status = register("strong".to_owned()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "spec: unknown field 99");
    let status = register("x".repeat(65 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("message_bytes_max"), "{}", status.message());
    assert_eq!(fake.last(), "", "nothing reached the registry");
    // Empty is not there.
    register(String::new()).await.unwrap();
}

#[tokio::test]
async fn the_registry_is_never_on_the_sessions_listener() {
    let sessions = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let remote =
        RemoteHarnessRegistry::connect(&sessions.address, &LinkOptions::default()).await.unwrap();
    let error = remote.get(&caller(), "n", false).await.unwrap_err();
    assert_condition(&error, Condition::Unimplemented);
    let words = "harness get needs agentsessions.v1.HarnessRegistry";
    assert!(error.to_string().starts_with(words), "{error}");

    let (operators, ..) = connected(Over::Tcp).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", operators.address)).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let mut check = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.check(request).await.map(|answer| answer.into_inner().status)
    };
    for service in ["", "agentsessions.v1.HarnessRegistry", "mainspring.v1.Administration"] {
        assert_eq!(check(service).await.unwrap(), 1, "{service}");
    }
    assert_eq!(check("agentsessions.v1.Sessions").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_ends_after_30_seconds() {
    let (_running, _, remote) = connected(Over::Tcp).await;
    let started = tokio::time::Instant::now();
    let read = remote.get(&caller(), "hang", false).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 30);
    let written = remote.register(&caller(), "hang", spec()).await.unwrap_err();
    for (error, outcome) in [(read, Outcome::NotApplied), (written, Outcome::Unknown)] {
        assert_condition(&error, Condition::DeadlineExceeded);
        assert_eq!(error.outcome(), outcome);
        assert!(error.to_string().contains("REGISTRY_CALL_MAX, 30 s"), "{error}");
    }
}
