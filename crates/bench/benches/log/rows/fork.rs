//! Forking journals of several lengths: commits, and time beside one bare
//! commit of the rows that the fork puts.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainspring_api::{Event, EventBody, Head, Lifecycle, LifecycleKind, Seq, SessionUid};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::twin::{Tap, Twin};
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, fresh_id, now};
use mainspring_bench::{Line, Report, Target, Unit};
use mainspring_eventlog::{EventLog, Level, NewSession, ReadLimit};

use crate::Plan;

const ROW: &str = "fork";

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let events = Events::of_bytes(EVENT_BYTES)?;
    for store in Store::ALL {
        for length in plan.lengths {
            at_length(plan, store, &events, *length, report).await?;
        }
    }
    Ok(())
}

async fn at_length(
    plan: &Plan,
    store: Store,
    events: &Events,
    length: u64,
    report: &mut Report,
) -> Result<()> {
    let dir = plan.folder()?;
    let tap = Arc::new(Tap::default());
    let log = store.open_tapped(dir.path(), &tap)?;
    let parent = Writer::filled(&*log, "bench-0", events, length).await?;
    let middle = head_at(&*log, &parent.uid, length / 2).await?;
    let mut bare = store.peer().open(dir.path())?;
    let twin = Twin::new()?;
    let shadow = Writer::filled(&*twin.log, "bench-0", events, length).await?;
    let _filled = twin.take();
    let (mut head_took, mut middle_took, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let mut most = 0;
    for round in 0..plan.rounds {
        for (name, at, took) in
            [("head", parent.head, &mut head_took), ("middle", middle, &mut middle_took)]
        {
            let before = tap.commits();
            let begun = now();
            fork(&*log, &parent.uid, at, &format!("{name}-{round}")).await?;
            took.push(begun.elapsed().as_secs_f64() * 1e6);
            most = most.max(tap.commits() - before);
        }
        fork(&*twin.log, &shadow.uid, shadow.head, &format!("head-{round}")).await?;
        let txn = twin.take();
        let begun = now();
        bare.commit(std::slice::from_ref(&txn))?;
        floors.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let name = store.name();
    for (place, took) in [("at the head", &head_took), ("in the middle", &middle_took)] {
        let line =
            Line::alone(ROW, format!("{name}, {length} records, {place}"), Unit::Micros, took);
        report.push(line.beside(format!("{}, one commit", store.peer().name()), took, &floors));
    }
    let line =
        Line::alone(ROW, format!("{name}, {length} records, commits"), Unit::Count, &[most as f64]);
    report.push(line.held_to(Some(Target::at_most(2.0))));
    Ok(())
}

async fn head_at(log: &dyn EventLog, uid: &SessionUid, seq: u64) -> Result<Head> {
    let limit = ReadLimit { records: 1, bytes: 1 };
    let page = log.read(uid, Seq::new(seq), limit, Level::Committed).await?;
    Ok(page.first().context("the journal is shorter")?.head())
}

async fn fork(log: &dyn EventLog, parent: &SessionUid, at: Head, child: &str) -> Result<()> {
    let lifecycle = Lifecycle { kind: LifecycleKind::Fork, ..Lifecycle::default() };
    let marker = Event::of(EventBody::Lifecycle(Some(lifecycle)));
    let session = NewSession::bare(SessionUid::new(child)?, "bench");
    log.fork(fresh_id(), parent, at, vec![(session, marker)]).await?;
    Ok(())
}
