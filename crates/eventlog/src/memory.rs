//! An engine in memory, for tests and for hosts that keep nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use crate::engine::{Engine, EngineError, EngineUsage, Keep, KvRead, KvWrite, Space, Visit};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Spaces in memory. Nothing survives the process.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    spaces: RwLock<Spaces>,
}

#[derive(Debug, Default)]
struct Spaces([Map; Space::ALL.len()]);

impl Spaces {
    fn of(&self, space: Space) -> &Map {
        &self.0[space as usize]
    }
}

impl KvRead for Spaces {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.of(space).get(key).cloned())
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        if from < to {
            for (key, value) in self
                .of(space)
                .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)))
            {
                if visit(key, value).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A transaction that writes in place and keeps what it replaced, to undo.
struct Transaction<'a> {
    spaces: &'a mut Spaces,
    undo: Vec<(Space, Vec<u8>, Option<Vec<u8>>)>,
}

impl KvRead for Transaction<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.spaces.get(space, key)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        self.spaces.scan(space, from, to, visit)
    }
}

impl KvWrite for Transaction<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let old = self.spaces.0[space as usize].insert(key.to_vec(), value.to_vec());
        self.undo.push((space, key.to_vec(), old));
        Ok(())
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError> {
        if let Some(old) = self.spaces.0[space as usize].remove(key) {
            self.undo.push((space, key.to_vec(), Some(old)));
        }
        Ok(())
    }
}

impl Transaction<'_> {
    fn roll_back(self) {
        for (space, key, old) in self.undo.into_iter().rev() {
            match old {
                Some(value) => self.spaces.0[space as usize].insert(key, value),
                None => self.spaces.0[space as usize].remove(&key),
            };
        }
    }
}

impl Engine for MemoryEngine {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        f(&*self.spaces.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        let mut txn = Transaction { spaces: &mut spaces, undo: Vec::new() };
        match f(&mut txn) {
            Ok(Keep::Yes | Keep::Behind) => Ok(()),
            Ok(Keep::No) => {
                txn.roll_back();
                Ok(())
            }
            Err(error) => {
                txn.roll_back();
                Err(error)
            }
        }
    }

    fn reopen(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn backup(&self, _label: &str) -> Result<Option<PathBuf>, EngineError> {
        Ok(None)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
        let entries = spaces.0.iter().flatten();
        let live_bytes = entries.map(|(key, value)| (key.len() + value.len()) as u64).sum();
        Ok(EngineUsage { live_bytes, ..EngineUsage::default() })
    }
}
