//! The service over a log in memory.

mod approvals;
mod cancel;
mod deciding;
mod follow;
mod stopping;
mod support;
mod turns;
