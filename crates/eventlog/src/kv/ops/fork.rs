//! Forking by shared prefix.

use mainspring_api::{AppendId, DeletionState, Head, Seq, SessionUid};

use super::append::{Stamp, write_batch};
use super::{Reply, Result, Transaction, put_row, refuse_purged};
use crate::chain::Batch;
use crate::engine::Space;
use crate::error::LogError;
use crate::kv::keys;
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
        children: &[(NewSession, Batch)],
    ) -> Result<Reply> {
        if children.is_empty() || children.len() > self.limits.children_max {
            return Err(LogError::Invalid("a fork makes 1 to 128 children").into());
        }
        let parent_row = self.rows.load(self.kv, parent)?;
        refuse_purged(parent_row)?;
        if parent_row.row.view.deletion == DeletionState::Pending
            || view.deletion == DeletionState::Pending
        {
            return Err(LogError::Deleted(parent.clone()).into());
        }
        let segments = inherited(parent_row, at.seq);
        for (index, (child, _)) in children.iter().enumerate() {
            self.refuse_taken(&child.uid)?;
            if children[..index].iter().any(|(other, _)| other.uid == child.uid) {
                return Err(LogError::Invalid("two children have one uid").into());
            }
        }
        let mut rows = Vec::with_capacity(children.len());
        for (child, batch) in children {
            rows.push(self.add_child(id, (parent, at), view, &segments, child, batch)?);
        }
        Ok(Reply::Rows(rows))
    }

    fn add_child(
        &mut self,
        id: AppendId,
        (parent, at): (&SessionUid, Head),
        view: &SessionView,
        segments: &[Segment],
        child: &NewSession,
        batch: &Batch,
    ) -> Result<crate::log::SessionRow> {
        let fence = KvRow::CHILD_FENCE;
        let mut row = self.new_row(id, child, self.now)?;
        row.segments = segments.to_vec();
        row.row.parent = Some((parent.clone(), at.seq));
        row.row.fence = FenceRow { fence, holder: None, since: Some(self.now) };
        row.row.view = view.clone();
        for Segment { uid, upto } in segments {
            let key = keys::child(uid, &row.store);
            self.kv.put(Space::Children, &key, &upto.to_be_bytes())?;
        }
        let stamp = Stamp { id, fence, now: self.now, commit_time: &self.commit_time };
        self.wrote = true;
        write_batch(self.kv, &mut row, &stamp, batch)?;
        put_row(self.kv, &mut row, self.judged)?;
        let answer = row.row.clone();
        self.rows.insert(row);
        Ok(answer)
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
