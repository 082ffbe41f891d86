#![doc = include_str!("../README.md")]

mod access;
mod compact;
mod config;
mod engine;
mod error;
mod open;
mod overlay;
mod store;

pub use compact::{Compacted, compact};
pub use config::RedbConfig;
pub use engine::RedbEngine;
pub use store::{RedbStore, open_store, open_store_with};
