//! Why a session stands still, and that the command which is advised gets it going.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{BINARY, Dir, Done, Serving};

/// The tools `slow`, which nobody may run twice, and `again`, which anybody may.
const SETTINGS: &str = "addr = \"unix:s.sock\"\nresume_interrupted = false\n\
                        tool = [\"refund=exec:sh refund.sh\", \"slow=exec:sh slow.sh\", \
                        \"again=exec:sh slow.sh,durable\"]\n";

const QUICK: &str = "cat > /dev/null\necho '{\"ok\":true}'\n";
/// Says that it runs, and ends when there is a file `go`.
const SLOW: &str = "cat > /dev/null\necho $$ > running\nn=0\n\
                    while [ ! -e go ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done\n\
                    echo '{\"ok\":true}'\n";

/// Where commands work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Embedded,
    Served,
}

const MODES: [Mode; 2] = [Mode::Embedded, Mode::Served];

struct Place {
    dir: Dir,
    server: Option<Serving>,
}

impl Place {
    fn new(mode: Mode) -> Self {
        let dir = Dir::new();
        dir.write("mainspring.toml", SETTINGS);
        dir.write("refund.sh", QUICK);
        dir.write("slow.sh", SLOW);
        let server = (mode == Mode::Served).then(|| Serving::start(&dir, &["serve"]));
        Self { dir, server }
    }

    fn placed<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let mut placed = args.to_vec();
        if let Some(server) = &self.server {
            placed.extend(["--server", &server.address]);
        }
        placed
    }

    fn run(&self, args: &[&str]) -> Done {
        self.dir.run(&self.placed(args))
    }

    fn created(&self) -> String {
        self.run(&["create", "--name", "n", "--harness", "gate"]).ok().trim_end().to_owned()
    }

    fn exec(&self, session: &str, input: &str) -> Done {
        self.run(&["exec", "--session", session, "--input", input])
    }

    /// A turn that is inside of its tool.
    fn begun(&self, session: &str, input: &str) -> Child {
        let exec = self.placed(&["exec", "--session", session, "--input", input]);
        let mut command = self.dir.command(&exec);
        command.env("MAINSPRING_CLIENT_RECONNECT_MAX", "0");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let runs = (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(25));
            let running = std::fs::read_to_string(self.dir.path("running"));
            running.is_ok_and(|pid| pid.ends_with('\n'))
        });
        assert!(runs, "the tool does not run");
        child
    }

    /// A session whose host was killed inside of a tool, on a host that was
    /// started again.
    fn cut(mode: Mode, input: &str) -> (Self, String) {
        let mut place = Self::new(mode);
        let session = place.created();
        let mut client = place.begun(&session, input);
        match &mut place.server {
            Some(server) => server.kill(),
            None => client.kill().unwrap(),
        }
        client.wait().unwrap();
        let pid = std::fs::read_to_string(place.dir.path("running")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        place.dir.write("slow.sh", QUICK);
        if place.server.is_some() {
            place.server = Some(Serving::start(&place.dir, &["serve"]));
        }
        (place, session)
    }

    /// The text, with what differs from run to run replaced.
    fn described(&self, session: &str) -> String {
        let text = self.run(&["describe", "--session", session]).ok();
        let turn = text.lines().find_map(|line| line.strip_prefix("turn ")).map(str::to_owned);
        let mut text = text.replace(session, "UID");
        if let Some(turn) = turn {
            text = text.replace(&turn, "TURN");
        }
        let lines = text.lines().map(|line| {
            let holder = line.starts_with("holder ");
            let words = line.split(' ').enumerate().map(|(at, word)| match word.split_once('=') {
                Some((name @ ("since" | "digest"), _)) => format!("{name}=X"),
                _ if holder && at == 1 && line != "holder none yet" => "X".to_owned(),
                _ => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        });
        // Where the command works is the same everywhere, and told once.
        let at = self.server.as_ref().map(|server| format!(" --server {}", server.address));
        let text = lines.collect::<Vec<_>>().join("\n");
        at.map_or(text.clone(), |at| text.replace(&at, " AT"))
    }

    /// Whether the text is this one; what differs between modes has a name there.
    #[track_caller]
    fn describes(&self, session: &str, expected: &str) {
        let (holder, at) = match self.server {
            Some(_) => ("this host", " AT"),
            None => ("another host, no sign of life", ""),
        };
        let expected = expected.replace("HOLDER", holder).replace(" AT", at);
        assert_eq!(self.described(session), expected);
    }

    /// Runs the first command with this mark, as a person copies it into a shell.
    /// Only JSON, which nobody can guess, is filled in.
    fn obey(&self, session: &str, mark: &str) -> Done {
        let text = self.run(&["describe", "--session", session]).ok();
        let advised = text.lines().find_map(|line| line.strip_prefix(mark));
        let advised = advised.unwrap_or_else(|| panic!("nothing is advised: {text}"));
        let advised = advised.replace("--result JSON", "--result '{\"output\":{\"ok\":true}}'");
        let folder = Path::new(BINARY).parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap();
        let out = Command::new("sh")
            .args(["-c", &advised])
            .env("PATH", format!("{folder}:{path}"))
            .current_dir(self.dir.path("."))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Done {
            code: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8(out.stdout).unwrap(),
            stderr: String::from_utf8(out.stderr).unwrap(),
        }
    }

    /// Obeys until nothing is advised, and tells where the session stood.
    #[track_caller]
    fn obeyed(&self, session: &str) -> Vec<String> {
        let mut stood = Vec::new();
        loop {
            let text = self.described(session);
            let standing = text.lines().find_map(|line| line.strip_prefix("standing ")).unwrap();
            stood.push(standing.split(':').next().unwrap().to_owned());
            if text.ends_with("\nnext: nothing is to be done") {
                return stood;
            }
            assert!(stood.len() < 5, "{stood:?}");
            self.obey(session, "next: ").ok();
        }
    }
}

const PARKED: &str = "\
session UID project=default name=n harness=gate last_seq=5 compute=COLD exec=AWAITING\n\
standing PARKED: The latest turn waits for a decision on call \"call-1\" of tool \"refund\".\n\
turn TURN\n\
holder X since=X (HOLDER)\n\
call tool=refund tool_call=call-1 execution=TURN seq=3 request_seq=4 digest=X\n\
store local\n\
next: mainspring approve UID AT\n\
\x20 or: mainspring deny UID AT";

const DECIDED: &str = "\
session UID project=default name=n harness=gate last_seq=6 compute=COLD exec=RUNNING\n\
standing DECIDED: The decision on call \"call-1\" of tool \"refund\" is made, denied; the turn waits to be resumed.\n\
turn TURN\n\
holder X since=X (HOLDER)\n\
call tool=refund tool_call=call-1 execution=TURN seq=3 request_seq=4 digest=X decision=denied\n\
store local\n\
next: mainspring resume --session UID AT";

const UNKNOWN: &str = "\
session UID project=default name=n harness=gate last_seq=3 compute=LIVE exec=RUNNING\n\
standing UNKNOWN_EFFECT: The latest turn was cut at call \"call-1\" of tool \"slow\", which has no result: nobody knows whether it happened.\n\
turn TURN\n\
holder X since=X (another host, no sign of life)\n\
call tool=slow tool_call=call-1 execution=TURN seq=3 digest=X\n\
store local\n\
next: mainspring resolve --session UID --tool-call call-1 --execution TURN --result JSON AT\n\
\x20 or: mainspring resolve --session UID --tool-call call-1 --execution TURN --failed TEXT AT\n\
\x20 or: mainspring resolve --session UID --tool-call call-1 --execution TURN --retry AT";

const INTERRUPTED: &str = "\
session UID project=default name=n harness=gate last_seq=3 compute=LIVE exec=RUNNING\n\
standing INTERRUPTED: The latest turn was cut, and waits to be resumed.\n\
turn TURN\n\
holder X since=X (another host, no sign of life)\n\
store local\n\
next: mainspring resume --session UID AT";

const FAILED: &str = "\
session UID project=default name=n harness=gate last_seq=3 compute=LIVE exec=FAILED\n\
standing FAILED: The last attempt of the latest turn has failed; the turn can be resumed.\n\
turn TURN\n\
holder X since=X (HOLDER)\n\
last error seq=3 code=0: gate config is not a json object with an optional array \"steps\" of known steps\n\
store local\n\
next: mainspring resume --session UID AT\n\
\x20 or: mainspring exec --session UID --input TEXT AT";

const RUNNING: &str = "\
session UID project=default name=n harness=gate last_seq=3 compute=LIVE exec=RUNNING\n\
standing RUNNING: A turn runs on this host.\n\
turn TURN\n\
holder X since=X (this host)\n\
running exec since=X execution=TURN\n\
store local\n\
next: nothing is to be done";

const DELETED: &str = "\
session UID project=default name=n harness=gate last_seq=6 compute=LIVE deletion=PENDING\n\
standing DELETED: The session is to be deleted.\n\
turn TURN\n\
holder X since=X (HOLDER)\n\
store local\n\
next: mainspring export --session UID AT";

#[test]
fn a_parked_session_is_approved_by_the_advised_command() {
    for mode in MODES {
        let place = Place::new(mode);
        let session = place.created();
        place.exec(&session, "refund 12").fails(5, "approval");
        place.describes(&session, PARKED);
        assert_eq!(place.obeyed(&session), ["PARKED", "IDLE"]);
        assert!(place.run(&["replay", "--session", &session]).ok().contains("refund: done"));
    }
}

#[test]
fn a_decided_session_goes_on_with_the_advised_command() {
    for mode in MODES {
        let place = Place::new(mode);
        let session = place.created();
        place.exec(&session, "refund 12").fails(5, "approval");
        place.run(&["deny", &session, "--no-resume", "--reason", "too much"]).ok();
        place.describes(&session, DECIDED);
        assert_eq!(place.obeyed(&session), ["DECIDED", "IDLE"]);
        let replayed = place.run(&["replay", "--session", &session]).ok();
        assert!(replayed.contains("refund: denied: too much"), "{replayed}");
    }
}

#[test]
fn an_unknown_effect_is_resolved_by_the_advised_command() {
    for mode in MODES {
        let (place, session) = Place::cut(mode, "tool slow");
        place.describes(&session, UNKNOWN);
        assert_eq!(place.obeyed(&session), ["UNKNOWN_EFFECT", "INTERRUPTED", "IDLE"]);
    }
}

#[test]
fn an_interrupted_session_goes_on_with_the_advised_command() {
    for mode in MODES {
        let (place, session) = Place::cut(mode, "tool again");
        place.describes(&session, INTERRUPTED);
        assert_eq!(place.obeyed(&session), ["INTERRUPTED", "IDLE"]);
    }
}

#[test]
fn a_failed_session_is_resumed_or_takes_another_turn_by_the_advised_commands() {
    for mode in MODES {
        let place = Place::new(mode);
        let session = place.created();
        let exec = ["exec", "--session", &session, "--input", "x", "--config", "nonsense"];
        place.run(&exec).fails(1, "gate config");
        place.describes(&session, FAILED);
        // Its config is what it failed for, so it does again; the next advice helps.
        place.obey(&session, "next: ").fails(1, "gate config");
        place.obey(&session, "  or: ").ok();
        assert_eq!(place.obeyed(&session), ["IDLE"]);

        // A tool that works again.
        place.dir.write("slow.sh", "kill -9 $$\n");
        place.exec(&session, "tool again").fails(1, "[tool_failed]");
        place.dir.write("slow.sh", QUICK);
        assert_eq!(place.obeyed(&session), ["FAILED", "IDLE"]);

        // A turn that was ended as failed is over.
        place.exec(&session, "refund 12").fails(5, "approval");
        place.run(&["cancel", "--session", &session, "--reason", "internal"]).ok();
        assert!(place.described(&session).contains("FAILED: The latest turn has failed.\n"));
        assert_eq!(place.obeyed(&session), ["FAILED", "IDLE"]);
    }
}

#[test]
fn a_running_session_needs_nothing() {
    let place = Place::new(Mode::Served);
    let session = place.created();
    let mut client = place.begun(&session, "tool slow");
    place.describes(&session, RUNNING);
    place.dir.write("go", "");
    assert!(client.wait().unwrap().success());
    assert_eq!(place.obeyed(&session), ["IDLE"]);
    // A journal that a server has open is not described here.
    place.dir.run(&["describe", "--session", &session]).fails(7, "[store_held]");
}

#[test]
fn a_deleted_session_is_exported_by_the_advised_command() {
    for mode in MODES {
        let place = Place::new(mode);
        let session = place.created();
        place.exec(&session, "hello").ok();
        place.run(&["delete", "--session", &session]).ok();
        place.describes(&session, DELETED);
        let exported = place.obey(&session, "next: ").ok();
        place.dir.write("e.ndjson", &exported);
        place.dir.run(&["verify", "--file", "e.ndjson"]).ok();
    }
}

/// The words that a command was given are in the one that it advises.
#[test]
fn an_advised_command_works_where_this_one_did() {
    let place = Place::new(Mode::Embedded);
    place.dir.write("other name.toml", SETTINGS.to_owned() + "journal = \"here.redb\"\n");
    let at = ["--config-file", "other name.toml", "--journal", "it's here.redb"];
    let exec = ["exec", "--harness", "gate", "--input", "refund 1"];
    let parked = place.dir.run(&[&exec[..], &at].concat());
    let session = crate::support::session_of(&parked.stdout);
    let advised = format!(
        "mainspring approve --session {session} --config-file 'other name.toml' --journal \
         'it'\\''s here.redb'"
    );
    parked.fails(5, &advised);
    let describe = place.dir.run(&[&["describe", "--session", &session], &at[..]].concat()).ok();
    let advised = format!(
        "next: mainspring approve {session} --config-file 'other name.toml' --journal \
         'it'\\''s here.redb'\n"
    );
    assert!(describe.contains(&advised), "{describe}");

    let place = Place::new(Mode::Served);
    place.dir.write("token", "s3cret");
    let parked = place.run(&[&exec[..], &["--token-file", "token"]].concat());
    let server = &place.server.as_ref().unwrap().address;
    parked.fails(5, &format!(" --server {server} --token-file token (or deny)"));
}
