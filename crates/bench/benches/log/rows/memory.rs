//! Memory that a store takes above an empty process with that store open.
//!
//! Each measure runs in a process of its own: this program again, with a hidden
//! argument.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use mainspring_bench::run::floor;
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer};
use mainspring_bench::{Line, Report, Target, Unit};
use mainspring_eventlog::{EventLog, Level, ListQuery};

use crate::Plan;
use crate::rows::scan;

const ROW: &str = "memory";

/// The hidden argument.
pub(crate) const CHILD: &str = "--memory-child";

/// Sessions that are created at once, and rows of one page.
const CREATED_AT_ONCE: u64 = 256;
const PAGE_ROWS: usize = 500;

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    for store in Store::durable() {
        let dir = plan.folder()?;
        let name = store.name();
        let sessions = child(store, "sessions", dir.path(), plan.idle)?;
        let listed = child(store, "list", dir.path(), plan.idle)?;
        let long = plan.folder()?;
        let filled = child(store, "fill", long.path(), plan.longest)?;
        let read = child(store, "read", long.path(), plan.longest)?;
        let verified = child(store, "verify", long.path(), plan.longest)?;
        for (what, mib, held) in [
            (format!("{name}, creating {} sessions", plan.idle), sessions, true),
            (format!("{name}, listing {} sessions", plan.idle), listed, true),
            (format!("{name}, writing {} records", plan.longest), filled, false),
            (format!("{name}, reading {} records", plan.longest), read, true),
            (format!("{name}, verifying {} records", plan.longest), verified, true),
        ] {
            let line = Line::alone(ROW, what, Unit::MiB, &[mib]);
            report.push(line.held_to(held.then(|| Target::at_most(64.0))));
        }
    }
    Ok(())
}

/// MiB above the open store, as the child reports them.
fn child(store: Store, what: &str, dir: &Path, count: u64) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args([CHILD, store.name(), what, &count.to_string()])
        .arg(dir)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("measuring memory of {what} ended with {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// What the child does; `arguments` are those of [`child`]. Returns the MiB.
pub(crate) async fn be_child(arguments: Vec<String>) -> Result<f64> {
    let [store, what, count, dir] = arguments.try_into().ok().context("four arguments")?;
    let count: u64 = count.parse()?;
    let store =
        Store::ALL.into_iter().find(|other| other.name() == store).context("no such store")?;
    let log = store.open(&PathBuf::from(dir))?;
    let empty = resident_max()?;
    match what.as_str() {
        "sessions" => create(&log, count).await?,
        "list" => list(&*log, count).await?,
        "fill" => {
            drop(Writer::filled(&*log, "bench-0", &Events::of_bytes(EVENT_BYTES)?, count).await?)
        }
        "read" => {
            let read = scan::read_through(&*log, &"bench-0".parse()?).await?;
            anyhow::ensure!(read == count, "{read} records of {count}");
        }
        "verify" => floor::verify(&log, &"bench-0".parse()?).await?,
        other => bail!("no such measure: {other}"),
    }
    Ok(resident_max()? - empty)
}

async fn create(log: &Arc<dyn EventLog>, count: u64) -> Result<()> {
    let events = Events::of_bytes(EVENT_BYTES)?;
    for first in (0..count).step_by(usize::try_from(CREATED_AT_ONCE)?) {
        let tasks: Vec<_> = (first..count.min(first + CREATED_AT_ONCE))
            .map(|number| {
                let (log, events) = (Arc::clone(log), events.clone());
                tokio::spawn(async move {
                    Writer::create(&*log, &format!("bench-{number}"), &events).await.map(drop)
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
    }
    Ok(())
}

async fn list(log: &dyn EventLog, count: u64) -> Result<()> {
    let mut query =
        ListQuery { project: "bench".to_owned(), page_size: PAGE_ROWS, ..ListQuery::default() };
    let mut seen = 0;
    loop {
        let page = log.list(query.clone(), Level::Committed).await?;
        seen += page.rows.len() as u64;
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    anyhow::ensure!(seen == count, "{seen} sessions of {count} were listed");
    Ok(())
}

/// The most memory that this process ever held, in MiB.
fn resident_max() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
