//! Decorators of contracts.
//!
//! [`Reconnect`] goes before a sessions service that is reached over a network.
//! What it follows and runs goes on after the connection is lost, by cursor:
//! no record is lost, and none comes twice. Everything else passes through.
//!
//! It does not retry what was never begun: a call that is refused, or that
//! meets no server, fails as it does without this layer.

mod exec;
mod follow;
mod reconnect;
mod resume;
mod retry;

pub use reconnect::Reconnect;
pub use retry::{Notice, OnNotice, RECONNECT_MAX, ReconnectOptions};
