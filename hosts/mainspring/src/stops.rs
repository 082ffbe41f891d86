//! Signals that ask this process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// SIGINT and SIGTERM, none of them lost.
pub(crate) struct Stops {
    int: Signal,
    term: Signal,
}

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT: a person at the terminal.
    Interrupt,
    /// SIGTERM: whoever looks after the process.
    Terminate,
}

impl Stops {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let heard =
            |kind| signal(kind).map_err(|error| CliError::internal(format!("signals: {error}")));
        Ok(Self { int: heard(SignalKind::interrupt())?, term: heard(SignalKind::terminate())? })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Stop {
        let (heard, stop) = tokio::select! {
            heard = self.int.recv() => (heard, Stop::Interrupt),
            heard = self.term.recv() => (heard, Stop::Terminate),
        };
        if heard.is_none() {
            std::future::pending::<()>().await;
        }
        stop
    }
}
