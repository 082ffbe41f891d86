//! Topics and hosts of this run.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mainspring_api::{Entropy as _, OsEntropy, SystemClock};
use mainspring_bench::run::workload::now;
use mainspring_store_kafka::{KafkaConfig, KafkaStore, NewTopics, init};
use mainspring_store_redb::{RedbConfig, RedbEngine};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// How long a broker may take for one answer.
const ASK_MAX: Duration = Duration::from_secs(10);

/// Where the run keeps its logs.
pub(crate) struct Place {
    brokers: String,
    topics: Mutex<Vec<String>>,
}

impl Place {
    pub(crate) fn new(brokers: &str) -> Self {
        Self { brokers: brokers.to_owned(), topics: Mutex::default() }
    }

    /// A log of its own. It may lose what was acknowledged when its broker's
    /// machine fails, as one of a run that ends in an hour may.
    pub(crate) async fn fresh(&self, partitions: u32) -> Result<KafkaConfig> {
        let mut random = [0; 6];
        OsEntropy.fill(&mut random);
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let config = opened_with(&self.brokers, &format!("bench-{random}"));
        let topics = [config.topic.clone(), config.checkpoints_topic(), config.hosts_topic()];
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).extend(topics);
        init(&config, NewTopics { partitions, replicas: 1, in_sync_min: 1 }).await?;
        Ok(config)
    }

    /// Removes every log of this run.
    pub(crate) async fn remove_topics(&self) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.brokers).create()?;
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        if topics.is_empty() {
            return Ok(());
        }
        let options = AdminOptions::new().operation_timeout(Some(ASK_MAX));
        for removed in admin.delete_topics(&topics, &options).await? {
            if let Err((topic, code)) = removed {
                eprintln!("the topic {topic} is still there: {code}");
            }
        }
        Ok(())
    }
}

/// How every host of this run is configured.
pub(crate) fn opened_with(brokers: &str, topic: &str) -> KafkaConfig {
    let mut config = KafkaConfig::new(brokers, topic);
    config.allow_lossy = true;
    // A host that folds a long log is waited for.
    config.read_max = Duration::from_secs(600);
    config.write_max = Duration::from_secs(30);
    config
}

/// A host whose view is a redb file in `dir`.
pub(crate) async fn open(config: &KafkaConfig, dir: &Path) -> Result<Arc<KafkaStore>> {
    let engine = RedbEngine::open(&RedbConfig::at(dir.join("view.redb")), &SystemClock)?;
    Ok(Arc::new(KafkaStore::open(config.clone(), Arc::new(engine)).await?))
}

/// Bytes of a view that is closed.
pub(crate) fn view_bytes(dir: &Path) -> Result<u64> {
    Ok(std::fs::metadata(dir.join("view.redb"))?.len())
}

/// A client that reads one partition from `offset` on.
fn reader(config: &KafkaConfig, topic: &str, partition: i32, offset: i64) -> Result<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &config.brokers)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .set("fetch.message.max.bytes", "17825792")
        .create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
    consumer.assign(&list)?;
    Ok(consumer)
}

/// Keys, and bytes or values, of the messages of a partition from `from` on.
fn messages<T>(
    config: &KafkaConfig,
    topic: &str,
    partition: i32,
    from: i64,
    mut each: impl FnMut(Option<&[u8]>, &[u8]) -> T,
) -> Result<Vec<T>> {
    let consumer = reader(config, topic, partition, from)?;
    let (_, end) = consumer.fetch_watermarks(topic, partition, ASK_MAX)?;
    let (mut read, mut at, begun) = (Vec::new(), from, now());
    while at < end {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message?;
            at = message.offset() + 1;
            read.push(each(message.key(), message.payload().unwrap_or_default()));
        }
        if begun.elapsed() > Duration::from_secs(120) {
            bail!("{topic} cannot be read to its end: {at} of {end}");
        }
    }
    Ok(read)
}

/// Bytes of the messages of a partition of the log from `from` on.
pub(crate) fn sizes(config: &KafkaConfig, partition: i32, from: i64) -> Result<Vec<usize>> {
    messages(config, &config.topic, partition, from, |_, value| value.len())
}

/// Bytes of the newest checkpoints of all partitions.
pub(crate) fn checkpoint_bytes(config: &KafkaConfig, partitions: i32) -> Result<u64> {
    let topic = config.checkpoints_topic();
    let mut bytes = 0;
    for partition in 0..partitions {
        let key = format!("p{partition}");
        let manifests = messages(config, &topic, partition, 0, |found, value| {
            (found == Some(key.as_bytes())).then(|| value.to_vec())
        })?;
        let manifest = manifests.into_iter().flatten().next_back().context("no checkpoint")?;
        let manifest: serde_json::Value = serde_json::from_slice(&manifest)?;
        bytes += manifest["bytes"].as_u64().context("a checkpoint's bytes")?;
    }
    Ok(bytes)
}
