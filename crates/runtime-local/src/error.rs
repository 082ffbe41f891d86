//! What can go wrong before a child serves.

use std::io;
use std::time::Duration;

use mainspring_api::{Classify, Condition, ErrorKind};
use mainspring_support_process::CommandLineError;

use crate::launcher::Exit;

/// Why a runtime cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalConfigError {
    /// A harness without a name.
    #[error("a harness has no name")]
    NoName,
    /// Two harnesses of one name.
    #[error("harness {name:?} is configured twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A child without a program.
    #[error("command is empty")]
    NoProgram,
    /// A command line with an open quote, or one that ends in a backslash.
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    /// A program, argument or variable that no process can be given.
    #[error("{what} holds a character that it must not")]
    Unspawnable {
        /// Which.
        what: &'static str,
    },
}

impl Classify for LocalConfigError {
    fn kind(&self) -> ErrorKind {
        Condition::InvalidArgument.kind()
    }

    fn code(&self) -> &'static str {
        Condition::InvalidArgument.code()
    }
}

/// Why a child process did not come to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// It could not be started.
    #[error("cannot start {program:?}")]
    Spawn {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It ended before its socket accepted a connection.
    #[error("ended before it was ready: {exit}; stderr: {stderr:?}")]
    Exited {
        /// How.
        exit: Exit,
        /// The end of its standard error.
        stderr: String,
    },
    /// Its socket accepted no connection in time. It was ended.
    #[error("socket accepted no connection within {within:?}; stderr: {stderr:?}")]
    NotReady {
        /// The bound.
        within: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// It could not be ended.
    #[error("did not end, not even killed, within {within:?}")]
    Unkillable {
        /// The bound of the last attempt.
        within: Duration,
    },
    /// No private folder for sockets could be made.
    #[error("cannot make a private folder for sockets")]
    SocketFolder(#[source] io::Error),
    /// The path of the socket is not one that a socket can have.
    #[error(
        "socket path in the temporary folder is {bytes} bytes, a socket takes {bytes_max} of utf-8"
    )]
    SocketPath {
        /// Its size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
}
