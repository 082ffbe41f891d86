//! A store that cannot be reached.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_api::{Classify as _, Condition, ErrorKind, HarnessRegistry as _, HarnessState};
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, Keep, KvOptions, KvRead, KvStore, KvWrite, MemoryEngine,
};

use super::{Host, assert_is, remote};
use crate::support::{World, caller};

/// A memory engine that fails while it is told to.
#[derive(Debug, Default)]
struct Flaky {
    inner: MemoryEngine,
    down: AtomicBool,
}

impl Flaky {
    fn up(&self) -> Result<(), EngineError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(EngineError::of("down", std::io::Error::other("down"))),
            false => Ok(()),
        }
    }
}

impl Engine for Flaky {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.up()?;
        self.inner.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        self.up()?;
        self.inner.write(f)
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.up()?;
        self.inner.reopen()
    }

    fn is_durable(&self) -> bool {
        self.inner.is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        self.inner.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.inner.usage()
    }
}

fn world() -> (World, Arc<Flaky>) {
    let engine = Arc::new(Flaky::default());
    let log = KvStore::open(Arc::clone(&engine), KvOptions::default()).unwrap();
    (World { log: Arc::new(log), ..World::new() }, engine)
}

#[tokio::test(start_paused = true)]
async fn a_host_does_not_start_on_a_store_that_fails() {
    let (world, engine) = world();
    engine.down.store(true, Ordering::SeqCst);
    let started = Host::on(&world, &["scripted"], None).await.map(|_| ()).unwrap_err();
    assert_ne!(started.kind(), ErrorKind::Precondition, "{started}");
    engine.down.store(false, Ordering::SeqCst);
    Host::on(&world, &["scripted"], None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_stored_is_not_routed() {
    let (world, engine) = world();
    let host = Host::on(&world, &["scripted"], None).await.unwrap();
    host.registered("old").await;
    engine.down.store(true, Ordering::SeqCst);
    host.register("agent", remote("h:1")).await.unwrap_err();
    host.retire("old").await.unwrap_err();
    host.get("old").await.unwrap_err();
    host.registry.list(&caller(), 0, "", true).await.unwrap_err();
    engine.down.store(false, Ordering::SeqCst);
    assert_is(host.create("agent").await, Condition::UnknownHarness);
    host.create("old").await.unwrap();
    assert_eq!(host.get("old").await.unwrap().state, HarnessState::Active);
    // And is made when it is asked for again.
    host.registered("agent").await;
    host.create("agent").await.unwrap();
}
