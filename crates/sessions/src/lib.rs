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
//! A turn whose id or key its caller chose can be asked for again: it is begun
//! once, and whoever asks sees it. One that its host left open is finished by
//! the next one, if that is told to look.
//!
//! [`Registry`] implements `api::HarnessRegistry` beside it: harnesses that
//! operators register while the host runs are rows of the same store.
//!
//! [`ApprovalPolicy`]: mainspring_api::ApprovalPolicy

mod access;
mod adopt;
mod advice;
mod approvals;
mod cancel;
mod convert;
mod delete;
mod describe;
mod elsewhere;
mod exec;
mod expiry;
mod feed;
mod follow;
mod fork;
mod import;
mod live;
mod operations;
mod reclaim;
mod recovery;
mod registry;
mod repeat;
mod replay;
mod resume;
mod service;
mod sessions;
mod sightings;
mod takeover;

pub use convert::ExecStateProjection;
pub use reclaim::Reclaim;
pub use recovery::Recovered;
pub use registry::{
    PlacementBuilder, REGISTRATIONS_MAX, RETIRE_REASON_BYTES_MAX, Registry, SPEC_BYTES_MAX,
};
pub use service::{Service, ServiceOptions};
