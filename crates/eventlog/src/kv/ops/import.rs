//! Staging, publishing and removing imported records.

use mainspring_api::{AppendId, Event, Fence, Head, SessionUid, Timestamp};
use serde::{Deserialize, Serialize};

use super::append::put_executions;
use super::table::Table;
use super::{Reply, Result, Transaction};
use crate::chain::StoredRecord;
use crate::engine::{KvRead, Space};
use crate::error::LogError;
use crate::kv::row::StoredView;
use crate::kv::{keys, read};
use crate::log::ImportRow;
use crate::view::SessionView;

/// Starts the marker of an import that is done; the session's uid follows, and
/// after a blank the head that was published.
const PUBLISHED: &str = "published:";

/// What became of an import so far.
pub(in crate::kv) enum Staged {
    /// It is under way.
    Open(Box<OpenImport>),
    /// It is a session now, and ended at this head (not known of older ones).
    Published(SessionUid, Option<Head>),
    /// It was left by a version that could not go on with it.
    Left,
}

/// An import under way.
pub(in crate::kv) struct OpenImport {
    /// The fold of what is staged.
    pub(in crate::kv) view: SessionView,
    /// The highest fence of it.
    pub(in crate::kv) fence: Fence,
    /// When it last went on.
    pub(in crate::kv) touched: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct StoredImport<'a> {
    fence: u64,
    touched: (i64, u32),
    view: StoredView<'a>,
}

/// What is staged under `store`.
pub(in crate::kv) fn staged(kv: &dyn KvRead, store: &SessionUid) -> Result<Option<Staged>> {
    Ok(kv.get(Space::Staging, &keys::row(store))?.map(|marker| staged_in(&marker)))
}

/// What a marker says.
pub(in crate::kv) fn staged_in(marker: &[u8]) -> Staged {
    let text = std::str::from_utf8(marker).unwrap_or_default();
    if let Some(published) = text.strip_prefix(PUBLISHED) {
        let (uid, head) = published.split_once(' ').unwrap_or((published, ""));
        return match SessionUid::new(uid) {
            Ok(uid) => Staged::Published(uid, head.parse().ok()),
            Err(_) => Staged::Left,
        };
    }
    let open = serde_json::from_slice::<StoredImport<'_>>(marker).ok().and_then(|stored| {
        let (seconds, nanos) = stored.touched;
        Some(Staged::Open(Box::new(OpenImport {
            view: stored.view.into_view()?,
            fence: Fence::new(stored.fence),
            touched: Timestamp { seconds, nanos },
        })))
    });
    open.unwrap_or(Staged::Left)
}

impl Transaction<'_> {
    fn put_open(&mut self, store: &SessionUid, view: &SessionView, fence: Fence) -> Result<()> {
        let stored = StoredImport {
            fence: fence.get(),
            touched: (self.now.seconds, self.now.nanos),
            view: StoredView::from(view),
        };
        let value = serde_json::to_vec(&stored).expect("a view has only string keys");
        self.wrote = true;
        Ok(self.kv.put(Space::Staging, &keys::row(store), &value)?)
    }

    pub(super) fn begin_import(&mut self, store: &SessionUid) -> Result<Reply> {
        match staged(self.kv, store)? {
            Some(Staged::Published(uid, head)) => {
                let row = self.rows.load(self.kv, &uid)?;
                Ok(Reply::Imported(Box::new(row.row.clone()), head))
            }
            Some(Staged::Open(open)) => Ok(Reply::Head(open.view.head)),
            Some(Staged::Left) => Err(LogError::Corrupt { what: "staged import".into() }.into()),
            None => {
                self.put_open(store, &SessionView::default(), Fence::NONE)?;
                Ok(Reply::Head(Head::EMPTY))
            }
        }
    }

    fn open_import(&self, store: &SessionUid, at: Head) -> Result<Box<OpenImport>> {
        match staged(self.kv, store)? {
            Some(Staged::Open(open)) if open.view.head == at => Ok(open),
            _ => Err(LogError::Moved { what: "an import of the same id" }.into()),
        }
    }

    pub(super) fn stage(
        &mut self,
        store: &SessionUid,
        after: Head,
        records: &[(StoredRecord, Event)],
    ) -> Result<Reply> {
        let mut open = self.open_import(store, after)?;
        let mut table = Table::of(self.kv, store, &[]);
        for (record, event) in records {
            table.fold(&mut open.view, event, record.head(), record.canonical.len())?;
            open.fence = open.fence.max(record.fence);
        }
        let changed = table.changed;
        put_executions(self.kv, store, &changed)?;
        for (record, _) in records {
            let value = &mut || keys::encode_record(record, record.fence, &[]);
            self.kv.put_record(&keys::record(store, record.seq), value)?;
        }
        self.put_open(store, &open.view, open.fence)?;
        Ok(Reply::Head(open.view.head))
    }

    pub(super) fn publish(
        &mut self,
        id: AppendId,
        store: &SessionUid,
        row: &ImportRow,
        head: Head,
    ) -> Result<Reply> {
        let uid = &row.session.uid;
        self.refuse_taken(uid)?;
        let open = self.open_import(store, head)?;
        let mut new = self.new_row(id, &row.session, row.create_time.unwrap_or(self.now))?;
        new.store.clone_from(store);
        new.row.parent.clone_from(&row.parent);
        new.row.fence.fence = open.fence;
        new.row.view = open.view;
        self.kv.put(
            Space::Staging,
            &keys::row(store),
            format!("{PUBLISHED}{uid} {head}").as_bytes(),
        )?;
        Ok(Reply::Row(Box::new(self.add(new)?)))
    }

    pub(super) fn unstage(&mut self, store: &SessionUid) -> Result<Reply> {
        const KEYS_MAX: usize = 10_000;
        match staged(self.kv, store)? {
            None | Some(Staged::Published(..)) => return Ok(Reply::Done),
            Some(Staged::Open(_) | Staged::Left) => {}
        }
        self.wrote = true;
        let prefix = keys::session_prefix(store);
        for space in [Space::Records, Space::Executions] {
            let staged = read::keys_of(self.kv, space, &prefix, KEYS_MAX)?;
            for key in &staged {
                self.kv.delete(space, key)?;
            }
            if staged.len() == KEYS_MAX {
                return Ok(Reply::More);
            }
        }
        self.kv.delete(Space::Staging, &keys::row(store))?;
        Ok(Reply::Done)
    }
}
