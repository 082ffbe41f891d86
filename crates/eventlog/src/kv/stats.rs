//! The totals of a store.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mainspring_api::{ExecState, SessionUid, StoreId};

use super::ops::{Staged, staged_in};
use super::row::KvRow;
use super::{KvStore, engine_failed};
use crate::engine::{Engine, EngineUsage, Space};
use crate::error::LogError;
use crate::log::EventLog as _;

/// Rows that one page looks at.
const PAGE_ROWS: usize = 1_000;

/// What a store holds, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The store's id.
    pub store_id: StoreId,
    /// The version of its stored form.
    pub schema_version: u64,
    /// Its sessions, of every project.
    pub sessions: u64,
    /// Of those, by the state of their turns.
    pub by_state: BTreeMap<&'static str, u64>,
    /// Of those, sessions whose records were purged.
    pub purged: u64,
    /// Imports that can go on.
    pub imports_under_way: u64,
    /// Rows that cannot be read; their sessions are in no other figure.
    pub damaged_rows: u64,
    /// Records, as sessions show them.
    pub records: u64,
    /// Of those, records that a fork shares with its parent: they are stored once.
    pub shared_records: u64,
    /// Canonical bytes of the records, as sessions show them.
    pub canonical_bytes: u64,
    /// The session with the most canonical bytes, if there is one.
    pub largest: Option<SessionTotals>,
    /// What the engine takes.
    pub usage: EngineUsage,
}

/// One session's journal, in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTotals {
    /// The session.
    pub uid: SessionUid,
    /// Its records.
    pub records: u64,
    /// Their canonical bytes.
    pub bytes: u64,
}

/// A page of rows: what was found, and the last key.
#[derive(Debug, Default)]
struct RowPage {
    rows: Vec<Option<RowTotals>>,
    last: Option<Vec<u8>>,
}

#[derive(Debug)]
struct RowTotals {
    totals: SessionTotals,
    shared: u64,
    state: ExecState,
    purged: bool,
}

impl<E: Engine> KvStore<E> {
    /// The totals of the whole store, for offline commands: every row is read,
    /// in pages. `progress` is told how many rows were.
    ///
    /// A row that cannot be read is counted and no reason to fail.
    ///
    /// # Errors
    /// `Unavailable`; `Corrupt` when the schema version cannot be read.
    pub async fn stats(
        &self,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<StoreStats, LogError> {
        let mut stats = StoreStats {
            store_id: self.store_id(),
            schema_version: self.schema_version().await?,
            sessions: 0,
            by_state: ExecState::ALL.iter().map(|state| (state.name(), 0)).collect(),
            purged: 0,
            imports_under_way: self.imports_under_way().await?,
            damaged_rows: 0,
            records: 0,
            shared_records: 0,
            canonical_bytes: 0,
            largest: None,
            usage: EngineUsage::default(),
        };
        let mut after = None;
        loop {
            let page = self.row_page(after).await?;
            page.rows.into_iter().for_each(|row| stats.add(row));
            progress(stats.sessions + stats.damaged_rows);
            let Some(last) = page.last else { break };
            after = Some(last);
        }
        let shared = Arc::clone(&self.state.shared);
        let usage = move || shared.engine.usage().map_err(engine_failed);
        stats.usage = blocking::unblock(usage).await?;
        Ok(stats)
    }

    async fn imports_under_way(&self) -> Result<u64, LogError> {
        self.state
            .read(|kv| {
                let mut open = 0;
                kv.scan(Space::Staging, &[], &[0xff], &mut |_, marker| {
                    open += u64::from(matches!(staged_in(marker), Staged::Open(_)));
                    ControlFlow::Continue(())
                })?;
                Ok(open)
            })
            .await
    }

    async fn schema_version(&self) -> Result<u64, LogError> {
        let schema = self.state.read(|kv| Ok(kv.get(Space::Meta, b"schema")?)).await?;
        schema
            .and_then(|schema| std::str::from_utf8(&schema).ok()?.parse().ok())
            .ok_or_else(|| LogError::Corrupt { what: "schema version".to_owned() })
    }

    /// The rows after the key `after`; `last` is absent after the last page.
    async fn row_page(&self, after: Option<Vec<u8>>) -> Result<RowPage, LogError> {
        self.state
            .read(move |kv| {
                let mut page = RowPage::default();
                // The first key after another is that key with a zero byte.
                let from = after.clone().map_or_else(Vec::new, |mut key| {
                    key.push(0);
                    key
                });
                kv.scan(Space::Rows, &from, &[0xff], &mut |key, value| {
                    page.rows.push(row_totals(key, value));
                    if page.rows.len() < PAGE_ROWS {
                        return ControlFlow::Continue(());
                    }
                    page.last = Some(key.to_vec());
                    ControlFlow::Break(())
                })?;
                Ok(page)
            })
            .await
    }
}

fn row_totals(key: &[u8], value: &[u8]) -> Option<RowTotals> {
    let uid = SessionUid::new(std::str::from_utf8(key).ok()?).ok()?;
    let row = KvRow::decode(&uid, value).ok()?;
    let view = &row.row.view;
    let purged = row.row.purged;
    let (records, bytes) = if purged { (0, 0) } else { (view.head.seq.get(), view.bytes) };
    Some(RowTotals {
        shared: (row.own_from().get() - 1).min(records),
        state: view.exec_state(),
        purged,
        totals: SessionTotals { uid, records, bytes },
    })
}

impl StoreStats {
    fn add(&mut self, row: Option<RowTotals>) {
        let Some(RowTotals { totals, shared, state, purged }) = row else {
            self.damaged_rows += 1;
            return;
        };
        self.sessions += 1;
        self.purged += u64::from(purged);
        *self.by_state.entry(state.name()).or_default() += 1;
        self.records += totals.records;
        self.shared_records += shared;
        self.canonical_bytes += totals.bytes;
        if self.largest.as_ref().is_none_or(|largest| largest.bytes < totals.bytes) {
            self.largest = Some(totals);
        }
    }
}

#[cfg(test)]
mod tests {
    use mainspring_api::{AppendId, Event, EventBody, Fence, Head, Message, OsEntropy};

    use super::*;
    use crate::chain::Batch;
    use crate::engine::Keep;
    use crate::kv::KvOptions;
    use crate::log::NewSession;
    use crate::memory::MemoryEngine;

    #[tokio::test]
    async fn every_row_is_counted_once_over_pages_and_damaged_ones_too() {
        let engine = MemoryEngine::default();
        let store = KvStore::open(engine, KvOptions::default()).unwrap();
        let id = || AppendId::random(&OsEntropy);
        let count = PAGE_ROWS + 7;
        for number in 0..count {
            let uid = SessionUid::new(&format!("s-{number}")).unwrap();
            let session = NewSession::bare(uid.clone(), ["a", "b"][number % 2]);
            store.create(id(), session).await.unwrap();
        }
        let big = SessionUid::new("s-500").unwrap();
        let event = Event::of(EventBody::Input(Some(Message::user("x".repeat(1_000)))));
        let batch = Batch::link(Head::EMPTY, vec![event.into()]).unwrap();
        let head = store.append(&big, id(), Fence::NONE, &batch).await.unwrap();
        let marker = Event::of(EventBody::Input(Some(Message::user("child"))));
        let child = NewSession::bare(SessionUid::new("t").unwrap(), "a");
        store.fork(id(), &big, head, vec![(child, marker)]).await.unwrap();
        let damage = store.engine().write(&mut |kv| {
            kv.put(Space::Rows, b"s-3", b"{}")?;
            Ok(Keep::Yes)
        });
        damage.unwrap();

        let mut told = Vec::new();
        let stats = store.stats(&mut |rows| told.push(rows)).await.unwrap();
        assert_eq!(told, [1_000, count as u64 + 1]);
        assert_eq!((stats.sessions, stats.damaged_rows), (count as u64, 1));
        assert_eq!(stats.by_state.values().sum::<u64>(), stats.sessions);
        assert_eq!((stats.records, stats.shared_records), (3, 1));
        let largest = stats.largest.unwrap();
        assert_eq!((largest.uid.as_str(), largest.records), ("t", 2));
        assert_eq!(stats.canonical_bytes, largest.bytes + batch.bytes() as u64);
        assert_eq!(stats.schema_version, crate::SCHEMA_VERSION);
        assert!(stats.usage.live_bytes > stats.canonical_bytes - batch.bytes() as u64);
    }
}
