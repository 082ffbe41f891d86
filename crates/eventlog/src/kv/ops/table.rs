//! The execution table of a session, inside a transaction.

use std::collections::HashMap;

use mainspring_api::{ExecutionId, Seq, SessionUid};

use super::{OpError, Result};
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::kv::row::{self, Segment};
use crate::kv::{keys, read};
use crate::view::{ExecutionTable, ExecutionView};

/// Executions of one session other than the latest, with what this transaction changes.
pub(super) struct Table<'a> {
    pub(super) kv: &'a dyn KvRead,
    pub(super) uid: &'a SessionUid,
    pub(super) segments: &'a [Segment],
    pub(super) changed: HashMap<ExecutionId, ExecutionView>,
    pub(super) failed: Option<EngineError>,
}

impl Table<'_> {
    fn find(&self, id: &ExecutionId) -> Result<Option<ExecutionView>> {
        if let Some(view) = self.changed.get(id) {
            return Ok(Some(view.clone()));
        }
        if let Some(value) = self.kv.get(Space::Executions, &keys::execution(self.uid, id))? {
            return Ok(Some(row::decode_execution(&value)?));
        }
        // The nearest ancestor knows most of an execution that several went on with.
        for Segment { uid, upto } in self.segments.iter().rev() {
            let Some(value) = self.kv.get(Space::Executions, &keys::execution(uid, id))? else {
                continue;
            };
            let view = row::decode_execution(&value)?;
            if view.first_seq.get() > *upto {
                continue;
            }
            if view.last_seq.get() <= *upto {
                return Ok(Some(view));
            }
            // The owner went on with this execution after the fork.
            let range = (view.first_seq, Seq::new(*upto));
            return read::refold_execution(self.kv, self.segments, id, range);
        }
        Ok(None)
    }
}

impl ExecutionTable for Table<'_> {
    fn load(&mut self, id: &ExecutionId) -> std::result::Result<Option<ExecutionView>, LogError> {
        self.find(id).or_else(|error| match error {
            OpError::Refused(error) => Err(error),
            OpError::Engine(error) => {
                self.failed = Some(error);
                Ok(None)
            }
        })
    }

    fn store(&mut self, view: &ExecutionView) -> std::result::Result<(), LogError> {
        self.changed.insert(view.id.clone(), view.clone());
        Ok(())
    }
}
