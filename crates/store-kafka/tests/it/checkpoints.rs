//! A fresh host starts from a checkpoint.

use std::sync::Arc;

use mainspring_api::SessionUid;
use mainspring_eventlog::{EventLog, Level, ListQuery, NewSession};
use mainspring_store_kafka::KafkaStore;
use mainspring_testkit::{append, read_all, sample, verify_all};

use crate::support::{Cluster, empty_view, fresh_topic, host};

fn query() -> ListQuery {
    ListQuery { project: "default".into(), page_size: 500, ..ListQuery::default() }
}

async fn sessions(log: &KafkaStore, names: impl Iterator<Item = String>) -> Vec<SessionUid> {
    let mut uids = Vec::new();
    for name in names {
        let session = NewSession::bare(sample::session(&name), "default");
        uids.push(session.uid.clone());
        log.create(sample::fresh_id(), session).await.unwrap();
        for n in 0..5 {
            let records = sample::records([sample::input(&format!("{name} {n}"))]);
            append(log, uids.last().unwrap(), records).await.unwrap();
        }
    }
    uids
}

async fn assert_same(a: &Arc<KafkaStore>, b: &Arc<KafkaStore>, uids: &[SessionUid]) {
    let rows = a.list(query(), Level::Strict).await.unwrap().rows;
    assert_eq!(rows, b.list(query(), Level::Strict).await.unwrap().rows);
    assert_eq!(rows.len(), uids.len());
    for uid in uids {
        let records = read_all(&**a, uid).await.unwrap();
        assert_eq!(records, read_all(&**b, uid).await.unwrap());
        assert_eq!(records.len(), 5);
        verify_all(&**b, uid).await.unwrap();
    }
}

/// What is before the checkpoint is not read again, and nothing is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_host_starts_from_a_checkpoint() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let a = host(&config, empty_view()).await;
    let mut uids = sessions(&a, (0..20).map(|n| format!("before-{n}"))).await;
    a.list(query(), Level::Strict).await.unwrap();
    a.checkpoint().await.unwrap();
    uids.extend(sessions(&a, (0..10).map(|n| format!("after-{n}"))).await);
    a.list(query(), Level::Strict).await.unwrap();
    // A second one takes the place of the first.
    a.checkpoint().await.unwrap();
    uids.extend(sessions(&a, (0..5).map(|n| format!("later-{n}"))).await);

    let b = host(&config, empty_view()).await;
    assert!(b.catch_up().folded >= 6 * 30, "it starts far into the log: {:?}", b.catch_up());
    assert_same(&a, &b, &uids).await;
    assert_eq!(a.digests().unwrap().len(), 3);
    let next = sessions(&b, std::iter::once("by-b".to_owned())).await;
    uids.extend(next);
    assert_same(&b, &a, &uids).await;
    // Up to one end: strict reads have written more meanwhile.
    for log in [&a, &b] {
        log.list(query(), Level::Committed).await.unwrap();
    }
    assert_eq!(a.digests().unwrap(), b.digests().unwrap());
}

/// A checkpoint whose chunks are not what its manifest says is left, and the log
/// is read from its start.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_does_not_hold_is_left() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let a = host(&config, empty_view()).await;
    let uids = sessions(&a, (0..4).map(|n| format!("s{n}"))).await;
    let forged = serde_json::json!({
        "form": 1, "store": a.genesis().store_id.as_str(), "generation": "00", "first": 0,
        "chunks": 1, "sha256": "00", "bytes": 1, "next": 2, "log_bytes": 1,
    });
    let mut of_checkpoints = config.clone();
    of_checkpoints.topic = config.checkpoints_topic();
    for partition in 0..3_u32 {
        let key = format!("p{partition}");
        crate::raw::put_with_key(&of_checkpoints, partition, &key, forged.to_string().as_bytes());
    }
    let b = host(&config, empty_view()).await;
    assert_same(&a, &b, &uids).await;
}
