//! A storage backend that reads a real file and keeps every write in memory.
//!
//! A file that was not closed cleanly must be repaired before anything in it
//! can be read, and repairing writes. Through this backend the repair happens
//! in memory alone, so that the schema version is known before the file itself
//! is touched.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

const BLOCK: usize = 4_096;

/// A read-only file under a layer of blocks in memory.
#[derive(Debug)]
pub(crate) struct OverlayBackend {
    file: File,
    /// The same file, for its locks: shared ones are all that a read-only file can take.
    locks: FileBackend,
    bytes_max: usize,
    layer: Mutex<Layer>,
}

#[derive(Debug)]
struct Layer {
    len: u64,
    /// How much of the file shows through: it never grows again after a cut.
    file_len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl OverlayBackend {
    /// Lays a layer of at most `bytes_max` over `file`.
    pub(crate) fn new(file: File, bytes_max: usize) -> Result<Self, redb::DatabaseError> {
        let len = file.metadata()?.len();
        let locks = FileBackend::new(file.try_clone()?)?;
        let layer = Mutex::new(Layer { len, file_len: len, blocks: BTreeMap::new() });
        Ok(Self { file, locks, bytes_max, layer })
    }

    fn layer(&self) -> MutexGuard<'_, Layer> {
        self.layer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of a block of the file, zeroes beyond its end.
    fn block(&self, layer: &Layer, block: u64) -> io::Result<Box<[u8]>> {
        let mut out = vec![0; BLOCK].into_boxed_slice();
        let start = block * BLOCK as u64;
        let there = layer.file_len.saturating_sub(start).min(BLOCK as u64);
        let there = usize::try_from(there).expect("at most a block");
        self.file.read_exact_at(&mut out[..there], start)?;
        Ok(out)
    }
}

/// The parts of `offset..offset + len` that lie in each block: block, start in it, length.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = usize::try_from(at % BLOCK as u64).expect("less than a block");
        let take = (BLOCK - start).min(len - done);
        done += take;
        Some((at / BLOCK as u64, start, take))
    })
}

impl StorageBackend for OverlayBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.layer().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let layer = self.layer();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > layer.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        for (block, start, take) in parts(offset, out.len()) {
            let part = &mut out[done..done + take];
            match layer.blocks.get(&block) {
                Some(bytes) => part.copy_from_slice(&bytes[start..start + take]),
                None => part.copy_from_slice(&self.block(&layer, block)?[start..start + take]),
            }
            done += take;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut layer = self.layer();
        if len < layer.len {
            let whole = len.div_ceil(BLOCK as u64);
            layer.blocks.split_off(&whole);
            let last = len / BLOCK as u64;
            let keep = usize::try_from(len % BLOCK as u64).expect("less than a block");
            if let Some(bytes) = layer.blocks.get_mut(&last) {
                bytes[keep..].fill(0);
            }
        }
        layer.file_len = layer.file_len.min(len);
        layer.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut layer = self.layer();
        let mut done = 0;
        for (block, start, take) in parts(offset, data.len()) {
            if !layer.blocks.contains_key(&block) {
                if (layer.blocks.len() + 1) * BLOCK > self.bytes_max {
                    return Err(io::Error::other(format!(
                        "checking the file needs more than overlay_bytes_max = {} bytes",
                        self.bytes_max
                    )));
                }
                let fresh = self.block(&layer, block)?;
                layer.blocks.insert(block, fresh);
            }
            let bytes = layer.blocks.get_mut(&block).expect("inserted above");
            bytes[start..start + take].copy_from_slice(&data[done..done + take]);
            done += take;
        }
        layer.len = layer.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.locks.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.unlock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(content: &[u8], bytes_max: usize) -> (tempfile::NamedTempFile, OverlayBackend) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let backend = OverlayBackend::new(File::open(file.path()).unwrap(), bytes_max).unwrap();
        (file, backend)
    }

    fn all(backend: &OverlayBackend) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(backend.len().unwrap()).unwrap()];
        backend.read(0, &mut out).unwrap();
        out
    }

    #[test]
    fn behaves_as_a_file_and_leaves_the_file_alone() {
        let mut model: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
        let original = model.clone();
        let (file, backend) = overlay(&model, 1 << 20);
        for (offset, len) in [(0, 320), (4_090, 20), (8_192, 4_096), (19_990, 4_000), (30_000, 1)] {
            let data: Vec<u8> = (0..len).map(|n| (n % 7) as u8 + 1).collect();
            backend.write(offset as u64, &data).unwrap();
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&data);
            assert_eq!(all(&backend), model);
        }
        for len in [25_000, 9_001, 4_096, 12_000, 3, 20_000] {
            backend.set_len(len as u64).unwrap();
            model.resize(len, 0);
            assert_eq!(all(&backend), model, "after set_len {len}");
        }
        assert!(backend.read(19_999, &mut [0; 2]).is_err());
        assert_eq!(std::fs::read(file.path()).unwrap(), original);
    }

    #[test]
    fn memory_is_bounded() {
        let (_file, backend) = overlay(&[1; 100_000], 2 * BLOCK);
        backend.write(0, &[2; 2 * BLOCK]).unwrap();
        let error = backend.write(50_000, &[2]).unwrap_err();
        assert!(error.to_string().contains("overlay_bytes_max"), "{error}");
    }
}
