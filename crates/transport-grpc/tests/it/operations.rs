//! What has no method in `agentsessions.v1`, through server and client.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mainspring_api::{
    Classify as _, Condition, ExecUpdate, ExecutionId, FollowRequest, FollowUpdate, JsonObject,
    Outcome, Resolution, ResolveRequest, ResumeRequest, Seq, Sessions, ToolResult,
};
use mainspring_transport_grpc::{LinkOptions, RemoteSessions, SessionsServer};
use mainspring_wire::operations_v1 as wire;
use mainspring_wire::operations_v1::operations_client::OperationsClient;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request};

use crate::address_book::{BOTH, Over, Running};
use crate::fake::{Fake, assert_condition, caller, delta, record, report, session, uid};

async fn connected(over: Over) -> (Running, Arc<Fake>, RemoteSessions) {
    let fake = Arc::new(Fake::default());
    let running = Running::sessions(over, fake.clone()).await;
    let remote = RemoteSessions::connect(&running.address, &LinkOptions::default()).await.unwrap();
    (running, fake, remote)
}

async fn raw(running: &Running) -> OperationsClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    OperationsClient::new(endpoint.connect().await.unwrap())
}

fn resolve(session: &str, call: &str, resolution: Resolution) -> ResolveRequest {
    ResolveRequest {
        session: uid(session),
        execution_id: ExecutionId::new("e").unwrap(),
        tool_call_id: call.to_owned(),
        resolution,
    }
}

#[tokio::test]
async fn every_resolution_reaches_the_service_as_it_is() {
    let result = ToolResult {
        id: "t".to_owned(),
        output: Some(JsonObject::from([("k".to_owned(), 1.5.into())])),
        ..Default::default()
    };
    let resolutions = [
        Resolution::Result(Box::new(result)),
        Resolution::Failed("it never ran".to_owned()),
        Resolution::Retry,
    ];
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        for resolution in &resolutions {
            let request = resolve("sess-7", "t", resolution.clone());
            let resolved = remote.resolve(&caller(), request.clone()).await.unwrap();
            assert_eq!(resolved, session("sess-7"));
            let seen = format!("/mainspring.v1.Operations/Resolve request-1 {request:?}");
            assert_eq!(fake.last(), seen);
        }
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn errors_keep_condition_outcome_and_session() {
    let (_running, _, remote) = connected(Over::Unix).await;
    let resolved = async |session: &str, call: &str| {
        let request = resolve(session, call, Resolution::Retry);
        remote.resolve(&caller(), request).await.unwrap_err()
    };
    let error = resolved("unknown", "t").await;
    assert_condition(&error, Condition::SessionNotFound);
    assert_eq!(error.session(), Some(&uid("unknown")));
    for condition in [Condition::SessionBusy, Condition::UnansweredToolCall, Condition::Conflict] {
        for (suffix, outcome) in [("", Outcome::NotApplied), ("?", Outcome::Unknown)] {
            let error = resolved("sess-1", &format!("{}{suffix}", condition.code())).await;
            assert_condition(&error, condition);
            assert_eq!(error.outcome(), outcome);
        }
    }
    // The service itself refuses: it keeps its own words.
    let error = resolved("sess-1", "unimplemented").await;
    assert_condition(&error, Condition::Unimplemented);
    assert_eq!(error.to_string(), "about unimplemented");
}

#[tokio::test]
async fn malformed_requests_name_the_field() {
    let (running, fake, _) = connected(Over::Tcp).await;
    let client = raw(&running).await;
    let good = wire::ResolveRequest::try_from(resolve("s", "t", Resolution::Retry)).unwrap();
    let check = async |edit: fn(&mut wire::ResolveRequest), words: &str| {
        let mut bad = good.clone();
        edit(&mut bad);
        let status = client.clone().resolve(bad).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(words), "{words}: {}", status.message());
    };
    check(|r| r.session.clear(), "session: ").await;
    check(|r| r.session = "a/b".to_owned(), "session: ").await;
    check(|r| r.execution_id.clear(), "execution_id: ").await;
    check(|r| r.tool_call_id.clear(), "tool_call_id: missing").await;
    check(|r| r.resolution = None, "resolution: missing").await;
    assert_eq!(fake.last(), "", "nothing reached the service");

    let mut request = Request::new(good.clone());
    request.metadata_mut().insert("x-idempotency-key", "k".parse().unwrap());
    let status = client.clone().resolve(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().starts_with("x-idempotency-key "), "{}", status.message());

    let answer = client.clone().resolve(good).await.unwrap().into_inner();
    assert_eq!(answer.session.unwrap().metadata.unwrap().uid, "s");
}

#[tokio::test]
async fn a_description_arrives_whole() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let described = remote.describe(&caller(), &uid("sess-4")).await.unwrap();
        assert_eq!(described, report("sess-4"));
        assert!(fake.last().starts_with("/mainspring.v1.Operations/Describe request-1 "));
        let error = remote.describe(&caller(), &uid("session_not_found")).await.unwrap_err();
        assert_condition(&error, Condition::SessionNotFound);
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn every_update_of_a_followed_session_arrives_and_then_the_error() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let request = FollowRequest { session: uid("sess-4"), after_seq: Seq::new(4) };
        let updates = remote.follow(&caller(), request.clone()).await.unwrap();
        let updates: Vec<_> = updates.collect().await;
        assert!(matches!(&updates[0], Ok(FollowUpdate::Record(r)) if **r == record(5, "a")));
        assert!(matches!(&updates[1], Ok(FollowUpdate::Delta(d)) if *d == delta("he", false)));
        assert!(matches!(&updates[2], Ok(FollowUpdate::DeltaGap)));
        assert!(matches!(&updates[3], Ok(FollowUpdate::Heartbeat)));
        assert_condition(updates[4].as_ref().unwrap_err(), Condition::Unauthenticated);
        assert_eq!(updates.len(), 5);
        assert_eq!(fake.last(), format!("/mainspring.v1.Operations/Follow request-1 {request:?}"));
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_resume_streams_what_it_records() {
    let (running, fake, remote) = connected(Over::Tcp).await;
    let resume = async |text: &str| -> Vec<_> {
        let request = ResumeRequest { session: uid(text), approval_ttl: None };
        remote.resume(&caller(), request).await.unwrap().collect().await
    };
    let updates = resume("sess-5").await;
    assert!(matches!(&updates[0], Ok(ExecUpdate::Session(s)) if s.uid == uid("early")));
    assert!(matches!(&updates[1], Ok(ExecUpdate::Record(r)) if **r == record(1, "x")));
    assert!(matches!(&updates[2], Ok(ExecUpdate::Session(s)) if s.uid == uid("sess-5")));
    assert_eq!(updates.len(), 3);
    assert!(fake.last().starts_with("/mainspring.v1.Operations/Resume request-1 "));
    let updates = resume("fails").await;
    assert!(matches!(&updates[0], Ok(ExecUpdate::Record(_))));
    assert_condition(updates[1].as_ref().unwrap_err(), Condition::HarnessMismatch);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_host_of_the_plain_contract_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let fake = Arc::new(Fake::default());
    let plain = SessionsServer::new(fake, LinkOptions::default()).into_service();
    let serving = Server::builder().add_service(plain);
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    let remote = RemoteSessions::connect(&address, &LinkOptions::default()).await.unwrap();
    assert_eq!(remote.get(&caller(), &uid("s")).await.unwrap().uid, uid("s"));
    let request = resolve("s", "t", Resolution::Retry);
    let error = remote.resolve(&caller(), request).await.unwrap_err();
    assert_condition(&error, Condition::Unimplemented);
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(error.to_string().starts_with("resolve needs mainspring.v1.Operations"), "{error}");
    let error = remote.describe(&caller(), &uid("s")).await.unwrap_err();
    assert_condition(&error, Condition::Unimplemented);
    assert!(error.to_string().starts_with("describe needs mainspring.v1.Operations"), "{error}");
    let follow = FollowRequest { session: uid("s"), after_seq: Seq::ZERO };
    let Err(error) = remote.follow(&caller(), follow).await else {
        panic!("must be refused");
    };
    assert_condition(&error, Condition::Unimplemented);
    assert!(error.to_string().starts_with("follow needs mainspring.v1.Operations"), "{error}");

    // The contract has a resume of its own, which says less.
    let resume = ResumeRequest { session: uid("s"), approval_ttl: None };
    let updates: Vec<_> = remote.resume(&caller(), resume).await.unwrap().collect().await;
    assert!(matches!(&updates[..], [Ok(ExecUpdate::Session(s))] if s.uid == uid("s")));
}

/// Of a stream it comes with its end.
#[tokio::test]
async fn the_warm_host_of_a_session_is_a_trailer_here_too() {
    let (running, _, _) = connected(Over::Tcp).await;
    let mut client = raw(&running).await;
    let named = "warm-at-h.example".to_owned();
    let described = client.describe(wire::DescribeRequest { session: named.clone() }).await;
    assert_eq!(described.unwrap().metadata().get("x-mainspring-warm-host").unwrap(), "h.example");
    let request = wire::FollowRequest { session: named, ..Default::default() };
    let mut updates = client.follow(request).await.unwrap().into_inner();
    // Also with one that is an error.
    let end = loop {
        match updates.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("this one ends with an error"),
            Err(error) => break error,
        }
    };
    assert_eq!(end.metadata().get("x-mainspring-warm-host").unwrap(), "h.example");
}
