//! A whole host under load: each figure beside its floor, from the same run.
//!
//! `cargo xtask bench sessions` runs it; `docs/performance.md` says what each
//! row means.
#![expect(clippy::print_stdout, reason = "the server says where it listens")]

mod load;
mod server;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use mainspring_bench::Report;
use mainspring_bench::run::command::{Command, ended};
use mainspring_bench::run::folder;
use tempfile::TempDir;

const USAGE: &str = "\
usage: cargo xtask bench sessions [OPTION..]

  --quick           a smoke run: few sessions, few turns
  --row NAME        this row alone: load
  --output FORM     text (the default), json or markdown
  --markdown        also write the table into docs/performance.md";

/// How much to measure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rounds, each on a store and a server of its own.
    pub(crate) rounds: usize,
    /// Sessions that run turns at once.
    pub(crate) sessions: usize,
    /// Turns of each of them.
    pub(crate) turns: usize,
}

impl Plan {
    const USUAL: Self = Self { rounds: 3, sessions: 200, turns: 100 };
    const QUICK: Self = Self { rounds: 1, sessions: 20, turns: 20 };

    /// A folder on the disk that cargo builds on, and not in memory.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        folder(env!("CARGO_TARGET_TMPDIR"))
    }
}

const COMMAND: Command<Plan> = Command {
    name: "sessions",
    usage: USAGE,
    rows: &["load"],
    plans: &[("", Plan::USUAL), ("--quick", Plan::QUICK)],
};

fn main() -> ExitCode {
    ended(run())
}

fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == server::CHILD).is_some() {
        return runtime.block_on(server::be_child(arguments.collect()));
    }
    let asked = COMMAND.parse(arguments)?;
    let plan = asked.plan.clone();
    let report = runtime.block_on(async move { tokio::spawn(measure(plan)).await })??;
    asked.answer(report)
}

async fn measure(plan: Plan) -> Result<Report> {
    let mut report = Report::default();
    load::run(&plan, &mut report).await.context("row load")?;
    Ok(report)
}
