//! Why a session does or does not move.

use crate::clock::Timestamp;
use crate::id::{ExecutionId, Seq};
use crate::session::Session;

/// Where a session stands: why it does or does not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// Nothing is open: it has no turn yet, or its latest one has completed or
    /// was cancelled.
    Idle,
    /// A turn, or another operation, runs on this host.
    Running,
    /// A turn runs on another live host.
    RunningElsewhere,
    /// Its latest turn waits for a decision.
    Parked,
    /// Its latest turn has its decision, and waits to be resumed.
    Decided,
    /// Its latest turn called a tool, and nobody knows what became of it.
    UnknownEffect,
    /// Its latest turn was cut, and waits to be resumed.
    Interrupted,
    /// Its latest turn, or its latest attempt, has failed.
    Failed,
    /// It is to be deleted.
    Deleted,
    /// Its journal is ill-formed.
    Damaged,
}

impl Standing {
    /// Every standing.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Running,
        Self::RunningElsewhere,
        Self::Parked,
        Self::Decided,
        Self::UnknownEffect,
        Self::Interrupted,
        Self::Failed,
        Self::Deleted,
        Self::Damaged,
    ];

    /// The name, such as `UNKNOWN_EFFECT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "IDLE",
            Self::Running => "RUNNING",
            Self::RunningElsewhere => "RUNNING_ELSEWHERE",
            Self::Parked => "PARKED",
            Self::Decided => "DECIDED",
            Self::UnknownEffect => "UNKNOWN_EFFECT",
            Self::Interrupted => "INTERRUPTED",
            Self::Failed => "FAILED",
            Self::Deleted => "DELETED",
            Self::Damaged => "DAMAGED",
        }
    }
}

/// Who may write to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceHolder {
    /// One incarnation of a host process, for people.
    pub name: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Whether it is this host.
    pub is_here: bool,
    /// Whether it gives signs of life. Advice: the fence alone decides.
    pub is_alive: bool,
}

/// The host that has a session at hand. Any host serves any session; this one
/// does so with less work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmHost {
    /// One incarnation of a host process, for people.
    pub name: String,
    /// Where clients reach it; empty when it has not told.
    pub address: String,
    /// Whether it is this host.
    pub is_here: bool,
}

/// What an answered write is safe from, in the host's store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDurability {
    /// Its class, for machines, such as `replicated`.
    pub class: String,
    /// The class with its numbers, for people.
    pub summary: String,
}

/// An operation that runs on a session, on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningOperation {
    /// Its name, such as `exec`.
    pub operation: String,
    /// Since when.
    pub since: Timestamp,
    /// The turn that it drives, once that is known.
    pub execution_id: Option<ExecutionId>,
}

/// A tool call that keeps a turn from moving. Its arguments are in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// The turn.
    pub execution_id: ExecutionId,
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub tool: String,
    /// Position of the call.
    pub seq: Seq,
    /// Position of the request for its approval, if it is gated.
    pub request_seq: Option<Seq>,
    /// Digest of the recorded call, as a decision sends it back.
    pub digest: String,
    /// When the request expires, if it does.
    pub expires: Option<Timestamp>,
    /// Whether a decision, when there is one, approved it.
    pub approved: Option<bool>,
}

/// The last error of a session's latest turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    /// Position of its record.
    pub seq: Seq,
    /// The recorded code, a status code of gRPC.
    pub code: i32,
    /// The recorded text.
    pub message: String,
}

/// Why a session does or does not move, and what to do about it.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribeReport {
    /// The session.
    pub session: Session,
    /// Where it stands.
    pub standing: Standing,
    /// That in a sentence, for people.
    pub summary: String,
    /// Its latest turn.
    pub execution_id: Option<ExecutionId>,
    /// Who may write to it; `None` when nobody ever did.
    pub holder: Option<FenceHolder>,
    /// What runs on it here.
    pub running: Option<RunningOperation>,
    /// The call that it waits on, or whose outcome nobody knows.
    pub open_call: Option<OpenCall>,
    /// The last error of its latest turn.
    pub last_error: Option<LastError>,
    /// What the store promises; `None` of a host that does not tell.
    pub durability: Option<StoreDurability>,
    /// Which host has it at hand, where more than one serves the store.
    pub warm_host: Option<WarmHost>,
    /// Commands to run next, the best first, without saying where the journal
    /// or the server is; empty when nothing is to be done.
    pub next_commands: Vec<String>,
}
