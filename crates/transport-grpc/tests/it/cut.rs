//! Answers that a proxy ended on its own, without a status.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use mainspring_api::{
    Bytes, Condition, CreateRequest, ExecRequest, ExecUpdate, FollowRequest, FollowUpdate, Outcome,
    ReplayRequest, Seq, Sessions,
};
use mainspring_transport_grpc::{LinkOptions, RemoteSessions};
use mainspring_wire::{NotesField, follow_to_wire, record_to_wire, update_to_wire, v1};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;

use crate::fake::{assert_condition, caller, delta, record, session, uid};

/// Answers each call with one message, and then with no status.
#[derive(Clone)]
struct Cuts<const OPERATIONS: bool>;

impl NamedService for Cuts<false> {
    const NAME: &'static str = "agentsessions.v1.Sessions";
}

impl NamedService for Cuts<true> {
    const NAME: &'static str = "mainspring.v1.Operations";
}

impl<const OPERATIONS: bool> tower::Service<http::Request<Body>> for Cuts<OPERATIONS> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let message = match request.uri().path().rsplit('/').next().unwrap() {
            "Exec" => {
                let update = ExecUpdate::Delta(delta("he", false));
                update_to_wire(update, NotesField::Omit).unwrap().encode_to_vec()
            }
            "Follow" => {
                let update = FollowUpdate::Delta(delta("he", false));
                follow_to_wire(update, NotesField::Omit).unwrap().encode_to_vec()
            }
            "Replay" => record_to_wire(record(1, "a"), NotesField::Send).unwrap().encode_to_vec(),
            _ => v1::Session::try_from(session("sess-1")).unwrap().encode_to_vec(),
        };
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        let body = Body::new(http_body_util::Full::new(Bytes::from(framed)));
        let response =
            http::Response::builder().header("content-type", "application/grpc").body(body);
        std::future::ready(Ok(response.unwrap()))
    }
}

async fn connected() -> RemoteSessions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_service(Cuts::<false>).add_service(Cuts::<true>);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    RemoteSessions::connect(&address, &LinkOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_cut_stream_is_an_error_and_not_its_end() {
    let remote = connected().await;
    let mut updates = remote.exec(&caller(), ExecRequest::default()).await.unwrap();
    assert!(matches!(updates.next().await, Some(Ok(ExecUpdate::Delta(_)))));
    let error = updates.next().await.unwrap().unwrap_err();
    assert_condition(&error, Condition::OutcomeUnknown);
    assert!(updates.next().await.is_none());

    let follow = FollowRequest { session: uid("s"), after_seq: Seq::ZERO };
    let mut updates = remote.follow(&caller(), follow).await.unwrap();
    assert!(matches!(updates.next().await, Some(Ok(FollowUpdate::Delta(_)))));
    let error = updates.next().await.unwrap().unwrap_err();
    assert_condition(&error, Condition::Unavailable);

    let replay = ReplayRequest { session: uid("s"), from_seq: 1, to_seq: 0, verify: false };
    let records: Vec<_> = remote.replay(&caller(), replay).await.unwrap().collect().await;
    assert_eq!(records[0].as_ref().unwrap(), &record(1, "a"));
    assert_condition(records[1].as_ref().unwrap_err(), Condition::Unavailable);
    assert_eq!(records.len(), 2);
}

#[tokio::test]
async fn a_cut_answer_leaves_what_was_done_unknown() {
    use mainspring_api::Classify as _;
    let remote = connected().await;
    let error = remote.get(&caller(), &uid("s")).await.unwrap_err();
    assert_condition(&error, Condition::Unavailable);
    let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
    assert_condition(&error, Condition::OutcomeUnknown);
    assert_eq!(error.outcome(), Outcome::Unknown);
}
