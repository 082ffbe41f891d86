//! The Sessions service and the services beside it, both sides.

mod client;
mod journals;
mod lines;
mod operations;
mod received;
mod served;
mod server;

pub(crate) use received::{Outgoing, bad_answer, bad_request, not_served};
pub(crate) use served::{Call, answer, take, to_session, unsendable};

pub use client::RemoteSessions;
pub use journals::RemoteOperations;
pub use lines::{CHUNK_BYTES, LINE_BYTES_MAX};
pub use operations::OperationsServer;
pub use server::SessionsServer;
