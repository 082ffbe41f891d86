#![doc = include_str!("../README.md")]

mod address;
mod config;
mod runtime;

pub use address::{AddressError, HarnessAddress};
pub use config::RemoteConfigError;
pub use runtime::RemoteRuntime;
