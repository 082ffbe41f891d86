//! A store that is slower than the harness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use mainspring_api::{EventBody, HarnessError};
use mainspring_eventlog::{
    Engine, EngineError, EngineUsage, Keep, KvOptions, KvRead, KvStore, KvWrite, MemoryEngine,
};

use crate::support::{Fixture, Probe};

const OUTPUTS: usize = 10_000;
/// Of a commit. A harness gives its next output in about a thousandth of it.
const COMMIT: Duration = Duration::from_micros(500);

/// Of each output behind a connection.
const AHEAD_BYTES: usize = 4 << 10;

/// Memory behind a committer, as a disk is, whose commits take a while.
#[derive(Debug, Default)]
struct Slow {
    engine: MemoryEngine,
    commits: Arc<AtomicU64>,
}

#[deny(clippy::missing_trait_methods)]
impl Engine for Slow {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.engine.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        std::thread::sleep(COMMIT);
        self.engine.write(f)?;
        self.commits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.engine.reopen()
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn backup(&self, label: &str) -> Result<Option<std::path::PathBuf>, EngineError> {
        self.engine.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.engine.usage()
    }
}

/// The session on a slow store, and how many commits that has made.
async fn slowed(session: &Fixture) -> (Fixture, Arc<AtomicU64>) {
    let engine = Slow::default();
    let commits = Arc::clone(&engine.commits);
    let log = Arc::new(KvStore::open(engine, KvOptions::default()).unwrap());
    mainspring_testkit::create(&*log, &session.uid).await.unwrap();
    (session.through(log), commits)
}

fn text(number: usize) -> String {
    format!("output {number}")
}

/// Ten thousand outputs are recorded in the order that they were given.
async fn in_order(session: &Fixture) {
    let events = session.events().await;
    let outputs = events.iter().filter_map(|event| match &event.body {
        EventBody::Output(Some(message)) => Some(message.plain_text()),
        _ => None,
    });
    let mut count = 0;
    for (number, output) in outputs.enumerate() {
        assert_eq!(output.trim_end(), text(number));
        count += 1;
    }
    assert_eq!(count, OUTPUTS);
}

/// A harness in this process is never ahead of what is durable.
async fn b29_the_producer_waits_for_a_slow_store(session: Fixture) {
    assert_eq!(most_ahead(&session, 0).await, 0, "outputs returned before they were durable");
}

/// One behind a connection has no answer to wait for. It is ahead by what the
/// connection's windows take, however much it has to say.
async fn b29_the_producer_is_ahead_by_a_window_at_most(session: Fixture) {
    let ahead = most_ahead(&session, AHEAD_BYTES).await;
    assert!(ahead < OUTPUTS as u64 / 10, "{ahead} outputs of {AHEAD_BYTES} bytes were queued");
}

/// Gives each output once the last one returned. By how many was the harness ahead?
async fn most_ahead(session: &Fixture, padding: usize) -> u64 {
    let (session, commits) = slowed(session).await;
    let ahead = Arc::new(AtomicU64::new(0));
    let most_ahead = Arc::clone(&ahead);
    let probe = Probe::new(move |_, sink| {
        let (commits, ahead) = (Arc::clone(&commits), Arc::clone(&most_ahead));
        async move {
            let before = commits.load(Ordering::SeqCst);
            for number in 0..OUTPUTS {
                sink.output(format!("{}{:padding$}", text(number), "")).await?;
                let done = commits.load(Ordering::SeqCst) - before;
                ahead.fetch_max((number as u64 + 1).saturating_sub(done), Ordering::SeqCst);
            }
            Ok::<_, HarnessError>(())
        }
    });
    let placed = session.place(probe).await;
    session.exec(&placed, &["go"]).await.unwrap();
    in_order(&session).await;
    ahead.load(Ordering::SeqCst)
}

/// One that gives all its outputs at once has them recorded one after the
/// other, in order.
async fn b29_a_burst_of_outputs_keeps_its_order(session: Fixture) {
    let (session, _) = slowed(&session).await;
    let probe = Probe::new(move |_, sink| async move {
        try_join_all((0..OUTPUTS).map(|number| sink.output(text(number)))).await?;
        Ok::<_, HarnessError>(())
    });
    let placed = session.place(probe).await;
    session.exec(&placed, &["go"]).await.unwrap();
    in_order(&session).await;
}

mod in_process {
    use crate::support::{Cell, Kept, Reach, run};

    const CELL: Cell = Cell { reach: Reach::InProcess, kept: Kept::Memory };

    #[test]
    fn b29_the_producer_waits_for_a_slow_store() {
        run(CELL, super::b29_the_producer_waits_for_a_slow_store);
    }

    #[test]
    fn b29_a_burst_of_outputs_keeps_its_order() {
        run(CELL, super::b29_a_burst_of_outputs_keeps_its_order);
    }
}

mod wire {
    use crate::support::{Cell, Kept, Reach, run};

    const CELL: Cell = Cell { reach: Reach::Wire, kept: Kept::Memory };

    #[test]
    fn b29_the_producer_is_ahead_by_a_window_at_most() {
        run(CELL, super::b29_the_producer_is_ahead_by_a_window_at_most);
    }

    #[test]
    fn b29_a_burst_of_outputs_keeps_its_order() {
        run(CELL, super::b29_a_burst_of_outputs_keeps_its_order);
    }
}
