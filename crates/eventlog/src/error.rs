//! What a log store reports.

use std::sync::Arc;

use mainspring_api::{Classify, Condition, ErrorKind, Fence, Head, Outcome, Seq, SessionUid};

use crate::canonical::CanonicalError;

/// Why a log operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// No such session. Nothing was created.
    #[error("session {0} is not found")]
    SessionNotFound(SessionUid),
    /// The uid is taken.
    #[error("session {0} already exists")]
    AlreadyExists(SessionUid),
    /// The session is to be deleted, so it can not be forked.
    #[error("session {0} is deleted")]
    Deleted(SessionUid),
    /// The log ends elsewhere. Nothing was written.
    #[error("conflict: the journal ends at {}, not at {}", .head.seq, .expected.seq)]
    Conflict {
        /// What the caller expected.
        expected: Head,
        /// Where it ends.
        head: Head,
    },
    /// The fence, or the row's version, is not the one that was read.
    #[error("conflict: {what} has moved")]
    Moved {
        /// What moved.
        what: &'static str,
    },
    /// A newer writer exists. Nothing was written, and nothing ever will be under this fence.
    #[error("fenced: a newer writer holds the session")]
    Fenced {
        /// The fence in force.
        current: Fence,
    },
    /// A value exceeds its bound.
    #[error("{what} is {bytes} bytes, the bound is {bytes_max}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// There are more of something than its bound.
    #[error("{what}: {count} of them, the bound is {count_max}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        count: usize,
        /// The bound.
        count_max: usize,
    },
    /// The request cannot be what a correct caller sends.
    #[error("invalid request to the log: {0}")]
    Invalid(&'static str),
    /// An event has no canonical form.
    #[error("event cannot be recorded: {0}")]
    Unrecordable(CanonicalError),
    /// The chain does not hold.
    #[error("journal is tampered at seq {seq}: {what}")]
    Tampered {
        /// The first bad position.
        seq: Seq,
        /// What does not hold.
        what: &'static str,
    },
    /// A record uses a field or value that this version does not know.
    #[error("record {seq} is not supported: {what}")]
    UnsupportedRecord {
        /// Its position.
        seq: Seq,
        /// What is not known.
        what: String,
    },
    /// Stored bytes cannot be read.
    #[error("stored data is damaged: {what}")]
    Corrupt {
        /// What.
        what: String,
    },
    /// A line of an exported journal cannot be read.
    #[error("line {line} is not a line of a journal: {why}")]
    BadLine {
        /// Its number, from 1.
        line: u64,
        /// Why, without its content.
        why: String,
    },
    /// The store's file was written by a newer version. Nothing was changed.
    #[error("store has schema version {found}, this build reads up to {supported}")]
    UnsupportedSchema {
        /// The version found.
        found: u64,
        /// The newest version that this build reads.
        supported: u64,
    },
    /// The file is not a store.
    #[error("{path} is not a journal store: {why}")]
    NotAStore {
        /// The file.
        path: String,
        /// How that is known.
        why: String,
    },
    /// Another process holds the store.
    #[error("{path} is held by another process ({holder}); use --server to talk to it")]
    Held {
        /// The file.
        path: String,
        /// Who holds it, as far as it is known.
        holder: String,
    },
    /// The store stopped, and does not go on by itself.
    #[error("store stopped: {why}")]
    Halted {
        /// Why, as a stable name.
        code: &'static str,
        /// Why, for people.
        why: String,
    },
    /// The store does not do this.
    #[error("this store does not support {0}")]
    Unsupported(&'static str),
    /// The store cannot be reached or written now.
    #[error("store unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// Whether the operation may have taken effect.
        outcome: Outcome,
        /// The cause.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
}

impl LogError {
    /// The store failed before anything was applied.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), outcome: Outcome::NotApplied, source: None }
    }

    /// The condition that this reports.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match self {
            Self::SessionNotFound(_) => Condition::SessionNotFound,
            Self::AlreadyExists(_) => Condition::AlreadyExists,
            Self::Deleted(_) => Condition::SessionDeleted,
            Self::Conflict { .. } | Self::Moved { .. } => Condition::Conflict,
            Self::Fenced { .. } => Condition::Fenced,
            Self::TooLarge { .. } | Self::TooMany { .. } => Condition::ValueTooLarge,
            Self::Invalid(_) | Self::Unrecordable(_) => Condition::InvalidArgument,
            Self::Tampered { .. } => Condition::JournalTampered,
            Self::UnsupportedRecord { .. } => Condition::UnsupportedRecord,
            Self::Corrupt { .. }
            | Self::UnsupportedSchema { .. }
            | Self::NotAStore { .. }
            | Self::Halted { .. } => Condition::Corrupt,
            Self::BadLine { .. } => Condition::BadLine,
            Self::Held { .. } => Condition::Unavailable,
            Self::Unsupported(_) => Condition::Unimplemented,
            Self::Unavailable { outcome: Outcome::Unknown, .. } => Condition::OutcomeUnknown,
            Self::Unavailable { .. } => Condition::Unavailable,
        }
    }
}

impl Classify for LogError {
    fn kind(&self) -> ErrorKind {
        self.condition().kind()
    }

    fn code(&self) -> &'static str {
        match self {
            Self::UnsupportedSchema { .. } => "unsupported_schema",
            Self::NotAStore { .. } => "not_a_store",
            Self::Held { .. } => "store_held",
            Self::Halted { code, .. } => code,
            other => other.condition().code(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Unavailable { outcome, .. } => *outcome,
            _ => Outcome::NotApplied,
        }
    }
}
