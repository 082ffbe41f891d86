//! The host processes, as the test sees them: started, told, killed, paused.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::within;
use crate::plan::{PLAN_ENV, Plan};

/// The test that is a host when it has a plan.
const HOST_TEST: &str = "host_process";
/// How long a host may take to end when it is asked to.
const END_MAX: Duration = Duration::from_secs(60);
/// Lines of what a host has said that are shown when it ends by itself.
const SAID_LINES: usize = 40;

/// One host, through all its incarnations.
#[derive(Debug)]
pub(crate) struct Host {
    number: usize,
    /// What its next incarnation starts with.
    plan: Plan,
    folder: PathBuf,
    process: Option<Process>,
    pub(crate) is_paused: bool,
    /// What all its incarnations wrote.
    pub(crate) ledgers: Vec<PathBuf>,
    /// Appends that they tried, as far as this test has heard.
    pub(crate) tried: usize,
}

#[derive(Debug)]
struct Process {
    child: Child,
    ledger: PathBuf,
    reader: Option<BufReader<File>>,
    line: String,
    /// Commands that it was told, and those that are done.
    told: usize,
    done: usize,
    is_open: bool,
    said: PathBuf,
}

impl Host {
    /// A host that lives in a folder, in which `plan` has nothing yet.
    pub(crate) fn new(number: usize, folder: &Path, plan: Plan) -> Self {
        let (folder, ledgers) = (folder.to_owned(), Vec::new());
        Self { number, plan, folder, process: None, is_paused: false, ledgers, tried: 0 }
    }

    /// The file of its view.
    pub(crate) fn view(&self) -> PathBuf {
        self.folder.join(format!("view-{}.redb", self.number))
    }

    pub(crate) fn start(&mut self) {
        let incarnation = self.ledgers.len();
        let name = format!("{}-{incarnation}", self.number);
        let (ledger, said) = (
            self.folder.join(format!("ledger-{name}.jsonl")),
            self.folder.join(format!("said-{name}.log")),
        );
        self.plan = Plan {
            host: self.number,
            incarnation,
            view: self.view(),
            ledger: ledger.clone(),
            ..self.plan.clone()
        };
        let log = File::create(&said).expect("the folder takes files");
        let own = std::env::current_exe().expect("this program has a path");
        let child = Command::new(own)
            .args(["--exact", HOST_TEST, "--nocapture", "--test-threads=1"])
            .env(PLAN_ENV, self.plan.to_json())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a file has handles"))
            .stderr(log)
            .spawn()
            .expect("this program starts again");
        self.ledgers.push(ledger.clone());
        self.process = Some(Process {
            child,
            ledger,
            reader: None,
            line: String::new(),
            told: 0,
            done: 0,
            is_open: false,
            said,
        });
    }

    pub(crate) fn lose_view(&self) {
        // The note of who holds it may stand beside it, and matters to nobody.
        std::fs::remove_file(self.view()).expect("a host that was open has a view");
    }

    /// Tells it to try that many appends.
    pub(crate) fn go(&mut self, tickets: usize) {
        self.tell(&format!("go {tickets}"), tickets);
    }

    /// Tells it to take all sessions over.
    pub(crate) fn take_all(&mut self) {
        self.tell("take", 1);
    }

    /// Tells it to write under the fences that it had.
    pub(crate) fn write_as_before(&mut self) {
        self.tell("stale", 1);
    }

    fn tell(&mut self, command: &str, counts: usize) {
        let Some(process) = &mut self.process else { return };
        let stdin = process.child.stdin.as_mut().expect("it listens until it is to end");
        if let Err(error) = writeln!(stdin, "{command}") {
            eprintln!("host {} does not listen: {error}", self.number);
        }
        process.told += counts;
    }

    /// Whether it is open and has done all that it was told; `true` of one that
    /// is dead.
    ///
    /// # Panics
    /// When it ended by itself.
    pub(crate) fn is_idle(&mut self) -> bool {
        let Some(process) = &mut self.process else { return true };
        if let Some(status) = process.child.try_wait().expect("it is a child of this test") {
            let said = last_lines(&process.said);
            panic!("host {} ended by itself, {status}:\n{said}", self.number);
        }
        self.tried += process.hear();
        process.is_open && process.done >= process.told
    }

    /// How far it is, for people.
    pub(crate) fn standing(&self) -> String {
        let Some(process) = &self.process else { return format!("host {} dead", self.number) };
        let Process { told, done, is_open, said, .. } = process;
        let said = last_lines(said);
        format!("host {}, open {is_open}, {done} of {told} done, said:\n{said}", self.number)
    }

    pub(crate) fn kill(&mut self) {
        self.is_paused = false;
        if let Some(mut process) = self.process.take() {
            process.child.kill().expect("it is a child of this test");
            process.child.wait().expect("it is a child of this test");
        }
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let Some(process) = &self.process else { return };
        kill_process(Pid::from_child(&process.child), signal).expect("it is a child of this test");
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// When it does not end so.
    pub(crate) fn end(&mut self) {
        let Some(process) = &mut self.process else { return };
        drop(process.child.stdin.take());
        let what = || format!("the end of host {}", self.number);
        let status = within(END_MAX, &what, || {
            process.child.try_wait().expect("it is a child of this test")
        });
        assert!(
            status.success(),
            "host {} ended {status}:\n{}",
            self.number,
            last_lines(&process.said)
        );
        self.process = None;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Reads on in its ledger; how many appends it has tried since.
    fn hear(&mut self) -> usize {
        if self.reader.is_none() {
            // It is there once the process has begun.
            self.reader = File::open(&self.ledger).ok().map(BufReader::new);
        }
        let Some(reader) = &mut self.reader else { return 0 };
        let mut tried = 0;
        loop {
            // What is there of a line so far stays for the next time.
            reader.read_line(&mut self.line).expect("a ledger is text");
            if !self.line.ends_with('\n') {
                return tried;
            }
            match self.line.trim_end() {
                r#"{"kind":"opened"}"# => self.is_open = true,
                r#"{"kind":"done"}"# => self.done += 1,
                line => tried += usize::from(line.contains(r#""kind":"append""#)),
            }
            self.line.clear();
        }
    }
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SAID_LINES)..].join("\n")
}
