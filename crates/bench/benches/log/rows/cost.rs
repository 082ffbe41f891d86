//! What a record costs before the disk: canonical bytes, hash, fold; and what
//! chain, compare-and-swap and fence take of a durable append.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use mainspring_api::{Event, Hash, Head, Seq};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, fresh_id, now};
use mainspring_bench::{Line, Report, Target, Unit, percentile};
use mainspring_eventlog::{
    Batch, EventLog, LogError, SessionView, canonical, record_bytes, record_hash,
};
use sha2::{Digest as _, Sha256};

use crate::Plan;

const ROW: &str = "cost of a record";
const CHECKS: &str = "checks";
const PREV: Hash = Hash::new([0xa5; 32]);
const SEQ: Seq = Seq::new(1_234_567);

/// Nanoseconds for each record, by round.
#[derive(Debug, Default)]
struct Costs {
    sha: Vec<f64>,
    hash: Vec<f64>,
    canonical: Vec<f64>,
    link: Vec<f64>,
    fold: Vec<f64>,
}

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let events = Events::of_bytes(EVENT_BYTES)?;
    let sample: Vec<Event> = (0..plan.costed).map(|n| events.event(Seq::new(n + 2))).collect();
    let mut costs = Costs::default();
    for _ in 0..plan.rounds {
        costs.add_round(&sample)?;
    }
    for (what, figures) in [
        ("SHA-256 and canonical bytes, linked", &costs.link),
        ("canonical bytes", &costs.canonical),
        ("record hash", &costs.hash),
        ("fold", &costs.fold),
    ] {
        let line = Line::alone(ROW, what, Unit::Nanos, figures);
        report.push(line.beside("SHA-256 of its bytes", figures, &costs.sha));
    }
    for store in Store::durable() {
        checks(plan, store, &events, &costs.hash, report).await?;
    }
    Ok(())
}

impl Costs {
    fn add_round(&mut self, sample: &[Event]) -> Result<()> {
        let mut forms = Vec::with_capacity(sample.len());
        self.canonical.push(each(sample.len(), || {
            for event in sample {
                forms.push(canonical::event_bytes(event)?);
            }
            Ok(())
        })?);
        self.hash.push(each(sample.len(), || {
            for form in &forms {
                black_box(record_hash(form, Some(&PREV), SEQ));
            }
            Ok(())
        })?);
        let records: Vec<_> =
            forms.iter().map(|form| record_bytes(form, Some(&PREV), SEQ)).collect();
        self.sha.push(each(sample.len(), || {
            for record in &records {
                black_box(Sha256::digest(record));
            }
            Ok(())
        })?);
        let (mut head, mut batches) = (Head::EMPTY, Vec::with_capacity(sample.len()));
        let unlinked: Vec<_> = sample.iter().map(|event| vec![event.clone().into()]).collect();
        self.link.push(each(sample.len(), || {
            for records in unlinked {
                let batch = Batch::link(head, records)?;
                head = batch.head();
                batches.push(batch);
            }
            Ok(())
        })?);
        let (mut view, mut table) = (SessionView::default(), HashMap::new());
        self.fold.push(each(sample.len(), || {
            for (batch, event) in batches.iter().zip(sample) {
                view.apply(event, batch.head(), EVENT_BYTES, &mut table)?;
            }
            Ok(())
        })?);
        black_box(view);
        Ok(())
    }
}

/// Nanoseconds for each of `count`.
fn each(count: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = now();
    work()?;
    Ok(nanos(begun.elapsed(), count))
}

fn nanos(took: Duration, count: usize) -> f64 {
    took.as_nanos() as f64 / count as f64
}

/// Chain, compare-and-swap and fence cannot be switched off, so what they take
/// is measured alone and taken away: the record's hash, and a whole append that
/// is refused, on a store in memory. That append also pays for the way to the
/// judgement and for the error, so the difference is an upper bound.
async fn checks(
    plan: &Plan,
    store: Store,
    events: &Events,
    hash: &[f64],
    report: &mut Report,
) -> Result<()> {
    let dir = plan.folder()?;
    let log = store.open(dir.path())?;
    let mut writer = Writer::create(&*log, "bench-0", events).await?;
    let memory = Store::Memory.open(dir.path())?;
    let judged = Writer::filled(&*memory, "bench-0", events, 10).await?;
    let stale = Batch::link(Head::at(Seq::new(3), PREV), judged.one())?;
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for hash in hash {
        let mut figures = Vec::with_capacity(plan.appends);
        for _ in 0..plan.appends {
            let begun = now();
            writer.append_one(&*log).await?;
            figures.push(begun.elapsed().as_nanos() as f64);
        }
        figures.sort_by(f64::total_cmp);
        let p50 = percentile(&figures, 50.0);
        let begun = now();
        for _ in 0..plan.appends {
            refused(&*memory, &judged, &stale).await?;
        }
        on.push(p50 / 1e3);
        off.push((p50 - hash - nanos(begun.elapsed(), plan.appends)) / 1e3);
    }
    let line = Line::alone(CHECKS, format!("{} p50", store.name()), Unit::Micros, &on);
    report.push(
        line.beside("without hash and judgement", &on, &off).held_to(Some(Target::at_most(1.05))),
    );
    Ok(())
}

async fn refused(log: &dyn EventLog, writer: &Writer, stale: &Batch) -> Result<()> {
    let fence = mainspring_api::Fence::NONE;
    match log.append(&writer.uid, fresh_id(), fence, stale).await {
        Err(LogError::Conflict { .. }) => Ok(()),
        other => anyhow::bail!("a stale append was answered with {other:?}"),
    }
}
