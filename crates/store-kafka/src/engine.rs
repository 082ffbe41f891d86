//! The view's engine, as one partition sees it.
//!
//! One engine holds the folds of all partitions, each under a prefix of its own.
//! In the place of a record it keeps where the record stands in the log.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mainspring_eventlog::{Engine, EngineError, EngineUsage, Keep, KvRead, KvWrite, Space, Visit};

use crate::mark::Mark;
use crate::messages::refused;

/// The form of a place in the log: a tag that no stored record starts with.
const PLACE: u8 = 2;

/// Where a record stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    /// The message's offset.
    pub(crate) offset: u64,
    /// The entry of the message.
    pub(crate) entry: u32,
    /// The record of the entry.
    pub(crate) record: u32,
}

impl RecordPlace {
    fn encode(self) -> [u8; 17] {
        let mut out = [PLACE; 17];
        out[1..9].copy_from_slice(&self.offset.to_be_bytes());
        out[9..13].copy_from_slice(&self.entry.to_be_bytes());
        out[13..].copy_from_slice(&self.record.to_be_bytes());
        out
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (tag, rest) = value.split_first()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (entry, record) = rest.split_first_chunk::<4>()?;
        (*tag == PLACE).then_some(())?;
        Some(Self {
            offset: u64::from_be_bytes(*offset),
            entry: u32::from_be_bytes(*entry),
            record: u32::from_be_bytes(record.try_into().ok()?),
        })
    }
}

/// Whoever has the log's messages.
pub(crate) trait Records: fmt::Debug + Send + Sync + 'static {
    /// The stored form of a record of a partition. May fetch it.
    fn record(&self, partition: u32, place: RecordPlace) -> Result<Vec<u8>, EngineError>;
}

/// One partition's part of the view.
#[derive(Clone)]
pub(crate) struct PartitionEngine {
    base: Arc<dyn Engine>,
    partition: u32,
    records: Arc<dyn Records>,
    /// The operation that is applied, and how many records it has put.
    at: Arc<At>,
}

#[derive(Debug, Default)]
struct At {
    offset: AtomicU64,
    entry: AtomicU32,
    records: AtomicU32,
    /// The next message after those that readers were promised. It never falls.
    promised: AtomicU64,
    /// As it, for the fold, which starts again where the view was found.
    floor: AtomicU64,
}

impl PartitionEngine {
    pub(crate) fn new(base: Arc<dyn Engine>, partition: u32, records: Arc<dyn Records>) -> Self {
        Self { base, partition, records, at: Arc::default() }
    }

    /// The records that are put from here on are those of this entry.
    pub(crate) fn entering(&self, offset: u64, entry: u32) {
        self.at.offset.store(offset, Ordering::Relaxed);
        self.at.entry.store(entry, Ordering::Relaxed);
        self.at.records.store(0, Ordering::Relaxed);
    }

    /// The view has every message before `next`. What is read from here on has as
    /// much as was ever said, or fails: an engine that opens itself anew shows
    /// what was durable, which is less.
    pub(crate) fn promise(&self, next: u64) {
        self.at.promised.fetch_max(next, Ordering::AcqRel);
        self.at.floor.store(next, Ordering::Release);
    }

    /// Reads for the fold: what it was told that the view has, or nothing.
    pub(crate) fn read_for_fold(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.read_from(&self.at.floor, f)
    }

    fn read_from(
        &self,
        next: &AtomicU64,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        // Before the snapshot, which can then only have more.
        let next = next.load(Ordering::Acquire);
        self.base.read(&mut |kv| {
            let reader = Reader(self, kv);
            if next > 0 && Mark::load(&reader)?.next < next {
                return Err(refused("the view is being filled again".to_owned()));
            }
            f(&reader)
        })
    }

    /// The engine under all partitions.
    pub(crate) fn base(&self) -> &Arc<dyn Engine> {
        &self.base
    }

    /// Reads what is stored of this partition, as it is stored, at one moment.
    pub(crate) fn read_stored(
        &self,
        read: &mut dyn FnMut(StoredReader<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.base.read(&mut |kv| read(StoredReader { engine: self, kv }))
    }

    /// Changes what is stored of this partition, as it is stored.
    pub(crate) fn write_stored(
        &self,
        keep: Keep,
        change: &mut dyn FnMut(&mut StoredWriter<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.base.write(&mut |kv| {
            change(&mut StoredWriter { engine: self, kv })?;
            Ok(keep)
        })
    }

    /// Writes this partition's part within a transaction of the engine under all.
    pub(crate) fn within(
        &self,
        kv: &mut dyn KvWrite,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        f(&mut Writer(self, Writing(kv)))
    }

    fn next_place(&self) -> RecordPlace {
        RecordPlace {
            offset: self.at.offset.load(Ordering::Relaxed),
            entry: self.at.entry.load(Ordering::Relaxed),
            record: self.at.records.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        prefixed(self.partition, key)
    }

    /// What is stored, with records in the place of where they stand.
    fn resolved(&self, space: Space, value: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        match place_in(space, &value) {
            Some(place) => self.records.record(self.partition, place),
            None => Ok(value),
        }
    }

    fn get(
        &self,
        kv: &dyn KvRead,
        space: Space,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        kv.get(space, &self.key(key))?.map(|value| self.resolved(space, value)).transpose()
    }

    fn scan(
        &self,
        kv: &dyn KvRead,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        let mut failed = None;
        let (from, to) = (self.key(from), self.key(to));
        kv.scan(space, &from, &to, &mut |key, value| {
            let key = &key[PREFIX..];
            let Some(place) = place_in(space, value) else { return visit(key, value) };
            match self.records.record(self.partition, place) {
                Ok(record) => visit(key, &record),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// Bytes of a partition's prefix.
pub(crate) const PREFIX: usize = 4;

/// A key of one partition.
pub(crate) fn prefixed(partition: u32, key: &[u8]) -> Vec<u8> {
    [&partition.to_be_bytes(), key].concat()
}

fn place_in(space: Space, value: &[u8]) -> Option<RecordPlace> {
    if space == Space::Records { RecordPlace::decode(value) } else { None }
}

/// Reads what a partition's view holds, as it is stored.
pub(crate) struct StoredReader<'a> {
    engine: &'a PartitionEngine,
    kv: &'a dyn KvRead,
}

impl StoredReader<'_> {
    /// Visits a whole space.
    pub(crate) fn scan(&self, space: Space, visit: &mut Visit<'_>) -> Result<(), EngineError> {
        let (from, to) = (self.engine.key(&[]), prefixed(self.engine.partition + 1, &[]));
        self.kv.scan(space, &from, &to, &mut |key, value| visit(&key[PREFIX..], value))
    }

    /// One value.
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.kv.get(space, &self.engine.key(key))
    }
}

/// Writes what a partition's view holds, as it is stored.
pub(crate) struct StoredWriter<'a> {
    engine: &'a PartitionEngine,
    kv: &'a mut dyn KvWrite,
}

impl StoredWriter<'_> {
    pub(crate) fn put(
        &mut self,
        space: Space,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), EngineError> {
        self.kv.put(space, &self.engine.key(key), value)
    }

    /// Removes up to `max` keys of a space; returns how many there were.
    pub(crate) fn remove(&mut self, space: Space, max: usize) -> Result<usize, EngineError> {
        let mut keys = Vec::new();
        let (from, to) = (self.engine.key(&[]), prefixed(self.engine.partition + 1, &[]));
        self.kv.scan(space, &from, &to, &mut |key, _| {
            keys.push(key.to_vec());
            if keys.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        keys.iter().try_for_each(|key| self.kv.delete(space, key))?;
        Ok(keys.len())
    }
}

impl fmt::Debug for PartitionEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionEngine")
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}

struct Reader<'a>(&'a PartitionEngine, &'a dyn KvRead);

impl KvRead for Reader<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(self.1, space, key)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.0.scan(self.1, space, from, to, visit)
    }
}

/// `KvRead` of a writer, which cannot be borrowed as one.
struct Writing<'a>(&'a mut dyn KvWrite);

impl KvRead for Writing<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(space, key)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.0.scan(space, from, to, visit)
    }
}

struct Writer<'a>(&'a PartitionEngine, Writing<'a>);

impl KvRead for Writer<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(&self.1, space, key)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.0.scan(&self.1, space, from, to, visit)
    }
}

impl KvWrite for Writer<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if space == Space::Records {
            return self.put_record(key, &mut Vec::new);
        }
        self.1.0.put(space, &self.0.key(key), value)
    }

    fn put_record(
        &mut self,
        key: &[u8],
        _value: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<(), EngineError> {
        let place = self.0.next_place().encode();
        self.1.0.put(Space::Records, &self.0.key(key), &place)
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        self.1.0.delete(space, &self.0.key(key))
    }
}

impl Engine for PartitionEngine {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.read_from(&self.at.promised, f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        self.base.write(&mut |kv| f(&mut Writer(self, Writing(kv))))
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.base.reopen()
    }

    fn is_durable(&self) -> bool {
        // Even one in memory: a record may have to be fetched.
        true
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        self.base.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.base.usage()
    }
}
