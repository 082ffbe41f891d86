//! Rows: creating and changing them, and the fence in them.

use mainspring_api::{AppendId, Fence, Head, SessionUid, Timestamp};

use super::{Reply, Result, Transaction, put_row, refuse_purged};
use crate::engine::Space;
use crate::error::LogError;
use crate::kv::index::Indexed;
use crate::kv::keys;
use crate::kv::row::{KvRow, Ops};
use crate::log::{FenceRow, Holder, NewSession, RowPatch, SessionRow};
use crate::view::SessionView;

impl Transaction<'_> {
    pub(super) fn new_row(
        &mut self,
        id: AppendId,
        session: &NewSession,
        create_time: Timestamp,
    ) -> Result<KvRow> {
        let order = keys::order(&session.project, create_time, &session.uid);
        self.kv.put(Space::Order, &order, &[])?;
        Ok(KvRow {
            row: SessionRow {
                session: session.clone(),
                version: 1,
                create_time,
                update_time: self.now,
                fence: FenceRow::default(),
                parent: None,
                purged: false,
                view: SessionView::default(),
            },
            store: session.uid.clone(),
            segments: Vec::new(),
            ops: Ops { create: id.to_string(), ..Ops::default() },
            ends_at_head: true,
            indexed: Indexed::default(),
            unwritten: false,
        })
    }

    pub(super) fn create(&mut self, id: AppendId, session: &NewSession) -> Result<Reply> {
        self.refuse_taken(&session.uid)?;
        let row = self.new_row(id, session, self.now)?;
        Ok(Reply::Row(Box::new(self.add(row)?)))
    }

    pub(super) fn update(
        &mut self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: &RowPatch,
    ) -> Result<Reply> {
        let row = self.rows.load_mut(self.kv, session)?;
        refuse_purged(row)?;
        if row.row.version != version {
            return Err(LogError::Moved { what: "the row's version" }.into());
        }
        row.row.session = patch.applied_to(&row.row.session)?;
        row.row.version += 1;
        row.row.update_time = self.now;
        row.ops.update = id.to_string();
        put_row(self.kv, row, self.judged)?;
        self.wrote = true;
        Ok(Reply::Row(Box::new(row.row.clone())))
    }

    pub(super) fn mint(
        &mut self,
        id: AppendId,
        session: &SessionUid,
        current: Fence,
        head: Option<Head>,
        holder: &Holder,
    ) -> Result<Reply> {
        let row = self.rows.load_mut(self.kv, session)?;
        refuse_purged(row)?;
        let actual = row.row.view.head;
        if let Some(expected) = head.filter(|expected| *expected != actual) {
            return Err(LogError::Conflict { expected, head: actual }.into());
        }
        if row.row.fence.fence != current {
            return Err(LogError::Moved { what: "the fence" }.into());
        }
        let fence = current.next();
        row.row.fence = FenceRow { fence, holder: Some(holder.clone()), since: Some(self.now) };
        row.row.update_time = self.now;
        row.ops.mint = id.to_string();
        put_row(self.kv, row, self.judged)?;
        self.wrote = true;
        Ok(Reply::Fence(fence))
    }
}
