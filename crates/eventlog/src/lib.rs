//! The journal of durable agent sessions.
//!
//! - [`canonical`] writes an event as the bytes that are hashed and stored;
//!   [`reader`] reads them back and refuses what it does not know.
//! - [`Batch`] links events to a head; [`ChainVerifier`] checks stored links.
//! - [`SessionView`] is the fold: everything a service needs to know of a
//!   session without reading its journal.
//! - [`EventLog`] is the contract of a store; [`KvStore`] implements it over
//!   any ordered key-value [`Engine`], and [`MemoryEngine`] is the one for tests.
//!
//! ```
//! use mainspring_api::{Event, EventBody, Head, Message};
//! use mainspring_eventlog::{Batch, NewRecord};
//!
//! let hello = Event::of(EventBody::Input(Some(Message::user("hello"))));
//! let batch = Batch::link(Head::EMPTY, vec![NewRecord::from(hello)]).unwrap();
//! assert_eq!(
//!     batch.head().hash.unwrap().to_string(),
//!     "62daf59c5c1e5062b1b0d47d5665b34aa52bf7ed0ca8a0b016af2c9827b5d8f6",
//! );
//! ```

mod call_digest;
pub mod canonical;
mod chain;
mod engine;
mod error;
pub mod export;
pub mod files;
pub mod holder;
mod input_hash;
pub mod json;
mod kv;
mod log;
mod memory;
pub mod page_token;
pub mod reader;
mod recovering;
mod spec_digest;
mod tool_args;
mod view;

pub use call_digest::tool_call_digest;
pub use chain::{Batch, ChainVerifier, NewRecord, StoredRecord, record_bytes, record_hash};
pub use engine::{Engine, EngineError, EngineUsage, Keep, KvRead, KvWrite, Space, Visit};
pub use error::LogError;
pub use input_hash::{go_json_string, input_hash};
pub use kv::replica;
pub use kv::{KvOptions, KvStore, SCHEMA_VERSION, SessionTotals, StoreStats};
pub use log::{
    Durability, EventLog, FenceRow, Follow, HOST_ADDRESS_BYTES_MAX, Holder, ImportRecord,
    ImportRow, LIST_PAGE_BYTES_MAX, Level, Limits, ListQuery, Liveness, MARKED_MAX, Mark,
    NAMED_ROW_BYTES_MAX, NamedRow, NamedRows, NewSession, PROJECT_BYTES_MAX, Page, PageKey, Purge,
    ROW_KEY_BYTES_MAX, ReadLimit, RowKey, RowPatch, SESSION_METADATA_BYTES_MAX,
    SESSION_NAME_BYTES_MAX, SessionRow, Verified, WarmHost, Warmth, mint_any,
};
pub use memory::MemoryEngine;
pub use recovering::{OpenProgress, Recovering};
pub use spec_digest::{spec_bytes, spec_digest};
pub use tool_args::{InvalidToolArgs, normalise_args};
pub use view::{
    ExecutionTable, ExecutionView, Fault, GateView, InstanceView, LegacyView, SessionView,
    StartView, SuspendView, UsageTotals,
};
