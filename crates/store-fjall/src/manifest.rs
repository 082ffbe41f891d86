//! The manifests of the keyspaces, looked at before fjall does.
//!
//! fjall does not compare a manifest with its checksum, fills a folder around
//! a missing version, removes a keyspace without manifest, and believes how
//! many parts a table has: a wrong number ends the process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use mainspring_eventlog::LogError;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::{damaged, io_failed};
use crate::folder::each_file;

/// A table ends with: magic, version, kind of checksum, checksum, place and
/// length of the list of its parts.
const TRAILER_BYTES: u64 = 4 + 1 + 1 + 16 + 8 + 8;
/// The least that a part takes in the list.
const PART_BYTES_MIN: u64 = 8 + 8 + 2;

/// Checks what fjall would not, where at least `spaces` keyspaces must be.
pub(crate) fn check(data: &Path, spaces: usize) -> Result<(), LogError> {
    if !data.join("version").is_file() {
        return Err(damaged(data, "its version is gone"));
    }
    let keyspaces = data.join("keyspaces");
    let failed = |error| io_failed("read", &keyspaces, error);
    let mut found = 0;
    for entry in fs::read_dir(&keyspaces).map_err(failed)? {
        let keyspace = entry.map_err(failed)?.path();
        match is_whole(&keyspace).map_err(failed)? {
            None => {}
            Some(true) => found += 1,
            Some(false) => return Err(damaged(&keyspace, "its manifest or a table is damaged")),
        }
    }
    // One more for fjall's own.
    if found < spaces + 1 {
        return Err(damaged(&keyspaces, "manifests are gone"));
    }
    Ok(())
}

/// Whether a keyspace's manifest is what it was; `None` where there is none.
fn is_whole(keyspace: &Path) -> io::Result<Option<bool>> {
    let Some(current) = read(&keyspace.join("current"))? else { return Ok(None) };
    let Some((number, rest)) = current.split_first_chunk::<8>() else { return Ok(Some(false)) };
    let Some((checksum, _)) = rest.split_first_chunk::<16>() else { return Ok(Some(false)) };
    let manifest = keyspace.join(format!("v{}", u64::from_le_bytes(*number)));
    let manifest = read(&manifest)?;
    if manifest.is_none_or(|bytes| xxh3_128(&bytes) != u128::from_le_bytes(*checksum)) {
        return Ok(Some(false));
    }
    let mut whole = true;
    each_file(&keyspace.join("tables"), &mut |table| {
        whole &= has_parts(table)?;
        Ok(())
    })?;
    Ok(Some(whole))
}

/// Whether a table can have as many parts as it says. One that was not written
/// to its end says nothing, and counts only if the manifest names it.
fn has_parts(table: &Path) -> io::Result<bool> {
    let file = File::open(table)?;
    let len = file.metadata()?.len();
    let (mut trailer, mut head) = ([0; TRAILER_BYTES as usize], [0; 8]);
    let Some(at) = len.checked_sub(TRAILER_BYTES) else { return Ok(true) };
    file.read_exact_at(&mut trailer, at)?;
    let list = trailer[22..].first_chunk::<8>().expect("16 bytes are left");
    match file.read_exact_at(&mut head, u64::from_le_bytes(*list)) {
        Ok(()) => {}
        // Out of the file: for fjall to refuse.
        Err(_) => return Ok(true),
    }
    let [b'T', b'O', b'C', b'!', parts @ ..] = head else { return Ok(true) };
    Ok(u64::from(u32::from_le_bytes(parts)) * PART_BYTES_MIN <= len)
}

fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
