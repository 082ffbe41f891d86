//! Flags of the commands for a journal's topics on Kafka.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Kafka {
    /// Create the topics of a journal and begin its log, as far as they are not there.
    Init(KafkaInit),
    /// Look at the topics and their settings; what does not hold is exit code 1.
    Check {
        /// Take topics that may lose what they acknowledged.
        #[arg(long)]
        allow_lossy: bool,
    },
    /// Show the access rules that a host needs, as kafka-acls.sh takes them.
    Acls(KafkaAcls),
    /// Say that the digest of the fold in a message of the log is wrong.
    VoidDigest(KafkaVoidDigest),
}

#[derive(Debug, Args)]
pub(crate) struct KafkaInit {
    /// Partitions of the log, for ever.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) partitions: u32,
    /// Replicas of each.
    #[arg(long, default_value_t = 3)]
    pub(crate) replicas: u16,
    /// Replicas that must have a message before it is acknowledged.
    #[arg(long, default_value_t = 2)]
    pub(crate) in_sync_min: u16,
    /// Make topics that may lose what they acknowledge: for development.
    #[arg(long)]
    pub(crate) allow_lossy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KafkaAcls {
    /// Whom they are for, such as User:mainspring.
    #[arg(long)]
    pub(crate) principal: String,
    /// Also what `kafka init` needs.
    #[arg(long)]
    pub(crate) init: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KafkaVoidDigest {
    /// The partition of the log.
    #[arg(long)]
    pub(crate) partition: u32,
    /// The offset of the message that states the digest.
    #[arg(long)]
    pub(crate) offset: u64,
}
