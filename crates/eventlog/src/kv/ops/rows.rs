//! Rows that are kept in memory, so that an append to a session that is
//! written to reads nothing.

use std::collections::HashMap;

use mainspring_api::SessionUid;

use super::{Result, write_row};
use crate::engine::{EngineError, KvRead, KvWrite};
use crate::error::LogError;
use crate::kv::read;
use crate::kv::row::KvRow;

/// Rows of one generation, where there is no other bound; two are kept. A row is
/// about 3 KB.
const GENERATION_MAX: usize = 2_048;

/// The rows in memory, as the transaction under way sees them.
///
/// Changed in place: what a transaction touched is forgotten when it is given
/// up, and read again by the next one that needs it.
#[derive(Debug)]
pub(in crate::kv) struct Rows {
    young: HashMap<SessionUid, KvRow>,
    old: HashMap<SessionUid, KvRow>,
    touched: Vec<SessionUid>,
    generation_max: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self::of(GENERATION_MAX)
    }
}

impl Rows {
    /// No rows yet, of which up to twice `generation_max` will be kept.
    pub(in crate::kv) fn of(generation_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), touched: Vec::new(), generation_max }
    }

    /// Puts the rows that the transaction under way has left for its end.
    pub(in crate::kv) fn write(
        &mut self,
        kv: &mut dyn KvWrite,
    ) -> std::result::Result<(), EngineError> {
        let touched = std::mem::take(&mut self.touched);
        touched.iter().try_for_each(|uid| self.write_one(kv, uid))?;
        self.touched = touched;
        Ok(())
    }

    /// Puts this row, if it was left for the transaction's end.
    pub(super) fn write_one(
        &mut self,
        kv: &mut dyn KvWrite,
        uid: &SessionUid,
    ) -> std::result::Result<(), EngineError> {
        let row = self.young.get_mut(uid).filter(|row| row.unwritten);
        row.map_or(Ok(()), |row| {
            row.unwritten = false;
            write_row(kv, row)
        })
    }

    /// The transaction is durable.
    pub(in crate::kv) fn commit(&mut self) {
        self.touched.clear();
        if self.young.len() > self.generation_max {
            // Whatever is used again comes back from the old generation.
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// The transaction was given up.
    pub(in crate::kv) fn abort(&mut self) {
        for uid in std::mem::take(&mut self.touched) {
            self.forget_one(&uid);
        }
    }

    /// Nothing is known any more.
    pub(in crate::kv) fn forget(&mut self) {
        *self = Self::of(self.generation_max);
    }

    /// Nothing is known of this session any more.
    pub(in crate::kv) fn forget_one(&mut self, uid: &SessionUid) {
        self.young.remove(uid);
        self.old.remove(uid);
    }

    fn bring_in(&mut self, kv: &dyn KvRead, uid: &SessionUid) -> Result<bool> {
        if self.young.contains_key(uid) {
            return Ok(true);
        }
        let row = match self.old.remove(uid) {
            Some(row) => Some(row),
            None => read::find_row(kv, uid)??,
        };
        Ok(row.map(|row| self.young.insert(uid.clone(), row)).is_some())
    }

    pub(super) fn find(&mut self, kv: &dyn KvRead, uid: &SessionUid) -> Result<Option<&KvRow>> {
        self.bring_in(kv, uid)?;
        Ok(self.young.get(uid))
    }

    pub(super) fn load(&mut self, kv: &dyn KvRead, uid: &SessionUid) -> Result<&KvRow> {
        let found = self.find(kv, uid)?;
        found.ok_or_else(|| LogError::SessionNotFound(uid.clone()).into())
    }

    /// A row to be changed and put by the transaction under way.
    pub(super) fn load_mut(&mut self, kv: &dyn KvRead, uid: &SessionUid) -> Result<&mut KvRow> {
        if !self.bring_in(kv, uid)? {
            return Err(LogError::SessionNotFound(uid.clone()).into());
        }
        self.touched.push(uid.clone());
        Ok(self.young.get_mut(uid).expect("brought in just above"))
    }

    /// A row that this transaction has loaded to change it.
    pub(super) fn known_mut(&mut self, uid: &SessionUid) -> &mut KvRow {
        self.young.get_mut(uid).expect("loaded by this transaction")
    }

    /// A row that the transaction under way has put.
    pub(super) fn insert(&mut self, row: KvRow) {
        let uid = row.row.session.uid.clone();
        self.touched.push(uid.clone());
        self.young.insert(uid, row);
    }
}
