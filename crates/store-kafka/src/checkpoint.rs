//! Checkpoints of the fold, so that a fresh host need not start with the log.
//!
//! A checkpoint is one partition's view at one message: chunks of what is
//! stored, and then a manifest under the partition's own key. The topic is
//! compacted, so that the newest manifest stays, and what it replaced goes.

mod load;
mod save;

use mainspring_eventlog::Space;
use serde::{Deserialize, Serialize};

pub(crate) use load::{load, newest};
pub(crate) use save::{Saver, save};

/// The form of checkpoints that this build writes and reads.
const FORM: u32 = 1;

/// Bytes of one chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// What a checkpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    form: u32,
    /// Of the genesis: another store's checkpoint says nothing of this one.
    store: String,
    /// Tells its chunks from those of others.
    generation: String,
    /// Where its first chunk stands in the topic.
    first: u64,
    chunks: u32,
    /// SHA-256 of all chunks, in order.
    sha256: String,
    /// Bytes of all chunks.
    pub(crate) bytes: u64,
    /// The next message of the log after it.
    pub(crate) next: u64,
    /// Bytes of the log before that message.
    pub(crate) log_bytes: u64,
}

fn manifest_key(partition: u32) -> String {
    format!("p{partition}")
}

fn chunk_key(partition: u32, generation: &str, chunk: u32) -> String {
    format!("p{partition}/{generation}/{chunk}")
}

/// Puts one stored entry at the end of a chunk: space, key, value.
fn put_entry(out: &mut Vec<u8>, space: Space, key: &[u8], value: &[u8]) {
    let place = Space::ALL.iter().position(|other| *other == space).expect("it is one of them");
    out.push(u8::try_from(place).expect("spaces are few"));
    for part in [key, value] {
        let length = u32::try_from(part.len()).expect("what is stored is far below 4 GiB");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(part);
    }
}

/// The entries of a chunk; the last is `None` if it cannot be taken apart.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = Option<(Space, &[u8], &[u8])>> {
    std::iter::from_fn(move || {
        let (place, mut tail) = rest.split_first()?;
        let mut part = || {
            let (length, rest) = tail.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            tail = rest;
            Some(part)
        };
        let entry = (|| {
            let (key, value) = (part()?, part()?);
            Some((*Space::ALL.get(usize::from(*place))?, key, value))
        })();
        rest = if entry.is_some() { tail } else { &[] };
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_read_as_it_was_written() {
        let mut chunk = Vec::new();
        let written: Vec<(Space, Vec<u8>, Vec<u8>)> = Space::ALL
            .into_iter()
            .map(|space| (space, vec![space as u8; 3], vec![7; space as usize]))
            .collect();
        for (space, key, value) in &written {
            put_entry(&mut chunk, *space, key, value);
        }
        let read: Vec<_> = entries(&chunk).map(|e| e.unwrap()).collect();
        let read: Vec<_> = read.into_iter().map(|(s, k, v)| (s, k.to_vec(), v.to_vec())).collect();
        assert_eq!(read, written);
    }

    #[test]
    fn a_chunk_that_was_cut_is_no_chunk() {
        let mut chunk = Vec::new();
        put_entry(&mut chunk, Space::Rows, b"key", b"value");
        for length in 1..chunk.len() {
            assert!(entries(&chunk[..length]).any(|entry| entry.is_none()), "{length}");
        }
    }
}
