//! What a host configures.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the store is and how much memory it may use.
///
/// ```
/// use mainspring_store_redb::RedbConfig;
///
/// let config: RedbConfig = serde_json::from_str(r#"{"path": "/var/lib/mainspring.redb"}"#).unwrap();
/// assert_eq!(config.cache_bytes, 16 << 20);
/// assert!(serde_json::from_str::<RedbConfig>(r#"{"path": "x", "cache": 1}"#).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RedbConfig {
    /// The file. It is created, with mode 0600, when it is not there; its directory is not.
    pub path: PathBuf,
    /// Memory for cached pages, in bytes. Default 16 MiB.
    #[serde(default = "cache_bytes_default")]
    pub cache_bytes: usize,
}

impl RedbConfig {
    /// The store at `path`, with the defaults.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), cache_bytes: cache_bytes_default() }
    }
}

const fn cache_bytes_default() -> usize {
    16 << 20
}
