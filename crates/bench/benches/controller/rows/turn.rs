//! What a turn costs beside the same appends, made directly on the same store.

use std::sync::Arc;

use anyhow::Result;
use mainspring_api::{AppendId, Fence, Harness, Head, OsEntropy};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::now;
use mainspring_bench::{Line, Report, Target, Unit, percentile};
use mainspring_controller::Journal;
use mainspring_eventlog::{EventLog, mint_any};

use crate::Plan;
use crate::turns::{Agent, Template, append, controller, create, execution, turn};

const ROW: &str = "turn";

/// Turns of one round, for each turn of the plan: they are short, and one of
/// them that the scheduler cut in two must not be the middle one.
const TURNS_PER_TURN: usize = 5;

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.folder()?;
    let log = Store::Memory.open(dir.path())?;
    let template = Template::record().await?;
    let uid = create(&*log, "subject").await?;
    let controller = controller(Journal::new(Arc::clone(&log), uid)).await?;
    let agent: Arc<dyn Harness> = Arc::new(Agent);
    let mut floor = Floor::new(&log, template).await?;
    let (mut turns, mut floors, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let (mut whole, mut direct) = (Vec::new(), Vec::new());
        for _ in 0..plan.turns * TURNS_PER_TURN {
            let next = turn();
            let begun = now();
            controller.exec(&agent, next).await?;
            whole.push(begun.elapsed().as_secs_f64() * 1e6);
            direct.push(floor.turn().await?);
        }
        whole.sort_by(f64::total_cmp);
        direct.sort_by(f64::total_cmp);
        let (whole, direct) = (percentile(&whole, 50.0), percentile(&direct, 50.0));
        turns.push(whole);
        floors.push(direct);
        more.push(whole - direct);
    }
    let line = Line::alone(ROW, "memory p50, 5 effects, 10 records", Unit::Micros, &turns);
    report
        .push(line.beside("the same appends", &turns, &floors).held_to(Some(Target::at_most(3.0))));
    let line = Line::alone(ROW, "memory p50, more than the appends", Unit::Micros, &more);
    report.push(line.held_to(Some(Target::at_most(50.0))));
    Ok(())
}

/// A session that is appended to without a controller.
struct Floor {
    log: Arc<dyn EventLog>,
    uid: mainspring_api::SessionUid,
    template: Template,
    head: Head,
    fence: Fence,
    turns: u64,
}

impl Floor {
    async fn new(log: &Arc<dyn EventLog>, template: Template) -> Result<Self> {
        let uid = create(&**log, "floor").await?;
        let holder = mainspring_eventlog::Holder { id: "bench".into(), name: "bench".into() };
        let fence = mint_any(&**log, &uid, || AppendId::random(&OsEntropy), holder).await?;
        let log = Arc::clone(log);
        Ok(Self { log, uid, template, head: Head::EMPTY, fence, turns: 0 })
    }

    /// The appends of one turn; returns the microseconds that they took.
    async fn turn(&mut self) -> Result<f64> {
        let appends = self.template.appends(&execution(self.turns)?);
        self.turns += 1;
        let begun = now();
        for records in appends {
            self.head = append(&*self.log, &self.uid, self.head, self.fence, records).await?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    }
}
