#![doc = include_str!("../README.md")]

mod compact;
mod config;
mod engine;
mod error;
mod folder;
mod journal;
mod manifest;
mod open;
mod store;
mod transaction;

pub use compact::compact;
pub use config::FjallConfig;
pub use engine::FjallEngine;
pub use store::{FjallStore, open_store};
