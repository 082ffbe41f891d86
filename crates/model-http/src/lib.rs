#![doc = include_str!("../README.md")]

mod client;
mod completion;
mod config;
mod provider;
mod request;
mod sse;
mod url;

pub use config::{HttpModelConfigError, HttpModelLimits, HttpModelOptions};
pub use mainspring_support_http::HttpClientError;
pub use provider::HttpModel;
