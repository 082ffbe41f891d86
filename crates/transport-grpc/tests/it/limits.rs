//! Messages that are too large, or no messages: named, and never a lost connection.

use std::sync::Arc;

use mainspring_api::{
    Bytes, Condition, CreateRequest, ExecRequest, ImportRequest, Message, Operations, Sessions,
};
use mainspring_transport_grpc::{LinkOptions, RemoteOperations, RemoteSessions, ServeOptions};
use mainspring_wire::v1;
use mainspring_wire::v1::sessions_client::SessionsClient;
use tonic::Code;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;

use crate::address_book::{BOTH, Over, Running};
use crate::fake::{Fake, assert_condition, caller, uid};
use crate::fake_operations::FakeOperations;

const BYTES_MAX: usize = 64 << 10;

fn small() -> LinkOptions {
    let mut link = LinkOptions::default();
    link.message_bytes_max = BYTES_MAX;
    link
}

async fn serving(over: Over) -> (Running, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let mut options = ServeOptions::default();
    options.link = small();
    options.operations = Some(Arc::new(FakeOperations::default()));
    (Running::sessions_with(over, fake.clone(), options).await, fake)
}

fn large() -> CreateRequest {
    CreateRequest { name: "x".repeat(4 << 20), ..Default::default() }
}

#[tokio::test]
async fn a_request_above_the_bound_is_named_and_the_connection_stays() {
    for over in BOTH {
        let (running, fake) = serving(over).await;
        let remote =
            RemoteSessions::connect(&running.address, &LinkOptions::default()).await.unwrap();
        let exec = || ExecRequest {
            inputs: vec![Message::user("x".repeat(4 << 20))],
            ..Default::default()
        };
        for _ in 0..5 {
            let error = remote.create(&caller(), large()).await.unwrap_err();
            assert_condition(&error, Condition::ValueTooLarge);
            let words = "the message is larger than message_bytes_max, 65536 bytes";
            assert_eq!(error.to_string(), words);
            let Err(error) = remote.exec(&caller(), exec()).await else {
                panic!("must be refused");
            };
            assert_condition(&error, Condition::ValueTooLarge);
        }
        assert_eq!(fake.last(), "", "nothing reached the service");
        remote.get(&caller(), &uid("s")).await.unwrap();
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_code_of_a_request_above_the_bound_is_that_of_a_value_above_its_own() {
    let (running, _) = serving(Over::Tcp).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let mut client = SessionsClient::new(endpoint.connect().await.unwrap());
    let status = client.create_session(v1::CreateSessionRequest::from(large())).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.get_details_error_info().unwrap().reason, "value_too_large");
}

#[tokio::test]
async fn a_streamed_request_above_the_bound_is_named_too() {
    let (running, _) = serving(Over::Tcp).await;
    let remote =
        RemoteOperations::connect(&running.address, &LinkOptions::default()).await.unwrap();
    let lines = futures_util::stream::iter([Ok(Bytes::from("x".repeat(1 << 20) + "\n"))]);
    let importing = caller();
    let import = remote.import(&importing, ImportRequest::default(), Box::pin(lines));
    let error = import.await.unwrap_err();
    assert_condition(&error, Condition::ValueTooLarge);
    assert!(error.to_string().contains("message_bytes_max, 65536 bytes"), "{error}");
}

#[tokio::test]
async fn a_client_sends_nothing_above_its_own_bound() {
    let fake = Arc::new(Fake::default());
    let running = Running::sessions(Over::Tcp, fake.clone()).await;
    let remote = RemoteSessions::connect(&running.address, &small()).await.unwrap();
    let error = remote.create(&caller(), large()).await.unwrap_err();
    assert_condition(&error, Condition::ValueTooLarge);
    assert_eq!(fake.last(), "");
    remote.get(&caller(), &uid("s")).await.unwrap();
}

#[tokio::test]
async fn what_is_no_message_is_malformed_and_not_a_failure_of_the_host() {
    let (running, fake) = serving(Over::Tcp).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel: Channel = endpoint.connect().await.unwrap();
    // Its first field is a number, where the others have a message or a text.
    let number = v1::LogRecord { seq: 5, ..Default::default() };
    for (path, field) in [
        ("/agentsessions.v1.Sessions/CreateSession", "session"),
        ("/agentsessions.v1.Sessions/Exec", "session"),
        ("/mainspring.v1.Operations/Follow", "session"),
        ("/mainspring.v1.Operations/Import", "target"),
    ] {
        let mut client = Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = ProstCodec::<v1::LogRecord, ()>::default();
        let request = tonic::Request::new(number.clone());
        let answer = client.server_streaming(request, path.parse().unwrap(), codec).await;
        let status = answer.map(|_| ()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
        assert_eq!(status.message(), format!("the message is malformed at {field}"));
    }
    assert_eq!(fake.last(), "", "nothing reached the service");
}
