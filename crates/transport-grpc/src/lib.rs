//! `agentsessions.v1` over gRPC: the Sessions and Harness services, both sides.
//!
//! - [`SessionsServer`] serves any `api::Sessions`; [`RemoteSessions`] is one
//!   on another host, so that whoever holds an `Arc<dyn Sessions>` need not
//!   know where it is. What has no method in `agentsessions.v1` goes through
//!   `mainspring.v1.Operations` beside it ([`OperationsServer`]).
//! - [`HarnessServer`] serves any `api::Harness`; [`GrpcConnector`] reaches one.
//!   Where both are ours they agree on [`HarnessExtensions`]; with any other
//!   peer the plain contract holds.
//! - [`Listener`], [`serve`] and [`serve_harness`] put them on TCP or a unix
//!   socket, with the health service and (for sessions) reflection.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use mainspring_api::Sessions;
//! use mainspring_transport_grpc::{Listener, ServeOptions, serve};
//!
//! async fn host(sessions: Arc<dyn Sessions>) -> Result<(), Box<dyn std::error::Error>> {
//!     let listener = Listener::bind("127.0.0.1:0").await?;
//!     println!("serving on {}", listener.address());
//!     let shutdown = std::future::pending();
//!     serve(sessions, listener, ServeOptions::default(), shutdown).await?;
//!     Ok(())
//! }
//! ```
//!
//! Errors travel as a gRPC code and a `google.rpc.ErrorInfo` of the domain
//! [`ERROR_DOMAIN`], from which the other side gets the same condition,
//! outcome and session back. This crate verifies no credentials and speaks no
//! TLS; it authorises nothing.

mod address;
mod call;
mod channel;
mod harness;
mod incoming;
mod listen;
pub mod metadata;
mod options;
mod serve;
mod sessions;
mod status;

pub use address::{AddressError, PeerAddress};
pub use harness::{GrpcConnector, GrpcHarness, HarnessExtensions, HarnessServer};
pub use listen::{Listener, ServeError};
pub use options::{LinkOptions, MESSAGE_BYTES_MAX};
pub use serve::{ServeOptions, serve, serve_harness, serve_when};
pub use sessions::{OperationsServer, RemoteSessions, SessionsServer};
pub use status::{ERROR_DOMAIN, Effect, code_of, condition_of, from_status, to_status};
