//! What a broker must allow the principal of a host.

use crate::config::KafkaConfig;

/// What an access rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A topic.
    Topic,
    /// A consumer group.
    Group,
}

/// What must be allowed on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// What it is.
    pub resource: Resource,
    /// Its name.
    pub name: String,
    /// What a host does to it, as Kafka names operations.
    pub operations: &'static [&'static str],
    /// What [`init`](crate::init) does besides.
    pub init_operations: &'static [&'static str],
}

/// Everything that a host, and whoever creates its topics, must be allowed, and
/// nothing that follows from it: who may read or write a topic may also have it
/// described, and write without duplicates.
#[must_use]
pub fn access(config: &KafkaConfig) -> Vec<Access> {
    let topics = [config.topic.clone(), config.checkpoints_topic(), config.hosts_topic()];
    let topics = topics.into_iter().map(|name| Access {
        resource: Resource::Topic,
        name,
        operations: &["READ", "WRITE", "DESCRIBE_CONFIGS"],
        init_operations: &["CREATE"],
    });
    let group = Access {
        resource: Resource::Group,
        // As the settings of every consumer have it; nothing is ever committed to it.
        name: format!("{}.none", config.topic),
        operations: &["READ"],
        init_operations: &[],
    };
    topics.chain([group]).collect()
}
