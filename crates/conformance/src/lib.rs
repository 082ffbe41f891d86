//! Suites that every implementation of a contract must pass.
//!
//! The suite owns the list of cases, so a new case reaches every backend, ours
//! or not, with the next version. A backend says how to open itself, and one
//! line makes a test of each case:
//!
//! ```
//! use std::sync::Arc;
//!
//! use mainspring_conformance::{log_store, log_store_conformance};
//! use mainspring_eventlog::{EventLog, KvOptions, KvStore, MemoryEngine};
//!
//! struct Subject(Arc<dyn EventLog>);
//!
//! impl Subject {
//!     async fn fresh() -> Self {
//!         Self(Arc::new(KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap()))
//!     }
//! }
//!
//! impl log_store::Subject for Subject {
//!     const OFFERS: &'static [&'static str] = &[];
//!     fn log(&self) -> Arc<dyn EventLog> {
//!         Arc::clone(&self.0)
//!     }
//!     async fn reopen(self) -> Self {
//!         self // a real backend closes, and opens the same files again
//!     }
//! }
//!
//! log_store_conformance!(Subject::fresh);
//! ```
//!
//! - [`log_store`]: the suite of `mainspring_eventlog::EventLog`.
//! - [`sessions`]: the suite of the sessions service, embedded or remote.
//!
//! Each suite tests itself: for each case there is a backend, broken on
//! purpose, that the case must catch.

pub mod log_store;
mod run;
pub mod sessions;

pub use run::{run, run_if_there};
