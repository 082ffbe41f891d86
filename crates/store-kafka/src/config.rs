//! How a store on Kafka runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mainspring_eventlog::Limits;
use rdkafka::ClientConfig;

/// Bytes that one message may have, and that the topic must take.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a frame that are filled with queued appends.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;

/// Where the log is, and how to get to it.
#[derive(Clone)]
pub struct KafkaConfig {
    /// Brokers to start from: `host:port`, with commas between.
    pub brokers: String,
    /// The topic of the log. Beside it are `<topic>.checkpoints` and `<topic>.hosts`.
    pub topic: String,
    /// Client settings by librdkafka's names, as for TLS and SASL. They win over
    /// what this crate sets, but for those that the guarantees rest on: with one
    /// of these a store is not opened.
    pub client: BTreeMap<String, String>,
    /// Sizes that the store accepts.
    pub limits: Limits,
    /// How long a write waits to read its own message back. Beyond it, the
    /// outcome is unknown. Default 10 s.
    pub write_max: Duration,
    /// How long a read waits for what was committed when it began. Default 30 s.
    pub read_max: Duration,
    /// How long a host may be silent before it counts as dead. Default 3 s.
    pub silence_max: Duration,
    /// How often a host gives a sign of life. Default 1 s.
    pub beat: Duration,
    /// Bytes of messages that are kept in memory. Default 64 MiB.
    pub cache_bytes: usize,
    /// Bytes of log after which the fold is checkpointed again, if it is also as
    /// much as the last checkpoint took. Default 64 MiB.
    pub checkpoint_bytes: u64,
    /// How long what an import staged is kept for it to go on. Default 7 days.
    pub staged_max: Duration,
    /// Takes a topic that may lose what was acknowledged: one replica that syncs
    /// no write. For development.
    pub allow_lossy: bool,
}

/// What only this crate sets, by all of its names.
const FIXED: [&str; 34] = [
    "acks",
    "auto.commit.enable",
    "auto.offset.reset",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "isolation.level",
    "linger.ms",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "message.max.bytes",
    "message.timeout.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "queue.buffering.max.ms",
    "queued.max.messages.kbytes",
    "receive.message.max.bytes",
    "request.required.acks",
    "request.timeout.ms",
    "session.timeout.ms",
    "transactional.id",
];

impl KafkaConfig {
    /// The defaults, on these brokers and this topic.
    #[must_use]
    pub fn new(brokers: &str, topic: &str) -> Self {
        let mut limits = Limits::default();
        limits.event_bytes_max = 8 << 20;
        limits.batch_bytes_max = 12 << 20;
        Self {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            client: BTreeMap::new(),
            limits,
            write_max: Duration::from_secs(10),
            read_max: Duration::from_secs(30),
            silence_max: Duration::from_secs(3),
            beat: Duration::from_secs(1),
            cache_bytes: 64 << 20,
            checkpoint_bytes: 64 << 20,
            staged_max: Duration::from_secs(7 * 24 * 3_600),
            allow_lossy: false,
        }
    }

    /// A client setting that was given and that the guarantees rest on: this
    /// crate alone sets it.
    #[must_use]
    pub fn fixed_setting(&self) -> Option<&str> {
        self.client.keys().map(String::as_str).find(|key| FIXED.contains(key))
    }

    /// The topic of the checkpoints.
    #[must_use]
    pub fn checkpoints_topic(&self) -> String {
        format!("{}.checkpoints", self.topic)
    }

    /// The topic of the hosts' signs of life.
    #[must_use]
    pub fn hosts_topic(&self) -> String {
        format!("{}.hosts", self.topic)
    }

    /// What every client is told. A frozen broker is left within seconds: the
    /// defaults wait for a minute.
    pub(crate) fn base(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("socket.timeout.ms", "2500")
            .set("retry.backoff.ms", "50")
            .set("retry.backoff.max.ms", "250")
            .set("topic.metadata.refresh.fast.interval.ms", "50")
            .set("topic.metadata.refresh.interval.ms", "30000")
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "200")
            .set("socket.nagle.disable", "true")
            // Of every client: where the log ends is asked for with it, too, and a
            // foreign transaction must not hide the rest.
            .set("isolation.level", "read_uncommitted");
        for (key, value) in &self.client {
            config.set(key, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    /// For what may stand in the log twice.
    pub(crate) fn plain_producer(&self) -> ClientConfig {
        let mut config = self.producer();
        config.set("enable.idempotence", "false");
        config
    }

    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = self.base();
        let timeout = self.write_max.as_millis().max(2_000).to_string();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
            .set("message.timeout.ms", timeout)
            .set("request.timeout.ms", "2500");
        config
    }

    /// For messages that are read by their offset: what is assigned next waits
    /// for the fetch before it.
    pub(crate) fn reader(&self) -> ClientConfig {
        let mut config = self.consumer();
        config
            .set("fetch.wait.max.ms", "5")
            .set("queued.max.messages.kbytes", "32768")
            .set("fetch.max.bytes", (17 << 20).to_string());
        config
    }

    /// For one message each of many partitions: little of each is fetched.
    pub(crate) fn small_reader(&self) -> ClientConfig {
        let mut config = self.reader();
        config
            .set("fetch.message.max.bytes", (64 << 10).to_string())
            .set("fetch.max.bytes", (4 << 20).to_string());
        config
    }

    pub(crate) fn consumer(&self) -> ClientConfig {
        let mut config = self.base();
        config
            .set("group.id", format!("{}.none", self.topic))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // An offset that is not there any more is an answer, not a reason to go elsewhere.
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "500")
            .set("fetch.error.backoff.ms", "50")
            .set("fetch.message.max.bytes", (MESSAGE_BYTES_MAX + (1 << 20)).to_string())
            .set("receive.message.max.bytes", (64 << 20).to_string())
            .set("fetch.max.bytes", (32 << 20).to_string())
            .set("queued.max.messages.kbytes", "32768")
            // A fold that waited for its view reads on at once, and not a second later.
            .set("fetch.queue.backoff.ms", "5");
        config
    }
}

impl fmt::Debug for KafkaConfig {
    /// Names the settings of the client and keeps their values to itself: some
    /// are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("client", &self.client.keys())
            .finish_non_exhaustive()
    }
}
