//! The speed of the log: each figure beside its floor, from the same run.
//!
//! `cargo xtask bench log` runs it; `docs/performance.md` says what each row
//! means. Rounds alternate between a subject and its floors, and each ratio is
//! taken within one round, so that a machine that is busy for a while slows
//! both.
#![expect(clippy::print_stdout, reason = "a bench answers on standard output")]

mod rows;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use mainspring_bench::Report;
use mainspring_bench::run::command::{Command, ended};
use mainspring_bench::run::folder;
use tempfile::TempDir;

const USAGE: &str = "\
usage: cargo xtask bench log [OPTION..]

  --quick           a smoke run: few rounds, short journals
  --full            also a journal of 1,000,000 records in the row `length`
  --row NAME        this row alone, and others that are named so: append, group,
                    verify, cost, length, fork, scan, memory
  --output FORM     text (the default), json or markdown
  --markdown        also write the table into docs/performance.md";

/// How much to measure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rounds of every row.
    pub(crate) rounds: usize,
    /// Appends of one caller in one round.
    pub(crate) appends: usize,
    /// Records of the journal that is verified.
    pub(crate) verified: u64,
    /// Records of the journal that is read through.
    pub(crate) scanned: u64,
    /// Events whose cost is measured in one loop.
    pub(crate) costed: u64,
    /// Lengths of journals that are appended to and forked; the first is the base.
    pub(crate) lengths: &'static [u64],
    /// Sessions without records.
    pub(crate) idle: u64,
    /// Records of the journal whose memory is measured.
    pub(crate) longest: u64,
}

impl Plan {
    const USUAL: Self = Self {
        rounds: 7,
        appends: 200,
        verified: 200_000,
        scanned: 100_000,
        costed: 10_000,
        lengths: &[10, 1_000, 100_000],
        idle: 100_000,
        longest: 1_000_000,
    };
    const QUICK: Self = Self {
        rounds: 3,
        appends: 40,
        verified: 20_000,
        scanned: 10_000,
        costed: 1_000,
        lengths: &[10, 1_000, 10_000],
        idle: 2_000,
        longest: 20_000,
    };
    const FULL: Self = Self { lengths: &[10, 1_000, 100_000, 1_000_000], ..Self::USUAL };

    /// A folder on the disk that cargo builds on, and not in memory.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        folder(env!("CARGO_TARGET_TMPDIR"))
    }
}

const COMMAND: Command<Plan> = Command {
    name: "log",
    usage: USAGE,
    rows: &["append", "group", "cost", "verify", "scan", "length", "fork", "memory"],
    plans: &[("", Plan::USUAL), ("--quick", Plan::QUICK), ("--full", Plan::FULL)],
};

fn main() -> ExitCode {
    ended(run())
}

fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == rows::memory::CHILD).is_some() {
        let mib = runtime.block_on(rows::memory::be_child(arguments.collect()))?;
        println!("{mib}");
        return Ok(());
    }
    let asked = COMMAND.parse(arguments)?;
    let (plan, rows) = (asked.plan.clone(), asked.rows.clone());
    // On a worker, as a host's turns are, and not on the main thread.
    let report = runtime.block_on(async move { tokio::spawn(measure(plan, rows)).await })??;
    asked.answer(report)
}

async fn measure(plan: Plan, rows: Vec<&'static str>) -> Result<Report> {
    let mut report = Report::default();
    for row in rows {
        eprintln!("measuring {row}");
        match row {
            "append" => rows::append::run(&plan, &mut report).await,
            "group" => rows::group::run(&plan, &mut report).await,
            "cost" => rows::cost::run(&plan, &mut report).await,
            "verify" => rows::verify::run(&plan, &mut report).await,
            "scan" => rows::scan::run(&plan, &mut report).await,
            "length" => rows::length::run(&plan, &mut report).await,
            "fork" => rows::fork::run(&plan, &mut report).await,
            _ => rows::memory::run(&plan, &mut report),
        }
        .with_context(|| format!("row {row}"))?;
    }
    Ok(report)
}
