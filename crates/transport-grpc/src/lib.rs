//! `agentsessions.v1` over gRPC: the Sessions and Harness services, both sides.
//!
//! - [`SessionsServer`] serves any `api::Sessions`; [`RemoteSessions`] is one
//!   on another host, so that whoever holds an `Arc<dyn Sessions>` need not
//!   know where it is. What has no method in `agentsessions.v1` goes through
//!   `mainspring.v1.Operations` beside it ([`OperationsServer`]).
//! - [`HarnessServer`] serves any `api::Harness`; [`GrpcConnector`] reaches one.
//!   Where both are ours they agree on [`HarnessExtensions`]; with any other
//!   peer the plain contract holds.
//! - [`OperationsServer`] also serves any `api::Operations`, and
//!   [`RemoteOperations`] is one on another host. [`HarnessRegistryServer`]
//!   serves any `api::HarnessRegistry`, [`RemoteHarnessRegistry`] reaches one.
//! - [`Listener`], [`serve`], [`serve_operators`] and [`serve_harness`] put
//!   them on TCP, with or without [`ServerTls`], or a unix socket, with the
//!   health service and (not for a harness) reflection.
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
//! outcome and session back. This crate verifies no token: an
//! `api::Authenticator` does, with what the call and its connection carry,
//! before a byte of the call's message is read. It authorises nothing.

mod address;
mod call;
mod channel;
mod front;
mod harness;
mod heartbeat;
mod incoming;
mod link;
mod listen;
pub mod metadata;
mod methods;
mod open;
mod operators;
mod options;
mod serve;
mod sessions;
mod status;
mod tls;
mod whole;

pub use address::{AddressError, PeerAddress};
pub use front::{AUTHENTICATE_MAX, AUTHORIZATION_BYTES_MAX, GrpcService};
pub use harness::{GrpcConnector, GrpcHarness, HarnessExtensions, HarnessServer};
pub use heartbeat::{HEARTBEAT_MAX, SILENT_INTERVALS_MAX};
pub use link::{ConnectOptions, TOKEN_MAX, TokenSource};
pub use listen::{Listener, ServeError};
pub use open::WATCHES_MAX;
pub use operators::{
    AdministrationServer, HarnessRegistryServer, REGISTRY_CALL_MAX, RemoteHarnessRegistry,
};
pub use options::{LinkOptions, MESSAGE_BYTES_MAX};
pub use serve::{ServeOptions, serve, serve_harness, serve_operators, serve_when};
pub use sessions::{
    CHUNK_BYTES, LINE_BYTES_MAX, OperationsServer, RemoteOperations, RemoteSessions, SessionsServer,
};
pub use status::{ERROR_DOMAIN, Effect, code_of, condition_of, from_status, to_status};
pub use tls::{ClientAuth, ClientTls, ServerTls, ServerTlsFiles, TLS_FILE_BYTES_MAX, TlsError};
