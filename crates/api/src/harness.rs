//! The harness: an agent as its author brings it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::condition::Condition;
use crate::error::{Classify, ErrorKind, Outcome, SharedError};
use crate::event::{ApprovalRef, Event};
use crate::id::{ExecutionId, SessionUid};
use crate::message::Message;
use crate::sink::{EventSink, SinkError};
use crate::tool::ToolSpec;

/// How a harness can be brought back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resumability {
    /// By running it again over its recorded turn. Also what "not said" means.
    #[default]
    StatelessReplay,
    /// Only with its memory.
    RequiresMemorySnapshot,
}

/// What a harness can do and needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// How it is brought back.
    pub resumability: Resumability,
    /// Whether its forks may run side by side.
    pub fork_safe: bool,
    /// Whether it needs a GPU.
    pub requires_gpu: bool,
    /// Whether it streams.
    pub streaming: bool,
    /// Whether it replays reasoning parts.
    pub reasoning_replay: bool,
}

/// What a harness says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Its id.
    pub id: String,
    /// Replay version, owned by its author; empty means unversioned.
    pub version: String,
    /// Models that it uses; never widens a policy.
    pub models: Vec<String>,
    /// Tools that it declares.
    pub tools: Vec<ToolSpec>,
    /// What it can do and needs.
    pub capabilities: Capabilities,
}

/// An agent: a deterministic function of its start and of what the sink returns.
#[async_trait]
pub trait Harness: fmt::Debug + Send + Sync + 'static {
    /// Says what it is.
    async fn describe(&self) -> Result<Descriptor, HarnessError>;

    /// Checks that a start could be delivered, before anything of the turn is
    /// recorded. In process there is nothing that could stand in the way.
    ///
    /// # Errors
    /// [`HarnessError::StartTooLarge`].
    async fn check_start(&self, start: &Start) -> Result<(), HarnessError> {
        let _ = start;
        Ok(())
    }

    /// Runs exactly one execution.
    ///
    /// # Guarantees
    /// Given the same start and the same replies it must make the same calls in
    /// the same order: no clock, no randomness, no environment.
    ///
    /// # Cancellation
    /// The host may drop the future at any await.
    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError>;
}

/// What opens an execution.
#[derive(Debug, Clone)]
pub struct Start {
    /// The session; absent only for a controller without a session scope.
    pub session: Option<SessionUid>,
    /// The execution.
    pub execution_id: ExecutionId,
    /// The host's default model; set only under a model policy.
    pub model: String,
    /// Opaque configuration.
    pub config: Bytes,
    /// Every event before this execution, read on demand.
    pub history: Arc<dyn History>,
    /// What the turn is about.
    pub inputs: Vec<Message>,
    /// The harness's own cursor.
    pub resume_from_seq: i64,
}

/// The events before an execution, read on demand in bounded memory.
#[async_trait]
pub trait History: fmt::Debug + Send + Sync {
    /// How many events there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `limit` events from index `from` (0-based, in order). A shorter
    /// answer than asked for means that a bound on bytes was reached; an empty
    /// one that `from` is at the end.
    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError>;
}

/// No events.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmptyHistory;

#[async_trait]
impl History for EmptyHistory {
    fn len(&self) -> u64 {
        0
    }

    async fn range(&self, _from: u64, _limit: usize) -> Result<Vec<Event>, HistoryError> {
        Ok(Vec::new())
    }
}

/// Why history could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("history: {0}")]
pub struct HistoryError(pub SharedError);

impl Classify for HistoryError {
    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    fn code(&self) -> &'static str {
        self.0.code()
    }
}

/// Why a run or a description failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// A sink error that was not handled.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The agent itself failed.
    #[error("{message}")]
    Failed {
        /// Words.
        message: String,
        /// The cause.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// Several failures at once.
    #[error("{}", join(.0))]
    Joined(Vec<HarnessError>),
    /// The harness cannot be reached.
    #[error("harness unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
    /// The harness did not answer in time.
    #[error("harness did not answer in time: {message}")]
    Deadline {
        /// What was waited for.
        message: String,
    },
    /// The harness broke the protocol.
    #[error("harness protocol: {message}")]
    Protocol {
        /// Which rule.
        message: String,
    },
    /// The harness that answered is not the one that was admitted.
    #[error("harness describes itself otherwise than when it was admitted: {message}")]
    DescriptorMismatch {
        /// What differs.
        message: String,
    },
    /// The turn's start exceeds the message size agreed with the harness.
    #[error("start of the turn is {bytes} bytes, the harness connection takes {bytes_max}")]
    StartTooLarge {
        /// Its size.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// History could not be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

fn join(errors: &[HarnessError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl HarnessError {
    /// Whether this reports `condition` anywhere in its tree.
    #[must_use]
    pub fn is(&self, condition: Condition) -> bool {
        match self {
            Self::Sink(error) => error.is(condition),
            Self::Joined(errors) => errors.iter().any(|error| error.is(condition)),
            other => other.condition() == condition,
        }
    }

    /// Whether this is the unwinding of exactly this park: every error in its
    /// tree is one of `park`, so that no real failure beside it is hidden.
    #[must_use]
    pub fn is_unwinding_of(&self, park: &ApprovalRef) -> bool {
        match self {
            Self::Sink(SinkError::Parked(parked)) => parked == park,
            Self::Joined(errors) => {
                !errors.is_empty() && errors.iter().all(|error| error.is_unwinding_of(park))
            }
            _ => false,
        }
    }

    /// A failure of the agent itself.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), source: None }
    }

    /// The condition that this reports.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::Sink(error) => error
                .condition()
                .or_else(|| Condition::from_code(error.code()))
                .unwrap_or(Condition::ModelFailed),
            Self::Failed { .. } | Self::Joined(_) | Self::Protocol { .. } => {
                Condition::HarnessFailed
            }
            Self::Unavailable { .. } => Condition::HarnessUnavailable,
            Self::Deadline { .. } => Condition::DeadlineExceeded,
            Self::StartTooLarge { .. } => Condition::StartTooLarge,
            Self::DescriptorMismatch { .. } => Condition::DescriptorMismatch,
            Self::History(_) => Condition::Internal,
        }
    }
}

impl Classify for HarnessError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Sink(error) => error.kind(),
            Self::History(error) => error.kind(),
            other => other.condition().kind(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Sink(error) => error.code(),
            Self::History(error) => error.code(),
            other => other.condition().code(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Sink(error) => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}
