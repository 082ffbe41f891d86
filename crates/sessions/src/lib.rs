//! The Sessions service over a log.
//!
//! [`Service`] implements `api::Sessions` and `api::Operations`: it looks a
//! session up, routes it to its harness, takes its lease, and runs its turn in
//! a task that the host owns. A client's stream is a view of that task: losing
//! it loses nothing.
//!
//! A turn that needs an approval parks, and holds nothing while it waits. Who
//! decides is a person, through `approve`; the host's [`ApprovalPolicy`], if it
//! has one; or the time, where a request may expire.
//!
//! [`Registry`] implements `api::HarnessRegistry` beside it: harnesses that
//! operators register while the host runs are rows of the same store.
//!
//! What this version does not do yet (describe, follow, delete, and repeatable
//! calls) is refused by name.
//!
//! [`ApprovalPolicy`]: mainspring_api::ApprovalPolicy

mod access;
mod approvals;
mod cancel;
mod convert;
mod exec;
mod expiry;
mod feed;
mod fork;
mod operations;
mod registry;
mod replay;
mod service;
mod sessions;

pub use registry::{
    PlacementBuilder, REGISTRATIONS_MAX, RETIRE_REASON_BYTES_MAX, Registry, SPEC_BYTES_MAX,
};
pub use service::{Service, ServiceOptions};
