//! Hosts that are told to stop while a tool runs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::Dir;

/// A folder with a tool that says that it runs, and then takes its time.
struct Shop {
    dir: Dir,
    tool: String,
}

const EXEC: [&str; 5] = ["exec", "--harness", "gate", "--input", "tool slow"];

impl Shop {
    fn new(seconds: u32) -> Self {
        let dir = Dir::new();
        let script = format!("echo $$ > running; sleep {seconds}; echo '{{\"ok\":true}}'\n");
        dir.write("slow.sh", script);
        Self { dir, tool: "slow=exec:sh slow.sh".to_owned() }
    }

    fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.dir.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A server, and a client whose turn is inside of the tool.
    fn served(&self, more: &[&str]) -> (Child, Child) {
        let serve = ["serve", "--addr", "unix:s.sock", "--tool", &self.tool];
        let mut server = self.spawn(&[&serve, more].concat());
        let mut line = String::new();
        let mut out = BufReader::new(server.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("serving on ").unwrap();
        // It does not wait for the next server.
        let mut client = self.dir.command(&[&EXEC, &["--server", address][..]].concat());
        client.env("MAINSPRING_CLIENT_RECONNECT_MAX", "0");
        let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.wait_for_tool();
        (server, client)
    }

    /// A command of its own host that is inside of the tool.
    fn embedded(&self, args: &[&str]) -> Child {
        let child = self.spawn(&[args, &["--tool", &self.tool]].concat());
        self.wait_for_tool();
        child
    }

    fn wait_for_tool(&self) {
        let runs = (0..12_000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            std::fs::read_to_string(self.dir.path("running")).is_ok_and(|pid| pid.ends_with('\n'))
        });
        assert!(runs, "the tool does not run");
    }

    /// The tool's process is gone, or on its way.
    #[track_caller]
    fn tool_is_gone(&self) {
        let pid = std::fs::read_to_string(self.dir.path("running")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            test_kill_process(pid).is_err() || state.contains(") Z ")
        });
        assert!(gone, "the tool {pid} survived");
        std::fs::remove_file(self.dir.path("running")).unwrap();
    }

    fn session(&self) -> String {
        let list = self.dir.run(&["list"]).ok();
        list.split('\t').next().unwrap().to_owned()
    }

    /// A resume refuses by name, and runs nothing.
    fn resume_refuses(&self) {
        let session = self.session();
        let resume = ["resume", "--session", &session, "--tool", &self.tool];
        self.dir.run(&resume).fails(5, "unanswered_tool_call");
        assert!(!self.dir.path("running").exists());
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[track_caller]
fn ends(child: Child, code: i32, says: &str) -> Output {
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(says), "{says:?} is not in: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    out
}

/// The server of a turn that nobody watches, told to stop twice.
#[test]
fn two_signals_interrupt_a_turn_that_nobody_watches() {
    let shop = Shop::new(25);
    let (server, mut client) = shop.served(&[]);
    client.kill().unwrap();
    client.wait().unwrap();
    signal(&server, Signal::TERM);
    std::thread::sleep(Duration::from_secs(1));
    signal(&server, Signal::TERM);
    ends(server, 0, "a second signal interrupts");
    shop.tool_is_gone();
    shop.resume_refuses();
}

/// When the drain is over, turns are interrupted, and who watches one is told so.
#[test]
fn a_watched_turn_that_outlasts_the_drain_is_interrupted() {
    let shop = Shop::new(60);
    let (server, client) = shop.served(&["--drain-max", "1"]);
    signal(&server, Signal::TERM);
    ends(client, 7, "[interrupted]");
    ends(server, 0, "draining");
    shop.tool_is_gone();
    shop.resume_refuses();
}

/// A turn that ends within the drain is shown to its end.
#[test]
fn a_watched_turn_that_ends_within_the_drain_is_shown() {
    let shop = Shop::new(12);
    let (server, client) = shop.served(&[]);
    signal(&server, Signal::TERM);
    let out = ends(client, 0, "");
    let shown = String::from_utf8(out.stdout).unwrap();
    assert!(shown.contains("assistant: slow: done"), "{shown}");
    ends(server, 0, "draining");
}

/// A third signal ends the server, and its tools with it.
#[test]
fn a_third_signal_ends_the_server_and_its_tools() {
    let shop = Shop::new(60);
    let (server, _client) = shop.served(&[]);
    for _ in 0..3 {
        signal(&server, Signal::TERM);
        std::thread::sleep(Duration::from_millis(500));
    }
    ends(server, 130, "they can be resumed");
    shop.tool_is_gone();
    shop.resume_refuses();
}

/// SIGTERM interrupts the turn of an embedded exec; a second interrupt leaves it. No tool stays.
#[test]
fn a_tool_does_not_survive_the_exec_that_was_told_to_stop() {
    let shop = Shop::new(60);
    let exec = shop.embedded(&EXEC);
    signal(&exec, Signal::TERM);
    ends(exec, 130, "interrupted; it can be resumed");
    shop.tool_is_gone();
    shop.resume_refuses();

    let exec = shop.embedded(&EXEC);
    signal(&exec, Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    signal(&exec, Signal::INT);
    ends(exec, 130, "left as it is; it can be resumed");
    shop.tool_is_gone();
    shop.resume_refuses();
}

/// A resume is left at once, by Ctrl-C and by SIGTERM.
#[test]
fn a_tool_does_not_survive_the_resume_that_was_told_to_stop() {
    for stop in [Signal::INT, Signal::TERM] {
        let shop = Shop::new(60);
        shop.dir.run(&EXEC).fails(5, "missing_tool_executor");
        let session = shop.session();
        let retry = ["resolve", "--session", &session, "--tool-call", "call-1", "--retry"];
        shop.dir.run(&retry).ok();
        let resume = shop.embedded(&["resume", "--session", &session]);
        signal(&resume, stop);
        ends(resume, 130, "");
        shop.tool_is_gone();
        shop.resume_refuses();
    }
}
