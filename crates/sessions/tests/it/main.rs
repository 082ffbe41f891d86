//! The service over a log in memory.

mod access;
mod alive;
mod approvals;
mod cancel;
mod deciding;
mod deleting;
mod describe;
mod disconnect;
mod doubles;
mod finding;
mod follow;
mod hosts;
mod importing;
mod overlap;
mod recovery;
mod registry;
mod repeat;
mod stopping;
mod support;
mod turns;
