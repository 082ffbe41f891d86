//! What operators alone are served: the registry of harnesses, and the
//! administration of sessions. Never on the listener of the sessions.

mod administration;
mod registry_client;
mod registry_server;
mod strict;

pub use administration::AdministrationServer;
pub use registry_client::{REGISTRY_CALL_MAX, RemoteHarnessRegistry};
pub use registry_server::HarnessRegistryServer;
