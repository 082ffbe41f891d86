//! Records a second of running a journal's turns again, beside its verification.

use std::sync::Arc;

use anyhow::Result;
use mainspring_api::Harness;
use mainspring_bench::run::floor::verify;
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::now;
use mainspring_bench::{Line, Report, Unit};
use mainspring_controller::Journal;

use crate::Plan;
use crate::turns::{Agent, TURN_RECORDS, Template, controller, create};

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let template = Template::record().await?;
    let agent: Arc<dyn Harness> = Arc::new(Agent);
    for store in [Store::Memory, Store::Redb] {
        let dir = plan.folder()?;
        let log = store.open(dir.path())?;
        let uid = create(&*log, "replayed").await?;
        template.fill(&*log, &uid, plan.replayed).await?;
        // Verified once, as a host has it.
        let journal = Journal::new(Arc::clone(&log), uid.clone());
        journal.open().await?;
        let reader = controller(journal).await?;
        let (mut rates, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let begun = now();
            let turns = reader.replay_into(&agent, Arc::new(drop)).await?;
            rates.push(plan.replayed as f64 / begun.elapsed().as_secs_f64());
            anyhow::ensure!(turns * TURN_RECORDS == plan.replayed, "{turns} turns were replayed");
            let begun = now();
            verify(&log, &uid).await?;
            floors.push(plan.replayed as f64 / begun.elapsed().as_secs_f64());
        }
        let what = format!("{}, {} records", store.name(), plan.replayed);
        let line = Line::alone("replay", what, Unit::PerSecond, &rates);
        report.push(line.beside("verify", &rates, &floors));
    }
    Ok(())
}
