//! Brokers, topics and stores for tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mainspring_api::{Entropy as _, OsEntropy};
use mainspring_eventlog::{Engine, EventLog, MemoryEngine};
use mainspring_store_kafka::{KafkaConfig, KafkaStore, NewTopics, init};

/// Which of the clusters that `cargo xtask kafka up --name NAME` starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cluster {
    /// One broker.
    One,
    /// Three brokers, of which two must have a message.
    Three,
}

impl Cluster {
    const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Three => "three",
        }
    }

    /// Where its brokers are, if it was started.
    pub(crate) fn brokers(self) -> Option<String> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
        let state = target.join("kafka").join(self.name()).join("cluster.json");
        let state = std::fs::read_to_string(state).ok()?;
        let state: serde_json::Value = serde_json::from_str(&state).ok()?;
        let brokers = state["brokers"].as_array()?.iter().map(|broker| {
            let host = broker["host"].as_str().unwrap_or("127.0.0.1");
            format!("{host}:{}", broker["port"])
        });
        Some(brokers.collect::<Vec<_>>().join(","))
    }

    /// Its brokers; says that the test is skipped, and why, when there are none.
    pub(crate) fn or_skip(self) -> Option<String> {
        let brokers = self.brokers();
        if brokers.is_none() {
            let name = self.name();
            eprintln!("skipped: no Kafka; `cargo xtask kafka up --name {name}` starts it");
        }
        brokers
    }

    const fn new_topics(self) -> NewTopics {
        match self {
            Self::One => NewTopics { partitions: 3, replicas: 1, in_sync_min: 1 },
            Self::Three => NewTopics { partitions: 2, replicas: 3, in_sync_min: 2 },
        }
    }
}

/// A topic of its own for each test.
pub(crate) async fn fresh_topic(cluster: Cluster) -> Option<KafkaConfig> {
    fresh_topic_of(cluster, cluster.new_topics()).await
}

/// As [`fresh_topic`], made otherwise.
pub(crate) async fn fresh_topic_of(cluster: Cluster, new: NewTopics) -> Option<KafkaConfig> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let brokers = cluster.or_skip()?;
    let mut random = [0; 6];
    OsEntropy.fill(&mut random);
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let topic = format!("t{}-{random}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut config = KafkaConfig::new(&brokers, &topic);
    config.allow_lossy = cluster == Cluster::One;
    init(&config, new).await.unwrap();
    Some(config)
}

/// A host with a view of its own.
pub(crate) async fn host(config: &KafkaConfig, view: Arc<dyn Engine>) -> Arc<KafkaStore> {
    Arc::new(KafkaStore::open(config.clone(), view).await.unwrap())
}

/// A view in memory: empty.
pub(crate) fn empty_view() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::default())
}

/// A store under test; each opening is another host with an empty view.
pub(crate) struct Subject {
    config: KafkaConfig,
    store: Arc<KafkaStore>,
}

impl Subject {
    /// A store on a topic of its own; `None` without that cluster.
    pub(crate) async fn fresh(cluster: Cluster) -> Option<Self> {
        let config = fresh_topic(cluster).await?;
        let store = host(&config, empty_view()).await;
        Some(Self { config, store })
    }
}

impl mainspring_conformance::log_store::Subject for Subject {
    const OFFERS: &'static [&'static str] = &["follow", "rows", "liveness", "warmth"];

    fn log(&self) -> Arc<dyn EventLog> {
        Arc::clone(&self.store) as _
    }

    async fn reopen(self) -> Self {
        let Self { config, store } = self;
        drop(store);
        let store = host(&config, empty_view()).await;
        Self { config, store }
    }
}
