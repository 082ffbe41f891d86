//! What is wrong with topics is found when a store is opened, and named.

use std::sync::Arc;
use std::time::Duration;

use mainspring_eventlog::{Engine, LogError, Space};
use mainspring_store_kafka::{KafkaConfig, KafkaStore, NewTopics, check, init};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::support::{Cluster, empty_view, fresh_topic, host};

/// How long brokers may take to tell of a change.
const TOLD_MAX: Duration = Duration::from_secs(20);

/// As the support's topics on one broker are made.
const NEW: NewTopics = NewTopics { partitions: 3, replicas: 1, in_sync_min: 1 };

/// The settings of a log that loses nothing by them.
const SETTINGS: [(&str, &str); 5] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("unclean.leader.election.enable", "false"),
    ("max.message.bytes", "16777216"),
];

fn client(config: &KafkaConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers).set("group.id", "none");
    client
}

fn admin(config: &KafkaConfig) -> AdminClient<DefaultClientContext> {
    client(config).create().unwrap()
}

/// The name of topics that nobody has made, beside one that somebody has.
fn beside(config: &KafkaConfig) -> KafkaConfig {
    let mut other = config.clone();
    other.topic.push_str("-b");
    other
}

/// The topics of a store, without a log in them.
async fn bare_topics(config: &KafkaConfig) {
    let names = [config.topic.clone(), config.checkpoints_topic(), config.hosts_topic()];
    let policies = ["delete", "compact", "delete"];
    let topics = names.iter().zip(policies).map(|(name, policy)| {
        let topic = NewTopic::new(name, 3, TopicReplication::Fixed(1))
            .set("max.message.bytes", "16777216")
            .set("cleanup.policy", policy);
        if policy == "delete" { topic.set("retention.ms", "-1") } else { topic }
    });
    let topics: Vec<_> = topics.collect();
    for made in admin(config).create_topics(&topics, &AdminOptions::new()).await.unwrap() {
        made.unwrap();
    }
    // Brokers tell of a topic a little after it was made.
    let since = Instant::now();
    while let Err(error) = check(config).await {
        assert!(since.elapsed() < TOLD_MAX, "{error}");
    }
}

/// Makes a topic's settings the right ones but for one.
async fn alter(config: &KafkaConfig, changed: Option<(&str, &str)>) {
    let settings = SETTINGS.map(|(name, value)| match changed {
        Some((key, other)) if key == name => (name, other),
        _ => (name, value),
    });
    let resource = AlterConfig::new(ResourceSpecifier::Topic(&config.topic));
    let resource = settings.iter().fold(resource, |all, (name, value)| all.set(name, value));
    let altered = admin(config).alter_configs([&resource], &AdminOptions::new()).await.unwrap();
    altered.into_iter().for_each(|one| drop(one.unwrap()));
}

fn write(config: &KafkaConfig, partition: i32, bytes: &[u8]) {
    let producer: BaseProducer = client(config).create().unwrap();
    let record: BaseRecord<'_, (), [u8]> =
        BaseRecord::to(&config.topic).partition(partition).payload(bytes);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(TOLD_MAX).unwrap();
}

/// The first message of a partition.
fn first_message(config: &KafkaConfig, partition: i32) -> Vec<u8> {
    let consumer: BaseConsumer = client(config).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&config.topic, partition, Offset::Offset(0)).unwrap();
    consumer.assign(&list).unwrap();
    let message = consumer.poll(TOLD_MAX).unwrap().unwrap();
    message.payload().unwrap().to_vec()
}

#[track_caller]
fn assert_halted(error: &LogError, code: &str, says: &str) {
    let LogError::Halted { code: found, why } = error else { panic!("{error:?}") };
    assert!(*found == code && why.contains(says), "{found}: {why}");
}

/// Waits until opening is refused like this: brokers hear of changes one by one.
async fn is_refused(config: &KafkaConfig, view: &Arc<dyn Engine>, code: &str, says: &str) {
    let since = Instant::now();
    loop {
        let opened = KafkaStore::open(config.clone(), Arc::clone(view)).await;
        let found = match opened {
            Err(LogError::Halted { code: found, why }) if found == code && why.contains(says) => {
                return;
            }
            other => other.map(drop),
        };
        assert!(since.elapsed() < TOLD_MAX, "not {code}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_may_lose_messages_is_refused_by_its_name() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    for (setting, value) in [
        ("retention.ms", "1000"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("unclean.leader.election.enable", "true"),
        ("max.message.bytes", "1000000"),
    ] {
        alter(&config, Some((setting, value))).await;
        let says = format!("{setting} is {value}, and must be ");
        is_refused(&config, &empty_view(), "topic_lossy", &says).await;
    }
    alter(&config, None).await;
    let since = Instant::now();
    while let Err(error) = KafkaStore::open(config.clone(), empty_view()).await {
        assert!(since.elapsed() < TOLD_MAX, "{error}");
    }
}

/// Opened as the product opens it: on a runtime that is gone afterwards.
async fn opened_elsewhere(config: &KafkaConfig) -> KafkaStore {
    let (config, view) = (config.clone(), empty_view());
    let open = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(KafkaStore::open(config, view)).unwrap()
    };
    tokio::task::spawn_blocking(open).await.unwrap()
}

/// Looked at every 15 s, also by a host that has nothing else to do.
async fn stops_soon(store: &KafkaStore, code: &str) {
    let since = Instant::now();
    while store.halted().is_none() {
        assert!(since.elapsed() < Duration::from_secs(45), "it goes on, and is not {code}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(store.halted().unwrap().code(), code);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_stops_when_its_topic_is_made_lossy() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let store = opened_elsewhere(&config).await;
    alter(&config, Some(("retention.ms", "1000"))).await;
    stops_soon(&store, "topic_lossy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_stops_when_its_topic_gets_more_partitions() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let store = opened_elsewhere(&config).await;
    let grown = NewPartitions::new(&config.topic, 5);
    let grown = admin(&config).create_partitions([&grown], &AdminOptions::new()).await.unwrap();
    grown.into_iter().for_each(|one| drop(one.unwrap()));
    stops_soon(&store, "partitions_changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_that_syncs_nothing_is_refused_unless_it_may_be_lost() {
    let Some(mut config) = fresh_topic(Cluster::One).await else { return };
    config.allow_lossy = false;
    is_refused(&config, &empty_view(), "topic_lossy", "replication is 1 replicas").await;
    let report = check(&config).await.unwrap();
    assert_eq!(report.durability.class(), "development");
    assert_eq!(report.faults().count(), 1);
    let mut flushed = beside(&config);
    flushed.allow_lossy = false;
    init(&flushed, NEW).await.unwrap();
    assert_eq!(check(&flushed).await.unwrap().durability.class(), "flushed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_is_named() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let other = beside(&config);
    is_refused(&other, &empty_view(), "topic_missing", &other.topic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_without_a_genesis_are_no_log_until_it_is_written() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let config = beside(&config);
    bare_topics(&config).await;
    is_refused(&config, &empty_view(), "not_a_log", "has no genesis yet").await;
    let begun = init(&config, NEW).await.unwrap();
    assert_eq!((begun.topics.len(), begun.partitions), (0, 3));
    host(&config, empty_view()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_another_kind_are_no_log_and_stay_alone() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let config = beside(&config);
    bare_topics(&config).await;
    write(&config, 0, b"hello");
    is_refused(&config, &empty_view(), "not_a_log", "does not start with a genesis").await;
    let error = init(&config, NEW).await.unwrap_err();
    assert_halted(&error, "not_a_log", "partition 0");
    let consumer: BaseConsumer = client(&config).create().unwrap();
    for (partition, end) in [(0, 1), (1, 0), (2, 0)] {
        let found = consumer.fetch_watermarks(&config.topic, partition, TOLD_MAX).unwrap();
        assert_eq!(found, (0, end));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_partitions_than_the_genesis_says_are_refused() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let grown = NewPartitions::new(&config.topic, 5);
    let grown = admin(&config).create_partitions([&grown], &AdminOptions::new()).await.unwrap();
    grown.into_iter().for_each(|one| drop(one.unwrap()));
    let says = "has 5 partitions, its genesis says 3";
    is_refused(&config, &empty_view(), "partitions_changed", says).await;
    let report = check(&config).await.unwrap();
    let found = report.findings.iter().find(|finding| !finding.holds).unwrap();
    assert_eq!((&*found.setting, &*found.found, &*found.wanted), ("partitions", "5", "3"));
}

/// Everything that an engine holds.
fn content(view: &Arc<dyn Engine>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let read = view.read(&mut |kv| {
        Space::ALL.into_iter().try_for_each(|space| {
            kv.scan(space, &[], &[0xff; 16], &mut |key, value| {
                all.push((key.to_vec(), value.to_vec()));
                std::ops::ControlFlow::Continue(())
            })
        })
    });
    read.unwrap();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_made_anew_under_a_view_is_refused_and_the_view_kept() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let view = empty_view();
    let store = host(&config, Arc::clone(&view)).await;
    let known = store.genesis().store_id.clone();
    drop(store);
    let before = content(&view);
    assert!(!before.is_empty());
    let deleted = admin(&config).delete_topics(&[&config.topic], &AdminOptions::new()).await;
    deleted.unwrap().into_iter().for_each(|one| drop(one.unwrap()));
    let since = Instant::now();
    loop {
        // The old topic may still be told of for a moment.
        match init(&config, NEW).await {
            Ok(begun) if begun.genesis.store_id != known => break,
            other => assert!(since.elapsed() < TOLD_MAX, "{other:?}"),
        }
    }
    is_refused(&config, &view, "log_recreated", known.as_str()).await;
    assert!(content(&view) == before, "the view was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn beginning_a_log_again_changes_nothing() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let known = check(&config).await.unwrap().genesis.unwrap();
    let again = init(&config, NEW).await.unwrap();
    assert_eq!((again.genesis, again.topics.len(), again.partitions), (known, 0, 0));
    let other = NewTopics { partitions: 4, ..NEW };
    let error = init(&config, other).await.unwrap_err();
    assert!(matches!(error, LogError::Invalid(why) if why.contains("another number")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_setting_that_the_guarantees_rest_on_is_refused() {
    let Some(mut config) = fresh_topic(Cluster::One).await else { return };
    config.client.insert("acks".to_owned(), "1".to_owned());
    assert_eq!(config.fixed_setting(), Some("acks"));
    let error = KafkaStore::open(config, empty_view()).await.unwrap_err();
    assert!(matches!(error, LogError::Invalid(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_those_who_begin_a_log_at_once_one_does() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let config = beside(&config);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let config = config.clone();
            tokio::spawn(async move { init(&config, NEW).await.unwrap().genesis })
        })
        .collect();
    let mut begun = Vec::new();
    for task in tasks {
        begun.push(task.await.unwrap());
    }
    begun.dedup();
    assert_eq!(begun.len(), 1, "{begun:?}");
    // It is the same in every partition, or the store would not open.
    assert_eq!(*host(&config, empty_view()).await.genesis(), begun[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_begun_in_part_is_begun_to_the_end() {
    let Some(first) = fresh_topic(Cluster::One).await else { return };
    let config = beside(&first);
    bare_topics(&config).await;
    // What one wrote that died after its first partition.
    write(&config, 0, &first_message(&first, 0));
    is_refused(&config, &empty_view(), "not_a_log", "has no genesis yet").await;
    let known = check(&first).await.unwrap().genesis.unwrap();
    let begun = init(&config, NEW).await.unwrap();
    assert_eq!((&begun.genesis, begun.partitions), (&known, 2));
    assert_eq!(*host(&config, empty_view()).await.genesis(), known);
}
