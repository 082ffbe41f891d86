//! The mainspring binary: one host, and every client command.

#![expect(clippy::print_stdout, reason = "a command's result belongs on standard output")]

mod args;
mod commands;
mod context;
mod error;
mod input;
mod output;
mod parts;
mod progress;
mod records;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use error::{CliError, EXIT_CANCELLED};
use output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are results; everything else is a wrong call.
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    init_logs();
    let output = Output::new(cli.global.output);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output.fail(&CliError::internal(format!("runtime: {error}"))),
    };
    let code = runtime.block_on(run(cli, output));
    // A read of standard input may still block a thread of its own.
    runtime.shutdown_background();
    code
}

async fn run(cli: Cli, output: Output) -> ExitCode {
    // A server drains when it is told to stop; a turn in another process goes
    // on without its client; a turn in this one can be resumed.
    let stoppable = !matches!(cli.command, Command::Serve(_) | Command::Harness(_));
    let command = commands::run(cli, output);
    let done = if stoppable {
        tokio::select! {
            biased;
            () = interrupted() => return ExitCode::from(EXIT_CANCELLED),
            done = command => done,
        }
    } else {
        command.await
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output.fail(&error),
    }
}

/// Waits for Ctrl-C; for ever if that cannot be heard.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Logs go to standard error; `MAINSPRING_LOG` sets what is shown.
fn init_logs() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MAINSPRING_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
