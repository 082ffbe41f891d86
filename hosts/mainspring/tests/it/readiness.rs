//! A server whose store is still being opened.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use mainspring::api::{
    Caller, Classify as _, Condition, CreateRequest, ListRequest, Outcome, RequestId,
    Sessions as _, Signal, SystemClock,
};
use mainspring::eventlog::Recovering;
use mainspring::transport_grpc::{LinkOptions, Listener, RemoteSessions, ServeOptions, serve_when};
use mainspring::{HostBuilder, Opening, Stores};

use crate::support::{Dir, Serving};

fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("test").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_unavailable_and_say_why_until_the_store_is_open() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.address().to_string();
    let opening = Opening::new(Arc::new(SystemClock));
    let (ready, stop) = (Signal::<()>::default(), Signal::<()>::default());
    let options = ServeOptions::default();
    let served = serve_when(ready.wait(), opening.clone(), listener, options, stop.wait());
    let serving = tokio::spawn(served);
    let remote = RemoteSessions::connect(&address, &LinkOptions::default()).await.unwrap();

    let refused = async |says: &str| {
        let error = remote.list(&caller(), ListRequest::default()).await.unwrap_err();
        assert_eq!(error.condition(), Condition::StoreRecovering);
        assert!(error.to_string().contains(says), "{error}");
        let error = remote.create(&caller(), CreateRequest::default()).await.unwrap_err();
        assert_eq!((error.code(), error.outcome()), ("store_recovering", Outcome::NotApplied));
    };
    refused("the store is being opened, 0 s so far").await;
    opening.progress().tell(Recovering { fraction: 0.42 });
    refused("the store is recovering: 42 %, 0 s so far").await;
    assert!(opening.recovery().is_some());

    let log = Stores::with_defaults().open("memory:", Default::default()).unwrap();
    let host = HostBuilder::new(log).build().unwrap();
    opening.opened(Arc::new(host.service().clone()), Arc::new(host.service().clone()));
    ready.set(());
    remote.create(&caller(), CreateRequest::default()).await.unwrap();
    assert_eq!(remote.list(&caller(), ListRequest::default()).await.unwrap().sessions.len(), 1);
    stop.set(());
    drop(remote);
    serving.await.unwrap().unwrap();
}

/// A store that was not closed, with its last holder's note.
fn crashed(dir: &Dir) -> String {
    let mut server = Serving::start(dir, &["serve", "--addr", "unix:a.sock"]);
    let out = dir.run(&["exec", "--input", "hello", "--server", &server.address]).ok();
    server.kill();
    assert!(dir.path("mainspring.redb.holder").exists());
    crate::support::session_of(&out)
}

#[test]
fn a_store_that_was_not_closed_is_recovered_and_served() {
    let dir = Dir::new();
    let session = crashed(&dir);
    let mut command = dir.command(&["serve", "--addr", "unix:s.sock"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = stderr.next().unwrap().unwrap();
    assert!(line.starts_with("store is recovering; listening on unix:"), "{line}");
    let line = stderr.next().unwrap().unwrap();
    assert!(line.starts_with("store recovered in ") && line.ends_with(" s"), "{line}");
    let line = stdout.next().unwrap().unwrap();
    let address = line.strip_prefix("serving on ").unwrap();
    let shown = dir.run(&["get", "--session", &session, "--server", address]).ok();
    assert!(shown.contains("last_seq=5"), "{shown}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    // It is closed now: nothing is said of it.
    assert_eq!(dir.run(&["list"]).stderr, "");
}

#[test]
fn a_signal_while_the_store_recovers_ends_the_server_and_leaves_no_socket() {
    for _ in 0..5 {
        let dir = Dir::new();
        let session = crashed(&dir);
        let mut command = dir.command(&["serve", "--addr", "unix:s.sock"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        stderr.next().unwrap().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(!dir.path("s.sock").exists());
        dir.run(&["verify", "--session", &session]).ok();
    }
}

#[test]
fn a_server_that_cannot_open_its_store_leaves_nothing() {
    let dir = Dir::new();
    let foreign = dir.write("foreign", "x".repeat(10_000));
    let at = ["serve", "--addr", "unix:s.sock", "--journal"];
    let done = dir.run(&[&at[..], &[&foreign]].concat());
    assert_eq!(done.stdout, "");
    done.fails(1, "not_a_store");
    dir.run(&[&at[..], &["no/such/a.redb"]].concat()).fails(7, "its directory must exist");
    let server = Serving::start(&dir, &["serve", "--addr", "unix:t.sock"]);
    dir.run(&[&at[..], &["mainspring.redb"]].concat()).fails(7, "store_held");
    assert!(!dir.path("s.sock").exists());
    assert_eq!(server.terminate(), 0);
}
