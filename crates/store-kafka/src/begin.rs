//! Creating a store's topics and beginning its log, and an operator's word in it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_api::{AppendId, Bytes, Entropy as _, OsEntropy, StoreId, SystemClock};
use mainspring_eventlog::LogError;
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::client::{Reader, quiet};
use crate::config::{KafkaConfig, MESSAGE_BYTES_MAX};
use crate::error::{Halt, is_refused, unsent};
use crate::frame::{Draft, Frame, Genesis, RULES_LEVEL, Statement};
use crate::log;
use crate::topic::{ASK_MAX, admin, may_not, naming, options, unreached};

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
        .map_err(|error| unreached(config, unsent("the topics cannot be created", error)))?;
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
    let poster = Poster::new(config)?;
    let (first, mut begun) = begin_partition(&client, &poster, &fresh)?;
    for partition in 1..partitions {
        let genesis = Genesis { partition, ..first.clone() };
        begun += begin_partition(&client, &poster, &genesis)?.1;
    }
    Ok((log::genesis(&client, config)?, begun))
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
                let genesis = log::partition_genesis(client, &config.topic, 0)?;
                return Err(match genesis.map(|genesis| genesis.partitions) {
                    Some(genesis) if genesis != found => {
                        Halt::PartitionsChanged { found, genesis }.into()
                    }
                    _ => LogError::Invalid(
                        "the topic is there, with another number of partitions than was asked for",
                    ),
                });
            }
            None if since.elapsed() < ASK_MAX => std::thread::sleep(Duration::from_millis(50)),
            None => return Err(Halt::TopicMissing(config.topic.clone()).into()),
        }
    }
}

/// The genesis of a partition, and how many partitions were begun for it.
fn begin_partition(
    client: &Reader,
    poster: &Poster<'_>,
    genesis: &Genesis,
) -> Result<(Genesis, u32), LogError> {
    let (topic, partition) = (&poster.config.topic, genesis.partition);
    let there = || {
        log::partition_genesis(client, topic, partition)
            .map_err(|error| naming("READ", topic, error))
    };
    if let Some(there) = there()? {
        return Ok((there, 0));
    }
    let statement = Statement::Genesis(genesis.clone());
    poster.post(partition, &statement)?;
    let none = || LogError::unavailable("the genesis is not in the log yet; try again");
    Ok((there()?.ok_or_else(none)?, 1))
}

/// Keeps what became of a producer's last message.
#[derive(Default)]
struct Delivery(Mutex<Option<Result<(), KafkaError>>>);

impl Delivery {
    fn last(&self) -> MutexGuard<'_, Option<Result<(), KafkaError>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

quiet!(Delivery);

impl ProducerContext for Delivery {
    type DeliveryOpaque = ();

    fn delivery(&self, report: &DeliveryResult<'_>, (): ()) {
        *self.last() = Some(report.as_ref().map(drop).map_err(|(error, _)| error.clone()));
    }
}

/// Writes entries that are no operations, one message each.
struct Poster<'a> {
    config: &'a KafkaConfig,
    producer: BaseProducer<Delivery>,
}

impl<'a> Poster<'a> {
    fn new(config: &'a KafkaConfig) -> Result<Self, LogError> {
        let producer = config
            .plain_producer()
            .create_with_context(Delivery::default())
            .map_err(|error| unsent("the client cannot be made of its settings", error))?;
        Ok(Self { config, producer })
    }

    /// Writes one, and waits for the broker's word.
    fn post(&self, partition: u32, statement: &Statement) -> Result<(), LogError> {
        use mainspring_api::Clock as _;
        let mut writer = [0; 16];
        OsEntropy.fill(&mut writer);
        let draft = Draft::new(AppendId::random(&OsEntropy), statement, Vec::new());
        let frame = crate::frame::write(&writer, 0, SystemClock.now(), std::iter::once(&draft));
        debug_assert!(
            Frame::read(Bytes::from(frame.clone())).is_some(),
            "it is written to be read"
        );
        let record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(&self.config.topic).partition(partition.cast_signed()).payload(&frame);
        let delivery = self.producer.context();
        *delivery.last() = None;
        self.producer
            .send(record)
            .map_err(|(error, _)| unsent("the client takes no message", error))?;
        self.producer.flush(ASK_MAX).map_err(|error| crate::error::unknown(&error.to_string()))?;
        let told = delivery.last().take();
        match told {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if is_refused(&error) => Err(may_not("WRITE", &self.config.topic)),
            Some(Err(error)) => Err(crate::error::unknown(&error.to_string())),
            None => {
                Err(crate::error::unknown("the broker did not say whether it took the message"))
            }
        }
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
    let statement = Statement::VoidDigest { offset };
    blocking::unblock(move || Poster::new(&config)?.post(partition, &statement)).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
