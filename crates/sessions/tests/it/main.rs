//! The service over a log in memory.

mod access;
mod approvals;
mod cancel;
mod deciding;
mod deleting;
mod describe;
mod disconnect;
mod doubles;
mod finding;
mod follow;
mod importing;
mod overlap;
mod recovery;
mod registry;
mod repeat;
mod stopping;
mod support;
mod turns;
