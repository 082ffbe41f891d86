//! What a host process is told when it is started.

use std::path::PathBuf;
use std::time::Duration;

use mainspring_api::SessionUid;
use mainspring_store_kafka::KafkaConfig;
use mainspring_testkit::sample;
use serde_json::{Value, json};

/// Where a process that is to be a host finds its plan.
pub(crate) const PLAN_ENV: &str = "CHAOS_HOST";

/// Sessions that all hosts race on.
pub(crate) const SESSIONS: usize = 16;

/// Longest wait of a write. A pause of a host that is longer than this and than
/// [`READ_MAX`] outlives every wait of its store.
pub(crate) const WRITE_MAX: Duration = Duration::from_secs(3);
/// Longest wait of a read.
pub(crate) const READ_MAX: Duration = Duration::from_secs(6);

/// One incarnation of a host.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) brokers: String,
    pub(crate) topic: String,
    /// Whether the topic may lose what was acknowledged when the power goes.
    pub(crate) lossy: bool,
    pub(crate) seed: u64,
    pub(crate) host: usize,
    pub(crate) incarnation: usize,
    /// The file of its view.
    pub(crate) view: PathBuf,
    pub(crate) ledger: PathBuf,
}

impl Plan {
    pub(crate) fn to_json(&self) -> String {
        json!({
            "brokers": self.brokers, "topic": self.topic, "lossy": self.lossy, "seed": self.seed,
            "host": self.host, "incarnation": self.incarnation,
            "view": self.view, "ledger": self.ledger,
        })
        .to_string()
    }

    /// The plan of this process, if it is to be a host.
    pub(crate) fn from_env() -> Option<Self> {
        let plan = std::env::var(PLAN_ENV).ok()?;
        let plan: Value = serde_json::from_str(&plan).expect("a plan is JSON");
        let text = |key: &str| plan[key].as_str().expect("a text").to_owned();
        let number = |key: &str| plan[key].as_u64().expect("a number");
        Some(Self {
            brokers: text("brokers"),
            topic: text("topic"),
            lossy: plan["lossy"].as_bool().expect("a flag"),
            seed: number("seed"),
            host: usize::try_from(number("host")).expect("few hosts"),
            incarnation: usize::try_from(number("incarnation")).expect("few incarnations"),
            view: text("view").into(),
            ledger: text("ledger").into(),
        })
    }
}

/// How a host uses the topic.
pub(crate) fn config(brokers: &str, topic: &str, lossy: bool) -> KafkaConfig {
    let mut config = KafkaConfig::new(brokers, topic);
    config.allow_lossy = lossy;
    config.write_max = WRITE_MAX;
    config.read_max = READ_MAX;
    config
}

/// The sessions, the same in every process.
pub(crate) fn session(number: usize) -> SessionUid {
    sample::session(&format!("chaos-{number}"))
}
