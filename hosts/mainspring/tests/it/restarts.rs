//! A server that is killed in a turn and started again, and those who watch it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::support::{Dir, Serving};

/// Writes a line when it begins, and ends when there is a file `go`.
const TOOL: &str = "cat > /dev/null\necho $$ >> running\nn=0\n\
                    while [ ! -e go ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done\n\
                    echo '{\"ok\":true}'\n";

const TURN: [&str; 5] = ["exec", "--harness", "gate", "--input", "tool slow"];

/// A folder with a server whose tool waits; it can be run again.
struct Shop {
    dir: Dir,
    at: String,
}

impl Shop {
    fn new(at: &str) -> (Self, Serving) {
        let dir = Dir::new();
        dir.write("slow.sh", TOOL);
        let mut this = Self { dir, at: at.to_owned() };
        let server = this.serve();
        // The next server listens where this one does.
        this.at.clone_from(&server.address);
        (this, server)
    }

    fn serve(&self) -> Serving {
        let tool = "slow=exec:sh slow.sh,durable";
        Serving::start(&self.dir, &["serve", "--addr", &self.at, "--tool", tool])
    }

    /// Runs a command until it has shown so many lines.
    fn watch(&self, args: &[&str], lines: usize) -> Watch {
        let mut command = self.dir.command(&[args, &["--server", &self.at]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        for _ in 0..lines {
            assert!(stdout.read_line(&mut shown).unwrap() > 0, "{args:?} ended: {shown}");
        }
        Watch { child, stdout, shown }
    }

    /// Waits until the tool was begun this often.
    fn wait_for_tool(&self, times: usize) {
        let runs = (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(25));
            std::fs::read_to_string(self.dir.path("running"))
                .is_ok_and(|running| running.lines().count() >= times)
        });
        assert!(runs, "the tool was not begun {times} times");
    }

    fn replayed(&self, session: &str) -> String {
        self.dir.run(&["replay", "--session", session, "--server", &self.at]).ok()
    }
}

/// A command that runs, and what it has shown.
struct Watch {
    child: Child,
    stdout: BufReader<ChildStdout>,
    shown: String,
}

impl Watch {
    /// It said that it was cut off, ended well, and showed these lines.
    #[track_caller]
    fn ended(mut self) -> String {
        self.stdout.read_to_string(&mut self.shown).unwrap();
        let out = self.child.wait_with_output().unwrap();
        let stderr = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("mainspring: reconnecting (1)\n"), "{stderr}");
        assert!(stderr.contains("mainspring: reconnected\n"), "{stderr}");
        self.shown
    }
}

fn a_restart_is_not_noticed(at: &str) {
    let (shop, mut server) = Shop::new(at);
    let created = ["create", "--harness", "gate", "--server", &shop.at];
    let session = shop.dir.run(&created).ok().trim_end().to_owned();
    let on = ["--session", session.as_str()];
    // Start, input, call.
    let exec = shop.watch(&[&TURN[..], &on].concat(), 3);
    let follow = shop.watch(&[&["follow", "--until-idle"], &on[..]].concat(), 3);
    let late = shop.watch(&[&["follow", "--until-idle", "--after", "2"], &on[..]].concat(), 1);
    shop.wait_for_tool(1);
    server.kill();
    let server = shop.serve();
    // The turn goes on by itself.
    shop.wait_for_tool(2);
    shop.dir.write("go", "");
    let (executed, followed, late) = (exec.ended(), follow.ended(), late.ended());
    let replayed = shop.replayed(&session);
    assert!(replayed.contains("slow: done"), "{replayed}");
    let rest: Vec<_> = replayed.split_inclusive('\n').skip(2).collect();
    // What follows the turn's end may be shown too, and the session as it is then.
    let whole = |shown: &str, of: &str| {
        let records = shown.split_inclusive('\n').filter(|line| line.starts_with("seq="));
        let records: String = records.collect();
        assert!(of.starts_with(&records) && records.contains("EVENT_END"), "{shown}\n{of}");
    };
    whole(&executed, &replayed);
    whole(&followed, &replayed);
    whole(&late, &rest.concat());
    let starts = replayed.matches("EVENT_EXECUTION_START").count();
    assert_eq!(starts, 1, "{replayed}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn exec_and_follow_outlive_a_killed_server_over_tcp() {
    a_restart_is_not_noticed("127.0.0.1:0");
}

#[test]
fn exec_and_follow_outlive_a_killed_server_over_a_socket() {
    a_restart_is_not_noticed("unix:s.sock");
}
