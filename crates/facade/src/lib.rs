//! Durable agent sessions in one crate.
//!
//! It re-exports the parts (one feature per optional part) and puts a host
//! together out of them: [`Stores`] opens a log by its address, and
//! [`HostBuilder`] makes a Sessions service over it.
//!
//! ```
//! use std::sync::Arc;
//! use futures_util::StreamExt as _;
//! use mainspring::api::{Caller, ExecRequest, ExecUpdate, Message, RequestId, Sessions as _};
//! use mainspring::{HostBuilder, Stores};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let log = Stores::with_defaults().open("memory:", Default::default()).unwrap();
//! let host = HostBuilder::new(log).build().unwrap();
//! let caller = Caller::anonymous("doc", RequestId::new("doc").unwrap());
//! let request = ExecRequest { inputs: vec![Message::user("hello")], ..ExecRequest::default() };
//! let mut updates = host.service().exec(&caller, request).await.unwrap();
//! let mut kinds = Vec::new();
//! while let Some(update) = updates.next().await {
//!     if let ExecUpdate::Record(record) = update.unwrap() {
//!         kinds.push(record.event.kind().name());
//!     }
//! }
//! assert_eq!(kinds.first(), Some(&"EVENT_EXECUTION_START"));
//! assert_eq!(kinds.last(), Some(&"EVENT_END"));
//! # });
//! ```

mod host;
#[cfg(feature = "kafka")]
mod kafka;
mod opening;
mod placers;
mod stores;

pub use host::{Host, HostBuilder, HostError};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaFactory, KafkaWatch};
pub use opening::Opening;
#[cfg(feature = "store-fjall")]
pub use stores::FjallFactory;
#[cfg(feature = "store-redb")]
pub use stores::RedbFactory;
pub use stores::{Compacted, MemoryFactory, StoreFactory, Stores};

pub use mainspring_api as api;
#[cfg(feature = "authn")]
pub use mainspring_authn as authn;
#[cfg(feature = "authz")]
pub use mainspring_authz as authz;
pub use mainspring_controller as controller;
pub use mainspring_eventlog as eventlog;
pub use mainspring_harness as harness;
pub use mainspring_layers as layers;
#[cfg(feature = "model-http")]
pub use mainspring_model_http as model_http;
pub use mainspring_placement as placement;
#[cfg(feature = "runtime-local")]
pub use mainspring_runtime_local as runtime_local;
#[cfg(feature = "runtime-remote")]
pub use mainspring_runtime_remote as runtime_remote;
pub use mainspring_sessions as sessions;
#[cfg(feature = "store-fjall")]
pub use mainspring_store_fjall as store_fjall;
#[cfg(feature = "kafka")]
pub use mainspring_store_kafka as store_kafka;
#[cfg(feature = "store-redb")]
pub use mainspring_store_redb as store_redb;
#[cfg(feature = "tools-exec")]
pub use mainspring_tools_exec as tools_exec;
#[cfg(feature = "transport-grpc")]
pub use mainspring_transport_grpc as transport_grpc;
