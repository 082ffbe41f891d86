//! What a broker must allow the principal of a host.

use crate::config::KafkaConfig;

/// What must be allowed on one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Its name.
    pub topic: String,
    /// What a host does to it, as Kafka names operations.
    pub operations: &'static [&'static str],
    /// What [`init`](crate::init) does besides.
    pub init_operations: &'static [&'static str],
}

/// Everything that a host, and whoever creates its topics, must be allowed, and
/// nothing that follows from it: who may read or write a topic may also have it
/// described, and write without duplicates. Consumers have a group by name
/// alone, and need no rule for it.
#[must_use]
pub fn access(config: &KafkaConfig) -> Vec<Access> {
    let topics = [config.topic.clone(), config.checkpoints_topic(), config.hosts_topic()];
    let access = topics.map(|topic| Access {
        topic,
        operations: &["READ", "WRITE", "DESCRIBE_CONFIGS"],
        init_operations: &["CREATE"],
    });
    access.into()
}
