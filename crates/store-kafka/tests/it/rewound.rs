//! A view that is opened anew under a host, without what was not durable.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Classify as _, ErrorKind, SystemClock};
use mainspring_eventlog::{Engine, EventLog, NewSession};
use mainspring_store_redb::{RedbConfig, RedbEngine};
use mainspring_testkit::{append, read_all, sample};

use crate::support::{Cluster, fresh_topic, host};

/// What was acknowledged is shown, or the read says that it cannot: never less.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_opened_anew_shows_nothing_old() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = RedbConfig::at(dir.path().join("view.redb"));
    let view = Arc::new(RedbEngine::open(&file, &SystemClock).unwrap());
    let log = host(&config, Arc::clone(&view) as Arc<dyn Engine>).await;
    let session = NewSession::bare(sample::session("s"), "default");
    log.create(sample::fresh_id(), session.clone()).await.unwrap();
    for said in 1..=60 {
        let records = sample::records([sample::input(&format!("{said}"))]);
        while let Err(error) = append(&*log, &session.uid, records.clone()).await {
            // Nothing was sent: it could not be seen where the journal ends.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        if said % 7 == 0 {
            view.reopen().unwrap();
        }
        let shown = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                match read_all(&*log, &session.uid).await {
                    Ok(records) => return records.len(),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            }
        });
        assert_eq!(shown.await.unwrap(), said);
    }
}
