//! Signs of life on silent streams, over real sockets with time under control.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use mainspring_api::{
    BoxStream, Bytes, Classify as _, Condition, ErrorKind, ExecRequest, ExecUpdate, FollowRequest,
    FollowUpdate, Outcome, ReplayRequest, ResumeRequest, Seq, Sessions, SessionsError, Signal,
};
use mainspring_transport_grpc::{ConnectOptions, LinkOptions, RemoteSessions, ServeOptions};
use mainspring_wire::operations_v1::operations_client::OperationsClient;
use mainspring_wire::v1::sessions_client::SessionsClient;
use mainspring_wire::{NotesField, operations_v1, update_to_wire, v1};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request};

use crate::address_book::{Over, Running};
use crate::fake::{Fake, assert_condition, caller, record, uid};

/// A host whose pings never judge a connection: what is tested is what streams do.
async fn serving() -> (Running, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let mut options = ServeOptions::default();
    options.link.keep_alive_interval = None;
    (Running::sessions_with(Over::Tcp, fake.clone(), options).await, fake)
}

fn quiet() -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.link.keep_alive_interval = None;
    options
}

async fn channel(running: &Running) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    endpoint.connect().await.unwrap()
}

fn asking<T>(message: T, seconds: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-heartbeat", seconds.parse().unwrap());
    request
}

fn exec() -> v1::ExecRequest {
    v1::ExecRequest { harness: "hang".to_owned(), ..Default::default() }
}

fn replay() -> v1::ReplayRequest {
    v1::ReplayRequest { session: "hang".to_owned(), ..Default::default() }
}

fn follow() -> operations_v1::FollowRequest {
    operations_v1::FollowRequest { session: "hang".to_owned(), after_seq: 4 }
}

fn resume() -> operations_v1::ResumeRequest {
    operations_v1::ResumeRequest { session: "hang".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn who_asks_gets_a_heartbeat_after_each_silent_interval_on_every_stream() {
    let (running, _) = serving().await;
    let mut sessions = SessionsClient::new(channel(&running).await);
    let mut operations = OperationsClient::new(channel(&running).await);
    macro_rules! check {
        ($answer:expr, $values:literal, $is_heartbeat:expr) => {{
            let answer = $answer.await.unwrap();
            assert_eq!(answer.metadata().get("x-heartbeat").unwrap(), "7");
            let mut messages = answer.into_inner();
            for _ in 0..$values {
                assert!(!$is_heartbeat(&messages.message().await.unwrap().unwrap()));
            }
            for _ in 0..3 {
                let asked = Instant::now();
                assert!($is_heartbeat(&messages.message().await.unwrap().unwrap()));
                assert!(asked.elapsed().as_secs() <= 7, "{:?}", asked.elapsed());
            }
        }};
    }
    let of_turn = |update: &v1::ExecUpdate| {
        matches!(update.update, Some(v1::exec_update::Update::Heartbeat(_)))
    };
    let start = Instant::now();
    check!(sessions.exec(asking(exec(), "7")), 1, of_turn);
    check!(operations.resume(asking(resume(), "7")), 1, of_turn);
    let of_record = |record: &v1::LogRecord| record.heartbeat.is_some();
    check!(sessions.replay(asking(replay(), "7")), 2, of_record);
    check!(operations.follow(asking(follow(), "7")), 3, |update: &operations_v1::FollowUpdate| {
        matches!(update.update, Some(operations_v1::follow_update::Update::Heartbeat(_)))
    });
    // Not more of them than were asked for: the follow's first is the service's own.
    assert!(start.elapsed() >= Duration::from_secs(7 * 11), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_ask_gets_none() {
    let (running, _) = serving().await;
    let mut sessions = SessionsClient::new(channel(&running).await);
    let answer = sessions.exec(exec()).await.unwrap();
    assert!(answer.metadata().get("x-heartbeat").is_none());
    let mut messages = answer.into_inner();
    messages.message().await.unwrap().unwrap();
    let next = tokio::time::timeout(Duration::from_secs(3_600), messages.message());
    assert!(next.await.is_err(), "silence");
}

#[tokio::test]
async fn an_interval_of_another_form_is_refused() {
    let (running, fake) = serving().await;
    let mut sessions = SessionsClient::new(channel(&running).await);
    let mut operations = OperationsClient::new(channel(&running).await);
    for bad in ["0", "3601", "-1", "+5", "1.5", "", "soon", "99999999999999999999"] {
        let refused = [
            sessions.exec(asking(exec(), bad)).await.map(|_| ()),
            sessions.replay(asking(replay(), bad)).await.map(|_| ()),
            operations.follow(asking(follow(), bad)).await.map(|_| ()),
            operations.resume(asking(resume(), bad)).await.map(|_| ()),
        ];
        for result in refused {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{bad}");
            assert!(status.message().starts_with("x-heartbeat: "), "{}", status.message());
        }
    }
    assert_eq!(fake.last(), "", "nothing reached the service");
    for good in ["1", "3600"] {
        sessions.exec(asking(exec(), good)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_turn_is_alive_for_as_long_as_its_host_says_so() {
    let (running, _) = serving().await;
    let remote = RemoteSessions::connect(&running.address, quiet()).await.unwrap();
    let request = ExecRequest { harness: "hang".to_owned(), ..Default::default() };
    let mut updates = remote.exec(&caller(), request).await.unwrap();
    assert!(matches!(updates.next().await, Some(Ok(ExecUpdate::Session(_)))));
    let hour = tokio::time::timeout(Duration::from_secs(3_600), updates.next());
    assert!(hour.await.is_err(), "heartbeats are not updates, and keep the stream");

    // A follower is told.
    let request = FollowRequest { session: uid("hang"), after_seq: Seq::ZERO };
    let updates = remote.follow(&caller(), request).await.unwrap();
    let updates: Vec<_> = updates.skip(3).take(5).map(Result::unwrap).collect().await;
    assert!(updates.iter().all(|update| matches!(update, FollowUpdate::Heartbeat)));
}

/// Forwards until it is told to stall; then it forwards nothing, and closes nothing.
async fn stalling_proxy(to: String, stall: Signal<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(&to).await.unwrap();
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = server.into_split();
            for (mut from, mut to) in [(client_read, server_write), (server_read, client_write)] {
                let stall = stall.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 << 10];
                    loop {
                        let length = tokio::select! {
                            biased;
                            () = stall.wait() => std::future::pending().await,
                            length = from.read(&mut buffer) => length.unwrap_or(0),
                        };
                        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    address
}

async fn stalled<T>(
    open: impl AsyncFnOnce(&RemoteSessions) -> BoxStream<'static, Result<T, SessionsError>>,
    values: usize,
) -> SessionsError {
    let (running, _) = serving().await;
    let stall = Signal::<()>::default();
    let address = stalling_proxy(running.address.clone(), stall.clone()).await;
    let mut options = quiet();
    options.heartbeat = Some(Duration::from_secs(10));
    let remote = RemoteSessions::connect(&address, options).await.unwrap();
    let mut updates = open(&remote).await;
    for _ in 0..values {
        assert!(updates.next().await.unwrap().is_ok());
    }
    stall.set(());
    let since = Instant::now();
    let error = loop {
        if let Err(error) = updates.next().await.unwrap() {
            break error;
        }
    };
    // A beat that was on its way may still have come.
    assert!((30..=40).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
    assert!(updates.next().await.is_none());
    assert_eq!(error.to_string(), "no heartbeat for 30 s");
    assert_condition(&error, Condition::Unavailable);
    error
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_without_closing_is_lost_after_three_intervals() {
    let exec = stalled(
        async |remote| {
            let request = ExecRequest { harness: "hang".to_owned(), ..Default::default() };
            remote.exec(&caller(), request).await.unwrap()
        },
        1,
    );
    assert_eq!(exec.await.outcome(), Outcome::Unknown);
    let resume = stalled(
        async |remote| {
            let request = ResumeRequest { session: uid("hang"), approval_ttl: None };
            remote.resume(&caller(), request).await.unwrap()
        },
        1,
    );
    assert_eq!(resume.await.outcome(), Outcome::Unknown);
    let follow = stalled(
        async |remote| {
            let request = FollowRequest { session: uid("hang"), after_seq: Seq::ZERO };
            remote.follow(&caller(), request).await.unwrap()
        },
        4,
    );
    assert_eq!(follow.await.outcome(), Outcome::NotApplied);
    let replay = stalled(
        async |remote| {
            let request =
                ReplayRequest { session: uid("hang"), from_seq: 1, to_seq: 0, verify: false };
            remote.replay(&caller(), request).await.unwrap()
        },
        2,
    );
    assert_eq!(replay.await.outcome(), Outcome::NotApplied);
}

/// A host of the plain contract: it knows no heartbeats, and its turns take their time.
#[derive(Clone)]
struct Plain;

impl NamedService for Plain {
    const NAME: &'static str = "agentsessions.v1.Sessions";
}

impl tower::Service<http::Request<Body>> for Plain {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let update = ExecUpdate::Record(Box::new(record(1, "a")));
        let message = update_to_wire(update, NotesField::Send).unwrap().encode_to_vec();
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        let first: Result<_, Infallible> = Ok(Frame::data(Bytes::from(framed)));
        let body = StreamBody::new(stream::iter([first]).chain(stream::pending()));
        let response = http::Response::builder().header("content-type", "application/grpc");
        std::future::ready(Ok(response.body(Body::new(body)).unwrap()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_knows_no_heartbeats_is_not_judged_by_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_service(Plain);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let remote = RemoteSessions::connect(&address, quiet()).await.unwrap();
    for _ in 0..2 {
        let mut updates = remote.exec(&caller(), ExecRequest::default()).await.unwrap();
        assert!(matches!(updates.next().await, Some(Ok(ExecUpdate::Record(_)))));
        let hour = tokio::time::timeout(Duration::from_secs(3_600), updates.next());
        assert!(hour.await.is_err(), "it may be as silent as it likes");
    }
}

#[tokio::test]
async fn an_interval_that_cannot_be_asked_for_is_refused_before_connecting() {
    for bad in [Duration::ZERO, Duration::from_millis(1500), Duration::from_secs(3601)] {
        let mut options = quiet();
        options.heartbeat = Some(bad);
        let error = RemoteSessions::connect("127.0.0.1:1", options).await.unwrap_err();
        assert_condition(&error, Condition::InvalidArgument);
        assert!(error.to_string().starts_with("heartbeat: "), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_pings_is_gone() {
    let (running, _) = serving().await;
    let stall = Signal::<()>::default();
    let address = stalling_proxy(running.address.clone(), stall.clone()).await;
    let mut link = LinkOptions::default();
    link.keep_alive_interval = Some(Duration::from_secs(5));
    link.keep_alive_timeout = Duration::from_secs(2);
    let mut options = ConnectOptions::from(&link);
    options.heartbeat = None;
    let remote = RemoteSessions::connect(&address, options).await.unwrap();
    let request = ReplayRequest { session: uid("hang"), from_seq: 1, to_seq: 0, verify: false };
    let mut records = remote.replay(&caller(), request).await.unwrap();
    assert!(records.next().await.unwrap().is_ok());
    stall.set(());
    let since = Instant::now();
    let error = loop {
        if let Err(error) = records.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(since.elapsed() <= Duration::from_secs(8), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_long_to_begin_is_alive_too() {
    let (running, _) = serving().await;
    let request = v1::ExecRequest { harness: "never-begins".to_owned(), ..Default::default() };
    let mut sessions = SessionsClient::new(channel(&running).await);
    let mut messages = sessions.exec(asking(request.clone(), "7")).await.unwrap().into_inner();
    for _ in 0..3 {
        let update = messages.message().await.unwrap().unwrap().update;
        assert!(matches!(update, Some(v1::exec_update::Update::Heartbeat(_))));
    }
    // Who asks for none sees nothing before it begins.
    let plain = sessions.exec(request);
    assert!(tokio::time::timeout(Duration::from_secs(3600), plain).await.is_err());

    let remote = RemoteSessions::connect(&running.address, quiet()).await.unwrap();
    let request = ExecRequest { harness: "never-begins".to_owned(), ..Default::default() };
    let caller = caller();
    let begun = remote.exec(&caller, request);
    assert!(tokio::time::timeout(Duration::from_secs(3_600), begun).await.is_err());
}

/// A call whose answer never begins, because the way there stalls first.
async fn stalled_before_the_answer(known: bool) -> Vec<(SessionsError, u64)> {
    let (running, fake) = serving().await;
    let stall = Signal::<()>::default();
    let address = stalling_proxy(running.address.clone(), stall.clone()).await;
    let mut options = quiet();
    options.heartbeat = Some(Duration::from_secs(10));
    let remote = RemoteSessions::connect(&address, options).await.unwrap();
    let caller = caller();
    if known {
        let exec = ExecRequest::default();
        remote.exec(&caller, exec).await.unwrap().count().await;
    } else {
        remote.get(&caller, &uid("s")).await.unwrap();
    }
    stall.set(());
    fake.seen.lock().unwrap().clear();
    let mut errors = Vec::new();
    let follow = FollowRequest { session: uid("hang"), after_seq: Seq::ZERO };
    let since = Instant::now();
    let followed = remote.follow(&caller, follow).await.map(|_| ());
    errors.push((followed.unwrap_err(), since.elapsed().as_secs()));
    if known {
        let since = Instant::now();
        let run = remote.exec(&caller, ExecRequest::default()).await.map(|_| ());
        errors.push((run.unwrap_err(), since.elapsed().as_secs()));
    }
    assert_eq!(fake.last(), "", "the host never saw them");
    errors
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_begins_is_lost_after_three_intervals_too() {
    let errors = stalled_before_the_answer(true).await;
    let outcomes = [Outcome::NotApplied, Outcome::Unknown];
    assert_eq!(errors.len(), outcomes.len());
    for ((error, seconds), outcome) in errors.into_iter().zip(outcomes) {
        assert_condition(&error, Condition::Unavailable);
        assert_eq!((error.to_string(), seconds), ("no heartbeat for 30 s".to_owned(), 30));
        assert_eq!(error.outcome(), outcome);
    }
    assert_eq!(stalled_before_the_answer(false).await[0].1, 30);
}
