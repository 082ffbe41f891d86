//! Who starts child processes.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use mainspring_api::async_trait;

use crate::config::ChildSpec;
use crate::error::LaunchError;

/// Starts children. Hosts inject one to run them in a jail, under another
/// user, or not at all.
#[async_trait]
pub trait Launcher: fmt::Debug + Send + Sync + 'static {
    /// Starts a child that will serve on `launch.socket`, and returns at once;
    /// the runtime waits until it is ready.
    ///
    /// # Errors
    /// [`LaunchError::Spawn`] when there is no process.
    ///
    /// # Cancellation
    /// A dropped future leaves no process.
    async fn launch(&self, launch: &Launch<'_>) -> Result<Box<dyn ChildProcess>, LaunchError>;
}

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The harness's name.
    pub harness: &'a str,
    /// How to start it.
    pub spec: &'a ChildSpec,
    /// Where it must serve: an absolute path of UTF-8 in a private folder.
    pub socket: &'a Path,
    /// Variables of the host that the child must not see.
    pub env_withheld: &'a [String],
}

impl Launch<'_> {
    /// The address that the child is given, such as `unix:///run/x.sock`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

/// A child that was started. Dropping the handle kills it.
#[async_trait]
pub trait ChildProcess: fmt::Debug + Send + Sync + 'static {
    /// Its process id, for people.
    fn pid(&self) -> u32;

    /// How it ended, if it has.
    fn exit(&self) -> Option<Exit>;

    /// Waits until it has ended. Many may wait.
    async fn wait(&self) -> Exit;

    /// Ends it and all that it started: closes its standard input, and goes on
    /// to SIGTERM and SIGKILL, each after `grace`. Safe to call again.
    ///
    /// # Errors
    /// [`LaunchError::Unkillable`] when even that does not end it.
    async fn stop(&self, grace: Duration) -> Result<Exit, LaunchError>;

    /// The end of what it wrote to standard error.
    fn stderr_tail(&self) -> String;
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// By itself.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// In a way that could not be learned.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("unknown exit"),
        }
    }
}
