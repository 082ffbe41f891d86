//! What a turn costs: each figure beside its floor, from the same run.
//!
//! `cargo xtask bench controller` runs it; `docs/performance.md` says what each
//! row means. Subject and floor take turns, and each ratio is taken within one
//! round, so that a machine that is busy for a while slows both.

mod place;
mod rows;
mod turns;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use mainspring_bench::Report;
use mainspring_bench::run::command::{Command, ended};
use mainspring_bench::run::folder;
use tempfile::TempDir;

const USAGE: &str = "\
usage: cargo xtask bench controller [OPTION..]

  --quick           a smoke run: few rounds, short journals
  --row NAME        this row alone, and others that are named so: turn, exec,
                    resume, fork, replay
  --output FORM     text (the default), json or markdown
  --markdown        also write the table into docs/performance.md";

/// How much to measure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rounds of every row.
    pub(crate) rounds: usize,
    /// Turns of one round.
    pub(crate) turns: usize,
    /// Lengths of journals that are gone on with and forked; the first is the base.
    pub(crate) lengths: &'static [u64],
    /// Records of the journal that is replayed.
    pub(crate) replayed: u64,
}

impl Plan {
    const USUAL: Self =
        Self { rounds: 7, turns: 60, lengths: &[10, 1_000, 100_000], replayed: 100_000 };
    const QUICK: Self =
        Self { rounds: 3, turns: 10, lengths: &[10, 1_000, 10_000], replayed: 10_000 };

    /// A folder on the disk that cargo builds on, and not in memory.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        folder(env!("CARGO_TARGET_TMPDIR"))
    }
}

const COMMAND: Command<Plan> = Command {
    name: "controller",
    usage: USAGE,
    rows: &["turn", "exec", "resume", "fork", "replay"],
    plans: &[("", Plan::USUAL), ("--quick", Plan::QUICK)],
};

fn main() -> ExitCode {
    ended(run())
}

fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let asked = COMMAND.parse(std::env::args().skip(1))?;
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
            "turn" => rows::turn::run(&plan, &mut report).await,
            "exec" => rows::length::exec(&plan, &mut report).await,
            "resume" => rows::length::resume(&plan, &mut report).await,
            "fork" => rows::fork::run(&plan, &mut report).await,
            _ => rows::replay::run(&plan, &mut report).await,
        }
        .with_context(|| format!("row {row}"))?;
    }
    Ok(report)
}
