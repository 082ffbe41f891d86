//! `kill -9` of a host at every durable write of a turn with tools and approvals.
//!
//! As in `crash`, the host is this test binary, started again with an
//! environment that names a cut point. What its tools did is in a file that
//! outlives it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring::HostBuilder;
use mainspring::api::{
    ApproveRequest, Caller, Classify as _, Descriptor, EventSink, ExecRequest, ExecState, Harness,
    HarnessError, Mediation, Message, ModelRequest, RequestId, Resolution, ResolveRequest,
    ResumeRequest, SessionUid, Sessions, Start, ToolCall, ToolError, ToolExecutor, ToolResult,
    ToolScope, async_trait,
};
use mainspring::eventlog::{EventLog, Level};
use mainspring::runtime_local::LocalRuntime;
use mainspring_testkit::{CutMode, CutPoint, CutStore};

use crate::support::Dir;

const ROLE: &str = "CRASH_TOOLS_ROLE";

/// A model call, a tool that may be repeated, a gate that is approved, a tool
/// that may not be repeated, and a gate that is denied.
#[derive(Debug)]
struct Script;

fn call(id: &str, tool: &str, mediation: Mediation) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        tool: tool.to_owned(),
        args: None,
        mediation,
        idempotency_key: format!("key-{id}"),
    }
}

#[async_trait]
impl Harness for Script {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "script".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, _: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let messages = vec![Message::user("what to do?")];
        sink.model(ModelRequest { messages, ..ModelRequest::default() }).await?;
        sink.tool_call(call("c1", "search", Mediation::ControllerMediated)).await?;
        sink.tool_call(call("c2", "refund", Mediation::RequiresApproval)).await?;
        sink.tool_call(call("c3", "mail", Mediation::ControllerMediated)).await?;
        sink.tool_call(call("c4", "wipe", Mediation::RequiresApproval)).await?;
        Ok(())
    }
}

const WHOLE: [&str; 17] = [
    "EXECUTION_START",
    "INPUT",
    "MODEL_CALL",
    "OUTPUT",
    "TOOL_CALL",
    "TOOL_RESULT",
    "TOOL_CALL",
    "APPROVAL_REQUEST",
    "APPROVAL_RESULT",
    "TOOL_RESULT",
    "TOOL_CALL",
    "TOOL_RESULT",
    "TOOL_CALL",
    "APPROVAL_REQUEST",
    "APPROVAL_RESULT",
    "TOOL_RESULT",
    "END",
];

/// Leaves a line for each start in a file, and waits there a little, so that a
/// host can be killed while its tool runs.
#[derive(Debug)]
struct FileTools(PathBuf);

#[async_trait]
impl ToolExecutor for FileTools {
    async fn execute(&self, _: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        let mut ledger =
            std::fs::OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
        writeln!(ledger, "{}", call.idempotency_key).unwrap();
        Ok(ToolResult::default())
    }

    fn is_repeatable(&self, tool: &str) -> bool {
        tool == "search"
    }

    fn offers(&self, _: &str) -> bool {
        true
    }
}

fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("test").unwrap())
}

/// Does whatever the session asks for next, until its turn has ended.
async fn drive(service: &dyn Sessions, log: &dyn EventLog, uid: &SessionUid) {
    loop {
        let session = service.get(&caller(), uid).await.unwrap();
        if session.exec_state == ExecState::Completed {
            return;
        }
        if let Some(approval) = session.pending_approval {
            let request = ApproveRequest {
                session: uid.clone(),
                approved: approval.tool_call_id == "c2",
                approval,
                reason: "as the test says".to_owned(),
                identity: None,
                digest: None,
            };
            service.approve(&caller(), request).await.unwrap();
        }
        let started = session.exec_state != ExecState::Pending;
        let mut stream = if started {
            let request = ResumeRequest { session: uid.clone(), approval_ttl: None };
            service.resume(&caller(), request).await.unwrap()
        } else {
            let request = ExecRequest {
                session: Some(uid.clone()),
                harness: "script".to_owned(),
                inputs: vec![Message::user("go")],
                ..ExecRequest::default()
            };
            service.exec(&caller(), request).await.unwrap()
        };
        while let Some(update) = stream.next().await {
            if let Err(error) = update {
                assert_eq!(error.code(), "unanswered_tool_call", "{error}");
                println!("unknown");
                resolve(service, log, uid).await;
            }
        }
    }
}

/// A person looks into the tools' ledger, and says what is in there.
async fn resolve(service: &dyn Sessions, log: &dyn EventLog, uid: &SessionUid) {
    let row = log.get(uid, Level::Committed).await.unwrap();
    let latest = row.view.latest.unwrap();
    let tool_call_id = match latest.gate.filter(|gate| gate.receipt.is_none()) {
        Some(gate) => gate.call_id,
        None => "c3".to_owned(),
    };
    let ledger = std::fs::read_to_string(std::env::var("LEDGER").unwrap()).unwrap_or_default();
    let happened = ledger.lines().any(|line| line == format!("key-{tool_call_id}"));
    let resolution = match happened {
        true => Resolution::Result(Box::default()),
        false => Resolution::Retry,
    };
    let session = uid.clone();
    let execution_id = latest.id;
    let request = ResolveRequest { session, execution_id, tool_call_id, resolution };
    service.resolve(&caller(), request).await.unwrap();
}

async fn host() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let log =
        mainspring::Stores::with_defaults().open(&var("JOURNAL"), Default::default()).unwrap();
    let cut = Arc::new(match var("CUT").as_str() {
        "" => CutStore::counting(log),
        point => CutStore::new(log, point.parse::<CutPoint>().unwrap(), CutMode::Hang),
    });
    let watch = Arc::clone(&cut);
    let watching = tokio::spawn(async move {
        while !watch.reached() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        eprintln!("cut reached");
    });
    let log: Arc<dyn EventLog> = Arc::clone(&cut) as _;
    let runtime = LocalRuntime::builder().built_in("script", Arc::new(Script)).build().unwrap();
    let host = HostBuilder::new(Arc::clone(&log))
        .tools(Arc::new(FileTools(var("LEDGER").into())))
        .harness("script", Arc::new(runtime))
        .build()
        .unwrap();
    let uid = SessionUid::new(&var("SESSION")).unwrap();
    drive(host.service(), &*log, &uid).await;
    host.close().await;
    for point in cut.points() {
        println!("point {point}");
    }
    watching.abort();
}

/// Started by the test below as a process of its own; otherwise it does nothing.
#[test]
fn crash_tools_host() {
    if std::env::var(ROLE).is_ok() {
        tokio::runtime::Runtime::new().unwrap().block_on(host());
    }
}

struct Run<'a> {
    dir: &'a Dir,
    journal: String,
    session: &'a str,
}

impl<'a> Run<'a> {
    /// A journal of its own, copied from the prepared one.
    fn new(dir: &'a Dir, session: &'a str, name: &str) -> Self {
        let journal = format!("{name}.redb");
        std::fs::copy(dir.path("base.redb"), dir.path(&journal)).unwrap();
        Self { dir, journal, session }
    }

    fn spawn(&self, cut: &str) -> std::process::Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash_tools::crash_tools_host", "--nocapture"])
            .env(ROLE, "host")
            .env("JOURNAL", self.dir.path(&self.journal))
            .env("LEDGER", self.dir.path(&format!("{}.ledger", self.journal)))
            .env("SESSION", self.session)
            .env("CUT", cut)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn kill_at(&self, cut: &str) {
        let mut host = self.spawn(cut);
        let reached = BufReader::new(host.stderr.take().unwrap())
            .lines()
            .any(|line| line.unwrap() == "cut reached");
        host.kill().unwrap();
        host.wait().unwrap();
        assert!(reached, "{cut} was not reached");
    }

    fn finish(&self) -> String {
        let mut host = self.spawn("");
        let (mut out, mut err) = (String::new(), String::new());
        host.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        host.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(host.wait().unwrap().success(), "{}: {out}{err}", self.journal);
        out
    }

    /// The kinds of the session's records, without those of its compute.
    fn kinds(&self) -> Vec<String> {
        let args = ["replay", "--session", self.session, "--journal", &self.journal];
        let records = self.dir.run(&args).ok();
        let kinds = records.lines().map(|line| line.split_whitespace().nth(1).unwrap());
        let kinds = kinds.map(|kind| kind.trim_start_matches("EVENT_").to_owned());
        kinds.filter(|kind| kind != "LIFECYCLE").collect()
    }

    fn ledger(&self) -> Vec<String> {
        let path = self.dir.path(&format!("{}.ledger", self.journal));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Each cut ends in a finished turn; what may not be repeated was started once.
#[test]
fn killed_at_every_write_a_turn_with_tools_is_finished() {
    let dir = Dir::new();
    let create = dir.run(&["create", "--journal", "base.redb"]).ok();
    let session = create.trim_end();
    let whole = Run::new(&dir, session, "whole");
    let out = whole.finish();
    assert_eq!(whole.kinds(), WHOLE);
    assert_eq!(whole.ledger(), ["key-c1", "key-c2", "key-c3"]);
    let cuts: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("point ")).collect();
    // Appends of the turn, of its parks and its return, and the start of the approved call.
    let count = |op: &str| cuts.iter().filter(|cut| cut.contains(op)).count();
    assert!(count("append") >= 2 * 17 && count("annotate") >= 2, "{cuts:?}");
    let mut unknown = 0;
    for cut in cuts.iter().filter(|cut| cut.contains("append") || cut.contains("annotate")) {
        let this = Run::new(&dir, session, cut);
        this.kill_at(cut);
        let before = this.ledger();
        let out = this.finish();
        assert_eq!(this.kinds(), WHOLE, "{cut}");
        let mut ledger = this.ledger();
        let searches = ledger.iter().filter(|key| *key == "key-c1").count();
        assert!((1..=2).contains(&searches), "{cut}: {before:?}, then {ledger:?}");
        ledger.retain(|key| key != "key-c1");
        assert_eq!(ledger, ["key-c2", "key-c3"], "{cut}: after {before:?}");
        unknown += out.lines().filter(|line| *line == "unknown").count();
        dir.run(&["verify", "--session", session, "--journal", &this.journal]).ok();
    }
    // Between the start of each of the two and its receipt, and around the note and the intent.
    assert!(unknown >= 4, "{unknown} cuts left a call unknown");
}
