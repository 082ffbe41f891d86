//! Running the binary in a folder of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mainspring::api::{Json, JsonObject};
use mainspring::eventlog::json;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_mainspring");

/// The root of the sources.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Failed with this exit code, and said this.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, says: &str) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(self.stderr.contains(says), "{says:?} is not in: {}", self.stderr);
    }
}

/// A folder to run the binary in.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .current_dir(self.0.path())
            .env_remove("MODEL_API_KEY")
            .env_remove("OPENAI_API_KEY")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        let out = self.command(args).output().unwrap();
        Done {
            code: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8(out.stdout).unwrap(),
            stderr: String::from_utf8(out.stderr).unwrap(),
        }
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The command may refuse before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input);
        let out = child.wait_with_output().unwrap();
        Done {
            code: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8(out.stdout).unwrap(),
            stderr: String::from_utf8(out.stderr).unwrap(),
        }
    }

    /// Runs a turn on a new session and returns its uid.
    #[track_caller]
    pub(crate) fn exec(&self, input: &str) -> String {
        session_of(&self.run(&["exec", "--input", input]).ok())
    }
}

/// The uid in the first line of an exec.
#[track_caller]
pub(crate) fn session_of(stdout: &str) -> String {
    let line = stdout.lines().next().unwrap_or_default();
    line.strip_prefix("session ").unwrap_or_else(|| panic!("no session in {stdout}")).to_owned()
}

/// A process that serves until it is dropped.
pub(crate) struct Serving {
    child: Child,
    /// Its first line.
    pub(crate) line: String,
    pub(crate) address: String,
}

impl Serving {
    /// Starts a command whose first line ends with the address that it serves on.
    pub(crate) fn start(dir: &Dir, args: &[&str]) -> Self {
        Self::spawn(dir.command(args))
    }

    /// As [`Serving::start`], of a command that is set up further.
    pub(crate) fn spawn(mut command: Command) -> Self {
        // Its standard input must not close: a child of a host ends with it.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        // Where operators are served follows, if they are.
        let sessions = line.split(", operators on ").next().unwrap_or_default();
        let address = sessions.rsplit_once(" on ").map(|(_, address)| address.to_owned());
        let address = address.unwrap_or_else(|| panic!("{command:?} said {line:?}"));
        Self { child, line, address }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop, as an operator would.
    pub(crate) fn signal(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Asks it to stop, and waits.
    pub(crate) fn terminate(mut self) -> i32 {
        self.signal();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The records that a command printed as JSON, each an object.
pub(crate) fn records(stdout: &str) -> Vec<JsonObject> {
    stdout
        .lines()
        .map(|line| object(json::parse_within(line.as_bytes(), 90).unwrap()))
        .filter(|line| line.contains_key("event") || line.contains_key("record"))
        .map(|mut line| match line.remove("record") {
            Some(record) => object(record),
            None => line,
        })
        .collect()
}

pub(crate) fn object(json: Json) -> JsonObject {
    match json {
        Json::Object(members) => members,
        other => panic!("not an object: {other:?}"),
    }
}
