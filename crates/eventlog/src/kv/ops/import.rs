//! Staging, publishing and removing imported records.

use std::collections::HashMap;

use mainspring_api::{AppendId, ExecutionId, Fence, SessionUid};

use super::{Reply, Result, Transaction};
use crate::chain::StoredRecord;
use crate::engine::Space;
use crate::error::LogError;
use crate::kv::{keys, read, row};
use crate::log::ImportRow;
use crate::view::{ExecutionView, SessionView};

/// Makes staged records a session.
#[derive(Debug)]
pub(in crate::kv) struct Publish {
    pub(in crate::kv) id: AppendId,
    /// The name that they were staged under.
    pub(in crate::kv) store: SessionUid,
    pub(in crate::kv) row: ImportRow,
    pub(in crate::kv) view: SessionView,
    pub(in crate::kv) table: HashMap<ExecutionId, ExecutionView>,
    pub(in crate::kv) fence: Fence,
}

/// Starts the marker of an import that is done; the session's uid follows.
const PUBLISHED: &str = "published:";

/// Whether a staging marker is of an import that is done.
pub(in crate::kv) fn is_published(marker: &[u8]) -> bool {
    marker.starts_with(PUBLISHED.as_bytes())
}

/// The session that a staging marker was published as.
fn published(marker: &[u8]) -> Option<SessionUid> {
    let uid = std::str::from_utf8(marker).ok()?.strip_prefix(PUBLISHED)?;
    SessionUid::new(uid).ok()
}

impl Transaction<'_> {
    pub(super) fn stage(
        &mut self,
        id: AppendId,
        store: &SessionUid,
        records: &[StoredRecord],
    ) -> Result<Reply> {
        let marker = self.kv.get(Space::Staging, &keys::row(store))?;
        if let Some(uid) = marker.as_deref().and_then(published) {
            // This very import is done: its records are a session's now.
            let row = self.rows.load(self.kv, &uid)?;
            return Ok(Reply::Row(Box::new(row.row)));
        }
        self.wrote = true;
        if marker.is_none() {
            self.kv.put(Space::Staging, &keys::row(store), id.to_string().as_bytes())?;
        }
        for record in records {
            let value = keys::encode_record(record, record.fence, &record.notes);
            self.kv.put(Space::Records, &keys::record(store, record.seq), &value)?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn publish(&mut self, publish: &Publish) -> Result<Reply> {
        let Publish { id, store, row, view, table, fence } = publish;
        let uid = &row.session.uid;
        if row.session.project.is_empty() {
            return Err(LogError::Invalid("a session has no project").into());
        }
        self.refuse_taken(uid)?;
        let marker = self.kv.get(Space::Staging, &keys::row(store))?;
        if marker.as_deref() != Some(id.to_string().as_bytes()) {
            return Err(LogError::Invalid("nothing was staged by this import").into());
        }
        self.kv.put(Space::Staging, &keys::row(store), format!("{PUBLISHED}{uid}").as_bytes())?;
        let created = row.create_time.unwrap_or(self.now);
        let now = std::mem::replace(&mut self.now, created);
        let mut kv = self.new_row(*id, &row.session)?;
        self.now = now;
        kv.store.clone_from(store);
        kv.row.update_time = now;
        kv.row.parent.clone_from(&row.parent);
        kv.row.fence.fence = *fence;
        kv.row.view.clone_from(view);
        for execution in table.values() {
            let key = keys::execution(store, &execution.id);
            self.kv.put(Space::Executions, &key, &row::encode_execution(execution))?;
        }
        let answer = kv.row.clone();
        self.save(kv)?;
        Ok(Reply::Row(Box::new(answer)))
    }

    pub(super) fn unstage(&mut self, id: Option<AppendId>, uid: &SessionUid) -> Result<Reply> {
        const KEYS_MAX: usize = 10_000;
        let Some(marker) = self.kv.get(Space::Staging, &keys::row(uid))? else {
            return Ok(Reply::Done);
        };
        if published(&marker).is_some() || id.is_some_and(|id| marker != id.to_string().as_bytes())
        {
            return Ok(Reply::Done);
        }
        let prefix = keys::session_prefix(uid);
        let staged = read::keys_of(self.kv, Space::Records, &prefix, KEYS_MAX)?;
        self.wrote = true;
        for key in &staged {
            self.kv.delete(Space::Records, key)?;
        }
        if staged.len() == KEYS_MAX {
            return Ok(Reply::More);
        }
        self.kv.delete(Space::Staging, &keys::row(uid))?;
        Ok(Reply::Done)
    }
}
