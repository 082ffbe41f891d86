//! Importing: staging page by page, going on where it stopped, publishing.

use std::fmt;
use std::ops::ControlFlow;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use mainspring_api::{AppendId, BoxStream, Event, Head, Seq, SessionUid, Timestamp};

use super::ops::{self, Op, Reply, Staged};
use crate::chain::{ChainVerifier, StoredRecord};
use crate::engine::{EngineError, KvRead, Space};
use crate::error::LogError;
use crate::log::{ImportCheck, ImportRecord, ImportRow, SessionRow};

/// Whatever writes operations.
#[async_trait]
pub trait OpWriter: fmt::Debug + Send + Sync {
    /// Writes one, and answers when it is durable.
    ///
    /// # Errors
    /// As the operation of the contract.
    async fn write(&self, op: Op) -> Result<Reply, LogError>;

    /// The bytes that one event may have.
    fn event_bytes_max(&self) -> usize;
}

/// Bytes that an import stages in one transaction.
const STAGE_BYTES_MAX: usize = 1 << 20;

/// The name that the records of an import are kept under. The uid may stand in
/// the last line only, and nobody can see them before that.
pub fn staged_name(id: AppendId) -> SessionUid {
    SessionUid::new(&format!("import-{id}")).expect("hex fits a uid")
}

/// Imports a session: [`EventLog::import`](crate::EventLog::import) over any
/// writer of operations.
///
/// # Errors
/// As there.
pub async fn import(
    log: &dyn OpWriter,
    id: AppendId,
    row: ImportRow,
    records: BoxStream<'static, Result<ImportRecord, LogError>>,
) -> Result<SessionRow, LogError> {
    row.session.check()?;
    let store = staged_name(id);
    let at = match log.write(Op::BeginImport { store: store.clone() }).await? {
        Reply::Imported(row, head) => return settle(*row, head, records).await,
        Reply::Head(head) => head,
        other => unreachable!("an import begins otherwise: {other:?}"),
    };
    let import = Import { log, id, store: store.clone(), at };
    let imported = import.run(row, records).await;
    // Whatever else went wrong, the rest of the right journal can still come.
    if let Err(LogError::AlreadyExists(_)) = &imported {
        unstage(log, &store).await;
    }
    imported
}

/// This very import is done: what is sent again must be the same journal, or
/// the part of it that was not staged yet, or nothing.
async fn settle(
    row: SessionRow,
    published: Option<Head>,
    mut records: BoxStream<'static, Result<ImportRecord, LogError>>,
) -> Result<SessionRow, LogError> {
    let mut chain: Option<ChainVerifier> = None;
    while let Some(item) = records.next().await {
        let ImportRecord::Record(record) = item? else { continue };
        let before = match record.prev_hash {
            Some(hash) => Head::at(Seq::new(record.seq.get().saturating_sub(1)), hash),
            None => Head::EMPTY,
        };
        chain.get_or_insert_with(|| ChainVerifier::after(before)).check(&record)?;
    }
    let sent = chain.map(|chain| chain.head());
    if sent.is_none() || published.is_none() || sent == published {
        return Ok(row);
    }
    Err(LogError::Invalid("this import is done, with another journal"))
}

async fn unstage(log: &dyn OpWriter, store: &SessionUid) {
    loop {
        match log.write(Op::Unstage { store: store.clone() }).await {
            Ok(Reply::More) => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%store, %error, "staged records are left");
                return;
            }
        }
    }
}

struct Import<'a> {
    log: &'a dyn OpWriter,
    id: AppendId,
    store: SessionUid,
    /// How far it is staged.
    at: Head,
}

impl Import<'_> {
    async fn run(
        mut self,
        mut row: ImportRow,
        mut records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError> {
        let mut check: Option<ImportCheck> = None;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while let Some(item) = records.next().await {
            let item = item?;
            if let ImportRecord::Head(_, Some(named)) = &item {
                named.session.check()?;
                row = (**named).clone();
            }
            let check = check.get_or_insert_with(|| self.check_from(&item));
            let Some((record, event)) = check.check(item)? else { continue };
            if record.seq <= self.at.seq {
                self.expect_staged(&record)?;
                continue;
            }
            bytes += self.size(&record)?;
            page.push((record, event));
            if bytes >= STAGE_BYTES_MAX {
                self.stage(std::mem::take(&mut page)).await?;
                bytes = 0;
            }
        }
        let sent = check.map_or(Head::EMPTY, |check| check.head());
        if sent.seq < self.at.seq {
            return Err(LogError::Invalid("more of this import is staged than was sent again"));
        }
        if !page.is_empty() {
            self.stage(page).await?;
        }
        let (id, store, row, head) = (self.id, self.store, Box::new(row), self.at);
        match self.log.write(Op::Publish { id, store, row, head }).await? {
            Reply::Row(row) => Ok(*row),
            other => unreachable!("publishing answers otherwise: {other:?}"),
        }
    }

    /// Starts at the first record, or where this import stopped.
    fn check_from(&self, first: &ImportRecord) -> ImportCheck {
        let goes_on = match first {
            ImportRecord::Record(record) => record.seq == self.at.seq.next(),
            ImportRecord::Head(..) => true,
        };
        ImportCheck::after(if goes_on { self.at } else { Head::EMPTY })
    }

    fn expect_staged(&self, record: &StoredRecord) -> Result<(), LogError> {
        if record.seq < self.at.seq || record.head() == self.at {
            return Ok(());
        }
        Err(LogError::Invalid("this import was begun with another journal"))
    }

    /// What a record costs, at its worst.
    fn size(&self, record: &StoredRecord) -> Result<usize, LogError> {
        let bytes = record.canonical.len();
        let bytes_max = self.log.event_bytes_max();
        if bytes > bytes_max {
            let (bytes, bytes_max) = (bytes as u64, bytes_max as u64);
            return Err(LogError::TooLarge { what: "event", bytes, bytes_max });
        }
        // Decoded events are kept with it until they are staged.
        Ok(2 * bytes + 512 + record.notes.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>())
    }

    async fn stage(&mut self, records: Vec<(StoredRecord, Event)>) -> Result<(), LogError> {
        let op = Op::Stage { store: self.store.clone(), after: self.at, records };
        match self.log.write(op).await? {
            Reply::Head(head) => self.at = head,
            other => unreachable!("staging answers otherwise: {other:?}"),
        }
        Ok(())
    }
}

/// Imports that were not gone on with since `before`.
pub(super) fn staged_before(
    kv: &dyn KvRead,
    before: Timestamp,
) -> Result<Vec<SessionUid>, EngineError> {
    let mut stores = Vec::new();
    kv.scan(Space::Staging, &[], &[0xff], &mut |key, marker| {
        let old = match ops::staged_in(marker) {
            Staged::Open(open) => open.touched < before,
            Staged::Left => true,
            Staged::Published(..) => false,
        };
        let store = std::str::from_utf8(key).ok().and_then(|s| SessionUid::new(s).ok());
        stores.extend(store.filter(|_| old));
        ControlFlow::Continue(())
    })?;
    Ok(stores)
}
