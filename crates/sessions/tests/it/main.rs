//! The service over a log in memory.

mod approvals;
mod cancel;
mod deciding;
mod deleting;
mod describe;
mod finding;
mod follow;
mod stopping;
mod support;
mod turns;
