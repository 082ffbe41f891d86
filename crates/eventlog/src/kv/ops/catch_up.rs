//! A row that is behind its records: folded forward again.
//!
//! Row and records move in one transaction, so this is what somebody did to the
//! file, or a disk. The records are the truth, as long as they are a chain.

use mainspring_api::SessionUid;

use super::table::Table;
use super::{Reply, Result, Transaction, put_row, refuse_purged};
use crate::chain::ChainVerifier;
use crate::kv::read::{load_row, records_after};
use crate::kv::row::KvRow;
use crate::log::ReadLimit;

/// What one transaction folds.
const PAGE: ReadLimit = ReadLimit { records: 4_096, bytes: 4 << 20 };

impl Transaction<'_> {
    pub(super) fn catch_up(&mut self, session: &SessionUid) -> Result<Reply> {
        // What is in memory may be what is wrong.
        self.rows.forget_one(session);
        let mut row = load_row(self.kv, session)?;
        refuse_purged(&row)?;
        let caught = self.fold_forward(&mut row)?;
        if caught == 0 {
            return Ok(Reply::Done);
        }
        row.row.update_time = self.now;
        put_row(self.kv, &row)?;
        self.wrote = true;
        self.rows.insert(row);
        Ok(Reply::More)
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
