//! What may happen to a log, and what hosts make of it: all of them alike.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Classify as _, SessionUid};
use mainspring_eventlog::{EventLog, Level, ListQuery, LogError, NewSession};
use mainspring_store_kafka::{Halt, KafkaConfig, KafkaStore, void_digest};
use mainspring_testkit::{append, read_all, sample};

use crate::raw;
use crate::support::{Cluster, empty_view, fresh_topic, host};

async fn session(log: &KafkaStore, name: &str) -> SessionUid {
    let session = NewSession::bare(sample::session(name), "default");
    let uid = session.uid.clone();
    log.create(sample::fresh_id(), session).await.unwrap();
    uid
}

async fn say(log: &KafkaStore, uid: &SessionUid, text: &str) -> Result<(), LogError> {
    append(log, uid, sample::records([sample::input(text)])).await.map(drop)
}

/// The partition of a session: where its messages are.
fn partition_of(config: &KafkaConfig, uid: &SessionUid) -> u32 {
    let has = |partition: &u32| {
        let found = raw::messages(config, *partition);
        let name = uid.as_str().as_bytes();
        found.iter().any(|(_, message)| message.windows(name.len()).any(|part| part == name))
    };
    (0..3).find(has).expect("the session is in one of them")
}

async fn halted(log: &KafkaStore) -> Halt {
    for _ in 0..600 {
        if let Some(why) = log.halted() {
            return why.clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the host goes on: {:?}", log.catch_up());
}

/// Garbage is void for all, and nothing stops for it.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_void_on_all_hosts_alike() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let (a, b) = (host(&config, empty_view()).await, host(&config, empty_view()).await);
    let uid = session(&a, "s").await;
    say(&a, &uid, "one").await.unwrap();
    let whole = raw::frame(1, &[(raw::head(2, &[]), Vec::new())]);
    for partition in 0..3 {
        raw::put(&config, partition, b"");
        raw::put(&config, partition, b"not a frame");
        raw::put(&config, partition, &whole[..whole.len() - 1]);
        raw::put(&config, partition, &vec![0xff; 100_000]);
        // Of rules that nobody has activated.
        raw::put(&config, partition, &raw::frame(2, &[(raw::head(2, &[]), Vec::new())]));
        // Of a kind that there is not.
        raw::put(&config, partition, &raw::frame(1, &[(raw::head(99, &[]), Vec::new())]));
    }
    say(&b, &uid, "two").await.unwrap();
    assert_eq!(read_all(&*a, &uid).await.unwrap().len(), 2);
    let c = host(&config, empty_view()).await;
    assert_eq!(read_all(&*c, &uid).await.unwrap(), read_all(&*a, &uid).await.unwrap());
    let query = ListQuery { project: "default".into(), page_size: 1, ..ListQuery::default() };
    let mut digests = Vec::new();
    for log in [&a, &b, &c] {
        // Up to the same end, whatever the barriers of the others added.
        log.list(query.clone(), Level::Strict).await.unwrap();
    }
    for log in [&a, &b, &c] {
        log.list(query.clone(), Level::Committed).await.unwrap();
        digests.push(log.digests().unwrap());
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// Rules that this build does not know come into force: nobody judges by guess.
#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_higher_level_stop_every_host_by_name() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let a = host(&config, empty_view()).await;
    let uid = session(&a, "s").await;
    let partition = partition_of(&config, &uid);
    let level = 2_u16.to_be_bytes();
    raw::put(&config, partition, &raw::frame(1, &[(raw::head(4, &[&level]), Vec::new())]));
    let why = halted(&a).await;
    assert!(matches!(why, Halt::RulesUnknown { level: 2, known: 1, .. }), "{why}");
    let refused = say(&a, &uid, "late").await.unwrap_err();
    assert_eq!(refused.code(), "rules_unknown");
    assert_eq!(a.get(&uid, Level::Committed).await.unwrap_err().code(), "rules_unknown");
    // A fresh host comes to the same place.
    let b = host(&config, empty_view()).await;
    assert_eq!(halted(&b).await, why);
}

/// The log is cut below what a host has folded: refused by name, and the view
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_start_was_deleted_is_refused() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let view = empty_view();
    let a = host(&config, Arc::clone(&view)).await;
    let uid = session(&a, "s").await;
    say(&a, &uid, "one").await.unwrap();
    a.get(&uid, Level::Strict).await.unwrap();
    let partition = partition_of(&config, &uid);
    drop(a);
    delete_before(&config, partition, 2).await;
    let refused = KafkaStore::open(config.clone(), view).await.unwrap_err();
    assert_eq!(refused.code(), "log_truncated", "{refused}");
    let refused = KafkaStore::open(config.clone(), empty_view()).await.unwrap_err();
    assert_eq!(refused.code(), "log_truncated", "{refused}");
}

async fn delete_before(config: &KafkaConfig, partition: u32, offset: i64) {
    use rdkafka::admin::{AdminClient, AdminOptions};
    use rdkafka::client::DefaultClientContext;
    use rdkafka::{ClientConfig, Offset, TopicPartitionList};
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &config.brokers).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&config.topic, partition.cast_signed(), Offset::Offset(offset))
        .unwrap();
    admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
}

/// A digest that is not the fold's: the host folds again, and then stops by name.
/// An operator's word that the digest is wrong lets it go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_stops_a_host_until_it_is_voided() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let view = empty_view();
    let a = host(&config, Arc::clone(&view)).await;
    let uid = session(&a, "s").await;
    say(&a, &uid, "one").await.unwrap();
    let partition = partition_of(&config, &uid);
    let of = raw::messages(&config, partition).last().unwrap().0.cast_unsigned();
    let wrong = raw::head(3, &[&of.to_be_bytes(), &[7; 32]]);
    // With an operation in the same message: it is judged once, whatever becomes
    // of the digest.
    let beside = (0..100).map(|n| sample::session(&format!("beside-{n}")));
    let beside = beside.into_iter().find(|beside| a.may_be_child(&uid, beside)).unwrap();
    let name = beside.as_str().as_bytes();
    let length = u16::try_from(name.len()).unwrap().to_be_bytes();
    let create = raw::head(16, &[&length, name, &[0]]);
    let row = serde_json::json!({
        "project": "default", "name": "", "harness": "", "model": "", "labels": {},
        "annotations": {}, "origin": null, "identity": null, "owner": null,
    });
    let entries = [(create, row.to_string().into_bytes()), (wrong, Vec::new())];
    raw::put(&config, partition, &raw::frame(1, &entries));
    let at = of + 1;
    let why = halted(&a).await;
    assert_eq!(why, Halt::DigestDisagrees { partition, offset: at });
    assert_eq!(say(&a, &uid, "late").await.unwrap_err().code(), "digest_disagrees");
    drop(a);
    void_digest(&config, partition, at).await.unwrap();
    for view in [view, empty_view()] {
        let again = host(&config, view).await;
        say(&again, &uid, "more").await.unwrap();
        again.get(&beside, Level::Committed).await.unwrap();
        assert!(again.halted().is_none());
    }
}

/// A session whose entry counts and cannot be read here is refused; others go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_cannot_be_read_breaks_its_session_alone() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let (a, b) = (host(&config, empty_view()).await, host(&config, empty_view()).await);
    let (uid, other) = (session(&a, "broken").await, session(&a, "whole").await);
    let partition = partition_of(&config, &uid);
    let mut fields = Vec::new();
    fields.extend_from_slice(&u16::try_from(uid.as_str().len()).unwrap().to_be_bytes());
    fields.extend_from_slice(uid.as_str().as_bytes());
    fields.extend_from_slice(&[0; 9]); // after the empty head
    fields.extend_from_slice(&1_u64.to_be_bytes());
    fields.push(1);
    fields.extend_from_slice(&[5; 32]);
    fields.extend_from_slice(&0_u64.to_be_bytes());
    fields.push(0);
    let append = raw::head(18, &[&fields]);
    raw::put(
        &config,
        partition,
        &raw::frame(1, &[(append, b"what later versions write".to_vec())]),
    );
    for log in [&a, &b] {
        let refused = log.get(&uid, Level::Strict).await.unwrap_err();
        assert_eq!(refused.code(), "corrupt", "{refused}");
        assert!(refused.to_string().contains("payload"), "{refused}");
        say(log, &other, "goes on").await.unwrap();
    }
    assert_eq!(read_all(&*a, &other).await.unwrap().len(), 2);
}

/// A fork whose payload cannot be read here leaves its child broken, and its
/// parent whole; and no checkpoint takes the broken one to others.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_that_cannot_be_read_breaks_its_child_alone() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let log = host(&config, empty_view()).await;
    let parent = session(&log, "parent").await;
    say(&log, &parent, "before").await.unwrap();
    let partition = partition_of(&config, &parent);
    let mut names = (0..64).map(|n| sample::session(&format!("child-{n}")));
    let child = names.find(|child| log.may_be_child(&parent, child)).unwrap();
    let text = |uid: &SessionUid| {
        let name = uid.as_str().as_bytes();
        [&u16::try_from(name.len()).unwrap().to_be_bytes(), name].concat()
    };
    let (at, one, next) = (1_u64.to_be_bytes(), 1_u32.to_be_bytes(), 2_u64.to_be_bytes());
    let fields: [&[u8]; 8] =
        [&text(&parent), &at, &one, &text(&child), &next, &[1], &[5; 32], &[0]];
    let fork = raw::head(20, &fields);
    raw::put(&config, partition, &raw::frame(1, &[(fork, b"what later versions write".to_vec())]));
    let refused = log.get(&child, Level::Strict).await.unwrap_err();
    assert_eq!(refused.code(), "corrupt", "{refused}");
    say(&log, &parent, "after").await.unwrap();
    assert_eq!(read_all(&*log, &parent).await.unwrap().len(), 2);
    let refused = log.checkpoint().await.unwrap_err();
    assert!(mainspring_api::report(&refused).contains("cannot be read by this build"), "{refused}");
}

/// A transaction of somebody else that nobody ends hides nothing that was
/// committed after it, and the mark that ends it at last holds nobody up.
#[tokio::test(flavor = "multi_thread")]
async fn b47_a_hanging_transaction_hides_nothing() {
    use rdkafka::ClientConfig;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let a = host(&config, empty_view()).await;
    let uid = session(&a, "s").await;
    say(&a, &uid, "before").await.unwrap();
    let partition = partition_of(&config, &uid);
    let ten = Duration::from_secs(10);
    let foreign = || -> BaseProducer {
        ClientConfig::new()
            .set("bootstrap.servers", &config.brokers)
            .set("transactional.id", &config.topic)
            .create()
            .unwrap()
    };
    let hanging = foreign();
    hanging.init_transactions(ten).unwrap();
    hanging.begin_transaction().unwrap();
    let record: BaseRecord<'_, (), str> =
        BaseRecord::to(&config.topic).partition(partition.cast_signed()).payload("never ended");
    hanging.send(record).map_err(|(error, _)| error).unwrap();
    hanging.flush(ten).unwrap();

    say(&a, &uid, "after").await.unwrap();
    let b = host(&config, empty_view()).await;
    assert_eq!(read_all(&*b, &uid).await.unwrap().len(), 2);
    // What is acknowledged on one host is there on the other from then on.
    for written in 3..=52 {
        say(&a, &uid, "and on").await.unwrap();
        assert_eq!(b.head(&uid, Level::Committed).await.unwrap().seq.get(), written);
    }
    // Its successor ends it: the log now ends with a mark that no reader is given.
    foreign().init_transactions(ten).unwrap();
    for log in [&a, &b] {
        assert_eq!(read_all(&**log, &uid).await.unwrap().len(), 52);
    }
    say(&b, &uid, "at last").await.unwrap();
    let c = host(&config, empty_view()).await;
    assert_eq!(read_all(&*c, &uid).await.unwrap().len(), 53);
}
