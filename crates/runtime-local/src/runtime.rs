//! The runtime contract, for harnesses on this machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_api::{
    Address, ComputeState, ComputeStatus, Descriptor, Fence, Fidelity, Harness, InProcess,
    Incarnation, Resumability, Runtime, RuntimeCapabilities, RuntimeError, Seq, SessionHistory,
    SessionSpec, SessionUid, Signal, SnapshotRef, async_trait,
};
use tokio::task::JoinSet;

use crate::child::{ServingChild, socket_folder};
use crate::config::{ChildSpec, LocalOptions, LocalRuntimeBuilder};
use crate::error::LaunchError;
use crate::launcher::{Launch, Launcher};
use crate::slots::{Claim, Peek, Slots};

const NAME: &str = "local";

/// Runs harnesses in this process and as child processes.
///
/// Clones share everything. Dropping the last one kills the children that
/// [`Runtime::close`] did not end.
#[derive(Debug, Clone)]
pub struct LocalRuntime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    built_in: BTreeMap<String, Arc<dyn Harness>>,
    children: BTreeMap<String, ChildSpec>,
    launcher: Arc<dyn Launcher>,
    options: LocalOptions,
    host: String,
    slots: Arc<Slots>,
    closing: Signal<()>,
}

impl LocalRuntime {
    /// Starts to collect what it serves.
    #[must_use]
    pub fn builder() -> LocalRuntimeBuilder {
        LocalRuntimeBuilder::default()
    }

    /// The names that it serves, in order.
    pub fn harnesses(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<_> = self.0.built_in.keys().chain(self.0.children.keys()).collect();
        names.sort();
        names.into_iter().map(String::as_str)
    }

    pub(crate) fn from_builder(builder: LocalRuntimeBuilder) -> Self {
        let node = rustix::system::uname();
        Self(Arc::new(Inner {
            built_in: builder.built_in.into_iter().collect(),
            children: builder.children.into_iter().collect(),
            launcher: builder.launcher,
            options: builder.options,
            host: node.nodename().to_string_lossy().into_owned(),
            slots: Arc::default(),
            closing: Signal::default(),
        }))
    }
}

#[async_trait]
impl Runtime for LocalRuntime {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities::default()
    }

    async fn create(
        &self,
        spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        self.0.create(spec).await
    }

    async fn probe(&self, spec: &SessionSpec) -> Result<Option<Descriptor>, RuntimeError> {
        let Some(harness) = self.0.built_in.get(&spec.harness) else {
            return Ok(None);
        };
        let described = harness.describe().await;
        described.map(Some).map_err(|source| RuntimeError::Failed {
            message: format!("built-in harness {:?} does not describe itself", spec.harness),
            source: Some(Arc::new(source)),
        })
    }

    /// For a stateless harness there is nothing to keep but the session's name.
    /// A child is ended; a built-in harness serves on.
    async fn snapshot(
        &self,
        uid: &SessionUid,
        _head: Seq,
        fidelity: Fidelity,
    ) -> Result<SnapshotRef, RuntimeError> {
        if fidelity == Fidelity::Local {
            return Err(unsupported("pausing in place"));
        }
        self.0.release(uid).await?;
        Ok(SnapshotRef { local: uid.to_string(), ..SnapshotRef::default() })
    }

    async fn restore(
        &self,
        from: &SnapshotRef,
        spec: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        refuse_memory(from)?;
        self.0.create(spec).await
    }

    async fn fork(
        &self,
        from: &SnapshotRef,
        child: &SessionSpec,
        _history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError> {
        refuse_memory(from)?;
        self.0.create(child).await
    }

    /// # Cancellation
    /// A child whose stop is dropped is killed at once.
    async fn stop(&self, uid: &SessionUid) -> Result<(), RuntimeError> {
        self.0.slots.forget_built_in(uid);
        match self.0.slots.find(uid).await {
            Some(claim) => self.0.end(claim).await,
            None => Ok(()),
        }
    }

    async fn status(&self, uid: &SessionUid) -> Result<ComputeStatus, RuntimeError> {
        let status =
            |state, reason: String| ComputeStatus { state, instance: String::new(), reason };
        self.0.slots.peek(uid, |seen| match seen {
            Peek::Nothing => status(ComputeState::None, String::new()),
            Peek::InTransition => status(ComputeState::None, "starting_or_stopping".to_owned()),
            Peek::BuiltIn => status(ComputeState::Live, String::new()),
            Peek::Child(child) => match child.process.exit() {
                None => status(ComputeState::Live, String::new()),
                Some(exit) => status(ComputeState::Terminated, exit.to_string()),
            },
        })
    }

    async fn list(&self) -> Result<Vec<SessionUid>, RuntimeError> {
        self.0.slots.sessions()
    }

    async fn close(&self) -> Result<(), RuntimeError> {
        let inner = &self.0;
        let sessions = inner.slots.close();
        inner.closing.set(());
        let mut ending = JoinSet::new();
        for uid in sessions {
            let inner = Arc::clone(inner);
            ending.spawn(async move {
                match inner.slots.find(&uid).await {
                    Some(claim) => inner.end(claim).await,
                    None => Ok(()),
                }
            });
        }
        let ended = ending.join_all().await;
        ended.into_iter().collect()
    }
}

impl Inner {
    async fn create(&self, spec: &SessionSpec) -> Result<Incarnation, RuntimeError> {
        if let Some(harness) = self.built_in.get(&spec.harness) {
            if let Some(uid) = &spec.uid {
                // A session that changed from a child to a built-in harness.
                if let Some(claim) = self.slots.find(uid).await {
                    self.end(claim).await?;
                }
                self.slots.note_built_in(uid, spec.resumability)?;
            }
            let address = Address::InProcess(InProcess::harness(Arc::clone(harness)));
            return Ok(self.incarnation(address, std::process::id(), false));
        }
        let command = self.children.get(&spec.harness);
        let command =
            command.ok_or_else(|| RuntimeError::NoAddress { harness: spec.harness.clone() })?;
        let uid = spec.uid.as_ref();
        let uid = uid.ok_or(unsupported("a child process without a session"))?;
        let mut claim = self.slots.claim(uid, self.options.children_max).await?;
        let serving = claim
            .child()
            .is_some_and(|child| child.process.exit().is_none() && child.harness == spec.harness);
        if !serving {
            if let Some(old) = claim.take() {
                self.note_exit(uid, &old);
                self.ended(old.harness.clone(), old.end(self.options.stop_grace).await)?;
            }
            let child = self.start(spec, command).await?;
            claim.put(child);
        }
        let child = claim.child().expect("it serves, or was put there above");
        let address = Address::Grpc { address: child.address(), call_metadata: Vec::new() };
        Ok(self.incarnation(address, child.process.pid(), true))
    }

    async fn start(
        &self,
        spec: &SessionSpec,
        command: &ChildSpec,
    ) -> Result<ServingChild, RuntimeError> {
        let failed = |source| not_started(&spec.harness, source);
        let (folder, socket) = self
            .slots
            .socket(|| socket_folder(self.options.socket_parent.as_deref()).map_err(failed))?;
        let launch = Launch {
            harness: &spec.harness,
            spec: command,
            socket: &socket,
            env_withheld: &self.options.env_withheld,
        };
        let starting = ServingChild::start(
            &*self.launcher,
            &launch,
            folder,
            spec.resumability,
            self.options.ready_within,
            self.options.stop_grace,
        );
        tokio::select! {
            biased;
            // The dropped start kills its child.
            () = self.closing.wait() => Err(RuntimeError::Closed),
            started = starting => started.map_err(failed),
        }
    }

    /// Frees what a session holds, unless that would lose memory.
    async fn release(&self, uid: &SessionUid) -> Result<(), RuntimeError> {
        let built_in = self.slots.built_in(uid)?;
        let claim = self.slots.find(uid).await;
        let child = claim.as_ref().and_then(Claim::child);
        let held = built_in.or(child.map(|child| child.resumability));
        if held == Some(Resumability::RequiresMemorySnapshot) {
            return Err(unsupported("memory snapshots"));
        }
        self.slots.forget_built_in(uid);
        match claim {
            Some(claim) => self.end(claim).await,
            None => Ok(()),
        }
    }

    async fn end(&self, mut claim: Claim) -> Result<(), RuntimeError> {
        match claim.take() {
            Some(child) => {
                let harness = child.harness.clone();
                self.ended(harness, child.end(self.options.stop_grace).await)
            }
            None => Ok(()),
        }
    }

    fn ended(&self, harness: String, ended: Result<(), LaunchError>) -> Result<(), RuntimeError> {
        ended.map_err(|source| RuntimeError::Failed {
            message: format!("child process of harness {harness:?} on {}", self.host),
            source: Some(Arc::new(source)),
        })
    }

    /// A child that died is replaced, which nobody would see otherwise.
    fn note_exit(&self, uid: &SessionUid, child: &ServingChild) {
        if let Some(exit) = child.process.exit() {
            tracing::warn!(session = %uid, harness = child.harness, %exit, "harness process had died and is replaced");
        }
    }

    fn incarnation(&self, address: Address, pid: u32, live_describer: bool) -> Incarnation {
        Incarnation {
            address,
            worker: format!("{}/{pid}", self.host),
            compute_instance: String::new(),
            fence: Fence::NONE,
            live_describer,
        }
    }
}

const fn unsupported(what: &'static str) -> RuntimeError {
    RuntimeError::Unsupported { runtime: NAME, what }
}

/// A checkpoint with memory came from another runtime; starting cold from it
/// would lose that memory without a word.
fn refuse_memory(from: &SnapshotRef) -> Result<(), RuntimeError> {
    if from.memory {
        return Err(RuntimeError::InvalidCheckpoint {
            message: format!("runtime {NAME} cannot restore memory"),
        });
    }
    Ok(())
}

fn not_started(harness: &str, source: LaunchError) -> RuntimeError {
    RuntimeError::Failed {
        message: format!("child process of harness {harness:?}"),
        source: Some(Arc::new(source)),
    }
}
