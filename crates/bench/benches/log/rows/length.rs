//! One append to journals of several lengths, each beside the bare engine that
//! holds the same rows.

use std::sync::Arc;

use anyhow::Result;
use mainspring_bench::run::peer::{Bare, Txn};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::Twin;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, now};
use mainspring_bench::{Report, Target, percentile, show_lengths};
use mainspring_eventlog::EventLog;
use tempfile::TempDir;

use crate::Plan;

const ROW: &str = "length";

/// Appends to one session before the next takes its place, where it is short.
const SHORT_APPENDS: usize = 20;

/// A store and its peer with journals of one length.
struct Place {
    length: u64,
    log: Arc<dyn EventLog>,
    bare: Box<dyn Bare>,
    twin: Twin,
    writer: Writer,
    shadow: Writer,
    sessions: u64,
    whole: Vec<f64>,
    floor: Vec<f64>,
    _dir: TempDir,
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let events = Events::of_bytes(EVENT_BYTES)?;
    for store in Store::ALL {
        let mut places = Vec::new();
        for length in plan.lengths {
            places.push(Place::filled(plan, store, &events, *length).await?);
        }
        for _ in 0..plan.rounds {
            for place in &mut places {
                place.round(plan, &events).await?;
            }
        }
        let figures: Vec<_> =
            places.iter().map(|place| (place.length, &place.whole[..], &place.floor[..])).collect();
        let (name, peer) = (store.name(), store.peer().name());
        show_lengths(report, ROW, name, peer, &figures, Target::at_most(1.1));
    }
    Ok(())
}

impl Place {
    async fn filled(plan: &Plan, store: Store, events: &Events, length: u64) -> Result<Self> {
        let dir = plan.folder()?;
        let (log, bare) = (store.open(dir.path())?, store.peer().open(dir.path())?);
        let twin = Twin::new()?;
        let (writer, shadow) = (
            Writer::create(&*log, "-", events).await?,
            Writer::create(&*twin.log, "-", events).await?,
        );
        let mut place = Self {
            length,
            log,
            bare,
            twin,
            writer,
            shadow,
            sessions: 0,
            whole: Vec::new(),
            floor: Vec::new(),
            _dir: dir,
        };
        place.next_session(events).await?;
        Ok(place)
    }

    /// A session of this length more, in the store and in its peer.
    async fn next_session(&mut self, events: &Events) -> Result<()> {
        let name = format!("bench-{}", self.sessions);
        self.sessions += 1;
        self.writer = Writer::create(&*self.log, &name, events).await?;
        self.shadow = Writer::create(&*self.twin.log, &name, events).await?;
        self.bare.commit(&[self.twin.take()])?;
        while self.writer.head.seq.get() < self.length {
            let batch = self.writer.link(self.length)?;
            self.writer.append(&*self.log, &batch).await?;
            self.shadow.append(&*self.twin.log, &batch).await?;
            self.bare.commit(&[self.twin.take()])?;
        }
        Ok(())
    }

    async fn round(&mut self, plan: &Plan, events: &Events) -> Result<()> {
        let short = self.length < 1_000;
        let part = if short { SHORT_APPENDS.min(plan.appends) } else { plan.appends };
        let (mut whole, mut floor) = (Vec::new(), Vec::new());
        while whole.len() < plan.appends {
            if short {
                self.next_session(events).await?;
            }
            for _ in 0..part {
                let begun = now();
                self.writer.append_one(&*self.log).await?;
                whole.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            for txn in self.shadowed(part).await? {
                let begun = now();
                self.bare.commit(std::slice::from_ref(&txn))?;
                floor.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        for (figures, rounds) in [(&mut whole, &mut self.whole), (&mut floor, &mut self.floor)] {
            figures.sort_by(f64::total_cmp);
            rounds.push(percentile(figures, 50.0));
        }
        Ok(())
    }

    async fn shadowed(&mut self, appends: usize) -> Result<Vec<Txn>> {
        let mut txns = Vec::with_capacity(appends);
        for _ in 0..appends {
            self.shadow.append_one(&*self.twin.log).await?;
            txns.push(self.twin.take());
        }
        Ok(txns)
    }
}
