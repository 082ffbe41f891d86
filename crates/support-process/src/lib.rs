//! What every adapter that starts commands needs.
//!
//! - [`split`] makes words of a command line, as a shell would, and expands nothing.
//! - [`ProcessGroup`] signals a process with all that it started.
//!
//! It starts nothing itself, and knows no executor.

mod command_line;
mod group;

pub use command_line::{CommandLineError, split};
pub use group::ProcessGroup;
