//! A session as its users see it, and its records.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::event::{ApprovalRef, Event};
use crate::id::{Fence, Hash, Seq, SessionUid};

/// Provenance of an emitter. Never an authorisation input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityRef {
    /// Principal.
    pub principal: String,
    /// Issuer.
    pub issuer: String,
    /// Subject.
    pub subject: String,
}

impl IdentityRef {
    /// Whether all three parts are empty, which equals absence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.principal.is_empty() && self.issuer.is_empty() && self.subject.is_empty()
    }
}

/// The verified identity that owns a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Who vouched for it.
    pub issuer: String,
    /// Whom.
    pub subject: String,
}

/// Where a session came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Producer.
    pub source: String,
    /// What it was about.
    pub subject: String,
    /// A link.
    pub uri: String,
    /// More.
    pub attributes: BTreeMap<String, String>,
}

/// The turn axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExecState {
    /// No turn yet.
    #[default]
    Pending,
    /// A turn is open, with or without a driver.
    Running,
    /// The latest turn waits for a decision.
    Awaiting,
    /// The latest turn completed.
    Completed,
    /// The latest turn, or its latest attempt, failed.
    Failed,
    /// The latest turn was canceled.
    Canceled,
}

impl ExecState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Running,
        Self::Awaiting,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
    ];

    /// The name without prefix, such as `PENDING`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Awaiting => "AWAITING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

/// The compute axis. It records what the log implies; it is not a probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ComputeState {
    /// No compute yet.
    #[default]
    None,
    /// Running.
    Live,
    /// Paused in place.
    Warm,
    /// Freed.
    Cold,
    /// Gone.
    Terminated,
}

impl ComputeState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::None, Self::Live, Self::Warm, Self::Cold, Self::Terminated];

    /// The stored name, such as `LIVE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Live => "LIVE",
            Self::Warm => "WARM",
            Self::Cold => "COLD",
            Self::Terminated => "TERMINATED",
        }
    }
}

/// The deletion axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeletionState {
    /// Not deleted.
    #[default]
    Active,
    /// The intent is durable.
    Pending,
}

/// A session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its uid.
    pub uid: SessionUid,
    /// Project that it is listed under.
    pub project: String,
    /// Display name.
    pub name: String,
    /// Harness; empty means the host's default.
    pub harness: String,
    /// Model; empty means the harness's choice.
    pub model: String,
    /// Times that the row changed.
    pub version: u64,
    /// When it was created.
    pub create_time: Timestamp,
    /// When its row or journal last changed.
    pub update_time: Timestamp,
    /// The turn axis.
    pub exec_state: ExecState,
    /// The compute axis.
    pub compute_state: ComputeState,
    /// The deletion axis.
    pub deletion_state: DeletionState,
    /// What it waits for.
    pub pending_approval: Option<ApprovalRef>,
    /// Position of its last record.
    pub last_seq: Seq,
    /// The session that it was forked from.
    pub parent_uid: Option<SessionUid>,
    /// Where it was forked.
    pub fork_seq: Seq,
    /// Provenance.
    pub identity: Option<IdentityRef>,
    /// Where it came from.
    pub origin: Option<Origin>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Who owns it.
    pub owner: Option<Owner>,
    /// What is ill-formed in its journal, if something is: operations that would
    /// act on it refuse.
    pub fault: Option<String>,
}

/// Small unhashed side data of a record, such as its commit time.
pub type Notes = BTreeMap<String, String>;

/// One committed journal entry.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// Position.
    pub seq: Seq,
    /// Hash of the record before; `None` for the first.
    pub prev_hash: Option<Hash>,
    /// Hash of this record.
    pub hash: Hash,
    /// The fence under which it was written; not hashed.
    pub fence: Fence,
    /// What happened.
    pub event: Event,
    /// Side data; not hashed.
    pub notes: Notes,
}
