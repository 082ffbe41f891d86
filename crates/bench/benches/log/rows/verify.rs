//! Verifying a journal beside SHA-256 over the same record bytes in one loop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use mainspring_api::{Head, Seq, SessionUid};
use mainspring_bench::{Line, Report, Target, Unit};
use mainspring_eventlog::{EventLog, Level, ReadLimit, Verified, record_bytes};
use rustix::time::{ClockId, clock_gettime};
use sha2::{Digest as _, Sha256};

use crate::Plan;
use crate::store::Store;
use crate::workload::{Events, Writer, now};

const ROW: &str = "verify";
const BYTES: usize = 512;

/// Records a second, by the wall and by the time that processors spent.
#[derive(Debug, Default)]
struct Rates {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Rates {
    fn add(&mut self, records: u64, (wall, cpu): (Duration, Duration)) {
        self.wall.push(records as f64 / wall.as_secs_f64());
        self.cpu.push(records as f64 / cpu.as_secs_f64());
    }
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.folder()?;
    let events = Events::of_bytes(BYTES)?;
    for store in Store::ALL {
        let log = store.open(dir.path())?;
        let writer = Writer::filled(&*log, "bench-0", &events, plan.verified).await?;
        let loose = record_bytes_of(&*log, &writer.uid).await?;
        let (mut subject, mut floor) = (Rates::default(), Rates::default());
        // The first time finds nothing cached, and is not what a turn waits for.
        verify(&log, &writer.uid).await?;
        for _ in 0..plan.rounds {
            floor.add(plan.verified, timed(async { hash(&loose) }).await?);
            subject.add(plan.verified, timed(verify(&log, &writer.uid)).await?);
        }
        let name = store.name();
        for (how, rates, floors) in
            [("", &subject.wall, &floor.wall), (", processor time", &subject.cpu, &floor.cpu)]
        {
            let line = Line::alone(ROW, format!("{name}{how}"), Unit::PerSecond, rates);
            report.push(
                line.beside(format!("SHA-256{how}"), rates, floors)
                    .held_to(Some(Target::at_least(0.6))),
            );
        }
        let line =
            Line::alone(ROW, format!("{name}, records of 512 B"), Unit::PerSecond, &subject.wall);
        report.push(line.held_to(Some(Target::at_least(1e6))));
    }
    Ok(())
}

/// The bytes that each record's hash is of.
async fn record_bytes_of(log: &dyn EventLog, uid: &SessionUid) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    let mut from = Seq::new(1);
    loop {
        let page = log.read(uid, from, ReadLimit::default(), Level::Committed).await?;
        let Some(last) = page.last() else { return Ok(out) };
        from = last.seq.next();
        out.extend(page.iter().map(|r| record_bytes(&r.canonical, r.prev_hash.as_ref(), r.seq)));
    }
}

fn hash(records: &[Vec<u8>]) -> Result<()> {
    for record in records {
        std::hint::black_box(Sha256::digest(record));
    }
    Ok(())
}

pub(crate) async fn verify(log: &Arc<dyn EventLog>, uid: &SessionUid) -> Result<()> {
    let mut steps = log.verify(uid, Head::EMPTY);
    while let Some(step) = steps.next().await {
        if let Verified::Done(_) = step? {
            return Ok(());
        }
    }
    None.context("the verification did not end")
}

async fn timed(work: impl Future<Output = Result<()>>) -> Result<(Duration, Duration)> {
    let (wall, cpu) = (now(), processor_time()?);
    work.await?;
    Ok((wall.elapsed(), processor_time()?.saturating_sub(cpu)))
}

/// What all threads of this process spent so far.
fn processor_time() -> Result<Duration> {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::new(spent.tv_sec.try_into()?, spent.tv_nsec.try_into()?))
}
