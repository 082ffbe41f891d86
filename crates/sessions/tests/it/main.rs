//! The service over a log in memory.

mod approvals;
mod cancel;
mod deciding;
mod describe;
mod follow;
mod stopping;
mod support;
mod turns;
