//! The topics of a store: checking that they keep what they acknowledge.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use mainspring_eventlog::{Durability, LogError};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::client::{Quiet, Reader};
use crate::config::{KafkaConfig, MESSAGE_BYTES_MAX};
use crate::error::{Halt, is_refused, unsent};
use crate::frame::Genesis;
use crate::log;

/// How long the brokers may take for one request.
pub(crate) const ASK_MAX: Duration = Duration::from_secs(15);

/// One setting of a topic, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The topic.
    pub topic: String,
    /// The setting, or what else was looked at.
    pub setting: String,
    /// What it is.
    pub found: String,
    /// What it must be; for people.
    pub wanted: String,
    /// Whether it is so.
    pub holds: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, setting, found, wanted, .. } = self;
        write!(f, "{topic}: {setting} is {found}, and must be {wanted}")
    }
}

/// What a check of a store's topics found.
#[derive(Debug, Clone)]
pub struct TopicReport {
    /// The topic of the log.
    pub topic: String,
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
    /// How durable what is acknowledged is.
    pub durability: Durability,
    /// What the log starts with, if it is begun.
    pub genesis: Option<Genesis>,
}

impl TopicReport {
    /// The settings that do not hold. Partitions that were added are no setting:
    /// [`TopicReport::halt`] names them.
    pub fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.holds && !self.is_growth(finding))
    }

    /// Why no host serves this log, if none does.
    #[must_use]
    pub fn halt(&self) -> Option<Halt> {
        let Some(genesis) = &self.genesis else {
            let why = format!("{} has no genesis; `mainspring kafka init` writes it", self.topic);
            return Some(Halt::NotALog(why));
        };
        let grown = self.findings.iter().find(|it| !it.holds && self.is_growth(it));
        if let Some(found) = grown.and_then(|finding| finding.found.parse().ok()) {
            return Some(Halt::PartitionsChanged { found, genesis: genesis.partitions });
        }
        self.faults().next().map(|fault| Halt::TopicLossy(fault.to_string()))
    }

    fn is_growth(&self, finding: &Finding) -> bool {
        finding.topic == self.topic && finding.setting == PARTITIONS
    }
}

pub(crate) fn admin(config: &KafkaConfig) -> Result<AdminClient<Quiet>, LogError> {
    config
        .base()
        .create_with_context(Quiet)
        .map_err(|error| unsent("the client cannot be made of its settings", error))
}

/// Says where was asked: a client that is refused before it has said who it is
/// learns no more than that nobody answers.
pub(crate) fn unreached(config: &KafkaConfig, error: LogError) -> LogError {
    match error {
        LogError::Unavailable { message, outcome, source } => {
            let brokers = &config.brokers;
            let message = format!(
                "{message} at {brokers}; a wrong port, protocol, password or certificate shows as this, too"
            );
            LogError::Unavailable { message, outcome, source }
        }
        other => other,
    }
}

pub(crate) fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ASK_MAX)).operation_timeout(Some(ASK_MAX))
}

pub(crate) fn may_not(operation: &str, topic: &str) -> LogError {
    Halt::AccessRefused(format!("this principal may not {operation} topic {topic}")).into()
}

/// Names what a client that the broker refuses has tried.
pub(crate) fn naming(operation: &str, topic: &str, error: LogError) -> LogError {
    let refused = match &error {
        LogError::Halted { code, .. } => *code == "access_refused",
        LogError::Unavailable { source: Some(source), .. } => {
            source.downcast_ref::<KafkaError>().is_some_and(is_refused)
        }
        _ => false,
    };
    if refused { may_not(operation, topic) } else { error }
}

/// Looks at the topics of a store: their settings, their partitions, and what
/// the log starts with.
///
/// # Errors
/// `Halted` when the log's topic is not there, or holds something else;
/// `Unavailable`.
pub async fn check(config: &KafkaConfig) -> Result<TopicReport, LogError> {
    let asked = config.clone();
    let shapes = blocking::unblock(move || shapes(&asked)).await;
    let (shapes, genesis) = shapes.map_err(|error| unreached(config, error))?;
    let mut findings = Vec::new();
    let mut durability = Durability::Development;
    for (kind, shape) in [Kind::Log, Kind::Checkpoints, Kind::Hosts].into_iter().zip(shapes) {
        let topic = kind.name(config);
        let finding = |(setting, found, wanted, holds): (&str, String, String, bool)| Finding {
            topic: topic.clone(),
            setting: setting.to_owned(),
            found,
            wanted,
            holds,
        };
        let Some(Shape { partitions, replicas }) = shape else {
            findings.push(finding(("topic", "missing".into(), "there".into(), false)));
            continue;
        };
        let settings = settings_of(config, &topic).await?;
        let get = |name: &str| settings.get(name).cloned().unwrap_or_default();
        for (setting, wanted) in kind.wants() {
            let found = get(setting);
            let holds = found == *wanted;
            findings.push(finding((setting, found, (*wanted).to_owned(), holds)));
        }
        if kind == Kind::Hosts {
            continue;
        }
        if let Some(genesis) = &genesis {
            let (found, wanted) = (partitions.to_string(), genesis.partitions.to_string());
            let holds = found == wanted;
            findings.push(finding((PARTITIONS, found, wanted, holds)));
        }
        let found = get("max.message.bytes");
        let holds = found.parse::<usize>().is_ok_and(|bytes| bytes >= MESSAGE_BYTES_MAX);
        let wanted = format!("at least {MESSAGE_BYTES_MAX}");
        findings.push(finding(("max.message.bytes", found, wanted, holds)));
        if kind == Kind::Log {
            let in_sync = get("min.insync.replicas");
            durability = durability_of(replicas, &in_sync, &get("flush.messages"));
            let holds = durability != Durability::Development || config.allow_lossy;
            let found = format!(
                "{replicas} replicas with min.insync.replicas {in_sync} and flush.messages {}",
                get("flush.messages")
            );
            findings.push(finding(("replication", found, DURABLE.to_owned(), holds)));
        }
    }
    Ok(TopicReport { topic: config.topic.clone(), findings, durability, genesis })
}

/// The finding of how many partitions there are.
const PARTITIONS: &str = "partitions";

const DURABLE: &str = "replicas above min.insync.replicas of at least 2, or 1 replica with \
                       flush.messages 1, or be allowed to lose what it acknowledged";

/// How durable what this topic acknowledges is.
fn durability_of(replicas: u16, in_sync_min: &str, flush_messages: &str) -> Durability {
    match (replicas, in_sync_min.parse::<u16>().unwrap_or(1)) {
        (replicas, in_sync_min) if in_sync_min >= 2 && replicas > in_sync_min => {
            Durability::Replicated { replicas, in_sync_min }
        }
        (1, _) if flush_messages == "1" => Durability::Flushed,
        _ => Durability::Development,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log,
    Checkpoints,
    Hosts,
}

impl Kind {
    fn name(self, config: &KafkaConfig) -> String {
        match self {
            Self::Log => config.topic.clone(),
            Self::Checkpoints => config.checkpoints_topic(),
            Self::Hosts => config.hosts_topic(),
        }
    }

    const fn wants(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Log => &[
                ("cleanup.policy", "delete"),
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
                ("unclean.leader.election.enable", "false"),
            ],
            Self::Checkpoints => {
                &[("cleanup.policy", "compact"), ("unclean.leader.election.enable", "false")]
            }
            Self::Hosts => &[("cleanup.policy", "delete")],
        }
    }
}

struct Shape {
    partitions: u32,
    /// The fewest that a partition has.
    replicas: u16,
}

type Shapes = [Option<Shape>; 3];

fn shapes(config: &KafkaConfig) -> Result<(Shapes, Option<Genesis>), LogError> {
    let client: Reader = config
        .open_reader()
        .map_err(|error| unsent("the client cannot be made of its settings", error))?;
    let shape = |kind: Kind| shape_of(&client, &kind.name(config));
    let shapes = [shape(Kind::Log)?, shape(Kind::Checkpoints)?, shape(Kind::Hosts)?];
    if shapes[0].is_none() {
        return Err(Halt::TopicMissing(config.topic.clone()).into());
    }
    let genesis = log::partition_genesis(&client, &config.topic, 0)
        .map_err(|error| naming("READ", &config.topic, error))?;
    Ok((shapes, genesis))
}

fn shape_of(client: &Reader, topic: &str) -> Result<Option<Shape>, LogError> {
    let partitions =
        log::partitions(client, topic).map_err(|error| naming("DESCRIBE", topic, error))?;
    Ok(partitions.map(|partitions| Shape {
        partitions: u32::try_from(partitions.len()).unwrap_or(u32::MAX),
        replicas: partitions
            .into_iter()
            .min()
            .map_or(0, |min| u16::try_from(min).unwrap_or(u16::MAX)),
    }))
}

async fn settings_of(
    config: &KafkaConfig,
    topic: &str,
) -> Result<HashMap<String, String>, LogError> {
    let described = admin(config)?
        .describe_configs(&[ResourceSpecifier::Topic(topic)], &options())
        .await
        .map_err(|error| unsent("the topic's settings cannot be asked for", error))?;
    match described.into_iter().next() {
        // A topic has settings: who is shown none may not look at them.
        Some(Ok(resource)) if resource.entries.is_empty() => {
            Err(may_not("DESCRIBE_CONFIGS", topic))
        }
        Some(Ok(resource)) => {
            let pairs = resource.entries.into_iter().filter_map(|e| Some((e.name, e.value?)));
            Ok(pairs.collect())
        }
        Some(Err(Code::TopicAuthorizationFailed)) => Err(may_not("DESCRIBE_CONFIGS", topic)),
        Some(Err(Code::UnknownTopicOrPartition)) | None => {
            Err(Halt::TopicMissing(topic.to_owned()).into())
        }
        Some(Err(code)) => {
            Err(LogError::unavailable(format!("the settings of {topic} cannot be told: {code}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_durable_with_a_spare_replica_or_synced_writes() {
        let replicated = Durability::Replicated { replicas: 3, in_sync_min: 2 };
        assert_eq!(durability_of(3, "2", "9223372036854775807"), replicated);
        for (replicas, in_sync) in [(3, "1"), (2, "2"), (2, "1"), (1, "1")] {
            assert_eq!(durability_of(replicas, in_sync, "5"), Durability::Development);
        }
        assert_eq!(durability_of(1, "1", "1"), Durability::Flushed);
        assert_eq!(durability_of(2, "1", "1"), Durability::Development);
    }
}
