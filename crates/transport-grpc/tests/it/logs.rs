//! Two events for every call, with what it counted and nothing that it carried.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Once};

use futures_util::StreamExt as _;
use mainspring_api::{
    CreateRequest, ExecRequest, FollowRequest, ForkRequest, ListRequest, Message, ReplayRequest,
    Secret, Seq, Sessions,
};
use mainspring_transport_grpc::{ConnectOptions, LinkOptions, RemoteSessions, ServeOptions};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::address_book::{Over, Running};
use crate::authentication::Gatekeeper;
use crate::fake::{Fake, caller, uid};

thread_local! {
    /// What was logged by this test: it and the host that it serves have a
    /// thread of their own.
    static LOGGED: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

/// One for all tests: whether anybody listens is a matter of the whole process.
static LISTENING: Once = Once::new();

/// What the calls carry.
const SECRETS: [&str; 4] = ["a secret", "hunter2", "good-x", "xxxx"];

struct Events;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push_str(&format!("{}={value} ", field.name()));
    }
}

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        LOGGED.with_borrow_mut(|logged| logged.push((*event.metadata().level(), text.0)));
    }
}

impl Events {
    fn listen() -> Self {
        LISTENING.call_once(|| {
            tracing::subscriber::set_global_default(Registry::default().with(Self)).unwrap();
        });
        Self
    }

    /// The two events of the call, once it has ended.
    fn of(&self, operation: &str) -> Vec<(Level, String)> {
        let mine = format!("operation={operation} ");
        LOGGED.with_borrow_mut(|logged| {
            let (found, rest) = logged.drain(..).partition(|(_, text)| text.contains(&mine));
            *logged = rest;
            found
        })
    }

    /// All others.
    fn rest(&self) -> Vec<(Level, String)> {
        LOGGED.take()
    }
}

#[track_caller]
fn check(events: &Events, operation: &str, level: Level, parts: &[&str]) {
    let found = events.of(operation);
    let [(started, start), (finished, finish)] = &found[..] else {
        panic!("{operation}: {found:?}");
    };
    assert_eq!((*started, *finished), (Level::INFO, level), "{finish}");
    for part in ["phase=start ", "component=grpc ", "message=operation started "] {
        assert!(start.contains(part), "{part} is not in {start}");
    }
    for part in ["phase=finish ", "duration_ms=", "message=operation finished "] {
        assert!(finish.contains(part), "{part} is not in {finish}");
    }
    for part in parts {
        assert!(finish.contains(part), "{part} is not in {finish}");
    }
    for secret in SECRETS {
        assert!(!start.contains(secret) && !finish.contains(secret), "{start} {finish}");
    }
}

#[tokio::test]
async fn every_call_has_two_events_with_its_counts_and_none_of_its_contents() {
    let events = Events::listen();
    let running = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let remote = RemoteSessions::connect(&running.address, &LinkOptions::default()).await.unwrap();

    let exec = ExecRequest {
        session: Some(uid("sess-1")),
        inputs: vec![Message::user("a secret")],
        expected_last_seq: Some(0),
        ..Default::default()
    };
    remote.exec(&caller(), exec).await.unwrap().count().await;
    let counts = ["input_count=1 ", "cas_requested=true ", "records_sent=1 ", "deltas_sent=2 "];
    check(&events, "Exec", Level::INFO, &counts);
    let replay = ReplayRequest { session: uid("s"), from_seq: 1, to_seq: 2, verify: true };
    remote.replay(&caller(), replay).await.unwrap().count().await;
    let parts = ["records_sent=2 ", "outcome=error ", "error_kind=failed_precondition "];
    check(&events, "Replay", Level::INFO, &parts);
    remote.list(&caller(), ListRequest::default()).await.unwrap();
    check(&events, "ListSessions", Level::INFO, &["sessions_returned=2 ", "outcome=success "]);
    let fork = ForkRequest {
        session: uid("s"),
        at_seq: 0,
        count: 2,
        labels: Default::default(),
        child_names: Vec::new(),
        identity: None,
    };
    remote.fork(&caller(), fork).await.unwrap();
    check(&events, "Fork", Level::INFO, &["children_created=2 "]);
    let follow = FollowRequest { session: uid("s"), after_seq: Seq::ZERO };
    remote.follow(&caller(), follow).await.unwrap().count().await;
    let parts = ["records_sent=1 ", "deltas_sent=1 ", "error_kind=unauthenticated "];
    check(&events, "Follow", Level::INFO, &parts);

    let levels = [
        ("session_busy", "conflict", Level::INFO),
        ("already_exists", "already_exists", Level::INFO),
        ("permission_denied", "permission_denied", Level::INFO),
        ("deadline_exceeded", "deadline_exceeded", Level::INFO),
        ("draining", "unavailable", Level::WARN),
        ("corrupt", "internal", Level::ERROR),
        ("quota_exceeded", "internal", Level::ERROR),
    ];
    for (condition, kind, level) in levels {
        let create = CreateRequest { name: condition.to_owned(), ..Default::default() };
        remote.create(&caller(), create).await.unwrap_err();
        check(&events, "CreateSession", level, &[&format!("error_kind={kind} ")]);
    }
    for (_, text) in events.rest() {
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}

#[tokio::test]
async fn a_call_that_is_refused_before_its_method_has_both_events_too() {
    let events = Events::listen();
    let mut options = ServeOptions::default();
    options.authenticator = Some(Arc::new(Gatekeeper::default()));
    options.link.message_bytes_max = 64 << 10;
    let running = Running::sessions_with(Over::Tcp, Arc::new(Fake::default()), options).await;
    let connect = async |token: &str| {
        let mut options = ConnectOptions::default();
        options.bearer = Some(Arc::new(Secret::new(token.to_owned())));
        RemoteSessions::connect(&running.address, options).await.unwrap()
    };
    let refused = connect("hunter2").await;
    refused.get(&caller(), &uid("s")).await.unwrap_err();
    let parts = ["error_kind=unauthenticated ", "request_id=request-1 ", "grpc_code=Unauth"];
    check(&events, "GetSession", Level::INFO, &parts);
    let large = CreateRequest { name: "x".repeat(1 << 20), ..Default::default() };
    connect("good-x").await.create(&caller(), large).await.unwrap_err();
    check(&events, "CreateSession", Level::INFO, &["error_kind=invalid_argument "]);
    for (_, text) in events.rest() {
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}
