//! One caller, one record at a time: latency beside a bare commit of the same
//! rows, and beside one write and fdatasync of the same bytes.

use std::sync::Arc;

use anyhow::Result;
use mainspring_bench::run::peer::{Bare, Peer, Txn};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::Twin;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, now};
use mainspring_bench::{Line, Report, Target, Unit, percentile};
use mainspring_eventlog::{Batch, EventLog};

use crate::Plan;

const ROW: &str = "append";

/// The latencies of one round, in microseconds.
#[derive(Debug, Default)]
struct Latencies {
    linked: Vec<f64>,
    whole: Vec<f64>,
}

/// p50 or p99 of each round.
#[derive(Debug, Default)]
struct Rounds {
    /// Linking and appending.
    whole: Vec<f64>,
    /// Appending alone.
    linked: Vec<f64>,
    /// Linking and appending.
    whole_p99: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, round: Latencies) {
        let sorted = |mut figures: Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures
        };
        let (linked, whole) = (sorted(round.linked), sorted(round.whole));
        self.linked.push(percentile(&linked, 50.0));
        self.whole.push(percentile(&whole, 50.0));
        self.whole_p99.push(percentile(&whole, 99.0));
    }
}

struct Subject {
    store: Store,
    log: Arc<dyn EventLog>,
    writer: Writer,
    rounds: Rounds,
}

struct Floor {
    peer: Peer,
    bare: Box<dyn Bare>,
    rounds: Rounds,
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.folder()?;
    let events = Events::of_bytes(EVENT_BYTES)?;
    let mut subjects = Vec::new();
    for store in Store::ALL {
        let log = store.open(dir.path())?;
        let writer = Writer::create(&*log, "bench-0", &events).await?;
        subjects.push(Subject { store, log, writer, rounds: Rounds::default() });
    }
    let twin = Twin::new()?;
    let mut shadow = Writer::create(&*twin.log, "bench-0", &events).await?;
    let created = twin.take();
    let mut floors = Vec::new();
    for peer in Peer::ALL {
        let mut bare = peer.open(dir.path())?;
        bare.commit(std::slice::from_ref(&created))?;
        floors.push(Floor { peer, bare, rounds: Rounds::default() });
    }
    for _ in 0..plan.rounds {
        let mut txns = Vec::with_capacity(plan.appends);
        for _ in 0..plan.appends {
            shadow.append_one(&*twin.log).await?;
            txns.push(twin.take());
        }
        // In turn, and turned around for the next round.
        for floor in &mut floors {
            floor.rounds.add(bare_round(&mut *floor.bare, &txns)?);
        }
        for subject in &mut subjects {
            let round = round(&*subject.log, &mut subject.writer, plan.appends).await?;
            subject.rounds.add(round);
        }
        floors.reverse();
        subjects.reverse();
    }
    subjects.sort_by_key(|subject| subject.store as u8);
    show(&subjects, &floors, report);
    Ok(())
}

async fn round(log: &dyn EventLog, writer: &mut Writer, appends: usize) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    for _ in 0..appends {
        let records = writer.one();
        let begun = now();
        let batch = Batch::link(writer.head, records)?;
        let linked = now();
        writer.append(log, &batch).await?;
        latencies.linked.push(linked.elapsed().as_secs_f64() * 1e6);
        latencies.whole.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies)
}

fn bare_round(bare: &mut dyn Bare, txns: &[Txn]) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    for txn in txns {
        let begun = now();
        bare.commit(std::slice::from_ref(txn))?;
        latencies.whole.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    latencies.linked.clone_from(&latencies.whole);
    Ok(latencies)
}

fn show(subjects: &[Subject], floors: &[Floor], report: &mut Report) {
    let floor = |peer: Peer| {
        let found = floors.iter().find(|floor| floor.peer == peer);
        &found.expect("every peer took part").rounds
    };
    let mut line = |what: String, peer: Peer, figures: &[f64], floors: &[f64], bound| {
        let line = Line::alone(ROW, what, Unit::Micros, figures);
        let target: Option<f64> = bound;
        report.push(line.beside(peer.name(), figures, floors).held_to(target.map(Target::at_most)));
    };
    for Subject { store, rounds, .. } in subjects {
        let name = store.name();
        let bound = |peer| store.promise().filter(|p| p.floor == peer).map(|p| p.append);
        let mut beside = vec![store.peer()];
        if store.is_durable() {
            beside.push(Peer::File);
        }
        for peer in beside {
            let bare = floor(peer);
            line(format!("{name} p50"), peer, &rounds.whole, &bare.whole, bound(peer));
            line(format!("{name} p50, already linked"), peer, &rounds.linked, &bare.whole, None);
        }
        let bare = floor(store.peer());
        line(format!("{name} p99"), store.peer(), &rounds.whole_p99, &bare.whole_p99, None);
        if store.is_durable() {
            let sqlite = floor(Peer::Sqlite);
            line(format!("{name} p50"), Peer::Sqlite, &rounds.whole, &sqlite.whole, None);
        }
    }
    for peer in [Peer::Redb, Peer::Fjall, Peer::Sqlite] {
        let (bare, file) = (floor(peer), floor(Peer::File));
        line(format!("{} p50", peer.name()), Peer::File, &bare.whole, &file.whole, None);
    }
}
