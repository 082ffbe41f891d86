//! The commands.

mod adopt;
mod advice;
mod cancel;
mod catalog;
pub(crate) mod complete;
mod decide;
mod describe;
mod exec;
mod follow;
mod harness;
mod journal;
mod kafka;
mod lifecycle;
mod registry;
mod replay;
mod resolve;
mod serve;
mod store;
mod verify;

use serde_json::json;

use crate::args::{Command, ConfigCommand, Global, Harness};
use crate::config::{self, Loaded};
use crate::error::CliError;
use crate::output::Output;

/// Runs one command of those that need no configuration.
pub(crate) fn run_alone(command: &Command, output: Output) -> Option<Result<(), CliError>> {
    match command {
        Command::Completions { shell } => Some(complete::script(*shell)),
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            output.line(|| format!("mainspring {version}"), || json!({"version": version}));
            Some(Ok(()))
        }
        _ => None,
    }
}

/// Runs one command.
pub(crate) async fn run(
    command: Command,
    global: Global,
    loaded: &Loaded,
    output: Output,
) -> Result<(), CliError> {
    match command {
        Command::Serve(_) => serve::serve(&global, loaded, output).await,
        Command::Create(args) => catalog::create(&global, args, output).await,
        Command::List(args) => catalog::list(&global, args, output).await,
        Command::Get(args) => catalog::get(&global, args, output).await,
        Command::Describe(args) => describe::describe(&global, args, output).await,
        Command::Exec(args) => exec::exec(&global, *args, output).await,
        Command::Follow(args) => follow::follow(&global, args, output).await,
        Command::Replay(args) => replay::replay(&global, args, output).await,
        Command::Fork(args) => lifecycle::fork(&global, args, output).await,
        Command::Suspend(args) => lifecycle::suspend(&global, args, output).await,
        Command::Resume(args) => lifecycle::resume(&global, args, output).await,
        Command::Approve(args) => decide::decide(&global, *args, true, output).await,
        Command::Deny(args) => decide::decide(&global, *args, false, output).await,
        Command::Cancel(args) => cancel::cancel(&global, args, output).await,
        Command::Delete(args) => lifecycle::delete(&global, args, output).await,
        Command::Resolve(args) => resolve::resolve(&global, args, output).await,
        Command::Adopt(args) => adopt::adopt(&global, args, output).await,
        Command::Verify(args) => verify::verify(&global, args, output).await,
        Command::Export(args) => journal::export(&global, args, output).await,
        Command::Import(args) => journal::import(&global, args, output).await,
        Command::Stats(args) => store::stats(&global, args, output).await,
        Command::Compact => store::compact(&global, output).await,
        Command::Kafka(args) => kafka::run(&global, args, output).await,
        Command::Harness(Harness::Serve(args)) => harness::serve(args, output).await,
        Command::Harness(Harness::Register(args)) => {
            registry::register(&global, args, output).await
        }
        Command::Harness(Harness::Get(args)) => registry::get(&global, args, output).await,
        Command::Harness(Harness::List(args)) => registry::list(&global, args, output).await,
        Command::Harness(Harness::Retire(args)) => registry::retire(&global, args, output).await,
        Command::Config(ConfigCommand::Show { origin }) => {
            config::show(loaded, origin, output);
            Ok(())
        }
        Command::Completions { .. } | Command::Version => match run_alone(&command, output) {
            Some(done) => done,
            None => unreachable!("they need no configuration"),
        },
    }
}
