//! A view that is opened anew under a host, without what was not durable.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_api::{Classify as _, ErrorKind, Seq, SessionUid};
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, EventLog, Keep, KvRead, KvWrite, Level, MemoryEngine,
    NewSession, ReadLimit, Space,
};
use mainspring_store_kafka::KafkaStore;
use mainspring_testkit::{append, sample};

use crate::support::{Cluster, fresh_topic, host};

type Entries = Vec<(Space, Vec<u8>, Vec<u8>)>;

/// An engine that is opened anew as a crash leaves it: with what was durable.
#[derive(Debug, Default)]
struct Forgetful {
    live: MemoryEngine,
    durable: Mutex<Entries>,
}

impl Forgetful {
    fn entries(&self) -> Result<Entries, EngineError> {
        let mut entries = Entries::new();
        self.live.read(&mut |kv| {
            for space in Space::ALL {
                kv.scan(space, &[], &[0xff; 8], &mut |key, value| {
                    entries.push((space, key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                })?;
            }
            Ok(())
        })?;
        Ok(entries)
    }
}

impl Engine for Forgetful {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.live.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        let mut durable = self.durable.lock().unwrap();
        let mut kept = Keep::No;
        self.live.write(&mut |kv| {
            kept = f(kv)?;
            Ok(kept)
        })?;
        if kept == Keep::Yes {
            *durable = self.entries()?;
        }
        Ok(())
    }

    fn reopen(&self) -> Result<(), EngineError> {
        let durable = self.durable.lock().unwrap();
        let live = self.entries()?;
        self.live.write(&mut |kv| {
            live.iter().try_for_each(|(space, key, _)| kv.delete(*space, key))?;
            durable.iter().try_for_each(|(space, key, value)| kv.put(*space, key, value))?;
            Ok(Keep::Yes)
        })
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn backup(&self, _: &str) -> Result<Option<PathBuf>, EngineError> {
        Ok(None)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.live.usage()
    }
}

/// What was acknowledged is shown, or the read says that it cannot: never less.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_opened_anew_shows_nothing_old() {
    let Some(config) = fresh_topic(Cluster::One).await else { return };
    let view = Arc::new(Forgetful::default());
    let log = host(&config, Arc::clone(&view) as Arc<dyn Engine>).await;
    let session = NewSession::bare(sample::session("s"), "default");
    log.create(sample::fresh_id(), session.clone()).await.unwrap();
    for said in 1..=60 {
        let records = sample::records([sample::input(&format!("{said}"))]);
        while let Err(error) = append(&*log, &session.uid, records.clone()).await {
            // Nothing was sent: it could not be seen where the journal ends.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        assert_eq!(shown(&log, &session.uid).await, said);
        if said % 7 == 0 {
            // All of it is applied by now, and some of it is not durable.
            view.reopen().unwrap();
            assert_eq!(shown(&log, &session.uid).await, said);
        }
    }
}

/// How many records a journal is shown with, once it is. A strict read would
/// write a message, by which the host would notice.
async fn shown(log: &KafkaStore, session: &SessionUid) -> usize {
    let all = ReadLimit { records: 1_000, bytes: 1 << 20 };
    let shown = async {
        loop {
            match log.read(session, Seq::ZERO, all, Level::Committed).await {
                Ok(records) => return records.len(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), shown).await.unwrap()
}
