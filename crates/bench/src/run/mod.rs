//! What only the benches themselves need: stores, bare engines, workloads, and
//! the command line that they have in common.

pub mod command;
pub mod floor;
pub mod machine;
pub mod peer;
pub mod store;
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
