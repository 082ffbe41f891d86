//! Reading one state, and a transaction that lies over it.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use fjall::{KvPair, OwnedWriteBatch, PersistMode, Readable as _, Snapshot};
use mainspring_eventlog::{EngineError, KvRead, KvWrite, Space, Visit};

use crate::error::{guarded, refused};
use crate::open::Open;

/// The longest key that fjall takes.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// All spaces, as they were after one commit.
pub(crate) struct Reader<'a> {
    open: &'a Open,
    snapshot: Arc<Snapshot>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(open: &'a Open) -> Self {
        Self { open, snapshot: open.snapshot() }
    }

    fn entries(&self, space: Space, from: &[u8], to: &[u8]) -> Result<Entries, EngineError> {
        let keyspace = self.open.space(space);
        let range = || Ok::<_, fjall::Error>(self.snapshot.range(keyspace, from..to));
        Ok(Entries(guarded("scan", range)?))
    }
}

struct Entries(fjall::Iter);

impl Entries {
    fn next(&mut self) -> Result<Option<KvPair>, EngineError> {
        guarded("scan", || self.0.next().map(fjall::Guard::into_inner).transpose())
    }
}

impl KvRead for Reader<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let value = guarded("read", || self.snapshot.get(self.open.space(space), key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        if from >= to {
            return Ok(());
        }
        let mut entries = self.entries(space, from, to)?;
        while let Some((key, value)) = entries.next()? {
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// What a transaction changes in one space; `None` for a key that goes.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// As [`Reader`], under what the transaction changed.
pub(crate) struct Writer<'a> {
    base: Reader<'a>,
    changes: [Changes; Space::ALL.len()],
    /// Whether fjall failed in it: then it is never committed.
    failed: Cell<bool>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(open: &'a Open) -> Self {
        Self { base: Reader::new(open), changes: Default::default(), failed: Cell::new(false) }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// What the transaction sets in the store's metadata.
    pub(crate) fn meta(&self, key: &[u8]) -> Option<&[u8]> {
        self.changes[Space::Meta as usize].get(key)?.as_deref()
    }

    /// The spaces that it changes.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = Space> {
        Space::ALL.into_iter().filter(|space| !self.changes[*space as usize].is_empty())
    }

    /// Its changes as one batch, durable before any of it can be read.
    pub(crate) fn into_batch(self) -> OwnedWriteBatch {
        let open = self.base.open;
        let mut batch = open.database.batch().durability(Some(PersistMode::SyncAll));
        for (space, changes) in Space::ALL.into_iter().zip(self.changes) {
            let keyspace = open.space(space);
            for (key, value) in changes {
                match value {
                    Some(value) => batch.insert(keyspace, key, value),
                    None => batch.remove(keyspace, key),
                }
            }
        }
        batch
    }

    fn note<T>(&self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        result.inspect_err(|_| self.failed.set(true))
    }

    fn set(&mut self, space: Space, key: &[u8], value: Option<&[u8]>) -> Result<(), EngineError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let why = format!("a key of {} bytes, the bound is {KEY_BYTES_MAX}", key.len());
            return self.note(Err(refused(why)));
        }
        self.changes[space as usize].insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }
}

impl KvRead for Writer<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self.changes[space as usize].get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.note(self.base.get(space, key)),
        }
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        if from >= to {
            return Ok(());
        }
        let range = (Bound::Included(from), Bound::Excluded(to));
        let mut changes = self.changes[space as usize].range::<[u8], _>(range).peekable();
        let mut entries = self.note(self.base.entries(space, from, to))?;
        let mut stored = self.note(entries.next())?;
        loop {
            let order = match (&stored, changes.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((key, _)), Some((changed, _))) => (**key).cmp(changed.as_slice()),
            };
            // What was changed takes the place of what is stored.
            let old = match order {
                Ordering::Greater => None,
                _ => std::mem::replace(&mut stored, self.note(entries.next())?),
            };
            let shown = match order {
                Ordering::Less => old.as_ref().map(|(key, value)| (&**key, &**value)),
                _ => changes.next().and_then(|(key, value)| Some((&**key, value.as_deref()?))),
            };
            if shown.is_some_and(|(key, value)| visit(key, value).is_break()) {
                return Ok(());
            }
        }
    }
}

impl KvWrite for Writer<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.set(space, key, Some(value))
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        self.set(space, key, None)
    }
}
