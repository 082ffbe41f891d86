//! Turns that wait for a person: approving, denying, cancelling, resolving.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;

use mainspring::api::{
    Descriptor, EventSink, Harness, HarnessError, Json, Mediation, ModelRequest, Signal, Start,
    ToolCall, async_trait,
};
use mainspring::transport_grpc::{Listener, ServeOptions, serve_harness};
use serde_json::{Value, json};

use crate::support::{Dir, Done, Serving, records, session_of};

/// Does the steps of its configuration: `gate ID`, `tool ID`, `ask MODEL`,
/// `out TEXT`, `wait`.
#[derive(Debug)]
struct Script {
    go: Signal<()>,
}

#[async_trait]
impl Harness for Script {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "script".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let script = String::from_utf8_lossy(&start.config).into_owned();
        for step in script.split(", ") {
            match step.split_once(' ') {
                Some(("out", text)) => sink.output(text.to_owned()).await?,
                Some(("gate", id)) => call(&*sink, id, Mediation::RequiresApproval).await?,
                Some(("ask", model)) => {
                    let messages = start.inputs.clone();
                    let model = model.to_owned();
                    let request = ModelRequest { model, messages, ..ModelRequest::default() };
                    sink.model(request).await?;
                }
                Some(("tool", id)) => call(&*sink, id, Mediation::ControllerMediated).await?,
                _ => self.go.wait().await,
            }
        }
        Ok(())
    }
}

async fn call(sink: &dyn EventSink, id: &str, mediation: Mediation) -> Result<(), HarnessError> {
    let args = [("to".to_owned(), Json::from("prod\n")), ("n".to_owned(), Json::from(2.0))];
    let call = ToolCall {
        id: id.to_owned(),
        tool: "deploy".to_owned(),
        args: Some(args.into()),
        mediation,
        idempotency_key: format!("key-{id}"),
    };
    let result = sink.tool_call(call).await?;
    sink.output(if result.is_error { result.error } else { "done".to_owned() }).await?;
    Ok(())
}

/// A folder with the harness `script` beside it.
struct Scripted {
    dir: Dir,
    place: String,
    go: Signal<()>,
    _runtime: tokio::runtime::Runtime,
}

impl Scripted {
    fn new() -> Self {
        let (dir, go) = (Dir::new(), Signal::default());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let address = format!("unix:{}", dir.path("h.sock").display());
        let listener = runtime.block_on(Listener::bind(&address)).unwrap();
        let harness = Arc::new(Script { go: go.clone() });
        let options = ServeOptions::default();
        runtime.spawn(serve_harness(harness, listener, options, std::future::pending()));
        Self { dir, place: format!("script={address}"), go, _runtime: runtime }
    }

    /// Runs a command that needs the harness.
    fn run(&self, args: &[&str]) -> Done {
        self.dir.run(&[args, &["--harness-at", &self.place]].concat())
    }

    fn exec(&self, script: &str) -> Done {
        self.run(&["exec", "--harness", "script", "--input", "x", "--config", script])
    }

    /// A session that is parked on the gate `c1`.
    fn parked(&self, rest: &str) -> String {
        let done = self.exec(&format!("gate c1{rest}"));
        assert_eq!(done.code, 5, "{done:?}");
        session_of(&done.stdout)
    }

    fn get(&self, session: &str) -> Value {
        let shown = self.run(&["get", "-o", "json", "--session", session]).ok();
        serde_json::from_str(&shown).unwrap()
    }

    fn kinds(&self, session: &str) -> String {
        let shown = self.dir.run(&["replay", "-o", "json", "--session", session]).ok();
        let kinds = records(&shown).into_iter().map(|record| match &record["event"] {
            Json::Object(event) => match &event["kind"] {
                Json::String(kind) => kind.trim_start_matches("EVENT_").to_owned(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        kinds.collect::<Vec<_>>().join(" ")
    }
}

const PARKED: &str = "EXECUTION_START INPUT TOOL_CALL APPROVAL_REQUEST LIFECYCLE";

#[test]
fn a_turn_that_parks_says_what_to_do_next() {
    let world = Scripted::new();
    let done = world.exec("gate c1");
    let session = session_of(&done.stdout);
    assert!(
        done.stdout.ends_with(&format!("session {session} exec compute=COMPUTE_COLD last_seq=5\n"))
    );
    let next = format!(
        "approval of tool call \"c1\" of tool \"deploy\"; next: mainspring approve --session \
         {session} (or deny), with the --tool that runs the call"
    );
    done.fails(5, &next);
    assert_eq!(world.kinds(&session), PARKED);

    let shown = world.get(&session);
    assert_eq!(shown["exec_state"], "EXEC_AWAITING");
    let pending = &shown["pending_approval"];
    assert_eq!((&pending["tool_call_id"], &pending["request_seq"]), (&json!("c1"), &json!(4)));
    assert_eq!(pending["call"]["tool"], "deploy");
    assert_eq!(pending["call"]["args"], json!({"n": 2, "to": "prod\n"}));
    assert!(pending["call"]["digest"].as_str().unwrap().starts_with("sha256:"));
    let text = world.run(&["get", "--session", &session]).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("last_seq=5 compute=COLD exec=AWAITING"), "{text}");
    assert!(lines[1].starts_with("pending tool=deploy tool_call=c1 execution="), "{text}");
    assert_eq!(lines[2], r#"args {"n":2,"to":"prod\n"}"#);
    assert!(!text.contains("expires="), "{text}");
    let list = world.dir.run(&["list"]).ok();
    let listed =
        format!("{session}\tlast_seq=5\tcompute=COLD\tharness=script\tname=\texec=AWAITING\n");
    assert_eq!(list, listed);

    // A resume parks again, and an exec with an input is refused.
    let resumed = world.run(&["resume", "--session", &session]);
    assert!(resumed.stdout.ends_with("resume compute=COMPUTE_COLD last_seq=5\n"), "{resumed:?}");
    resumed.fails(5, "approval_parked");
    let args = ["exec", "--session", &session, "--input", "x"];
    world.run(&args).fails(5, "approval_blocked");

    let json = world.run(&[
        "exec",
        "-o",
        "json",
        "--harness",
        "script",
        "--input",
        "x",
        "--config",
        "gate c1",
    ]);
    assert_eq!(json.code, 5);
    let last: Value = serde_json::from_str(json.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["session"]["exec_state"], "EXEC_AWAITING");
    let error: Value = serde_json::from_str(json.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "approval_parked");
    assert_eq!(error["error"]["outcome"], "applied");
    assert_eq!(error["error"]["session"], last["session"]["uid"]);
}

#[test]
fn a_denied_turn_goes_on() {
    let world = Scripted::new();
    let session = world.parked(", out bye");
    let denied = world.run(&["deny", &session, "--reason", "too late", "--actor", "ann"]).ok();
    let lines: Vec<&str> = denied.lines().collect();
    assert!(lines[0].starts_with(&format!("session {session} deny tool=deploy tool_call=c1")));
    assert!(lines[0].ends_with("decision_seq=6"), "{denied}");
    assert!(denied.contains("assistant: Tool execution denied"), "{denied}");
    assert!(lines.last().unwrap().ends_with("resume compute=COMPUTE_LIVE last_seq=11"), "{denied}");
    let shown = world.dir.run(&["replay", "-o", "json", "--session", &session]).ok();
    assert!(shown.contains(r#""actor":{"principal":"ann"}"#), "{shown}");
    assert_eq!(
        world.kinds(&session),
        format!("{PARKED} APPROVAL_RESULT TOOL_RESULT OUTPUT OUTPUT END LIFECYCLE")
    );
}

/// Nothing runs the tool here: the decision is committed, and said to be.
#[test]
fn a_resume_that_fails_says_that_the_decision_is_committed() {
    let world = Scripted::new();
    let session = world.parked("");
    let failed = world.run(&["approve", "--session", &session]);
    assert!(failed.stdout.contains("decision_seq=6"), "{failed:?}");
    assert!(failed.stderr.contains("missing_tool_executor"), "{failed:?}");
    failed.fails(5, "the decision is committed at seq 6, next: mainspring resume --session");
    assert_eq!(world.kinds(&session), format!("{PARKED} APPROVAL_RESULT"));
    // The same again answers the same, and another one is refused.
    let again = world.run(&["approve", "--session", &session, "--no-resume"]);
    again.fails(5, "waits for no approval");
}

#[test]
fn a_decision_names_its_request_in_full_or_not_at_all() {
    let world = Scripted::new();
    let session = world.parked("");
    let pending = world.get(&session)["pending_approval"].clone();
    let execution = pending["execution_id"].as_str().unwrap();
    let digest = pending["call"]["digest"].as_str().unwrap();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let tuple = ["--execution", execution, "--tool-call", "c1", "--request-seq", "4"];
    let args = |more: &[&'static str]| {
        let mut args = vec!["approve", &session, "--no-resume"];
        args.extend(more);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let table: &[(Vec<String>, i32, &str)] = &[
        (args(&["--tool-call", "c1"]), 2, "--execution"),
        (args(&["--request-seq", "4"]), 2, "--execution"),
        (args(&["--execution", "0", "--tool-call", "c1"]), 2, "--request-seq"),
        (
            args(&["--execution", "0", "--tool-call", "c1", "--request-seq", "0"]),
            2,
            "--request-seq is 0",
        ),
        (
            args(&["--execution", "0", "--tool-call", "c1", "--request-seq", "4"]),
            5,
            "invalid_approval_decision",
        ),
        (args(&["--session", "sess-0"]), 2, "--session"),
        (args(&["--approval-ttl", "0"]), 2, "--approval-ttl"),
        (vec!["approve".to_owned()], 2, "UID"),
        (vec!["deny".to_owned(), "sess-0".to_owned()], 3, "session_not_found"),
        (vec!["deny".to_owned(), "a/b".to_owned()], 2, "invalid session uid"),
    ];
    for (args, code, says) in table {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = world.dir.run(&args);
        assert_eq!(done.code, *code, "{args:?}: {done:?}");
        assert!(done.stderr.contains(says), "{args:?}: {done:?}");
    }
    let approve = ["approve", &session, "--no-resume", "-o", "json"];
    world
        .run(&[&approve[..], &["--digest", &wrong]].concat())
        .fails(5, "invalid_approval_decision");
    assert_eq!(world.kinds(&session), PARKED, "nothing was recorded");
    let right = [&approve[..], &tuple, &["--digest", digest]].concat();
    let shown: Value = serde_json::from_str(&world.run(&right).ok()).unwrap();
    assert_eq!(shown["decision"]["seq"], "6");
    assert_eq!(shown["request"], pending);
    assert_eq!(shown["session"]["exec_state"], "EXEC_RUNNING");
    // In full, the same decision repeats itself; another one does not.
    let again: Value = serde_json::from_str(&world.run(&right).ok()).unwrap();
    assert_eq!(again["decision"]["hash"], shown["decision"]["hash"]);
    let other = [&["deny", &session, "--no-resume"][..], &tuple].concat();
    world.run(&other).fails(5, "invalid_approval_decision");
}

/// A parked journal is as good in another store.
#[test]
fn a_parked_session_moves_with_its_journal() {
    let world = Scripted::new();
    let session = world.parked("");
    let pending = world.get(&session)["pending_approval"].clone();
    world.dir.run(&["export", "--session", &session, "--file", "e"]).ok();
    let there = ["--journal", "there.redb"];
    world.dir.run(&[&["import", "--file", "e"], &there[..]].concat()).ok();
    let get = ["get", "-o", "json", "--session", &session];
    let shown = world.run(&[&get, &there[..]].concat()).ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["pending_approval"], pending);
    let denied = world.run(&[&["deny", &session], &there[..]].concat()).ok();
    assert!(denied.ends_with("last_seq=10\n"), "{denied}");
    world.dir.run(&[&["verify", "--session", &session], &there[..]].concat()).ok();
    assert_eq!(world.kinds(&session), PARKED, "here nothing has happened");
    let other =
        world.run(&[&["resume", "--session", &session][..], &["--journal", "no.redb"]].concat());
    other.fails(3, "journal_not_found");
}

#[test]
fn the_latest_turn_is_cancelled_wherever_it_stands() {
    let world = Scripted::new();
    let session = world.parked("");
    let canceled = world.dir.run(&["cancel", "--session", &session]).ok();
    assert_eq!(canceled, format!("session {session} cancel compute=COMPUTE_LIVE last_seq=8\n"));
    assert_eq!(world.kinds(&session), format!("{PARKED} APPROVAL_RESULT TOOL_RESULT END"));
    assert_eq!(world.get(&session)["exec_state"], "EXEC_CANCELED");
    // Again it does nothing; a turn that has ended otherwise is refused.
    world.dir.run(&["cancel", "--session", &session]).ok();
    world.dir.run(&["deny", &session]).fails(5, "waits for no approval");
    let done = session_of(&world.exec("out x").ok());
    world.dir.run(&["cancel", "--session", &done]).fails(5, "has ended at seq 4: COMPLETED");
    let of = ["cancel", "--session", &done, "--execution"];
    world.dir.run(&[&of[..], &["0123456789abcdef"]].concat()).fails(5, "not the session's latest");
    let empty = world.dir.run(&["create"]).ok();
    world.dir.run(&["cancel", "--session", empty.trim_end()]).fails(5, "has no turn");
    world.dir.run(&["cancel", "--session", "sess-0"]).fails(3, "session_not_found");
    world.dir.run(&["cancel", "--session", &done, "--reason", "boredom"]).fails(2, "--reason");
    let session = world.parked("");
    let args = ["cancel", "-o", "json", "--session", &session, "--reason", "internal"];
    let failed: Value = serde_json::from_str(&world.dir.run(&args).ok()).unwrap();
    assert_eq!(failed["exec_state"], "EXEC_FAILED");
}

/// A call without a receipt: what became of it is a person's to say.
#[test]
fn an_unknown_outcome_is_resolved() {
    let world = Scripted::new();
    let unknown = || {
        let failed = world.exec("tool c1, out bye");
        let session = session_of(&failed.stdout);
        failed.fails(5, "missing_tool_executor");
        session
    };
    let session = unknown();
    let resolve = ["resolve", "--session", &session, "--tool-call", "c1"];
    let file = world.dir.write("result", r#"{"output":{"deployed":true}}"#);
    let file = format!("@{file}");
    for (more, code, says) in [
        (&[][..], 2, "--result"),
        (&["--retry", "--failed", "x"], 2, "--retry"),
        (&["--result", "{"], 2, "--result"),
        (&["--result", "[]"], 2, "--result"),
        (&["--result", r#"{"verdict":1}"#], 2, "verdict"),
        (&["--result", r#"{"code":"EXECUTOR_ERROR"}"#], 5, "code"),
        (&["--result", r#"{"approval_request_seq":"3"}"#], 5, "receipt"),
        (&["--result", "@nowhere"], 2, "nowhere"),
        (&["--failed", "x", "--execution", "0123456789abcdef"], 5, "open turn"),
    ] {
        world.dir.run(&[&resolve[..], more].concat()).fails(code, says);
    }
    let other = ["resolve", "--session", &session, "--tool-call", "c2", "--failed", "x"];
    world.dir.run(&other).fails(5, "does not wait");
    let nobody = ["resolve", "--session", "sess-0", "--tool-call", "c1", "--retry"];
    world.dir.run(&nobody).fails(3, "session_not_found");
    let done = world.dir.run(&[&resolve[..], &["--result", &file]].concat());
    assert!(done.stderr.contains(&format!("mainspring resume --session {session}")), "{done:?}");
    assert!(done.ok().ends_with("resolve compute=COMPUTE_LIVE last_seq=5\n"));
    let resumed = world.run(&["resume", "--session", &session]).ok();
    assert!(resumed.contains("assistant: done") && resumed.contains("assistant: bye"), "{resumed}");

    let session = unknown();
    let failed = ["resolve", "-o", "json", "--session", &session, "--tool-call", "c1"];
    world.dir.run(&[&failed[..], &["--failed", "it was down"]].concat()).ok();
    let resumed = world.run(&["resume", "--session", &session]).ok();
    assert!(resumed.contains("assistant: it was down"), "{resumed}");
}

/// The same over a server.
#[test]
fn people_decide_over_a_server() {
    let world = Scripted::new();
    let serve = ["serve", "--addr", "127.0.0.1:0", "--harness", &world.place];
    let server = Serving::start(&world.dir, &serve);
    let run = |args: &[&str]| world.dir.run(&[args, &["--server", &server.address]].concat());
    let exec = ["exec", "--harness", "script", "--input", "x", "--config", "gate c1, out bye"];
    let parked = run(&exec);
    let session = session_of(&parked.stdout);
    parked.fails(5, &format!("approve --session {session} --server {}", server.address));
    let shown: Value =
        serde_json::from_str(&run(&["get", "-o", "json", "--session", &session]).ok()).unwrap();
    assert_eq!(shown["pending_approval"]["call"]["tool"], "deploy");
    assert!(run(&["list"]).ok().ends_with("\texec=AWAITING\n"));
    let denied = run(&["deny", &session, "--actor", "ann"]).ok();
    assert!(denied.ends_with("resume compute=COMPUTE_LIVE last_seq=11\n"), "{denied}");
    let parked = session_of(&run(&exec).stdout);
    run(&["cancel", "--session", &parked]).ok();
    run(&["resume", "--session", &parked]).ok();
    run(&["deny", &parked, "--harness-at", "x=unix:y"]).fails(2, "--harness-at");
    run(&["resume", "--session", &parked, "--tool", "a=exec:b"]).fails(2, "--tool");
    let expiring = run(&[&exec[..], &["--approval-ttl", "3600"]].concat());
    let expiring = session_of(&expiring.stdout);
    let records = run(&["replay", "-o", "json", "--session", &expiring]).ok();
    assert!(records.contains("\"expires\":\""), "{records}");
    assert_eq!(server.terminate(), 0);
}

/// A request that expires while its host is there is denied, and its turn goes on.
#[test]
fn a_served_request_expires() {
    let world = Scripted::new();
    let serve = ["serve", "--addr", "127.0.0.1:0", "--harness", &world.place];
    let server = Serving::start(&world.dir, &[&serve[..], &["--approval-ttl", "1"]].concat());
    let run = |args: &[&str]| world.dir.run(&[args, &["--server", &server.address]].concat());
    let exec = ["exec", "--harness", "script", "--input", "x", "--config", "gate c1"];
    let session = session_of(&run(&exec).stdout);
    let get = || run(&["get", "-o", "json", "--session", &session]).ok();
    let done = (0..2_000).map(|_| get()).find(|shown| shown.contains("EXEC_COMPLETED"));
    assert!(done.is_some(), "{}", get());
    let records = run(&["replay", "-o", "json", "--session", &session]).ok();
    assert!(records.contains(r#""reason":"expired""#), "{records}");
    assert!(records.contains("mainspring/expiry"), "{records}");
}

/// An exec that has shown a record of this kind, at which its turn waits.
fn waiting(world: &Scripted, script: &str, kind: &str, more: &[&str]) -> (Child, String) {
    let exec = ["exec", "-o", "json", "--harness", "script", "--input", "x", "--config", script];
    let mut command = world.dir.command(&[&exec[..], more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut session = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next().expect("it goes on").unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        if let Some(uid) = value["session"]["uid"].as_str() {
            session = uid.to_owned();
        }
        if line.contains(kind) {
            break;
        }
    }
    // The rest is read to its end, so that the command can write.
    std::thread::spawn(move || lines.for_each(drop));
    (child, session)
}

const WAIT: &str = "out begun, wait";

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn an_interrupted_exec_cancels_its_turn() {
    let world = Scripted::new();
    let (child, session) = waiting(&world, WAIT, "EVENT_OUTPUT", &["--harness-at", &world.place]);
    interrupt(&child);
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(world.get(&session)["exec_state"], "EXEC_CANCELED");

    let serve = ["serve", "--addr", "127.0.0.1:0", "--harness", &world.place];
    let server = Serving::start(&world.dir, &[&serve[..], &["--journal", "s.redb"]].concat());
    let (child, session) = waiting(&world, WAIT, "EVENT_OUTPUT", &["--server", &server.address]);
    interrupt(&child);
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", String::from_utf8_lossy(&out.stderr));
    let get = ["get", "-o", "json", "--session", &session, "--server", &server.address];
    assert!(world.dir.run(&get).ok().contains("EXEC_CANCELED"));
}

/// The second interrupt leaves the turn: in this process it can be resumed.
#[test]
fn a_second_interrupt_leaves_the_turn() {
    let world = Scripted::new();
    // A model that never answers has a grace, in which the second one comes.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let more = ["--harness-at", &world.place, "--model", "m", "--model-base-url", &url];
    let (mut child, session) = waiting(&world, "ask echo, out x", "EVENT_MODEL_CALL", &more);
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    interrupt(&child);
    let note = stderr.next().unwrap().unwrap();
    assert!(note.contains("cancelling"), "{note}");
    interrupt(&child);
    let rest: Vec<String> = stderr.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert_eq!(world.get(&session)["exec_state"], "EXEC_RUNNING", "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("it can be resumed")), "{rest:?}");
    world.run(&["resume", "--session", &session]).ok();
    assert_eq!(world.get(&session)["exec_state"], "EXEC_COMPLETED");
}

/// A server that is told to stop twice interrupts its turns, and they go on elsewhere.
#[test]
fn a_stopped_server_interrupts_its_turns() {
    let world = Scripted::new();
    // A client that does not wait for the next server.
    world.dir.write("mainspring.toml", "[client]\nreconnect_max = 0\n");
    let serve = ["serve", "--addr", "127.0.0.1:0", "--harness", &world.place];
    let server = Serving::start(&world.dir, &serve);
    let (child, session) = waiting(&world, WAIT, "EVENT_OUTPUT", &["--server", &server.address]);
    server.signal();
    let create = || world.dir.run(&["create", "--server", &server.address]).code;
    assert!((0..2_000).any(|_| create() == 7), "it drains");
    assert_eq!(server.terminate(), 0);
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(7), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(world.kinds(&session), "EXECUTION_START INPUT OUTPUT");
    world.go.set(());
    world.run(&["resume", "--session", &session]).ok();
    assert_eq!(world.get(&session)["exec_state"], "EXEC_COMPLETED");
}
