//! Forks by the controller, which verifies the whole prefix each time, beside
//! SHA-256 over the same bytes; and the commits that they take.

use std::sync::Arc;

use anyhow::Result;
use mainspring_api::{OsEntropy, Seq, SessionUid};
use mainspring_bench::run::floor::{hash, record_bytes_of};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::Tap;
use mainspring_bench::run::workload::now;
use mainspring_bench::{Line, Report, Target, Unit};
use mainspring_controller::{Journal, fork};
use mainspring_eventlog::NewSession;

use crate::Plan;
use crate::turns::{Template, create};

const ROW: &str = "fork";

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let template = Template::record().await?;
    for store in [Store::Memory, Store::Redb] {
        for length in plan.lengths {
            at_length(plan, store, &template, *length, report).await?;
        }
    }
    Ok(())
}

async fn at_length(
    plan: &Plan,
    store: Store,
    template: &Template,
    length: u64,
    report: &mut Report,
) -> Result<()> {
    let dir = plan.folder()?;
    let tap = Arc::new(Tap::default());
    let log = store.open_tapped(dir.path(), &tap)?;
    let uid = create(&*log, "parent").await?;
    template.fill(&*log, &uid, length).await?;
    let loose = record_bytes_of(&*log, &uid).await?;
    let parent = Journal::new(log, uid);
    let (mut took, mut floors, mut most) = (Vec::new(), Vec::new(), 0);
    for round in 0..plan.rounds {
        let child = NewSession::bare(SessionUid::new(&format!("child-{round}"))?, "bench");
        let before = tap.commits();
        let begun = now();
        fork(&parent, Seq::new(length), vec![child], &OsEntropy).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
        most = most.max(tap.commits() - before);
        let begun = now();
        hash(&loose);
        floors.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let what = format!("{}, {length} records, at the head", store.name());
    let line = Line::alone(ROW, what, Unit::Micros, &took);
    report.push(line.beside("SHA-256 of the prefix", &took, &floors));
    let what = format!("{}, {length} records, commits", store.name());
    let line = Line::alone(ROW, what, Unit::Count, &[most as f64]);
    report.push(line.held_to(Some(Target::at_most(2.0))));
    Ok(())
}
