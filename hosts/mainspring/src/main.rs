//! The mainspring binary: one host, and every client command.

mod args;
mod commands;
mod config;
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
mod remote;
mod spec_json;
mod standing;
mod stops;
mod telemetry;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use args::{Cli, Command, Global};
use config::Loaded;
use error::{CliError, EXIT_CANCELLED};
use output::Output;
use stops::Stops;
use telemetry::Telemetry;

fn main() -> ExitCode {
    commands::complete::answer();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_call(&error),
    };
    let output = Output::new(cli.global.output.unwrap_or_default());
    if let Some(done) = commands::run_alone(&cli.command, output) {
        return done.map_or_else(|error| output.fail(&error), |()| ExitCode::SUCCESS);
    }
    let loaded = cli.flags().and_then(|flags| {
        config::load(cli.global.config_file.as_deref(), std::env::vars_os(), flags)
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return output.fail(&error),
    };
    let output = Output::new(loaded.config.output);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output.fail(&CliError::internal(format!("runtime: {error}"))),
    };
    let serves =
        matches!(cli.command, Command::Serve(_) | Command::Harness(args::Harness::Serve(_)));
    let telemetry = {
        let _on_runtime = runtime.enter();
        Telemetry::start(&loaded.config, serves)
    };
    let telemetry = match telemetry {
        Ok(telemetry) => telemetry,
        Err(error) => return output.fail(&error),
    };
    let holds_store = matches!(cli.command, Command::Serve(_));
    let done = runtime.block_on(run(cli, &loaded, output));
    telemetry.end();
    match done {
        // The store is closed with the last task that holds it. One that is not
        // is recovered at the next start, which takes long if it is large.
        Done::Ended(_) if holds_store => runtime.shutdown_timeout(LEAVE_MAX),
        // Turns that are left take the tools that they run with them.
        Done::Left(_) => runtime.shutdown_timeout(LEAVE_MAX),
        // A read of standard input may still block a thread of its own.
        Done::Ended(_) => runtime.shutdown_background(),
    }
    let (Done::Left(code) | Done::Ended(code)) = done;
    code
}

/// How long the tasks of this process may take to be dropped. One that waits
/// for standard input never is.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// How a command ended.
enum Done {
    /// Nothing of it runs any more.
    Ended(ExitCode),
    /// Turns of this process may still run.
    Left(ExitCode),
}

async fn run(cli: Cli, loaded: &Loaded, output: Output) -> Done {
    // A server drains when it is told to stop, and an exec cancels its turn; a
    // resumed turn in another process goes on without its client, and one in
    // this process can be resumed again.
    let stoppable = !matches!(
        cli.command,
        Command::Serve(_) | Command::Harness(args::Harness::Serve(_)) | Command::Exec(_)
    );
    let global = Global::new(loaded, cli.global.config_file);
    let command = commands::run(cli.command, global, loaded, output);
    let done = if stoppable {
        let mut stops = match Stops::listen() {
            Ok(stops) => stops,
            Err(error) => return Done::Ended(output.fail(&error)),
        };
        tokio::select! {
            biased;
            _ = stops.next() => return Done::Left(ExitCode::from(EXIT_CANCELLED)),
            done = command => done,
        }
    } else {
        command.await
    };
    match done {
        Ok(()) if output::unwritten() => {
            Done::Ended(output.fail(&CliError::internal("standard output could not be written")))
        }
        Ok(()) => Done::Ended(ExitCode::SUCCESS),
        Err(error) => Done::Left(output.fail(&error)),
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
        // The usage and where help is follow what is wrong.
        let wrong = text.split("\n\nUsage:").next().unwrap_or_default();
        let wrong = wrong.split("\n\nFor more information").next().unwrap_or_default();
        let message = wrong.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        return Output::new(args::Format::Json).fail(&CliError::usage(message));
    }
    let _ = error.print();
    ExitCode::from(2)
}
