//! `kill -9` of a host at every durable write of a turn.
//!
//! The host is this test binary, started again with an environment that names
//! a cut point. Its store hangs there, it says so, and it is killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring::api::{
    Caller, Descriptor, EventSink, ExecRequest, Harness, HarnessError, Message, ModelError,
    ModelProvider, ModelReply, ModelRequest, RequestId, ResumeRequest, SessionUid, Sessions as _,
    Start, ToolResult, async_trait,
};
use mainspring::eventlog::EventLog;
use mainspring::runtime_local::{ChildSpec, LocalRuntime};
use mainspring::transport_grpc::GrpcConnector;
use mainspring::{HostBuilder, Stores};
use mainspring_testkit::{CutMode, CutPoint, CutStore};

use crate::support::{BINARY, Dir};

const ROLE: &str = "CRASH_ROLE";

/// Model, usage, output, report, model: every effect of this version.
#[derive(Debug)]
struct Script;

#[async_trait]
impl Harness for Script {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "script".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let ask = |text: &str| ModelRequest {
            model: "echo".to_owned(),
            messages: vec![Message::user(text)],
            ..ModelRequest::default()
        };
        let first = sink.model(ask(&start.inputs[0].plain_text())).await?;
        sink.usage(first.usage).await?;
        sink.output("between".to_owned()).await?;
        sink.report(ToolResult { id: "t1".to_owned(), ..ToolResult::default() }).await?;
        sink.model(ask(&first.message.plain_text())).await?;
        Ok(())
    }
}

/// Answers, and leaves a line for each call in a file that outlives the process.
#[derive(Debug)]
struct Ledger(std::path::PathBuf);

#[async_trait]
impl ModelProvider for Ledger {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let text = request.messages.last().map(Message::plain_text).unwrap_or_default();
        let mut ledger = std::fs::read_to_string(&self.0).unwrap_or_default();
        ledger.push_str(&text);
        ledger.push('\n');
        std::fs::write(&self.0, ledger).unwrap();
        let usage = mainspring::api::Usage { input_tokens: 3, ..Default::default() };
        Ok(ModelReply { message: Message::assistant(format!("re:{text}")), usage })
    }
}

fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("test").unwrap())
}

/// The host process: runs or resumes a turn, with the store stopping where it is told.
async fn host(role: &str) {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let log = Stores::with_defaults().open(&var("JOURNAL"), Default::default()).unwrap();
    let cut = match var("CUT").as_str() {
        "" => Arc::new(CutStore::counting(log)),
        point => {
            let point: CutPoint = point.parse().unwrap();
            Arc::new(CutStore::new(log, point, CutMode::Hang))
        }
    };
    let watch = Arc::clone(&cut);
    let watching = tokio::spawn(async move {
        while !watch.reached() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        eprintln!("cut reached");
    });
    let log: Arc<dyn EventLog> = Arc::clone(&cut) as _;
    let runtime = match var("CHILD").as_str() {
        "" => LocalRuntime::builder().built_in("script", Arc::new(Script)),
        mark => {
            let spec = ChildSpec::new(BINARY).args(["harness", "serve", "--kind", "echo"]);
            LocalRuntime::builder().child("script", spec.env("HARNESS_MARK", mark))
        }
    };
    let host = HostBuilder::new(log)
        .model(Arc::new(Ledger(var("LEDGER").into())))
        .grpc(Arc::new(GrpcConnector::default()))
        .harness("script", Arc::new(runtime.build().unwrap()))
        .build()
        .unwrap();
    let uid = SessionUid::new(&var("SESSION")).unwrap();
    let mut stream = if role == "exec" {
        let request = ExecRequest {
            session: Some(uid),
            harness: "script".to_owned(),
            inputs: vec![Message::user("hi")],
            ..ExecRequest::default()
        };
        host.service().exec(&caller(), request).await.unwrap()
    } else {
        host.service()
            .resume(&caller(), ResumeRequest { session: uid, approval_ttl: None })
            .await
            .unwrap()
    };
    while let Some(update) = stream.next().await {
        update.unwrap();
    }
    host.close().await;
    for point in cut.points() {
        println!("point {point}");
    }
    watching.abort();
}

/// A harness that describes itself and dies when it is run.
#[derive(Debug)]
struct Dying;

#[async_trait]
impl Harness for Dying {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "dying".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, _start: Start, _sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        std::process::exit(9)
    }
}

/// A harness process, as a host starts it.
async fn dying_harness() {
    use mainspring::transport_grpc::{Listener, ServeOptions, serve_harness};
    let address = std::env::var("HARNESS_ADDR").unwrap();
    let listener = Listener::bind(&address).await.unwrap();
    let options = ServeOptions::default();
    serve_harness(Arc::new(Dying), listener, options, std::future::pending()).await.unwrap();
}

/// Started by the tests below as a process of its own; otherwise it does nothing.
#[test]
fn crash_host() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match role.as_str() {
        "dying" => runtime.block_on(dying_harness()),
        role => runtime.block_on(host(role)),
    }
}

struct Run<'a> {
    dir: &'a Dir,
    journal: String,
    session: &'a str,
}

impl Run<'_> {
    fn command(&self, role: &str, cut: &str, child: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "crash::crash_host", "--nocapture"])
            .env(ROLE, role)
            .env("JOURNAL", self.dir.path(&self.journal))
            .env("LEDGER", self.dir.path(&format!("{}.ledger", self.journal)))
            .env("SESSION", self.session)
            .env("CUT", cut)
            .env("CHILD", child)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs until the cut, then kills with signal 9. Returns whether it was reached.
    fn kill_at(&self, role: &str, cut: &str, child: &str) -> bool {
        let mut host = self.command(role, cut, child).spawn().unwrap();
        let reached = BufReader::new(host.stderr.take().unwrap())
            .lines()
            .any(|line| line.unwrap() == "cut reached");
        host.kill().unwrap();
        host.wait().unwrap();
        reached
    }

    fn finish(&self, role: &str) -> String {
        let mut host = self.command(role, "", "").spawn().unwrap();
        let mut out = String::new();
        host.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let mut err = String::new();
        host.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(host.wait().unwrap().success(), "{}: {out}{err}", self.journal);
        out
    }

    fn records(&self) -> String {
        let args = ["replay", "--session", self.session, "--journal", &self.journal];
        self.dir.run(&args).ok()
    }

    fn ledger(&self) -> Vec<String> {
        let path = self.dir.path(&format!("{}.ledger", self.journal));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A session in a journal of its own, copied for each run.
fn prepared(dir: &Dir) -> String {
    let session = dir.run(&["create", "--journal", "base.redb"]).ok().trim_end().to_owned();
    assert!(Path::new(&dir.path("base.redb")).exists());
    session
}

fn run<'a>(dir: &'a Dir, session: &'a str, name: &str) -> Run<'a> {
    let journal = format!("{name}.redb");
    std::fs::copy(dir.path("base.redb"), dir.path(&journal)).unwrap();
    Run { dir, journal, session }
}

/// Each cut ends in a finished turn; no model call that was answered is made
/// again; the chain holds.
#[test]
fn killed_at_every_write_a_turn_is_finished_by_resume() {
    let dir = Dir::new();
    let session = prepared(&dir);
    let whole = run(&dir, &session, "whole");
    let points = whole.finish("exec");
    let cuts: Vec<&str> = points
        .lines()
        .filter_map(|line| line.strip_prefix("point "))
        .filter(|point| point.contains("append") || point.contains("mint"))
        .collect();
    let kinds = |records: &str| -> Vec<String> {
        records
            .lines()
            .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
            .filter(|kind| kind != "EVENT_LIFECYCLE")
            .collect()
    };
    let expected = kinds(&whole.records());
    assert_eq!(expected.len(), 10, "{expected:?}");
    assert!(cuts.len() >= 18, "{cuts:?}");
    for cut in cuts {
        let this = run(&dir, &session, cut);
        assert!(this.kill_at("exec", cut, ""), "{cut} was not reached");
        let before = kinds(&this.records());
        let answered = before.iter().filter(|kind| *kind == "EVENT_OUTPUT").count();
        let calls_before = this.ledger().len();
        this.finish("resume");
        let after = kinds(&this.records());
        if before.is_empty() {
            assert!(after.is_empty(), "{cut}: there was no turn to resume: {after:?}");
            continue;
        }
        assert_eq!(after, expected, "{cut}");
        // "between" is an output that no model gave.
        let unanswered = 2 - answered.min(1) - usize::from(answered == 3);
        let calls = this.ledger().len() - calls_before;
        let ended = before.iter().any(|kind| kind == "EVENT_END");
        assert_eq!(calls, if ended { 0 } else { unanswered }, "{cut}: calls of the resume");
        let verified = ["verify", "--session", &session, "--journal", &this.journal];
        dir.run(&verified).ok();
    }
}

/// A child harness ends with its host, also when the host is killed.
#[test]
fn no_harness_process_is_left_over() {
    let dir = Dir::new();
    let session = prepared(&dir);
    for cut in ["after-append-1", "before-append-2", "after-append-2", "before-append-4"] {
        let mark = format!("{}-{cut}", std::process::id());
        let this = run(&dir, &session, &format!("child-{cut}"));
        assert!(this.kill_at("exec", cut, &mark), "{cut} was not reached");
        let needle = format!("HARNESS_MARK={mark}");
        let left = || {
            std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
                std::fs::read(process.path().join("environ"))
                    .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v == needle.as_bytes()))
            })
        };
        // It notices by its closed standard input; each look takes a while.
        let gone = (0..2_000).any(|_| !left());
        assert!(gone, "{cut}: a harness process is left over");
    }
}

/// It fails the turn, by name, and the session goes on with a better harness.
#[test]
fn a_harness_that_describes_itself_and_dies_fails_its_turn() {
    let dir = Dir::new();
    let test = std::env::current_exe().unwrap();
    let test = test.to_str().unwrap();
    let place = format!("h=exec:env {ROLE}=dying '{test}' --exact crash::crash_host --nocapture");
    let session = dir.exec("hello");
    let exec = ["exec", "--session", &session, "--input", "x", "--harness", "h"];
    let done = dir.run(&[&exec[..], &["--harness-at", &place]].concat());
    done.fails(1, "harness_failed");
    let done = dir.run(&[&exec[..], &["--harness-at", &place, "-o", "json"]].concat());
    let error: serde_json::Value =
        serde_json::from_str(done.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["outcome"], "applied", "its records are in the journal");
    let records = dir.run(&["replay", "--session", &session]).ok();
    let last = records.lines().last().unwrap();
    assert!(last.starts_with("seq=11  EVENT_ERROR  harness unavailable"), "{records}");
    dir.run(&["verify", "--session", &session]).ok();
    dir.run(&["exec", "--session", &session, "--input", "y"]).ok();
}
