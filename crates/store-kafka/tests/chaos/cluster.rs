//! Brokers of a test's own, which die and are cut off at its word.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clock::within;

/// Longest time that one command takes: a build, and brokers that start.
const COMMAND_MAX: Duration = Duration::from_secs(300);

/// What a cluster is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One broker.
    One,
    /// Three, of which two must have a message, with links that can be cut.
    Three,
}

impl Shape {
    pub(crate) const fn brokers(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }
}

/// A cluster that goes when it is dropped, with all its data.
#[derive(Debug)]
pub(crate) struct Cluster {
    name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) brokers: String,
}

impl Cluster {
    /// Starts one without data; says why not where that is impossible.
    pub(crate) fn up(name: &'static str, shape: Shape) -> Option<Self> {
        let why_not = if !runs("java", "-version") {
            "there is no java"
        } else if shape == Shape::Three && !rustix::process::geteuid().is_root() {
            "only root can make a network whose links are cut"
        } else if shape == Shape::Three && !runs("ip", "-V") {
            "there is no iproute2"
        } else {
            let mut cluster = Self { name, shape, brokers: String::new() };
            cluster.xtask(&["down", "--purge"]);
            let wanted: &[&str] = match shape {
                Shape::One => &["up"],
                Shape::Three => &["up", "--brokers", "3", "--netns"],
            };
            let said = cluster.xtask(wanted);
            let brokers = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
            brokers.expect("`up` says where the brokers are").clone_into(&mut cluster.brokers);
            return Some(cluster);
        };
        eprintln!("skipped: no Kafka of its own: {why_not}");
        None
    }

    pub(crate) fn kill(&self, ids: &[u8]) {
        self.on("kill", ids, &[]);
    }

    /// Starts killed brokers and waits until they serve.
    pub(crate) fn start(&self, ids: &[u8]) {
        self.on("start", ids, &[]);
    }

    pub(crate) fn pause(&self, id: u8) {
        self.on("pause", &[id], &[]);
    }

    pub(crate) fn resume(&self, id: u8) {
        self.on("resume", &[id], &[]);
    }

    pub(crate) fn cut(&self, id: u8, from_peers: bool) {
        self.on("cut", &[id], if from_peers { &["--from-peers"] } else { &[] });
    }

    pub(crate) fn heal(&self, id: u8) {
        self.on("heal", &[id], &[]);
    }

    fn on(&self, verb: &str, ids: &[u8], flags: &[&str]) {
        let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
        let ids = ids.iter().map(String::as_str);
        let words: Vec<&str> = [verb].into_iter().chain(ids).chain(flags.iter().copied()).collect();
        self.xtask(&words);
    }

    /// Runs `cargo xtask kafka` and returns what it printed.
    fn xtask(&self, words: &[&str]) -> String {
        self.attempt(words).unwrap_or_else(|said| panic!("`cargo xtask kafka {words:?}`: {said}"))
    }

    fn attempt(&self, words: &[&str]) -> Result<String, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let file = |path: &Path| File::create(path).expect("a folder takes files");
        let mut command = Command::new(cargo)
            .args(["xtask", "kafka"])
            .args(words)
            .args(["--name", self.name])
            .current_dir(workspace())
            .env("CARGO_TARGET_DIR", target())
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err))
            .spawn()
            .map_err(|error| error.to_string())?;
        let what = || format!("`cargo xtask kafka {words:?}`");
        let status =
            within(COMMAND_MAX, &what, || command.try_wait().expect("it is a child of this test"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        if status.success() { Ok(read(&out)) } else { Err(read(&err)) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(said) = self.attempt(&["down", "--purge"]) {
            eprintln!("the cluster {} is left behind: {said}", self.name);
        }
    }
}

fn runs(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Where cargo builds, and clusters live.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies below the target folder")
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
