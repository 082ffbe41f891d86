//! Verifying a journal beside SHA-256 over the same record bytes in one loop.

use std::time::Duration;

use anyhow::Result;
use mainspring_bench::run::floor::{hash, record_bytes_of, verify};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::{Events, Writer, now};
use mainspring_bench::{Line, Report, Target, Unit};
use rustix::time::{ClockId, clock_gettime};

use crate::Plan;

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
            floor.add(
                plan.verified,
                timed(async {
                    hash(&loose);
                    Ok(())
                })
                .await?,
            );
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
