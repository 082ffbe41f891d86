//! The mainspring binary: one host, and every client command.

mod args;
mod commands;
mod context;
mod error;
mod input;
mod lines;
mod output;
mod partial;
mod parts;
mod progress;
mod recorded;
mod records;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use error::{CliError, EXIT_CANCELLED};
use output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_call(&error),
    };
    init_logs(matches!(cli.command, Command::Serve(_) | Command::Harness(_)));
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
    // A server drains when it is told to stop, and an exec cancels its turn; a
    // resumed turn in another process goes on without its client, and one in
    // this process can be resumed again.
    let stoppable =
        !matches!(cli.command, Command::Serve(_) | Command::Harness(_) | Command::Exec(_));
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
        Ok(()) if output::unwritten() => {
            output.fail(&CliError::internal("standard output could not be written"))
        }
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

/// Help and version are results; everything else that clap reports is a wrong
/// call, shown as JSON where that was asked for.
fn wrong_call(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let args: Vec<_> = std::env::args().collect();
    let asks = |pair: &[String]| matches!(pair[0].as_str(), "-o" | "--output") && pair[1] == "json";
    let joined = ["-ojson", "-o=json", "--output=json"];
    if args.windows(2).any(asks) || args.iter().any(|arg| joined.contains(&arg.as_str())) {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        return Output::new(args::Format::Json).fail(&CliError::usage(message));
    }
    let _ = error.print();
    ExitCode::from(2)
}

/// Logs go to standard error; `MAINSPRING_LOG` sets what is shown. A client
/// command reports its one error itself.
fn init_logs(serves: bool) {
    let default = if serves { "warn" } else { "off" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("MAINSPRING_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .try_init();
}
