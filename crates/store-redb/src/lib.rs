#![doc = include_str!("../README.md")]

mod config;
mod engine;
mod error;
mod open;
mod overlay;
mod store;

pub use config::RedbConfig;
pub use engine::RedbEngine;
pub use store::{RedbStore, open_store};
