#![doc = include_str!("../README.md")]

mod answer;
mod config;
mod entry;
mod error;
mod exec;
mod http;
mod tools;

pub use config::{ToolsConfigError, ToolsOptions};
pub use entry::ToolEntry;
pub use mainspring_support_http::HttpClientError;
pub use mainspring_support_process::CommandLineError;
pub use tools::{Tools, ToolsBuilder};
