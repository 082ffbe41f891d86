//! The optional parts of the contract that this store has.

use async_trait::async_trait;
use mainspring_api::{AppendId, BoxStream, Bytes, Head, SessionUid};

use super::KvStore;
use super::import::OpWriter as _;
use super::ops::{Op, Reply};
use crate::chain::StoredRecord;
use crate::engine::Engine;
use crate::error::LogError;
use crate::log::{Follow, NamedRow, NamedRows, Purge, RowKey, SessionRow};

impl<E: Engine> Follow for KvStore<E> {
    fn follow(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<StoredRecord, LogError>> {
        self.state.follow(session, after)
    }
}

#[async_trait]
impl<E: Engine> Purge for KvStore<E> {
    async fn purge(&self, id: AppendId, session: &SessionUid) -> Result<SessionRow, LogError> {
        let buried = self.write(Op::Bury { id, session: session.clone() }).await?;
        let Reply::Row(row) = buried else { unreachable!("burying answers otherwise: {buried:?}") };
        let reclaim = || Op::Reclaim { session: session.clone() };
        while matches!(self.write(reclaim()).await?, Reply::More) {}
        Ok(*row)
    }
}

#[async_trait]
impl<E: Engine> NamedRows for KvStore<E> {
    async fn named(&self, key: &RowKey) -> Result<Option<NamedRow>, LogError> {
        self.state.named(key).await
    }

    async fn named_of(
        &self,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, LogError> {
        self.state.named_of(kind, after, limit).await
    }

    async fn put_named(
        &self,
        id: AppendId,
        key: &RowKey,
        version: u64,
        value: Option<Bytes>,
    ) -> Result<u64, LogError> {
        let op = Op::PutNamed { id, key: key.clone(), version, value };
        match self.write(op).await? {
            Reply::Version(version) => Ok(version),
            other => unreachable!("putting a row answers otherwise: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use mainspring_api::{
        AppendId, Event, EventBody, Fence, Lifecycle, LifecycleKind, OsEntropy, SessionUid,
    };

    use super::*;
    use crate::chain::Batch;
    use crate::log::{EventLog as _, Mark, NewSession};
    use crate::memory::MemoryEngine;

    /// A purge that was cut after the tombstone is found by its mark.
    #[tokio::test]
    async fn a_purge_that_was_cut_stays_marked() {
        let log = KvStore::open(MemoryEngine::default(), super::super::KvOptions::default());
        let log = log.unwrap();
        let id = || AppendId::random(&OsEntropy);
        let uid = SessionUid::new("s").unwrap();
        log.create(id(), NewSession::bare(uid.clone(), "p")).await.unwrap();
        let body = Lifecycle { kind: LifecycleKind::Delete, ..Lifecycle::default() };
        let event = Event::of(EventBody::Lifecycle(Some(body)));
        let batch = Batch::link(Head::EMPTY, vec![event.into()]).unwrap();
        log.append(&uid, id(), Fence::NONE, &batch).await.unwrap();
        log.write(Op::Bury { id: id(), session: uid.clone() }).await.unwrap();
        let left = log.marked(Mark::Deleted, None, 10).await.unwrap();
        assert!(left[0].purged && left[0].session.uid == uid);
        Purge::purge(&log, id(), &uid).await.unwrap();
        assert!(log.marked(Mark::Deleted, None, 10).await.unwrap().is_empty());
    }
}
