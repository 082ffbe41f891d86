//! What a host configures.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the store is and how much memory it may use.
///
/// ```
/// use mainspring_store_fjall::FjallConfig;
///
/// let config: FjallConfig = serde_json::from_str(r#"{"path": "/var/lib/mainspring"}"#).unwrap();
/// assert_eq!(config.cache_bytes, 16 << 20);
/// assert_eq!(config.memtable_bytes_max, 8 << 20);
/// assert!(serde_json::from_str::<FjallConfig>(r#"{"path": "x", "cache": 1}"#).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FjallConfig {
    /// The folder. It is created, with mode 0700, when it is not there; the directory that it lies in is not.
    pub path: PathBuf,
    /// Memory for cached blocks of tables, in bytes. Default 16 MiB.
    #[serde(default = "cache_bytes_default")]
    pub cache_bytes: u64,
    /// Records in memory after which they are written to a table, in bytes;
    /// other data is written at a quarter of it. Up to three times as much is
    /// in use while tables are written. It is kept in the store: a new value
    /// counts from the next compaction on. Default 8 MiB.
    #[serde(default = "memtable_bytes_max_default")]
    pub memtable_bytes_max: u64,
    /// Journal files on disk after which what only they hold is written to
    /// tables, in bytes. The journal that is written to comes on top, and all
    /// of them are read at an open. Default 64 MiB; less counts as 64 MiB.
    #[serde(default = "journal_bytes_max_default")]
    pub journal_bytes_max: u64,
}

impl FjallConfig {
    /// The store at `path`, with the defaults.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache_bytes: cache_bytes_default(),
            memtable_bytes_max: memtable_bytes_max_default(),
            journal_bytes_max: journal_bytes_max_default(),
        }
    }
}

const fn cache_bytes_default() -> u64 {
    16 << 20
}

const fn memtable_bytes_max_default() -> u64 {
    8 << 20
}

const fn journal_bytes_max_default() -> u64 {
    64 << 20
}
