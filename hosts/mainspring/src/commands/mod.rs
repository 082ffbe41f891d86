//! The commands.

mod advice;
mod cancel;
mod catalog;
mod decide;
mod exec;
mod harness;
mod journal;
mod lifecycle;
mod replay;
mod resolve;
mod serve;
mod store;
mod verify;

use clap::CommandFactory as _;
use serde_json::json;

use crate::args::{Cli, Command, Harness};
use crate::error::CliError;
use crate::output::Output;

/// Runs one command.
pub(crate) async fn run(cli: Cli, output: Output) -> Result<(), CliError> {
    let Cli { global, command } = cli;
    match command {
        Command::Serve(args) => serve::serve(&global, args, output).await,
        Command::Create(args) => catalog::create(&global, args, output).await,
        Command::List(args) => catalog::list(&global, args, output).await,
        Command::Get(args) => catalog::get(&global, args, output).await,
        Command::Exec(args) => exec::exec(&global, args, output).await,
        Command::Replay(args) => replay::replay(&global, args, output).await,
        Command::Fork(args) => lifecycle::fork(&global, args, output).await,
        Command::Suspend(args) => lifecycle::suspend(&global, args, output).await,
        Command::Resume(args) => lifecycle::resume(&global, args, output).await,
        Command::Approve(args) => decide::decide(&global, args, true, output).await,
        Command::Deny(args) => decide::decide(&global, args, false, output).await,
        Command::Cancel(args) => cancel::cancel(&global, args, output).await,
        Command::Resolve(args) => resolve::resolve(&global, args, output).await,
        Command::Verify(args) => verify::verify(&global, args, output).await,
        Command::Export(args) => journal::export(&global, args, output).await,
        Command::Import(args) => journal::import(&global, args, output).await,
        Command::Stats(args) => store::stats(&global, args, output).await,
        Command::Compact => store::compact(&global, output).await,
        Command::Harness(Harness::Serve(args)) => harness::serve(args, output).await,
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "mainspring", &mut std::io::stdout());
            Ok(())
        }
        Command::Later(later) => Err(CliError::unimplemented(later.name())),
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            output.line(|| format!("mainspring {version}"), || json!({"version": version}));
            Ok(())
        }
    }
}
