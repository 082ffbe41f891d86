//! New turns and resumed ones on journals of several lengths, each beside the
//! bare engine's commits of the same rows at that length. The host is warm: it
//! has verified the journal before.

use anyhow::Result;
use mainspring_bench::run::floor::verify;
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::now;
use mainspring_bench::{Line, Report, Target, Unit, percentile, show_lengths};

use crate::Plan;
use crate::place::{Place, What};
use crate::turns::Template;

const STORES: [Store; 2] = [Store::Memory, Store::Redb];

/// The medians of each round at one length.
struct At {
    place: Place,
    whole: Vec<f64>,
    floor: Vec<f64>,
}

pub(crate) async fn exec(plan: &Plan, report: &mut Report) -> Result<()> {
    let template = Template::record().await?;
    for store in STORES {
        measure(plan, store, &template, What::Exec, report).await?;
    }
    Ok(())
}

pub(crate) async fn resume(plan: &Plan, report: &mut Report) -> Result<()> {
    let template = Template::record().await?;
    for store in STORES {
        let places = measure(plan, store, &template, What::Resume, report).await?;
        for mut place in places {
            cold(plan, store, &template, &mut place, report).await?;
        }
    }
    Ok(())
}

async fn measure(
    plan: &Plan,
    store: Store,
    template: &Template,
    what: What,
    report: &mut Report,
) -> Result<Vec<Place>> {
    let mut ats = Vec::new();
    for length in plan.lengths {
        let place = Place::filled(plan, store, template, *length).await?;
        ats.push(At { place, whole: Vec::new(), floor: Vec::new() });
    }
    for _ in 0..plan.rounds {
        for at in &mut ats {
            at.round(plan, what, template).await?;
        }
    }
    let row = if what == What::Exec { "exec" } else { "resume" };
    let figures: Vec<_> =
        ats.iter().map(|at| (at.place.length, &at.whole[..], &at.floor[..])).collect();
    show_lengths(report, row, store.name(), store.peer().name(), &figures, Target::at_most(1.1));
    Ok(ats.into_iter().map(|at| at.place).collect())
}

impl At {
    async fn round(&mut self, plan: &Plan, what: What, template: &Template) -> Result<()> {
        let (mut whole, mut floor) = (Vec::new(), Vec::new());
        for turn in 0..plan.turns {
            // A short journal is longer after a turn; a long one hardly is.
            if self.place.length < 1_000 || (turn == 0 && self.place.length < 10_000) {
                self.place.next_session(template).await?;
            }
            let (one, bare) = self.place.measure(what, template).await?;
            whole.push(one);
            floor.push(bare);
        }
        for (figures, rounds) in [(&mut whole, &mut self.whole), (&mut floor, &mut self.floor)] {
            figures.sort_by(f64::total_cmp);
            rounds.push(percentile(figures, 50.0));
        }
        Ok(())
    }
}

/// The same by a host that has not seen the journal, beside its verification.
async fn cold(
    plan: &Plan,
    store: Store,
    template: &Template,
    place: &mut Place,
    report: &mut Report,
) -> Result<()> {
    let (mut whole, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        whole.push(place.resume_cold(template).await?);
        let begun = now();
        verify(&place.log, &place.uid).await?;
        floor.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let what = format!("{} at {} records, not verified yet", store.name(), place.length);
    report.push(Line::alone("resume", what, Unit::Micros, &whole).beside("verify", &whole, &floor));
    Ok(())
}
