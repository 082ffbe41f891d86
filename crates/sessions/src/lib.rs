//! The Sessions service over a log.
//!
//! [`Service`] implements `api::Sessions` and `api::Operations`: it looks a
//! session up, routes it to its harness, takes its lease, and runs its turn in
//! a task that the host owns. A client's stream is a view of that task: losing
//! it loses nothing.
//!
//! What this version does not do yet (describe, follow, approve, resolve,
//! cancel, delete, and repeatable calls) is refused by name.

mod convert;
mod exec;
mod feed;
mod fork;
mod operations;
mod replay;
mod service;
mod sessions;

pub use service::{Service, ServiceOptions};
