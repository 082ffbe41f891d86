//! Forking by shared prefix.

use mainspring_api::{AppendId, DeletionState, Event, Head, Seq, SessionUid};

use super::{Reply, Result, Transaction};
use crate::chain::Batch;
use crate::error::LogError;
use crate::kv::row::{KvRow, Segment};
use crate::log::{FenceRow, NewSession};
use crate::view::SessionView;

impl Transaction<'_> {
    pub(super) fn fork(
        &mut self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        view: &SessionView,
        children: &[(NewSession, Event)],
    ) -> Result<Reply> {
        if children.is_empty() || children.len() > self.limits.children_max {
            return Err(LogError::Invalid("a fork makes 1 to 128 children").into());
        }
        let parent_row = self.rows.load(self.kv, parent)?;
        if parent_row.row.view.deletion == DeletionState::Pending
            || view.deletion == DeletionState::Pending
        {
            return Err(LogError::Deleted(parent.clone()).into());
        }
        let mut batches = Vec::with_capacity(children.len());
        for (index, (child, marker)) in children.iter().enumerate() {
            self.refuse_taken(&child.uid)?;
            if children[..index].iter().any(|(other, _)| other.uid == child.uid) {
                return Err(LogError::Invalid("two children have one uid").into());
            }
            if child.project.is_empty() {
                return Err(LogError::Invalid("a session has no project").into());
            }
            let batch = Batch::link(at, vec![marker.clone().into()])?;
            self.limits.check(&batch)?;
            batches.push(batch);
        }
        let segments = inherited(&parent_row, at.seq);
        let mut rows = Vec::with_capacity(children.len());
        for ((child, _), batch) in children.iter().zip(&batches) {
            let mut kv = self.new_row(id, child)?;
            kv.segments.clone_from(&segments);
            kv.row.parent = Some((parent.clone(), at.seq));
            kv.row.fence =
                FenceRow { fence: KvRow::CHILD_FENCE, holder: None, since: Some(self.now) };
            kv.row.view = view.clone();
            rows.push(self.write_batch(kv, id, KvRow::CHILD_FENCE, batch)?);
        }
        Ok(Reply::Rows(rows))
    }
}

/// Whose records a child forked at `at` shows.
fn inherited(parent: &KvRow, at: Seq) -> Vec<Segment> {
    let mut segments = Vec::new();
    for segment in &parent.segments {
        let upto = segment.upto.min(at.get());
        if upto > segments.last().map_or(0, |last: &Segment| last.upto) {
            segments.push(Segment { uid: segment.uid.clone(), upto });
        }
    }
    if at >= parent.own_from() {
        segments.push(Segment { uid: parent.store.clone(), upto: at.get() });
    }
    segments
}
