//! The Harness service, both sides.

mod bridge;
mod client;
mod connector;
mod event;
mod extensions;
mod failure;
mod gate;
mod history;
mod link;
mod remote_sink;
mod server;
mod start;

pub use client::GrpcHarness;
pub use connector::GrpcConnector;
pub use extensions::HarnessExtensions;
pub use server::HarnessServer;
