//! Reading a journal through in pages, beside a bare range scan of the same rows.

use anyhow::Result;
use mainspring_api::{Seq, SessionUid};
use mainspring_bench::run::peer::Peer;
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::Twin;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, now};
use mainspring_bench::{Line, Report, Unit};
use mainspring_eventlog::{EventLog, Level, ReadLimit};

use crate::Plan;

const ROW: &str = "scan";

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.folder()?;
    let events = Events::of_bytes(EVENT_BYTES)?;
    let twin = Twin::new()?;
    let mut floors = Vec::new();
    for peer in [Peer::Redb, Peer::Fjall, Peer::Sqlite, Peer::Memory] {
        floors.push((peer, peer.open(dir.path())?, Vec::new()));
    }
    let mut shadow = Writer::create(&*twin.log, "bench-0", &events).await?;
    while shadow.head.seq.get() < plan.scanned {
        let batch = shadow.link(plan.scanned)?;
        shadow.append(&*twin.log, &batch).await?;
        let txn = twin.take();
        for (_, bare, _) in &mut floors {
            bare.commit(std::slice::from_ref(&txn))?;
        }
    }
    let mut subjects = Vec::new();
    for store in Store::ALL {
        let log = store.open(dir.path())?;
        let writer = Writer::filled(&*log, "bench-0", &events, plan.scanned).await?;
        subjects.push((store, log, writer, Vec::new()));
    }
    for _ in 0..plan.rounds {
        for (peer, bare, rates) in &mut floors {
            let begun = now();
            let count = bare.scan()?;
            anyhow::ensure!(count == plan.scanned, "{} has {count} records", peer.name());
            rates.push(count as f64 / begun.elapsed().as_secs_f64());
        }
        for (_, log, writer, rates) in &mut subjects {
            let begun = now();
            let count = read_through(&**log, &writer.uid).await?;
            rates.push(count as f64 / begun.elapsed().as_secs_f64());
        }
    }
    for (store, _, _, rates) in &subjects {
        for (peer, _, floor) in &floors {
            if *peer == store.peer() || *peer == Peer::Sqlite {
                let line = Line::alone(ROW, store.name(), Unit::PerSecond, rates);
                report.push(line.beside(peer.name(), rates, floor));
            }
        }
    }
    Ok(())
}

/// Reads a journal page by page; returns how many records it has.
pub(crate) async fn read_through(log: &dyn EventLog, uid: &SessionUid) -> Result<u64> {
    let mut from = Seq::new(1);
    loop {
        let page = log.read(uid, from, ReadLimit::default(), Level::Committed).await?;
        match page.last() {
            Some(last) => from = last.seq.next(),
            None => return Ok(from.get() - 1),
        }
    }
}
