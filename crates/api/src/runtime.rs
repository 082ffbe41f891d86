//! Compute: where harnesses run.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::condition::Condition;
use crate::connector::Incarnation;
use crate::error::{Classify, ErrorKind, SharedError};
use crate::event::SnapshotRef;
use crate::harness::{Descriptor, Resumability};
use crate::id::{Seq, SessionUid};
use crate::session::{ComputeState, IdentityRef};

/// What a runtime can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeCapabilities {
    /// Captures and restores memory.
    pub memory_snapshot: bool,
    /// Forks share pages.
    pub cow_fork: bool,
    /// Attests.
    pub attest: bool,
    /// Captures GPU state.
    pub gpu_state: bool,
}

/// What compute is for.
#[derive(Debug, Clone, Default)]
pub struct SessionSpec {
    /// The session; `None` only when a descriptor is probed.
    pub uid: Option<SessionUid>,
    /// The harness's name.
    pub harness: String,
    /// Image or command, if the runtime needs one.
    pub image: String,
    /// How the harness is brought back, as far as it is known.
    pub resumability: Resumability,
    /// Memory bound of the compute in bytes; 0 means the runtime's default.
    pub memory_bytes_max: u64,
    /// Who runs it.
    pub identity: Option<IdentityRef>,
}

/// What the journal says, asked only when needed and after the compute was looked at.
#[async_trait]
pub trait SessionHistory: fmt::Debug + Send + Sync {
    /// Turns of this harness that were started.
    async fn started_turns(&self) -> Result<u64, RuntimeError>;

    /// The latest checkpoint that this session itself recorded.
    async fn recorded_checkpoint(&self) -> Result<Option<SnapshotRef>, RuntimeError>;

    /// The latest recorded compute instance.
    async fn recorded_instance(&self) -> Result<Option<(String, Seq)>, RuntimeError>;

    /// Turns of this harness that were started after that checkpoint.
    async fn turns_since_checkpoint(&self) -> Result<u64, RuntimeError>;
}

/// How much a snapshot must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// Pause in place, not durable.
    Local,
    /// Durable; compute is freed.
    External,
}

/// The state of a session's compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeStatus {
    /// Its state.
    pub state: ComputeState,
    /// Its instance, if the runtime names instances.
    pub instance: String,
    /// Why it is in this state, such as `oom` or `evicted`; empty when there is nothing to say.
    pub reason: String,
}

/// A compute backend.
#[async_trait]
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Its name in logs and descriptions, such as `local`.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> RuntimeCapabilities;

    /// Gets or creates the compute of a session.
    ///
    /// # Guarantees
    /// Idempotent: the same uid gets the same compute while it lives.
    async fn create(
        &self,
        spec: &SessionSpec,
        history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError>;

    /// Asks a harness for its descriptor without a session, if this runtime can
    /// do so at once; `None` means that it must be asked on a connection.
    async fn probe(&self, spec: &SessionSpec) -> Result<Option<Descriptor>, RuntimeError> {
        let _ = spec;
        Ok(None)
    }

    /// Captures the compute at `head` and, for [`Fidelity::External`], frees it.
    ///
    /// # Errors
    /// [`RuntimeError::Unsupported`] for a fidelity that it does not have; never
    /// a silent weaker one.
    async fn snapshot(
        &self,
        uid: &SessionUid,
        head: Seq,
        fidelity: Fidelity,
    ) -> Result<SnapshotRef, RuntimeError>;

    /// Brings compute back from a snapshot.
    async fn restore(
        &self,
        from: &SnapshotRef,
        spec: &SessionSpec,
        history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError>;

    /// Creates the compute of a fork child.
    async fn fork(
        &self,
        from: &SnapshotRef,
        child: &SessionSpec,
        history: Arc<dyn SessionHistory>,
    ) -> Result<Incarnation, RuntimeError>;

    /// Ends the compute for good. Absent compute is success.
    async fn stop(&self, uid: &SessionUid) -> Result<(), RuntimeError>;

    /// The state of a session's compute.
    async fn status(&self, uid: &SessionUid) -> Result<ComputeStatus, RuntimeError>;

    /// Sessions that have compute here.
    async fn list(&self) -> Result<Vec<SessionUid>, RuntimeError>;

    /// Ends all that this runtime started in this process.
    async fn close(&self) -> Result<(), RuntimeError>;

    /// Memory snapshots, if this runtime can make them.
    fn memory(&self) -> Option<&dyn MemoryTier> {
        None
    }
}

/// Memory snapshots.
#[async_trait]
pub trait MemoryTier: Send + Sync {
    /// Removes checkpoints of a session other than those in `keep`.
    async fn prune(&self, uid: &SessionUid, keep: &[SnapshotRef]) -> Result<(), RuntimeError>;
}

/// Why a runtime could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// This runtime does not do that.
    #[error("runtime {runtime} does not support {what}")]
    Unsupported {
        /// Its name.
        runtime: &'static str,
        /// What was asked.
        what: &'static str,
    },
    /// No address is configured.
    #[error("no address is configured for harness {harness:?}")]
    NoAddress {
        /// The harness.
        harness: String,
    },
    /// The runtime was closed.
    #[error("runtime is closed")]
    Closed,
    /// Compute is in transition.
    #[error("compute is busy: {message}")]
    Busy {
        /// What it is doing.
        message: String,
    },
    /// The session's memory is gone.
    #[error("memory state lost: {message}")]
    MemoryStateLost {
        /// How that is known.
        message: String,
    },
    /// The checkpoint cannot be used.
    #[error("invalid checkpoint: {message}")]
    InvalidCheckpoint {
        /// Why.
        message: String,
    },
    /// The checkpoint is still being written.
    #[error("checkpoint is still being written")]
    CheckpointPending,
    /// The fork's source snapshot was superseded.
    #[error("snapshot was superseded")]
    SnapshotSuperseded,
    /// Compute could not be started or stopped.
    #[error("runtime failed: {message}")]
    Failed {
        /// What failed.
        message: String,
        /// The cause.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The journal could not be asked.
    #[error("session history: {0}")]
    History(SharedError),
}

impl RuntimeError {
    /// The condition that this reports.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match self {
            Self::Unsupported { .. } => Condition::RuntimeUnsupported,
            Self::NoAddress { .. } | Self::Closed => Condition::HarnessUnavailable,
            Self::Busy { .. } => Condition::ComputeBusy,
            Self::MemoryStateLost { .. } => Condition::MemoryStateLost,
            Self::InvalidCheckpoint { .. } => Condition::InvalidCheckpoint,
            Self::CheckpointPending => Condition::CheckpointPending,
            Self::SnapshotSuperseded => Condition::SnapshotSuperseded,
            Self::Failed { .. } => Condition::RuntimeFailed,
            Self::History(_) => Condition::Internal,
        }
    }
}

impl Classify for RuntimeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::History(error) => error.kind(),
            other => other.condition().kind(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::History(error) => error.code(),
            other => other.condition().code(),
        }
    }
}
