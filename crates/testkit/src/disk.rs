//! A disk for redb that fails, tears writes and loses power.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::random::SeededRng;

/// Bytes that a disk writes in one piece.
const SECTOR: usize = 512;

/// What a backend is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOp {
    /// Ask for the length.
    Len,
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Change the length.
    SetLen,
    /// Make all that was written durable.
    Sync,
}

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// None.
    None,
    /// The nth call of this kind from now on, from 1, and no other.
    Nth(DiskOp, u64),
    /// The nth call of this kind from now on, and every call of any kind after it.
    From(DiskOp, u64),
    /// Every call of this kind.
    Every(DiskOp),
    /// Every call of any kind with this chance in a hundred.
    Random(u64),
}

/// A disk with a page cache in front of it.
///
/// Reads see the cache. A sync moves what was written since the last one to
/// the disk. **A failed sync** moves some of it, and the rest stays readable,
/// and is never tried again, until [`FaultyDisk::drop_caches`]: this is what
/// Linux does. A failed write may have written its beginning.
///
/// Clones share the disk.
#[derive(Debug, Clone)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    durable: Vec<u8>,
    cached: Vec<u8>,
    unsynced: Vec<Change>,
    fault: DiskFault,
    calls: u64,
    failures: u64,
    rng: SeededRng,
    /// Handles of an earlier life of the machine are dead.
    life: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => bytes.resize(index(*len), 0),
            Self::Write(_, data) if data.is_empty() => {}
            Self::Write(offset, data) => {
                let end = index(*offset) + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[index(*offset)..end].copy_from_slice(data);
            }
        }
    }

    /// The change as far as it got: its first sectors.
    fn torn(&self, rng: &mut SeededRng) -> Self {
        match self {
            Self::SetLen(len) => Self::SetLen(*len),
            Self::Write(offset, data) => {
                let sectors = data.len() / SECTOR;
                let kept = if sectors == 0 { 0 } else { rng.below(sectors) * SECTOR };
                Self::Write(*offset, data[..kept].to_vec())
            }
        }
    }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("a test disk fits in memory")
}

impl FaultyDisk {
    /// An empty disk without faults; `seed` decides what tears and what survives.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            durable: Vec::new(),
            cached: Vec::new(),
            unsynced: Vec::new(),
            fault: DiskFault::None,
            calls: 0,
            failures: 0,
            rng: SeededRng::new(seed),
            life: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the disk.
    #[must_use]
    pub fn backend(&self) -> FaultyBackend {
        FaultyBackend { disk: self.clone(), life: self.lock().life }
    }

    /// Sets which calls fail from now on.
    pub fn set_fault(&self, fault: DiskFault) {
        let mut state = self.lock();
        state.fault = fault;
        state.calls = 0;
    }

    /// How many calls have failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.lock().failures
    }

    /// Drops what the cache shows of writes whose sync failed.
    pub fn drop_caches(&self) {
        let mut state = self.lock();
        let mut cached = state.durable.clone();
        state.unsynced.iter().for_each(|change| change.apply(&mut cached));
        state.cached = cached;
    }

    /// Ends the process: its handles are dead, the cache stays.
    pub fn kill(&self) {
        self.lock().life += 1;
    }

    /// Loses power: of what was not synced some survives, in part, in no order.
    pub fn power_cut(&self) {
        let mut state = self.lock();
        let State { durable, unsynced, rng, .. } = &mut *state;
        lose(durable, unsynced, rng);
        state.cached = state.durable.clone();
        state.life += 1;
    }

    /// The bytes as a reader sees them now.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().cached.clone()
    }
}

/// Writes some of `unsynced` and forgets the rest.
fn lose(durable: &mut Vec<u8>, unsynced: &mut Vec<Change>, rng: &mut SeededRng) {
    for change in unsynced.drain(..) {
        match rng.below(8) {
            0..=2 => {}
            3 => change.torn(rng).apply(durable),
            _ => change.apply(durable),
        }
    }
}

impl State {
    fn fails(&mut self, op: DiskOp) -> bool {
        let fails = match self.fault {
            DiskFault::None => false,
            DiskFault::Every(kind) => kind == op,
            DiskFault::Random(percent) => self.rng.percent(percent),
            DiskFault::From(kind, nth) => {
                self.calls += u64::from(kind == op);
                self.calls >= nth
            }
            DiskFault::Nth(kind, nth) => {
                self.calls += u64::from(kind == op);
                kind == op && self.calls == nth
            }
        };
        self.failures += u64::from(fails);
        fails
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.unsynced.push(change);
    }
}

fn injected(op: DiskOp) -> io::Error {
    io::Error::other(format!("injected failure of {op:?}"))
}

/// One open handle of a [`FaultyDisk`].
#[derive(Debug)]
pub struct FaultyBackend {
    disk: FaultyDisk,
    life: u64,
}

impl FaultyBackend {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock();
        if state.life == self.life {
            Ok(state)
        } else {
            Err(io::Error::other("this handle's process is dead"))
        }
    }
}

impl StorageBackend for FaultyBackend {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        if state.fails(DiskOp::Len) {
            return Err(injected(DiskOp::Len));
        }
        Ok(state.cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state()?;
        if state.fails(DiskOp::Read) {
            return Err(injected(DiskOp::Read));
        }
        let start = index(offset);
        let bytes = state.cached.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if state.fails(DiskOp::SetLen) {
            return Err(injected(DiskOp::SetLen));
        }
        state.change(Change::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let failed = state.fails(DiskOp::Sync);
        let State { durable, unsynced, rng, .. } = &mut *state;
        if failed {
            lose(durable, unsynced, rng);
            return Err(injected(DiskOp::Sync));
        }
        unsynced.drain(..).for_each(|change| change.apply(durable));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        let change = Change::Write(offset, data.to_vec());
        if state.fails(DiskOp::Write) {
            let torn = change.torn(&mut state.rng);
            state.change(torn);
            return Err(injected(DiskOp::Write));
        }
        state.change(change);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(backend: &FaultyBackend, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        backend.read(0, &mut out).unwrap();
        out
    }

    #[test]
    fn what_a_failed_sync_lost_stays_readable_until_the_cache_goes() {
        let disk = FaultyDisk::new(3);
        let backend = disk.backend();
        backend.write(0, &[1; 64 * 1024]).unwrap();
        backend.sync_data().unwrap();
        for page in 0..16 {
            backend.write(page * 4096, &[2; 4096]).unwrap();
        }
        disk.set_fault(DiskFault::Nth(DiskOp::Sync, 1));
        assert!(backend.sync_data().is_err());
        assert_eq!(read(&backend, 64 * 1024), vec![2; 64 * 1024]);
        backend.sync_data().unwrap();
        disk.drop_caches();
        let left = read(&backend, 64 * 1024);
        assert!(left.contains(&1) && left.contains(&2), "some pages were lost and some were not");
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_kills_handles() {
        let disk = FaultyDisk::new(1);
        let backend = disk.backend();
        backend.write(0, b"durable").unwrap();
        backend.sync_data().unwrap();
        disk.power_cut();
        assert!(backend.len().is_err());
        assert_eq!(read(&disk.backend(), 7), b"durable");
    }
}
