//! A row that is behind its records: folded forward again.
//!
//! Row and records move in one transaction, so this is what somebody did to the
//! file, or a disk. The records are the truth, as long as they are a chain.

use std::ops::ControlFlow;

use mainspring_api::{Hash, SessionUid};

use super::table::Table;
use super::{Reply, Result, Transaction, put_row, refuse_purged};
use crate::chain::ChainVerifier;
use crate::engine::{KvRead, Space};
use crate::error::LogError;
use crate::kv::keys;
use crate::kv::read::{key_seq, load_row, records_after};
use crate::kv::row::KvRow;
use crate::log::ReadLimit;

/// What one transaction folds.
const PAGE: ReadLimit = ReadLimit { records: 4_096, bytes: 4 << 20 };

impl Transaction<'_> {
    /// Makes sure, once for each time that a row is read, that an append at its
    /// head can neither write over a record nor leave a gap.
    pub(super) fn probe(&mut self, session: &SessionUid) -> Result<()> {
        let row = self.rows.load(self.kv, session)?;
        if row.row.purged {
            return Ok(());
        }
        let head = row.row.view.head;
        let (last, beyond) = last_records(self.kv, row)?;
        if last != head.hash {
            let what = "the journal does not end with the record that its row names";
            return Err(LogError::Tampered { seq: head.seq, what }.into());
        }
        if beyond {
            while matches!(self.catch_up(session)?, Reply::More) {}
        }
        self.rows.known_mut(session).ends_at_head = true;
        Ok(())
    }

    pub(super) fn catch_up(&mut self, session: &SessionUid) -> Result<Reply> {
        // What is in memory may be what is wrong.
        self.rows.forget_one(session);
        let mut row = load_row(self.kv, session)?;
        refuse_purged(&row)?;
        let caught = self.fold_forward(&mut row)?;
        if caught > 0 {
            row.row.update_time = self.now;
            put_row(self.kv, &mut row, self.judged)?;
            self.wrote = true;
        }
        self.rows.insert(row);
        Ok(if caught > 0 { Reply::More } else { Reply::Done })
    }

    fn fold_forward(&mut self, row: &mut KvRow) -> Result<usize> {
        let page = records_after(self.kv, row, PAGE)?;
        let mut chain = ChainVerifier::after(row.row.view.head);
        let mut table = Table::of(self.kv, &row.store, &row.segments);
        for record in &page {
            chain.check(record)?;
            let size = record.canonical.len();
            table.fold(&mut row.row.view, &record.event()?, record.head(), size)?;
            row.row.fence.fence = row.row.fence.fence.max(record.fence);
        }
        let changed = table.changed;
        super::append::put_executions(self.kv, &row.store, &changed)?;
        if let (Some(first), Some(last)) = (page.first(), page.last()) {
            tracing::warn!(
                session = %row.row.session.uid, from = %first.seq, to = %last.seq,
                "the row was behind its records and was folded forward",
            );
        }
        Ok(page.len())
    }
}

/// The hash of the record at the row's head, and whether another one follows.
fn last_records(kv: &dyn KvRead, row: &KvRow) -> Result<(Option<Hash>, bool)> {
    let head = row.row.view.head.seq;
    let prefix = keys::session_prefix(&row.store);
    let (mut last, mut beyond, mut damaged) = (None, false, None);
    kv.scan(
        Space::Records,
        &keys::record(&row.store, head),
        &keys::after(&prefix),
        &mut |key, value| {
            let seq = key_seq(key);
            if seq > head {
                beyond = true;
                return ControlFlow::Break(());
            }
            match keys::split_record(value) {
                Some(parts) => last = Some(parts.hash),
                None => damaged = Some(keys::cannot_split(seq)),
            }
            ControlFlow::Continue(())
        },
    )?;
    damaged.map_or(Ok((last, beyond)), |error| Err(error.into()))
}
