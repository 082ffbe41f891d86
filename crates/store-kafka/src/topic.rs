//! The topics of a store: creating them, and checking that they keep what they
//! acknowledge.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use mainspring_api::{AppendId, Bytes, Entropy as _, OsEntropy, StoreId, SystemClock};
use mainspring_eventlog::{Durability, LogError};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::client::Reader;
use crate::config::{KafkaConfig, MESSAGE_BYTES_MAX};
use crate::error::{Halt, is_refused, unsent};
use crate::frame::{Draft, Frame, Genesis, RULES_LEVEL, Statement};
use crate::log;

/// How long the brokers may take for one request.
const ASK_MAX: Duration = Duration::from_secs(15);

/// How the topics of a new store are made.
#[derive(Debug, Clone, Copy)]
pub struct NewTopics {
    /// Partitions of the log, for ever. Few are quicker than many: requests are
    /// what costs. Default 4.
    pub partitions: u32,
    /// Replicas of each. Default 3.
    pub replicas: u16,
    /// Replicas that must have a message before it is acknowledged. Default 2.
    pub in_sync_min: u16,
}

impl Default for NewTopics {
    fn default() -> Self {
        Self { partitions: 4, replicas: 3, in_sync_min: 2 }
    }
}

/// What [`init`] found and made.
#[derive(Debug, Clone)]
pub struct Begun {
    /// What the log starts with.
    pub genesis: Genesis,
    /// The topics that were not there before.
    pub topics: Vec<String>,
    /// How many partitions were empty before.
    pub partitions: u32,
}

/// The most partitions of a log.
pub const PARTITIONS_MAX: u32 = 1_024;

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

fn admin(config: &KafkaConfig) -> Result<AdminClient<DefaultClientContext>, LogError> {
    config
        .base()
        .create()
        .map_err(|error| unsent("the client cannot be made of its settings", error))
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ASK_MAX)).operation_timeout(Some(ASK_MAX))
}

/// Creates the topics of a store and begins its log, as far as that was not done
/// before. Sent again it does the rest.
///
/// # Errors
/// `Invalid` for numbers that cannot be; `Halted` when a topic is there that
/// cannot be this store's; `Unavailable`.
pub async fn init(config: &KafkaConfig, new: NewTopics) -> Result<Begun, LogError> {
    check_numbers(new, config.allow_lossy)?;
    let admin = admin(config)?;
    let (replicas, in_sync) = (i32::from(new.replicas), new.in_sync_min.to_string());
    let bytes_max = MESSAGE_BYTES_MAX.to_string();
    let replication = || TopicReplication::Fixed(replicas);
    let topic = |name, partitions| {
        NewTopic::new(name, partitions, replication())
            .set("min.insync.replicas", &in_sync)
            .set("unclean.leader.election.enable", "false")
            .set("max.message.bytes", &bytes_max)
    };
    let partitions = new.partitions.cast_signed();
    let (checkpoints, hosts) = (config.checkpoints_topic(), config.hosts_topic());
    let mut main = topic(&config.topic, partitions)
        .set("cleanup.policy", "delete")
        .set("retention.ms", "-1")
        .set("retention.bytes", "-1");
    if new.replicas == 1 && !config.allow_lossy {
        main = main.set("flush.messages", "1");
    }
    let topics = [
        main,
        topic(&checkpoints, partitions).set("cleanup.policy", "compact"),
        topic(&hosts, 1).set("cleanup.policy", "delete").set("retention.ms", "3600000"),
    ];
    let created = admin
        .create_topics(&topics, &options())
        .await
        .map_err(|error| unsent("the topics cannot be created", error))?;
    let mut made = Vec::new();
    for result in created {
        match result {
            Ok(topic) => made.push(topic),
            Err((_, Code::TopicAlreadyExists)) => {}
            Err((topic, Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)) => {
                return Err(may_not("CREATE", &topic));
            }
            Err((topic, code)) => {
                return Err(LogError::unavailable(format!(
                    "topic {topic} cannot be created: {code}"
                )));
            }
        }
    }
    let config = config.clone();
    let (genesis, partitions) = blocking::unblock(move || begin(&config, new.partitions)).await?;
    Ok(Begun { genesis, topics: made, partitions })
}

fn may_not(operation: &str, topic: &str) -> LogError {
    Halt::AccessRefused(format!("this principal may not {operation} topic {topic}")).into()
}

/// Names what a client that the broker refuses has tried.
fn naming(operation: &str, topic: &str, error: LogError) -> LogError {
    let refused = match &error {
        LogError::Halted { code, .. } => *code == "access_refused",
        LogError::Unavailable { source: Some(source), .. } => {
            source.downcast_ref::<KafkaError>().is_some_and(is_refused)
        }
        _ => false,
    };
    if refused { may_not(operation, topic) } else { error }
}

fn check_numbers(new: NewTopics, allow_lossy: bool) -> Result<(), LogError> {
    if !(1..=PARTITIONS_MAX).contains(&new.partitions) {
        return Err(LogError::Invalid("a log has 1 to 1024 partitions"));
    }
    match (new.replicas, new.in_sync_min) {
        (0, _) | (_, 0) => Err(LogError::Invalid("a topic has at least one replica in sync")),
        (1, 1) => Ok(()),
        (replicas, in_sync) if replicas > in_sync && (in_sync >= 2 || allow_lossy) => Ok(()),
        _ => Err(LogError::Invalid(
            "replicas must be above min.insync.replicas, and that be at least 2; or both be 1",
        )),
    }
}

/// Writes the genesis into every partition that is empty. Returns how many were.
fn begin(config: &KafkaConfig, partitions: u32) -> Result<(Genesis, u32), LogError> {
    let client: Reader = config
        .open_reader()
        .map_err(|error| unsent("the client cannot be made of its settings", error))?;
    await_partitions(&client, config, partitions)?;
    let cluster_id = client.client().fetch_cluster_id(ASK_MAX).unwrap_or_default();
    let store_id = StoreId::random(&OsEntropy);
    let fresh = Genesis { store_id, cluster_id, partitions, partition: 0, level: RULES_LEVEL };
    // Whoever's genesis stands first in partition 0 has begun the log.
    let (first, mut begun) = begin_partition(&client, config, &fresh)?;
    for partition in 1..partitions {
        let genesis = Genesis { partition, ..first.clone() };
        begun += begin_partition(&client, config, &genesis)?.1;
    }
    Ok((log::genesis(&client, &config.topic)?, begun))
}

/// A topic that was just created is known to all brokers a little later.
#[expect(clippy::disallowed_methods, reason = "bounds a wait on this thread")]
fn await_partitions(
    client: &Reader,
    config: &KafkaConfig,
    partitions: u32,
) -> Result<(), LogError> {
    let since = std::time::Instant::now();
    loop {
        match log::partitions(client, &config.topic)?.map(|found| found.len()) {
            Some(found) if found == partitions as usize => return Ok(()),
            Some(found) => {
                let found = u32::try_from(found).unwrap_or(u32::MAX);
                return Err(Halt::PartitionsChanged { found, genesis: partitions }.into());
            }
            None if since.elapsed() < ASK_MAX => std::thread::sleep(Duration::from_millis(50)),
            None => return Err(Halt::TopicMissing(config.topic.clone()).into()),
        }
    }
}

/// The genesis of a partition, and how many partitions were begun for it.
fn begin_partition(
    client: &Reader,
    config: &KafkaConfig,
    genesis: &Genesis,
) -> Result<(Genesis, u32), LogError> {
    let (topic, partition) = (&config.topic, genesis.partition);
    let there = || {
        log::partition_genesis(client, topic, partition)
            .map_err(|error| naming("READ", topic, error))
    };
    if let Some(there) = there()? {
        return Ok((there, 0));
    }
    let statement = Statement::Genesis(genesis.clone());
    post(config, partition, &statement)?;
    let none = || LogError::unavailable("the genesis is not in the log yet; try again");
    Ok((there()?.ok_or_else(none)?, 1))
}

/// Keeps what became of the one message of a producer.
#[derive(Default)]
struct Delivery(OnceLock<Result<(), KafkaError>>);

impl ClientContext for Delivery {}

impl ProducerContext for Delivery {
    type DeliveryOpaque = ();

    fn delivery(&self, report: &DeliveryResult<'_>, (): ()) {
        let _ = self.0.set(report.as_ref().map(drop).map_err(|(error, _)| error.clone()));
    }
}

/// Writes one entry that is no operation, and waits for the broker's word.
fn post(config: &KafkaConfig, partition: u32, statement: &Statement) -> Result<(), LogError> {
    use mainspring_api::Clock as _;
    let producer: BaseProducer<Delivery> = config
        .plain_producer()
        .create_with_context(Delivery::default())
        .map_err(|error| unsent("the client cannot be made of its settings", error))?;
    let mut writer = [0; 16];
    OsEntropy.fill(&mut writer);
    let draft = Draft::new(AppendId::random(&OsEntropy), statement, Vec::new());
    let frame = crate::frame::write(&writer, 0, SystemClock.now(), std::iter::once(&draft));
    debug_assert!(Frame::read(Bytes::from(frame.clone())).is_some(), "it is written to be read");
    let record: BaseRecord<'_, (), [u8]> =
        BaseRecord::to(&config.topic).partition(partition.cast_signed()).payload(&frame);
    producer.send(record).map_err(|(error, _)| unsent("the client takes no message", error))?;
    producer.flush(ASK_MAX).map_err(|error| crate::error::unknown(&error.to_string()))?;
    match producer.context().0.get() {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) if is_refused(error) => Err(may_not("WRITE", &config.topic)),
        Some(Err(error)) => Err(crate::error::unknown(&error.to_string())),
        None => Err(crate::error::unknown("the broker did not say whether it took the message")),
    }
}

/// An operator's word that the digest in a message is wrong.
///
/// # Errors
/// `Halted` when this principal may not write; `Unavailable`.
pub async fn void_digest(
    config: &KafkaConfig,
    partition: u32,
    offset: u64,
) -> Result<(), LogError> {
    let config = config.clone();
    blocking::unblock(move || post(&config, partition, &Statement::VoidDigest { offset })).await
}

/// Looks at the topics of a store: their settings, their partitions, and what
/// the log starts with.
///
/// # Errors
/// `Halted` when the log's topic is not there, or holds something else;
/// `Unavailable`.
pub async fn check(config: &KafkaConfig) -> Result<TopicReport, LogError> {
    let asked = config.clone();
    let (shapes, genesis) = blocking::unblock(move || shapes(&asked)).await?;
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

    #[test]
    fn topics_that_could_lose_messages_are_not_made() {
        let new = |replicas, in_sync_min| NewTopics { replicas, in_sync_min, partitions: 4 };
        for (replicas, in_sync) in [(0, 1), (1, 0), (2, 2), (3, 1), (2, 3)] {
            assert!(check_numbers(new(replicas, in_sync), false).is_err(), "{replicas} {in_sync}");
        }
        for (replicas, in_sync) in [(1, 1), (3, 2), (5, 3)] {
            check_numbers(new(replicas, in_sync), false).unwrap();
        }
        check_numbers(new(3, 1), true).unwrap();
        assert!(check_numbers(NewTopics { partitions: 0, ..NewTopics::default() }, true).is_err());
    }
}
