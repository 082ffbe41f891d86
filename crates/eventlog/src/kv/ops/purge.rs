//! Dropping the records of deleted sessions, but for those that forks show.

use std::ops::ControlFlow;

use mainspring_api::{AppendId, DeletionState, SessionUid};

use super::{Reply, Result, Transaction, put_row};
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::kv::row::Segment;
use crate::kv::{keys, read};
use crate::log::{Mark, NewSession};

/// Keys that one transaction removes.
const KEYS_MAX: usize = 10_000;

impl Transaction<'_> {
    /// Makes a tombstone of the row. From here on nothing reads the session's
    /// own records but its forks.
    pub(super) fn bury(&mut self, id: AppendId, session: &SessionUid) -> Result<Reply> {
        let row = self.rows.load_mut(self.kv, session)?;
        if row.row.view.deletion != DeletionState::Pending {
            return Err(LogError::Invalid("the session is not to be deleted").into());
        }
        let meta = &row.row.session;
        row.row.session = NewSession {
            owner: meta.owner.clone(),
            ..NewSession::bare(meta.uid.clone(), &meta.project)
        };
        row.row.purged = true;
        row.row.version += 1;
        row.row.update_time = self.now;
        row.ops.update = id.to_string();
        // What it showed of others is theirs alone again.
        for Segment { uid, .. } in &row.segments {
            self.kv.delete(Space::Children, &keys::child(uid, &row.store))?;
        }
        self.kv.put(Space::Children, &keys::buried(&row.store), session.as_str().as_bytes())?;
        put_row(self.kv, row, self.judged)?;
        self.wrote = true;
        Ok(Reply::Row(Box::new(row.row.clone())))
    }

    /// Removes records of a buried session that no fork shows, and then those
    /// of its buried ancestors.
    pub(super) fn reclaim(&mut self, session: &SessionUid) -> Result<Reply> {
        let row = self.rows.load(self.kv, session)?;
        if !row.row.purged {
            return Ok(Reply::Done);
        }
        let store = row.store.clone();
        let ancestors: Vec<SessionUid> = row.segments.iter().map(|s| s.uid.clone()).collect();
        for store in std::iter::once(&store).chain(&ancestors) {
            if self.kv.get(Space::Children, &keys::buried(store))?.is_none() {
                continue;
            }
            if self.reclaim_store(store)? == Reclaimed::Part {
                return Ok(Reply::More);
            }
        }
        // Only now: a purge that was cut is found by its mark, and sent again.
        let mark = keys::marked(Mark::Deleted, session);
        if self.kv.get(Space::Index, &mark)?.is_some() {
            self.kv.delete(Space::Index, &mark)?;
            self.wrote = true;
        }
        Ok(Reply::Done)
    }

    fn reclaim_store(&mut self, store: &SessionUid) -> Result<Reclaimed> {
        let shown = shown_upto(self.kv, store)?;
        let prefix = keys::session_prefix(store);
        // Executions are few and forks look them up by id: they go last.
        let spaces: &[Space] = match shown {
            0 => &[Space::Records, Space::Notes, Space::Executions],
            _ => &[Space::Records, Space::Notes],
        };
        for space in spaces {
            let from = match space {
                Space::Executions => prefix.clone(),
                _ => keys::record(store, mainspring_api::Seq::new(shown + 1)),
            };
            let gone = read::keys_within(self.kv, *space, &from, &keys::after(&prefix), KEYS_MAX)?;
            for key in &gone {
                self.kv.delete(*space, key)?;
                self.wrote = true;
            }
            if gone.len() == KEYS_MAX {
                return Ok(Reclaimed::Part);
            }
        }
        if shown == 0 {
            self.kv.delete(Space::Children, &keys::buried(store))?;
            self.wrote = true;
        }
        Ok(Reclaimed::All)
    }
}

#[derive(PartialEq, Eq)]
enum Reclaimed {
    All,
    Part,
}

/// Up to which position forks show the records of `store`.
fn shown_upto(kv: &dyn KvRead, store: &SessionUid) -> std::result::Result<u64, EngineError> {
    let prefix = keys::session_prefix(store);
    let mut shown = 0;
    kv.scan(Space::Children, &prefix, &keys::after(&prefix), &mut |key, upto| {
        if key.len() > prefix.len()
            && let Ok(upto) = upto.try_into()
        {
            shown = shown.max(u64::from_be_bytes(upto));
        }
        ControlFlow::Continue(())
    })?;
    Ok(shown)
}
