//! The Harness service, both sides.

mod bridge;
mod client;
mod connector;
mod gate;
mod link;
mod remote_sink;
mod server;
mod start;

pub use client::GrpcHarness;
pub use connector::GrpcConnector;
pub use server::HarnessServer;
