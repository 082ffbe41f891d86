//! Sessions that nobody uses: memory of a host, bytes of its view and of a
//! checkpoint, for each of them.
//!
//! Each host runs in a process of its own: this program again, with a hidden
//! argument.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use mainspring_bench::run::workload::fresh_id;
use mainspring_bench::{Costs, Line, Report, Target, Unit};
use mainspring_eventlog::{EventLog, Level, ListQuery, Mark, NewSession};
use mainspring_store_kafka::{KafkaConfig, KafkaStore};

use crate::Plan;
use crate::host::{self, Place, opened_with};

const ROW: &str = "idle";

/// The hidden argument.
pub(crate) const CHILD: &str = "--idle-child";

const PARTITIONS: u32 = 4;
/// Sessions that are created at once, and rows of one page.
const CREATED_AT_ONCE: u64 = 4_096;
const PAGE_ROWS: usize = 500;

/// Of one number of sessions.
#[derive(Debug, Default)]
struct Measured {
    view: f64,
    checkpoint: f64,
    /// Memory of a host that has folded the log, of one that found its view, and
    /// of that one after it has listed all sessions.
    folded: f64,
    opened: f64,
    listed: f64,
}

pub(crate) async fn run(
    plan: &Plan,
    place: &Place,
    report: &mut Report,
    costs: &mut Costs,
) -> Result<()> {
    let (fewer, more) = plan.idle;
    let none = measure(plan, place, 0).await?;
    let few = measure(plan, place, fewer).await?;
    let many = measure(plan, place, more).await?;
    let mut line = |what: String, unit, figure: f64, target| {
        report.push(Line::alone(ROW, what, unit, &[figure]).held_to(target));
    };
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    for (count, of) in [(0, &none), (fewer, &few), (more, &many)] {
        line(format!("{count} sessions, folded from the log"), Unit::MiB, mib(of.folded), None);
        line(format!("{count} sessions, with its view"), Unit::MiB, mib(of.opened), None);
        line(format!("{count} sessions, then listed"), Unit::MiB, mib(of.listed), None);
    }
    let each = |of: fn(&Measured) -> f64, from: (&Measured, u64)| {
        (of(&many) - of(from.0)) / (more - from.1) as f64
    };
    let at_most = Some(Target::at_most(256.0));
    type Figure = (&'static str, fn(&Measured) -> f64);
    let figures: [Figure; 3] = [
        ("folded from the log", |of| of.folded),
        ("with its view", |of| of.opened),
        ("then listed", |of| of.listed),
    ];
    for (what, of) in figures {
        line(
            format!("memory for each session, {what}, {more} above none"),
            Unit::Bytes,
            each(of, (&none, 0)),
            at_most,
        );
        line(
            format!("memory for each session, {what}, {more} above {fewer}"),
            Unit::Bytes,
            each(of, (&few, fewer)),
            at_most,
        );
    }
    costs.session_memory_bytes = each(|of| of.folded, (&few, fewer)).max(0.0);
    costs.view_session_bytes = each(|of| of.view, (&few, fewer));
    costs.checkpoint_session_bytes = each(|of| of.checkpoint, (&few, fewer));
    line("view on disk for each session".to_owned(), Unit::Bytes, costs.view_session_bytes, None);
    let what = "checkpoint for each session".to_owned();
    line(what, Unit::Bytes, costs.checkpoint_session_bytes, None);
    Ok(())
}

async fn measure(plan: &Plan, place: &Place, count: u64) -> Result<Measured> {
    let config = place.fresh(PARTITIONS).await?;
    let child = |what: &str, dir: &Path| child(what, &config.brokers, &config.topic, dir, count);
    let (writer, reader) = (plan.folder()?, plan.folder()?);
    child("create", writer.path())?;
    let folded = child("fold", reader.path())?;
    let opened = child("open", reader.path())?;
    let listed = child("list", reader.path())?;
    // Not before: the other host would have filled its view from it.
    child("checkpoint", writer.path())?;
    let checkpoint = host::checkpoint_bytes(&config, PARTITIONS.cast_signed())? as f64;
    let view = host::view_bytes(reader.path())? as f64;
    Ok(Measured { view, checkpoint, folded, opened, listed })
}

/// Bytes of a host's memory after it has folded a log from its start.
pub(crate) fn folded(plan: &Plan, config: &KafkaConfig) -> Result<f64> {
    child("fold", &config.brokers, &config.topic, plan.folder()?.path(), 0)
}

/// Bytes of a host's memory, as the child reports them.
fn child(what: &str, brokers: &str, topic: &str, dir: &Path, count: u64) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args([CHILD, what, brokers, topic, &count.to_string()])
        .arg(dir)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("measuring idle sessions ({what}) ended with {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// What the child does; `arguments` are those of [`child`]. Returns the bytes
/// that its process then holds.
pub(crate) async fn be_child(arguments: Vec<String>) -> Result<f64> {
    let [what, brokers, topic, count, dir] = arguments.try_into().ok().context("five arguments")?;
    let count: u64 = count.parse()?;
    let config = opened_with(&brokers, &topic);
    let store = host::open(&config, &PathBuf::from(dir)).await?;
    match what.as_str() {
        "create" => create(&store, count).await?,
        "checkpoint" => {
            store.marked(Mark::Awaiting, None, 1).await?;
            store.checkpoint().await?;
        }
        "list" => list(&*store, count).await?,
        // Waits until every partition is caught up with.
        "fold" | "open" => drop(store.marked(Mark::Awaiting, None, 1).await?),
        other => bail!("no such measure: {other}"),
    }
    resident()
}

async fn create(store: &Arc<KafkaStore>, count: u64) -> Result<()> {
    for first in (0..count).step_by(usize::try_from(CREATED_AT_ONCE)?) {
        let tasks: Vec<_> = (first..count.min(first + CREATED_AT_ONCE))
            .map(|number| {
                let store = Arc::clone(store);
                tokio::spawn(async move {
                    let session = NewSession::bare(format!("bench-{number}").parse()?, "bench");
                    store.create(fresh_id(), session).await?;
                    anyhow::Ok(())
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

/// Bytes that this process holds.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0)
}
