//! The Sessions service and the Operations beside it, both sides.

mod client;
mod operations;
mod server;

pub use client::RemoteSessions;
pub use operations::OperationsServer;
pub use server::SessionsServer;

/// Full names of the methods, as authorisers and logs see them.
pub(crate) mod method {
    pub(crate) const CREATE: &str = "/agentsessions.v1.Sessions/CreateSession";
    pub(crate) const GET: &str = "/agentsessions.v1.Sessions/GetSession";
    pub(crate) const LIST: &str = "/agentsessions.v1.Sessions/ListSessions";
    pub(crate) const DELETE: &str = "/agentsessions.v1.Sessions/DeleteSession";
    pub(crate) const EXEC: &str = "/agentsessions.v1.Sessions/Exec";
    pub(crate) const REPLAY: &str = "/agentsessions.v1.Sessions/Replay";
    pub(crate) const APPROVE: &str = "/agentsessions.v1.Sessions/Approve";
    pub(crate) const CANCEL: &str = "/agentsessions.v1.Sessions/Cancel";
    pub(crate) const SUSPEND: &str = "/agentsessions.v1.Sessions/Suspend";
    pub(crate) const RESUME: &str = "/agentsessions.v1.Sessions/Resume";
    pub(crate) const FORK: &str = "/agentsessions.v1.Sessions/Fork";
    pub(crate) const RESOLVE: &str = "/mainspring.v1.Operations/Resolve";
}
