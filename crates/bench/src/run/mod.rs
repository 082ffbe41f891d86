//! What only the benches themselves need: stores, bare engines, workloads, and
//! the command line that they have in common.

pub mod command;
#[cfg(feature = "run")]
pub mod floor;
pub mod machine;
#[cfg(feature = "run")]
pub mod peer;
#[cfg(feature = "run")]
pub mod store;
#[cfg(feature = "run")]
pub mod twin;
pub mod workload;

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

/// A folder of its own in `parent`, which is on the disk that cargo builds on,
/// and not in memory.
///
/// # Errors
/// The file system's.
pub fn folder(parent: &str) -> Result<TempDir> {
    let parent = Path::new(parent);
    std::fs::create_dir_all(parent)?;
    Ok(tempfile::Builder::new().prefix("bench-").tempdir_in(parent)?)
}
