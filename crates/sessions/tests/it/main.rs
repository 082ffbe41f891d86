//! The service over a log in memory.

mod approvals;
mod cancel;
mod deciding;
mod registry;
mod stopping;
mod support;
mod turns;
