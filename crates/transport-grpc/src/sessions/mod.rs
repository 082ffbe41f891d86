//! The Sessions service and the Operations beside it, both sides.

mod client;
mod operations;
mod server;

pub use client::RemoteSessions;
pub use operations::OperationsServer;
pub use server::SessionsServer;
