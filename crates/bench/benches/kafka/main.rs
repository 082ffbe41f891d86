//! The store on Kafka: each figure beside a bare client on the same broker, from
//! the same run, and what capacity is reckoned from.
//!
//! `cargo xtask bench kafka` runs it; `docs/performance.md` says what each row
//! means. Rounds alternate between the store and its floors, and each ratio is
//! taken within one round.
#![expect(clippy::print_stdout, reason = "a child answers on standard output")]

mod bare;
mod cluster;
mod host;
mod rows;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use mainspring_bench::run::command::{Command, ended};
use mainspring_bench::run::folder;
use mainspring_bench::{Costs, Report};
use tempfile::TempDir;

use cluster::Cluster;
use host::Place;

const USAGE: &str = "\
usage: cargo xtask bench kafka [OPTION..]

  --brokers LIST    brokers to use, host:port with commas between; without it a
                    cluster of one broker is started, and removed in the end
  --quick           a smoke run: few rounds, short logs
  --row NAME        this row alone, and others that are named so: append, bytes,
                    fold, idle
  --costs           also write the unit costs that `cargo xtask bench scale`
                    reckons with; only without --row and --quick
  --output FORM     text (the default), json or markdown
  --markdown        also write the table into docs/performance.md";

/// How much to measure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rounds of the row `append`.
    pub(crate) rounds: usize,
    /// Partitions of the topics that are appended to.
    pub(crate) partitions: &'static [u32],
    /// Sessions that are appended to at once, and appends of each in a round.
    pub(crate) sessions: &'static [(usize, usize)],
    /// Times that each log is folded.
    pub(crate) folds: usize,
    /// Messages of one append, appends that were packed, and records that were
    /// appended by the thousand: the logs that are folded.
    pub(crate) alone: usize,
    pub(crate) packed: usize,
    pub(crate) large: u64,
    /// Idle sessions: fewer and more.
    pub(crate) idle: (u64, u64),
}

impl Plan {
    const USUAL: Self = Self {
        rounds: 7,
        partitions: &[4, 1],
        sessions: &[(1, 300), (16, 200), (64, 400), (256, 100)],
        folds: 3,
        alone: 32_000,
        packed: 128_000,
        large: 1_000_000,
        idle: (100_000, 200_000),
    };
    const QUICK: Self = Self {
        rounds: 1,
        partitions: &[2],
        sessions: &[(1, 20), (16, 10)],
        folds: 1,
        alone: 320,
        packed: 1_280,
        large: 10_000,
        idle: (500, 1_000),
    };

    /// A folder on the disk that cargo builds on, and not in memory.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        folder(env!("CARGO_TARGET_TMPDIR"))
    }
}

const COMMAND: Command<Plan> = Command {
    name: "kafka",
    usage: USAGE,
    rows: &["append", "bytes", "fold", "idle"],
    plans: &[("", Plan::USUAL), ("--quick", Plan::QUICK)],
};

/// What the unit costs are written to.
const COSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/scale/costs.json");

fn main() -> ExitCode {
    ended(run())
}

fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == rows::idle::CHILD) {
        let bytes = runtime.block_on(rows::idle::be_child(arguments.split_off(1)))?;
        println!("{bytes}");
        return Ok(());
    }
    let brokers = taken(&mut arguments, "--brokers").map(|at| {
        if at < arguments.len() { Ok(arguments.remove(at)) } else { bail!("--brokers names some") }
    });
    let brokers = brokers.transpose()?;
    let writes_costs = taken(&mut arguments, "--costs").is_some();
    let partial = arguments.iter().any(|argument| argument == "--row" || argument == "--quick");
    if writes_costs && partial {
        bail!("--costs takes all rows in full, so it goes without --row and --quick");
    }
    let asked = COMMAND.parse(arguments.into_iter())?;
    let (plan, rows) = (asked.plan.clone(), asked.rows.clone());
    let cluster = Cluster::find(brokers)?;
    let place = Place::new(cluster.brokers());
    // On a worker, as a host's turns are, and not on the main thread.
    let (report, costs) =
        runtime.block_on(async move { tokio::spawn(measure(plan, rows, place)).await })??;
    drop(cluster);
    if writes_costs {
        std::fs::write(COSTS, format!("{:#}\n", costs.json())).context(COSTS)?;
    }
    asked.answer(report)
}

/// Takes an option out; where it stood.
fn taken(arguments: &mut Vec<String>, option: &str) -> Option<usize> {
    let at = arguments.iter().position(|argument| argument == option)?;
    arguments.remove(at);
    Some(at)
}

async fn measure(plan: Plan, rows: Vec<&'static str>, place: Place) -> Result<(Report, Costs)> {
    let (mut report, mut costs) = (Report::default(), Costs::default());
    let measured = all(&plan, &rows, &place, &mut report, &mut costs).await;
    // Also after a failure: a cluster of others keeps nothing of this run.
    place.remove_topics().await?;
    measured?;
    Ok((report, costs))
}

async fn all(
    plan: &Plan,
    rows: &[&'static str],
    place: &Place,
    report: &mut Report,
    costs: &mut Costs,
) -> Result<()> {
    for row in rows {
        eprintln!("measuring {row}");
        match *row {
            "append" => rows::append::run(plan, place, report, costs).await,
            "bytes" => rows::bytes::run(plan, place, report, costs).await,
            "fold" => rows::fold::run(plan, place, report, costs).await,
            _ => rows::idle::run(plan, place, report, costs).await,
        }
        .with_context(|| format!("row {row}"))?;
    }
    Ok(())
}
