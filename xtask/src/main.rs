//! The checks of this workspace, and the one command that runs them all.
//!
//! `cargo xtask ci` is what continuous integration runs; every other command is one part of it that a developer
//! wants alone. This crate depends on no other crate of the workspace, so that it builds while they do not.
#![expect(clippy::print_stdout, reason = "a command-line tool answers on standard output")]

mod bench;
mod claims;
mod kafka;
mod layers;
mod plan;
mod run;
mod sim;
mod source;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci              every check, in order, stopping at the first that fails
  test            the tests, the places where claimed cases run, and the doctests
  layers          the dependency edges between crates, against the table of layers
  tidy            module docs, file sizes, leftovers, manifests, claimed cases, conformance lists
  claims          builds the tests and checks that each claimed case runs where claims.toml says
  bench [NAME..] [OPTION..]  runs benches with their own options; without a name it lists them
  sim --seeds N | --seed K   simulates N seeds, or one of them
  kafka COMMAND [OPTION..]   clusters of real Kafka brokers: up, down, status, and faults; `kafka help` says more";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else {
        bail!("no command was given\n\n{USAGE}");
    };
    if matches!(command.as_str(), "help" | "--help" | "-h") {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    if !matches!(command.as_str(), "bench" | "sim" | "kafka")
        && let Some(extra) = rest.first()
    {
        bail!("`{command}` takes no argument, but was given `{extra}`\n\n{USAGE}");
    }
    match command.as_str() {
        "ci" => return planned(plan::ci),
        "test" => return planned(plan::test),
        "layers" => layers::run(&Workspace::load()?),
        "tidy" => tidy::run(&Workspace::load()?),
        "claims" => claims::run(&Workspace::load()?),
        "bench" => bench::run(&Workspace::load()?, rest),
        "sim" => sim::run(&Workspace::load()?, rest),
        "kafka" => kafka::run(&Workspace::load()?, rest),
        other => bail!("there is no command `{other}`\n\n{USAGE}"),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn planned(plan: fn(&Workspace) -> Result<Vec<plan::Step>>) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    Ok(run::steps(plan(&workspace)?, &workspace))
}
