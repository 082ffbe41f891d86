//! Why a store on Kafka does not go on, and what an error of the client means.

use mainspring_api::Outcome;
use mainspring_eventlog::LogError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Why a host stopped: it does not go on by itself, and says why by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    /// The log ends before what this host has folded, or starts after it.
    #[error(
        "log_truncated: partition {partition} has messages {first} to {end}, and this host has folded {folded}"
    )]
    LogTruncated {
        /// The partition.
        partition: u32,
        /// The first offset that is there.
        first: u64,
        /// The offset after the last.
        end: u64,
        /// The next offset that this host would read.
        folded: u64,
    },
    /// The topic is not the one that this host has folded.
    #[error("log_recreated: the topic holds store {found}, and this host's view is of {known}")]
    LogRecreated {
        /// The store that is there.
        found: String,
        /// The store that was there.
        known: String,
    },
    /// A message that was folded is another one now.
    #[error(
        "log_changed: message {offset} of partition {partition} is not the one that was folded"
    )]
    LogChanged {
        /// The partition.
        partition: u32,
        /// The offset.
        offset: u64,
    },
    /// The log goes on by rules that this build does not know.
    #[error(
        "rules_unknown: message {offset} of partition {partition} activates rules {level}, this build knows up to {known}"
    )]
    RulesUnknown {
        /// The partition.
        partition: u32,
        /// The offset.
        offset: u64,
        /// The level that is activated.
        level: u16,
        /// The highest that this build knows.
        known: u16,
    },
    /// This host's fold is not what another host's was, twice.
    #[error(
        "digest_disagrees: message {offset} of partition {partition} states another digest than this host's fold has"
    )]
    DigestDisagrees {
        /// The partition.
        partition: u32,
        /// The offset of the message that states it.
        offset: u64,
    },
    /// The topic has other partitions than its genesis says.
    #[error("partitions_changed: the topic has {found} partitions, its genesis says {genesis}")]
    PartitionsChanged {
        /// Partitions that are there.
        found: u32,
        /// Partitions of the genesis.
        genesis: u32,
    },
    /// The topic may lose what was acknowledged.
    #[error("topic_lossy: {0}")]
    TopicLossy(String),
    /// There is no such topic.
    #[error("topic_missing: topic {0} is not there; `mainspring kafka init` creates it")]
    TopicMissing(String),
    /// The topic does not start with a genesis.
    #[error("not_a_log: {0}")]
    NotALog(String),
    /// The broker refuses this client.
    #[error("access_refused: {0}")]
    AccessRefused(String),
}

impl Halt {
    /// Its stable name.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::LogTruncated { .. } => "log_truncated",
            Self::LogRecreated { .. } => "log_recreated",
            Self::LogChanged { .. } => "log_changed",
            Self::RulesUnknown { .. } => "rules_unknown",
            Self::DigestDisagrees { .. } => "digest_disagrees",
            Self::PartitionsChanged { .. } => "partitions_changed",
            Self::TopicLossy(_) => "topic_lossy",
            Self::TopicMissing(_) => "topic_missing",
            Self::NotALog(_) => "not_a_log",
            Self::AccessRefused(_) => "access_refused",
        }
    }
}

impl From<Halt> for LogError {
    fn from(halt: Halt) -> Self {
        Self::Halted { code: halt.code(), why: halt.to_string() }
    }
}

/// What an operation failed with before anything was sent.
pub(crate) fn unsent(what: &str, error: KafkaError) -> LogError {
    LogError::Unavailable {
        message: what.to_owned(),
        outcome: Outcome::NotApplied,
        source: Some(std::sync::Arc::new(error)),
    }
}

/// A message that was handed to the client may be in the log, now or later.
pub(crate) fn unknown(why: &str) -> LogError {
    LogError::Unavailable { message: why.to_owned(), outcome: Outcome::Unknown, source: None }
}

/// Whether the log has no message at an offset that was asked for.
pub(crate) fn is_lost_offset(error: &KafkaError) -> bool {
    matches!(code(error), Some(Code::OffsetOutOfRange | Code::AutoOffsetReset))
}

/// Whether the topic is gone.
pub(crate) fn is_lost_topic(error: &KafkaError) -> bool {
    let lost = [Code::UnknownTopic, Code::UnknownTopicOrPartition, Code::UnknownPartition];
    code(error).is_some_and(|code| lost.contains(&code))
}

pub(crate) fn code(error: &KafkaError) -> Option<Code> {
    error.rdkafka_error_code()
}
