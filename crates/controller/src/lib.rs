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

mod approval;
mod cancel;
mod controller;
mod delete;
mod error;
mod execution;
mod fork;
mod index;
mod instance;
mod journal;
mod legacy;
mod machine;
mod observer;
mod recorded;
mod relayed;
mod replay;
mod resolve;
mod resume;
mod run;
mod sink;
pub mod spans;
mod tape;
mod writer;

pub use approval::{Approval, ApprovalState, EXPIRY_PRINCIPAL, approve, inspect_approval};
pub use cancel::{Cancellation, cancel};
pub use controller::{ApprovedRetry, Controller, Executed, Expected, Options, Turn, TurnDigest};
pub use delete::{Deletion, delete};
pub use error::ControllerError;
pub use execution::{recorded_turn, resume_invocation};
pub use fork::{fork, fork_marker};
pub use instance::{InstanceOf, latest_compute_instance};
pub use journal::{Journal, LogHistory};
pub use legacy::correlation_token;
pub use observer::{IgnoreAll, Observer};
pub use recorded::EXPIRES_NOTE;
pub use relayed::{Lag, RELAY_FLUSH_MAX, RELAY_QUEUE_MAX, Relayed, RelayedObserver};
pub use replay::{OnOutput, Replayed, outputs};
pub use resolve::{Resolving, resolve};
pub use resume::{Resumed, unknown_effect};
pub use run::{EFFECT_GRACE, TurnStop};
pub use writer::settle;
