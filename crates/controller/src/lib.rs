//! Runs, replays and resumes the journal of one session, and forks it.
//!
//! A [`Controller`] drives one session under one fence. Everything that a
//! harness does passes a sink that records the intent before the effect and
//! the result before it is handed on, so that a crash anywhere leaves a journal
//! that is either resumed or refused by name.
//!
//! What happens next in a turn is decided by a pure machine over recorded
//! effects; live, replay and resume are three modes of it. The driver around
//! it is thin: it appends, calls the model, and tells the observer.
//!
//! Mediated tools, approvals, model policies and the memory tier are refused
//! by name in this version.

mod controller;
mod error;
mod execution;
mod fork;
mod journal;
mod legacy;
mod machine;
mod observer;
mod recorded;
mod replay;
mod resume;
mod run;
mod sink;
mod writer;

pub use controller::{Controller, Executed, Expected, Options, Turn};
pub use error::ControllerError;
pub use execution::resume_invocation;
pub use fork::{fork, fork_marker};
pub use journal::{Journal, LogHistory};
pub use legacy::correlation_token;
pub use observer::{IgnoreAll, Observer};
pub use replay::{Replayed, outputs};
pub use resume::Resumed;
pub use writer::settle;
