#![doc = include_str!("../README.md")]

mod child;
mod command;
mod config;
mod error;
mod launcher;
mod runtime;
mod slots;

pub use command::{CommandLauncher, STDERR_TAIL_BYTES};
pub use config::{ChildSpec, LocalOptions, LocalRuntimeBuilder};
pub use error::{LaunchError, LocalConfigError};
pub use launcher::{ChildProcess, Exit, Launch, Launcher};
pub use mainspring_support_process::CommandLineError;
pub use runtime::LocalRuntime;
