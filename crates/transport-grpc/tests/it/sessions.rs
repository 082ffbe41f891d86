//! The Sessions service through server and client.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    ApprovalRef, ApproveRequest, CancelReason, CancelRequest, Classify as _, Condition,
    CreateRequest, ErrorKind, ExecRequest, ExecUpdate, ExecutionId, ForkRequest, IdentityRef,
    ListRequest, Message, OnDisconnect, Outcome, ReplayRequest, ResumeRequest, Sessions,
};
use mainspring_transport_grpc::{LinkOptions, RemoteSessions};
use mainspring_wire::v1;
use mainspring_wire::v1::sessions_client::SessionsClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use crate::address_book::{BOTH, Over, Running};
use crate::fake::{FAULT, Fake, assert_condition, caller, delta, record, session, uid};

async fn connected(over: Over) -> (Running, Arc<Fake>, RemoteSessions) {
    let fake = Arc::new(Fake::default());
    let running = Running::sessions(over, fake.clone()).await;
    let remote = RemoteSessions::connect(&running.address, &LinkOptions::default()).await.unwrap();
    (running, fake, remote)
}

async fn raw(running: &Running) -> SessionsClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    SessionsClient::new(endpoint.connect().await.unwrap())
}

fn approve() -> ApproveRequest {
    ApproveRequest {
        session: uid("sess-1"),
        approval: ApprovalRef {
            execution_id: "e".to_owned(),
            tool_call_id: "t".to_owned(),
            request_seq: 3,
        },
        approved: false,
        reason: "r".to_owned(),
        identity: None,
        digest: Some("sha256:x".to_owned()),
    }
}

#[track_caller]
fn saw(fake: &Fake, parts: &[&str]) {
    let last = fake.last();
    for part in parts {
        assert!(last.contains(part), "{part} is not in {last}");
    }
}

#[tokio::test]
async fn every_unary_method_both_transports() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let caller = caller();
        let create = CreateRequest {
            name: "n".to_owned(),
            idempotency_key: Some("key-1".to_owned()),
            ..Default::default()
        };
        let created = remote.create(&caller, create).await.unwrap();
        assert_eq!(created, session("sess-1"));
        saw(&fake, &["/agentsessions.v1.Sessions/CreateSession request-1 ", "Some(\"key-1\")"]);
        let got = remote.get(&caller, &uid("sess-9")).await.unwrap();
        assert_eq!(got.uid, uid("sess-9"));
        let page = remote.list(&caller, ListRequest::default()).await.unwrap();
        assert_eq!((page.sessions.len(), page.next_page_token.as_str()), (2, "next"));
        let suspended = remote.suspend(&caller, &uid("sess-3")).await.unwrap();
        assert_eq!(suspended.uid, uid("sess-3"));
        let fork = ForkRequest {
            session: uid("sess-1"),
            at_seq: 2,
            count: 2,
            labels: Default::default(),
            child_names: vec!["a".to_owned(), "b".to_owned()],
            identity: None,
        };
        let children = remote.fork(&caller, fork.clone()).await.unwrap();
        assert_eq!(children, [session("child-1"), session("child-2")]);
        let empty = ForkRequest { identity: Some(IdentityRef::default()), ..fork };
        let error = remote.fork(&caller, empty).await.unwrap_err();
        assert_condition(&error, Condition::InvalidArgument);
        let approved = remote.approve(&caller, approve()).await.unwrap();
        assert_eq!(approved.decision, record(9, "d"));
        saw(&fake, &["Some(\"sha256:x\")"]);
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn exec_streams_in_order_with_its_metadata() {
    for over in BOTH {
        let (running, fake, remote) = connected(over).await;
        let request = ExecRequest {
            session: Some(uid("sess-1")),
            inputs: vec![Message::user("hi")],
            expected_last_seq: Some(0),
            execution_id: Some(ExecutionId::chosen("0123456789abcdef").unwrap()),
            idempotency_key: Some("k".to_owned()),
            on_disconnect: OnDisconnect::Cancel,
            ..Default::default()
        };
        let updates = remote.exec(&caller(), request).await.unwrap();
        let updates: Vec<_> = updates.map(Result::unwrap).collect().await;
        assert_eq!(updates.len(), 4);
        assert!(matches!(&updates[0], ExecUpdate::Session(s) if **s == session("sess-1")));
        assert!(matches!(&updates[1], ExecUpdate::Delta(d) if *d == delta("he", false)));
        assert!(matches!(&updates[2], ExecUpdate::Delta(d) if *d == delta("", true)));
        assert!(matches!(&updates[3], ExecUpdate::Record(r) if **r == record(1, "hi")));
        saw(
            &fake,
            &[
                "Sessions/Exec",
                "expected_last_seq: Some(0)",
                "execution_id: Some(0123456789abcdef)",
                "idempotency_key: Some(\"k\")",
                "on_disconnect: Cancel",
            ],
        );
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_error_after_frames_ends_the_stream() {
    let (_running, _, remote) = connected(Over::Tcp).await;
    let request = ExecRequest { harness: "late".to_owned(), ..Default::default() };
    let mut updates = remote.exec(&caller(), request).await.unwrap();
    assert!(matches!(updates.next().await, Some(Ok(ExecUpdate::Session(_)))));
    let error = updates.next().await.unwrap().unwrap_err();
    assert_condition(&error, Condition::Conflict);
    assert!(updates.next().await.is_none());
}

#[tokio::test]
async fn errors_keep_condition_outcome_and_session() {
    let (_running, _, remote) = connected(Over::Tcp).await;
    for condition in [Condition::SessionBusy, Condition::MemoryStateLost, Condition::Corrupt] {
        for (suffix, outcome) in [("", Outcome::NotApplied), ("?", Outcome::Unknown)] {
            let create = CreateRequest {
                name: format!("{}{suffix}", condition.code()),
                ..Default::default()
            };
            let error = remote.create(&caller(), create).await.unwrap_err();
            assert_condition(&error, condition);
            assert_eq!(error.outcome(), outcome);
            assert_eq!(error.session(), Some(&uid("sess-1")));
            assert_eq!(error.to_string(), format!("about {}", condition.code()));
        }
    }
    let error = remote.get(&caller(), &uid("unknown")).await.unwrap_err();
    assert_condition(&error, Condition::SessionNotFound);
    assert_eq!(error.session(), Some(&uid("unknown")));
}

#[tokio::test]
async fn the_plain_resume_is_the_session_at_the_end_or_the_error() {
    let (running, fake, _) = connected(Over::Tcp).await;
    let client = raw(&running).await;
    let resume = async |text: &str| {
        let request = v1::ResumeRequest { session: text.to_owned(), ..Default::default() };
        client.clone().resume(request).await
    };
    let session = resume("sess-5").await.unwrap().into_inner();
    assert_eq!(session.metadata.unwrap().uid, "sess-5");
    saw(&fake, &["/agentsessions.v1.Sessions/Resume "]);
    assert_eq!(resume("fails").await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(resume("broken").await.unwrap_err().code(), Code::Internal);
}

#[tokio::test]
async fn a_fault_of_the_session_comes_with_it() {
    let (running, _, remote) = connected(Over::Tcp).await;
    let got = remote.get(&caller(), &uid("faulty")).await.unwrap();
    assert_eq!(got.fault.as_deref(), Some(FAULT));
    assert_eq!(remote.get(&caller(), &uid("well")).await.unwrap().fault, None);
    let request = v1::GetSessionRequest { uid: "faulty".to_owned() };
    let answer = raw(&running).await.get_session(request).await.unwrap();
    let sent = answer.metadata().get("x-mainspring-fault").unwrap().to_str().unwrap();
    assert_eq!(sent, "seq 3: 100 %25 %C3%A9%0A");
}

/// By address, else by name; of a stream it comes with its end.
#[tokio::test]
async fn the_warm_host_of_a_session_is_a_trailer() {
    let (running, _, _) = connected(Over::Tcp).await;
    let mut client = raw(&running).await;
    let mut told = async |uid: &str| {
        let request = v1::GetSessionRequest { uid: uid.to_owned() };
        let answer = client.get_session(request).await.unwrap();
        let warm = answer.metadata().get("x-mainspring-warm-host");
        warm.map(|warm| warm.to_str().unwrap().to_owned())
    };
    assert_eq!(told("warm-at-h.example").await, Some("h.example".to_owned()));
    assert_eq!(told("warm-at-").await, Some("n%C3%A4me".to_owned()));
    assert_eq!(told("cold").await, None);
    let request =
        v1::ReplayRequest { session: "warm-at-h.example".to_owned(), ..Default::default() };
    let mut records = client.replay(request).await.unwrap().into_inner();
    while records.message().await.unwrap().is_some() {}
    let trailers = records.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get("x-mainspring-warm-host").unwrap(), "h.example");
}

#[tokio::test]
async fn replay_verifies_when_asked_and_sends_notes_when_asked() {
    let (running, fake, remote) = connected(Over::Tcp).await;
    let request = ReplayRequest { session: uid("sess-1"), from_seq: 1, to_seq: 2, verify: false };
    let records = remote.replay(&caller(), request.clone()).await.unwrap();
    let records: Vec<_> = records.map(Result::unwrap).collect().await;
    assert_eq!(records, [record(1, "a"), record(2, "b")]);
    saw(&fake, &["verify: false"]);
    let request = ReplayRequest { verify: true, ..request };
    let records = remote.replay(&caller(), request).await.unwrap();
    let records: Vec<_> = records.collect().await;
    assert_condition(records[2].as_ref().unwrap_err(), Condition::JournalTampered);
    assert_eq!(records.len(), 3);

    let message = v1::ReplayRequest { session: "sess-1".to_owned(), ..Default::default() };
    let mut plain = raw(&running).await.replay(message).await.unwrap().into_inner();
    let first = plain.message().await.unwrap().unwrap();
    assert!(first.notes.is_empty(), "nobody asked");
}

#[tokio::test]
async fn what_the_service_does_not_build_is_refused_in_its_words() {
    let (_running, _, remote) = connected(Over::Tcp).await;
    let caller = caller();
    let error = remote.delete(&caller, &uid("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let cancel = CancelRequest {
        session: uid("s"),
        execution_id: ExecutionId::new("e").unwrap(),
        reason: CancelReason::Timeout,
    };
    let error = remote.cancel(&caller, cancel).await.unwrap_err();
    assert_condition(&error, Condition::Unimplemented);
    assert_eq!(error.to_string(), "not yet");
}

#[tokio::test]
async fn malformed_metadata_is_refused_by_name() {
    let (running, _, _) = connected(Over::Tcp).await;
    let client = raw(&running).await;
    let exec = async |key: &'static str, value: &'static str| {
        let mut request = Request::new(v1::ExecRequest::default());
        request.metadata_mut().insert(key, value.parse().unwrap());
        client.clone().exec(request).await.map(|_| ())
    };
    let check = async |key, value, code| {
        let status = exec(key, value).await.unwrap_err();
        assert_eq!(status.code(), code, "{key}: {value}");
        assert!(status.message().contains(key), "{}", status.message());
    };
    check("x-execution-id", "XYZ", Code::InvalidArgument).await;
    check("x-idempotency-key", "a b", Code::InvalidArgument).await;
    check("x-idempotency-key", "", Code::InvalidArgument).await;
    check("x-on-disconnect", "explode", Code::InvalidArgument).await;
    check("x-notes", "yes", Code::InvalidArgument).await;
    check("x-approval-digest", "d", Code::Unimplemented).await;
    exec("x-on-disconnect", "detach").await.unwrap();

    let mut request = Request::new(v1::GetSessionRequest { uid: "s".to_owned() });
    request.metadata_mut().insert("x-execution-id", "0123456789abcdef".parse().unwrap());
    let status = client.clone().get_session(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn how_long_an_approval_may_wait_is_whole_seconds_rounded_up() {
    let (running, fake, remote) = connected(Over::Unix).await;
    for (asked, sent) in [
        (Duration::from_secs(1), "Some(1s)"),
        (Duration::from_millis(1), "Some(1s)"),
        (Duration::from_millis(59_001), "Some(60s)"),
        (Duration::from_secs(u32::MAX.into()), "Some(4294967295s)"),
    ] {
        let exec = ExecRequest { approval_ttl: Some(asked), ..Default::default() };
        let updates = remote.exec(&caller(), exec).await.unwrap();
        assert_eq!(updates.count().await, 4);
        saw(&fake, &["Sessions/Exec", &format!("approval_ttl: {sent}")]);
        let resume = ResumeRequest { session: uid("sess-1"), approval_ttl: Some(asked) };
        drop(remote.resume(&caller(), resume).await.unwrap());
        saw(&fake, &["Operations/Resume", &format!("approval_ttl: {sent}")]);
    }
    let resume = ResumeRequest { session: uid("sess-1"), approval_ttl: None };
    drop(remote.resume(&caller(), resume).await.unwrap());
    saw(&fake, &["approval_ttl: None"]);
    // What cannot be an interval is refused by the host, not sent as another one.
    for asked in [Duration::ZERO, Duration::from_secs(1 << 32)] {
        let exec = ExecRequest { approval_ttl: Some(asked), ..Default::default() };
        let Err(error) = remote.exec(&caller(), exec).await else {
            panic!("{asked:?} must be refused");
        };
        assert_condition(&error, Condition::InvalidArgument);
        let resume = ResumeRequest { session: uid("sess-1"), approval_ttl: Some(asked) };
        let Err(error) = remote.resume(&caller(), resume).await else {
            panic!("{asked:?} must be refused");
        };
        assert_condition(&error, Condition::InvalidArgument);
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_approval_ttl_of_another_form_or_elsewhere_is_refused() {
    fn with<T>(message: T, value: &'static str) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("x-approval-ttl", value.parse().unwrap());
        request
    }
    let (running, fake, _) = connected(Over::Tcp).await;
    let mut client = raw(&running).await;
    let resume = v1::ResumeRequest { session: "s".to_owned(), ..Default::default() };
    for bad in ["0", "-1", "soon", "", "1.5", "5s", "4294967296", "99999999999999999999"] {
        let exec = client.exec(with(v1::ExecRequest::default(), bad)).await.map(|_| ());
        let resumed = client.resume(with(resume.clone(), bad)).await.map(|_| ());
        for status in [exec.unwrap_err(), resumed.unwrap_err()] {
            assert_eq!(status.code(), Code::InvalidArgument, "{bad}");
            assert!(status.message().starts_with("x-approval-ttl: "), "{}", status.message());
        }
    }
    let uid = || "s".to_owned();
    let replay = v1::ReplayRequest { session: uid(), ..Default::default() };
    let approve = v1::ApproveRequest { session: uid(), ..Default::default() };
    let fork = v1::ForkRequest { session: uid(), ..Default::default() };
    let refused = [
        client.create_session(with(Default::default(), "5")).await.map(|_| ()),
        client.get_session(with(v1::GetSessionRequest { uid: uid() }, "5")).await.map(|_| ()),
        client.list_sessions(with(Default::default(), "5")).await.map(|_| ()),
        client.delete_session(with(v1::DeleteSessionRequest { uid: uid() }, "5")).await.map(|_| ()),
        client.replay(with(replay, "5")).await.map(|_| ()),
        client.approve(with(approve, "5")).await.map(|_| ()),
        client.cancel(with(Default::default(), "5")).await.map(|_| ()),
        client.suspend(with(v1::SuspendRequest { session: uid() }, "5")).await.map(|_| ()),
        client.fork(with(fork, "5")).await.map(|_| ()),
    ];
    for result in refused {
        let status = result.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().starts_with("x-approval-ttl "), "{}", status.message());
    }
    assert_eq!(fake.last(), "", "nothing reached the service");
}

#[tokio::test]
async fn a_request_id_is_taken_if_valid_and_replaced_if_not() {
    let (running, fake, _) = connected(Over::Tcp).await;
    let client = raw(&running).await;
    let seen = async |id: Option<&'static str>| -> String {
        let mut request = Request::new(v1::GetSessionRequest { uid: "s".to_owned() });
        if let Some(id) = id {
            request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        }
        client.clone().get_session(request).await.unwrap();
        fake.last().split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(seen(Some("good-1")).await, "good-1");
    for bad in [None, Some("no spaces"), Some("")] {
        let id = seen(bad).await;
        assert_eq!(id.len(), 24, "{id}");
    }
}

#[tokio::test]
async fn malformed_requests_name_the_field() {
    let (running, _, _) = connected(Over::Tcp).await;
    let mut client = raw(&running).await;
    let status = client.get_session(v1::GetSessionRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("uid: "), "{}", status.message());
    let status = client.replay(v1::ReplayRequest::default()).await.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let status = client
        .approve(v1::ApproveRequest {
            session: "s".to_owned(),
            execution_id: "e".to_owned(),
            tool_call_id: "t".to_owned(),
            request_seq: 1,
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert_eq!(status.message(), "approved: missing");
}

#[tokio::test]
async fn five_megabytes_pass_both_ways() {
    let (_running, _, remote) = connected(Over::Unix).await;
    let text = "x".repeat(5 * 1024 * 1024);
    let request = ExecRequest { inputs: vec![Message::user(text.clone())], ..Default::default() };
    let updates = remote.exec(&caller(), request).await.unwrap();
    let updates: Vec<_> = updates.map(Result::unwrap).collect().await;
    assert!(matches!(&updates[3], ExecUpdate::Record(r) if **r == record(1, &text)));
}

#[tokio::test]
async fn dropping_the_clients_stream_drops_the_services() {
    let (_running, fake, remote) = connected(Over::Tcp).await;
    let request = ExecRequest { harness: "hang".to_owned(), ..Default::default() };
    let mut updates = remote.exec(&caller(), request).await.unwrap();
    assert!(updates.next().await.is_some());
    drop(updates);
    fake.detached.notified().await;
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_nothing_applied() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", dir.path().join("none.sock").display());
    let error = RemoteSessions::connect(&address, &LinkOptions::default()).await.unwrap_err();
    assert_condition(&error, Condition::Unavailable);
    let error = RemoteSessions::connect("https://h", &LinkOptions::default()).await.unwrap_err();
    assert_condition(&error, Condition::InvalidArgument);

    let (running, _, remote) = connected(Over::Tcp).await;
    running.stop().await.unwrap();
    let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
