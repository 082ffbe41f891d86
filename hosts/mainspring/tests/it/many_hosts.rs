//! Several servers, one topic: any of them serves any session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainspring::api::{
    Descriptor, EventSink, Harness, HarnessError, Json, Mediation, Signal, Start, ToolCall,
    async_trait,
};
use mainspring::transport_grpc::{Listener, ServeOptions, serve_harness};
use serde_json::Value;
use tokio::time::Instant;

use crate::on_kafka::Topic;
use crate::support::{Done, Serving, session_of};

/// What is not over by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts its runs. With `wait` for a configuration it waits until it is let;
/// otherwise it asks for an approved tool. Then it says that it is done.
#[derive(Debug, Default)]
struct Patient {
    runs: AtomicUsize,
    go: Signal<()>,
}

#[async_trait]
impl Harness for Patient {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "patient".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        if &start.config[..] == b"wait" {
            self.go.wait().await;
        } else {
            let call = ToolCall {
                id: "c1".to_owned(),
                tool: "deploy".to_owned(),
                args: Some([("to".to_owned(), Json::from("prod"))].into()),
                mediation: Mediation::RequiresApproval,
                idempotency_key: "deploy-c1".to_owned(),
            };
            sink.tool_call(call).await?;
        }
        Ok(sink.output("done".to_owned()).await?)
    }
}

/// Three servers on one topic, and the harness that they share.
struct Hosts {
    topic: Topic,
    harness: Arc<Patient>,
    place: String,
    _runtime: tokio::runtime::Runtime,
}

impl Hosts {
    fn new() -> Option<Self> {
        let topic = Topic::new()?;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let harness = Arc::new(Patient::default());
        let address = format!("unix:{}", topic.dir.path("h.sock").display());
        let listener = runtime.block_on(Listener::bind(&address)).unwrap();
        let served = Arc::clone(&harness);
        let options = ServeOptions::default();
        runtime.spawn(serve_harness(served, listener, options, std::future::pending()));
        Some(Self { topic, harness, place: format!("patient={address}"), _runtime: runtime })
    }

    /// A server with a view of its own.
    fn serve(&self, name: &str) -> Serving {
        let (socket, view) = (format!("unix:{name}.sock"), format!("{name}.redb"));
        let args = [
            "serve",
            "--addr",
            &socket,
            "--journal",
            &self.topic.journal,
            "--kafka-view",
            &view,
            "--harness",
            &self.place,
            "--tool",
            "deploy=exec:cat",
        ];
        Serving::start(&self.topic.dir, &args)
    }

    /// Runs a command on a server.
    fn at(&self, name: &str, args: &[&str]) -> Done {
        let server = format!("unix:{}", self.topic.dir.path(&format!("{name}.sock")).display());
        self.topic.dir.run(&[args, &["--server", &server]].concat())
    }

    fn state(&self, name: &str, session: &str) -> Value {
        let shown = self.at(name, &["get", "-o", "json", "--session", session]).ok();
        serde_json::from_str(&shown).unwrap()
    }
}

#[test]
fn a_session_parked_on_one_host_is_decided_on_another_and_resumed_on_a_third() {
    let Some(hosts) = Hosts::new() else { return };
    let (mut a, _b, _c) = (hosts.serve("a"), hosts.serve("b"), hosts.serve("c"));
    let parked = hosts.at("a", &["exec", "--harness", "patient", "--input", "x"]);
    assert_eq!(parked.code, 5, "{parked:?}");
    let session = session_of(&parked.stdout);
    a.kill();
    hosts.at("b", &["approve", &session, "--no-resume"]).ok();
    let resumed = hosts.at("c", &["resume", "--session", &session]).ok();
    assert!(resumed.contains("done"), "{resumed}");
    for name in ["b", "c"] {
        let shown = hosts.at(name, &["replay", "--session", &session]).ok();
        assert!(shown.contains("done"), "{shown}");
        hosts.at(name, &["verify", "--session", &session]).ok();
    }
}

#[test]
fn a_turn_of_a_killed_host_is_taken_over_and_one_of_a_live_host_is_not() {
    let Some(hosts) = Hosts::new() else { return };
    let (mut a, _b) = (hosts.serve("a"), hosts.serve("b"));
    let args = ["exec", "--harness", "patient", "--input", "x", "--config", "wait", "--detach"];
    let session = session_of(&hosts.at("a", &args).ok());
    let runs = || hosts.harness.runs.load(Ordering::SeqCst);
    let since = Instant::now();
    while runs() == 0 {
        assert!(since.elapsed() < PATIENCE, "the turn does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Several times as long as a host may be silent.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(runs(), 1, "a healthy turn is nobody else's");
    let busy = hosts.at("b", &["exec", "--session", &session, "--input", "y"]);
    assert_eq!(busy.code, 6, "{busy:?}");

    a.kill();
    let killed = Instant::now();
    while runs() == 1 {
        assert!(killed.elapsed() < PATIENCE, "nobody goes on with the turn");
        std::thread::sleep(Duration::from_millis(10));
    }
    eprintln!("taken over {:?} after the kill", killed.elapsed());
    hosts.harness.go.set(());
    while hosts.state("b", &session)["exec_state"] != "EXEC_COMPLETED" {
        assert!(killed.elapsed() < PATIENCE, "{}", hosts.state("b", &session));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(runs(), 2, "one host went on with it");
    hosts.at("b", &["verify", "--session", &session]).ok();
}

#[test]
fn describe_says_how_durable_the_log_is_and_which_host_is_warm() {
    let Some(hosts) = Hosts::new() else { return };
    let (_a, _b) = (hosts.serve("a"), hosts.serve("b"));
    let parked = hosts.at("a", &["exec", "--harness", "patient", "--input", "x"]);
    assert_eq!(parked.code, 5, "{parked:?}");
    let session = session_of(&parked.stdout);
    let shown = hosts.at("b", &["describe", "--session", &session]).ok();
    assert!(shown.contains("\nwarm host pid/"), "{shown}");
    assert!(shown.contains("\nstore flushed\n"), "{shown}");
}
