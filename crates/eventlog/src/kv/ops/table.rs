//! The execution table of a session, inside a transaction.

use std::collections::HashMap;

use mainspring_api::{Event, ExecutionId, Head, Seq, SessionUid};

use super::{OpError, Result};
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::kv::row::{self, KvRow, Segment};
use crate::kv::{fold, keys};
use crate::view::{ExecutionTable, ExecutionView, SessionView};

/// Executions of one session other than the latest, with what this transaction changes.
pub(super) struct Table<'a> {
    kv: &'a dyn KvRead,
    uid: &'a SessionUid,
    segments: &'a [Segment],
    /// The position that is folded.
    at: Seq,
    pub(super) changed: HashMap<ExecutionId, ExecutionView>,
    failed: Option<EngineError>,
}

impl<'a> Table<'a> {
    pub(super) fn of(kv: &'a dyn KvRead, uid: &'a SessionUid, segments: &'a [Segment]) -> Self {
        Self { kv, uid, segments, at: Seq::ZERO, changed: HashMap::new(), failed: None }
    }

    /// Folds one more record into `view`. After an error it is folded in part.
    pub(super) fn fold(
        &mut self,
        view: &mut SessionView,
        event: &Event,
        head: Head,
        bytes: usize,
    ) -> Result<()> {
        self.at = head.seq;
        let folded = view.apply(event, head, bytes, self);
        match self.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(folded?),
        }
    }

    fn find(&self, id: &ExecutionId) -> Result<Option<ExecutionView>> {
        if let Some(view) = self.changed.get(id) {
            return Ok(Some(view.clone()));
        }
        if let Some(value) = self.kv.get(Space::Executions, &keys::execution(self.uid, id))? {
            let view = row::decode_execution(&value)?;
            return if view.last_seq < self.at { Ok(Some(view)) } else { self.as_it_was(&view) };
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
            return fold::refold_execution(self.kv, self.segments, id, range);
        }
        Ok(None)
    }
}

/// An execution of a session, wherever its records are.
pub(in crate::kv) fn execution(
    kv: &dyn KvRead,
    row: &KvRow,
    id: &ExecutionId,
) -> Result<Option<ExecutionView>> {
    let view = &row.row.view;
    if row.row.purged {
        return Err(LogError::Deleted(row.row.session.uid.clone()).into());
    }
    if let Some(latest) = view.latest.as_ref().filter(|latest| latest.id == *id) {
        return Ok(Some(latest.clone()));
    }
    let mut table = Table::of(kv, &row.store, &row.segments);
    table.at = view.head.seq.next();
    table.find(id)
}

impl Table<'_> {
    /// An execution of a row that was rewound, before the record that is folded.
    fn as_it_was(&self, view: &ExecutionView) -> Result<Option<ExecutionView>> {
        if view.first_seq >= self.at {
            return Ok(None);
        }
        let before = self.at.get() - 1;
        let own = Segment { uid: self.uid.clone(), upto: before };
        let segments: Vec<Segment> = self.segments.iter().cloned().chain([own]).collect();
        fold::refold_execution(self.kv, &segments, &view.id, (view.first_seq, Seq::new(before)))
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
