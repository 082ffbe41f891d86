//! The service over a log in memory.

mod access;
mod approvals;
mod cancel;
mod deciding;
mod disconnect;
mod doubles;
mod overlap;
mod recovery;
mod repeat;
mod stopping;
mod support;
mod turns;
