//! A test in a process of its own, with its time and memory.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Memory that a store may take, whatever it holds, above what it takes empty.
const PEAK_KIB_MAX: u64 = 64 << 10;

/// Set for the process that a test starts: the test that it is to run.
const ROLE: &str = "MAINSPRING_SCALE_TEST";

/// Runs `body` in a fresh process of this very test, and fails as it does. It is
/// given an empty folder.
///
/// # Panics
/// When the body does, or no process can be started.
pub fn in_child<F: Future<Output = ()>>(test: &str, body: impl FnOnce(tempfile::TempDir) -> F) {
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(body(tempfile::tempdir().unwrap()));
    }
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(ROLE, test)
        // What the allocator keeps of freed pages for each thread is not the store's.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    let _ = std::io::stderr().write_all(format!("{test}\n{err}").as_bytes());
    assert!(out.status.success(), "{test}: {}\n{err}", String::from_utf8_lossy(&out.stdout));
}

/// Time and memory of each phase of a test.
#[derive(Debug)]
pub struct Phases {
    base_kib: u64,
    since: Instant,
    /// Those that took more than they may.
    over: Vec<String>,
}

#[expect(clippy::disallowed_methods, reason = "it is real time that is reported")]
fn now() -> Instant {
    Instant::now()
}

impl Phases {
    /// From here on, with an empty store open.
    #[must_use]
    pub fn start() -> Self {
        reset_peak();
        Self { base_kib: status_kib("VmRSS"), since: now(), over: Vec::new() }
    }

    /// Fails when any phase took too much memory.
    ///
    /// # Panics
    /// Then.
    pub fn check(self) {
        assert!(self.over.is_empty(), "over {PEAK_KIB_MAX} KiB: {:?}", self.over);
    }

    /// Ends a phase: says what it took.
    pub fn done(&mut self, what: &str, path: &Path) {
        let took = self.since.elapsed();
        let peak = status_kib("VmHWM").saturating_sub(self.base_kib);
        let file = std::fs::metadata(path).map_or(0, |meta| meta.len());
        eprintln!(
            "  {what}: {:.1} s, peak {:.1} MiB above an empty store, file {} MiB",
            took.as_secs_f64(),
            peak as f64 / 1024.0,
            file >> 20
        );
        if peak > PEAK_KIB_MAX {
            self.over.push(format!("{what}: {peak} KiB"));
        }
        reset_peak();
        self.since = now();
    }
}

/// Starts the count of peak memory afresh, where the system lets it.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn status_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
