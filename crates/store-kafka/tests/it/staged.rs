//! What an import left behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::Head;
use mainspring_eventlog::{EventLog, ImportRecord, ImportRow, LogError, NewSession};
use mainspring_testkit::{append, read_all, sample};

use crate::support::{Cluster, empty_view, fresh_topic, host};

/// What nobody went on with is removed, and the same import can begin anew: in
/// the partition of its uid, wherever it was staged first.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_import_left_is_removed_after_its_time() {
    let Some(mut config) = fresh_topic(Cluster::One).await else { return };
    config.staged_max = Duration::ZERO;
    let log = host(&config, empty_view()).await;
    let source = NewSession::bare(sample::session("source"), "default");
    log.create(sample::fresh_id(), source.clone()).await.unwrap();
    for n in 0..4 {
        append(&*log, &source.uid, sample::records([sample::input(&format!("{n}"))]))
            .await
            .unwrap();
    }
    let records = read_all(&*log, &source.uid).await.unwrap();
    let id = sample::fresh_id();
    let row = |name: &str| ImportRow {
        session: NewSession::bare(sample::session(name), "default"),
        create_time: None,
        parent: None,
    };
    let cut = records[..3].iter().cloned().map(|record| Ok(ImportRecord::Record(record)));
    let cut = cut.chain([Err(LogError::unavailable("the line broke"))]);
    // A page is staged once it is full, or when the records end: here it is cut.
    let whole: Vec<_> = records.iter().cloned().map(ImportRecord::Record).collect();
    log.import(id, row("copy"), stream::iter(cut.collect::<Vec<_>>()).boxed()).await.unwrap_err();
    log.sweep().await.unwrap();
    assert_eq!(log.staged(id).await.unwrap(), Head::EMPTY);
    let head = records.last().unwrap().head();
    // The row comes with the head, and names a session of another partition.
    let named = (0..100)
        .map(|n| format!("named-{n}"))
        .find(|name| !log.may_be_child(&sample::session("copy"), &sample::session(name)));
    let named = row(&named.unwrap());
    let uid = named.session.uid.clone();
    let all = whole.into_iter().chain([ImportRecord::Head(head, Some(Box::new(named)))]).map(Ok);
    log.import(id, row("copy"), stream::iter(all.collect::<Vec<_>>()).boxed()).await.unwrap();
    log.sweep().await.unwrap();
    let again: Arc<_> = host(&config, empty_view()).await;
    let hashes = |records: &[mainspring_eventlog::StoredRecord]| {
        records.iter().map(|record| record.hash).collect::<Vec<_>>()
    };
    assert_eq!(hashes(&read_all(&*again, &uid).await.unwrap()), hashes(&records));
}
