//! A runtime over this test binary, and looks at what it left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Address, Descriptor, EventSink, Harness, HarnessError, Incarnation, Resumability, Runtime,
    RuntimeError, Seq, SessionHistory, SessionSpec, SessionUid, SnapshotRef, Start, async_trait,
};
use mainspring_runtime_local::{ChildSpec, LocalOptions, LocalRuntime, LocalRuntimeBuilder};
use tempfile::TempDir;

pub(crate) const MODE: &str = "MAINSPRING_TEST_CHILD";
pub(crate) const LOG: &str = "MAINSPRING_TEST_CHILD_LOG";

/// A harness that only says its name.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) &'static str);

#[async_trait]
impl Harness for Named {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: self.0.to_owned(), ..Descriptor::default() })
    }

    async fn run(&self, _: Start, _: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        Ok(())
    }
}

/// A stateless runtime never asks about history.
#[derive(Debug)]
struct NeverAsked;

#[async_trait]
impl SessionHistory for NeverAsked {
    async fn started_turns(&self) -> Result<u64, RuntimeError> {
        unreachable!("not asked")
    }

    async fn recorded_checkpoint(&self) -> Result<Option<SnapshotRef>, RuntimeError> {
        unreachable!("not asked")
    }

    async fn recorded_instance(&self) -> Result<Option<(String, Seq)>, RuntimeError> {
        unreachable!("not asked")
    }

    async fn turns_since_checkpoint(&self) -> Result<u64, RuntimeError> {
        unreachable!("not asked")
    }
}

pub(crate) fn history() -> Arc<dyn SessionHistory> {
    Arc::new(NeverAsked)
}

pub(crate) fn uid(n: u32) -> SessionUid {
    SessionUid::new(&format!("sess-{n:024x}")).unwrap()
}

pub(crate) fn spec(uid: &SessionUid, harness: &str) -> SessionSpec {
    SessionSpec {
        uid: Some(uid.clone()),
        harness: harness.to_owned(),
        resumability: Resumability::StatelessReplay,
        ..SessionSpec::default()
    }
}

/// A runtime with `built-in`, and one child harness for each mode.
pub(crate) struct Subject {
    pub(crate) runtime: LocalRuntime,
    pub(crate) dir: TempDir,
}

impl Subject {
    pub(crate) fn new(modes: &[&str]) -> Self {
        Self::with(modes, |options| options)
    }

    pub(crate) fn with(modes: &[&str], adjust: impl FnOnce(LocalOptions) -> LocalOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::default();
        options.socket_parent = Some(dir.path().to_owned());
        options.ready_within = Duration::from_secs(60);
        let mut builder = LocalRuntime::builder()
            .built_in("built-in", Arc::new(Named("built-in")))
            .options(adjust(options));
        for mode in modes {
            builder = builder.child(*mode, child(mode, dir.path()));
        }
        let runtime = LocalRuntimeBuilder::build(builder).unwrap();
        Self { runtime, dir }
    }

    pub(crate) async fn create(
        &self,
        uid: &SessionUid,
        harness: &str,
    ) -> Result<Incarnation, RuntimeError> {
        self.runtime.create(&spec(uid, harness), history()).await
    }

    /// The lines that children wrote.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn started(&self) -> Vec<u32> {
        let started = self
            .log()
            .into_iter()
            .filter_map(|line| line.strip_prefix("started ").map(str::to_owned));
        started.map(|pid| pid.parse().unwrap()).collect()
    }

    /// Everything in the folder where sockets are made, the log aside.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("log")).collect()
    }
}

pub(crate) fn child(mode: &str, dir: &Path) -> ChildSpec {
    let me = std::env::current_exe().unwrap();
    ChildSpec::new(me.to_str().unwrap())
        .args(["child_main::entry", "--exact", "--nocapture"])
        .env(MODE, mode)
        .env(LOG, dir.join("log").to_str().unwrap())
}

/// The socket of a child, which must be one that accepts.
pub(crate) fn socket(incarnation: &Incarnation) -> PathBuf {
    let Address::Grpc { address, call_metadata } = &incarnation.address else {
        panic!("{incarnation:?}");
    };
    assert!(call_metadata.is_empty());
    let path = PathBuf::from(address.strip_prefix("unix://").unwrap());
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    path
}

/// Whether a process lives; one that waits to be reaped does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Waits until `done`, at most a minute.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    for _ in 0..12_000 {
        if done() {
            return;
        }
        tick.tick().await;
    }
    panic!("not within a minute: {what}");
}
