//! The optional parts of the contract that this store has.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _};
use mainspring_api::{AppendId, BoxStream, Bytes, Head, SessionUid};
use mainspring_eventlog::replica::{Op, Reply};
use mainspring_eventlog::{
    Follow, HOST_ADDRESS_BYTES_MAX, Holder, Level, Liveness, LogError, NAMED_ROW_BYTES_MAX,
    NamedRow, NamedRows, RowKey, StoredRecord, WarmHost, Warmth,
};

use crate::answers::answer;
use crate::judge::ROWS_PARTITION;
use crate::store::KafkaStore;

#[async_trait]
impl Liveness for KafkaStore {
    async fn announce(&self, holder: &Holder) -> Result<(), LogError> {
        self.core.hosts()?.announce(holder).await
    }

    async fn is_alive(&self, holder: &str) -> Result<bool, LogError> {
        self.core.hosts()?.is_alive(holder).await
    }
}

#[async_trait]
impl Warmth for KafkaStore {
    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        self.core.hosts.get()?.warm_host(self.core.partition_of(session))
    }

    async fn advertise(&self, address: &str) -> Result<(), LogError> {
        if address.len() > HOST_ADDRESS_BYTES_MAX {
            return Err(LogError::Invalid("the address of a host is too long"));
        }
        self.core.hosts()?.advertise(address).await
    }
}

impl Follow for KafkaStore {
    fn follow(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<StoredRecord, LogError>> {
        let (core, session) = (Arc::downgrade(&self.core), session.clone());
        let followed = async move {
            let closed = || LogError::unavailable("the store is closed");
            let core = core.upgrade().ok_or_else(closed)?;
            let partition = core.partition_of(&session);
            core.up_to_date(partition, Level::Committed).await?;
            Ok::<_, LogError>(core.replica(partition).follow(&session, after))
        };
        futures_util::stream::once(followed).try_flatten().boxed()
    }
}

#[async_trait]
impl NamedRows for KafkaStore {
    async fn named(&self, key: &RowKey) -> Result<Option<NamedRow>, LogError> {
        self.core.up_to_date(ROWS_PARTITION, Level::Committed).await?;
        self.core.replica(ROWS_PARTITION).named(key).await
    }

    async fn named_of(
        &self,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, LogError> {
        self.core.up_to_date(ROWS_PARTITION, Level::Committed).await?;
        self.core.replica(ROWS_PARTITION).named_of(kind, after, limit).await
    }

    async fn put_named(
        &self,
        id: AppendId,
        key: &RowKey,
        version: u64,
        value: Option<Bytes>,
    ) -> Result<u64, LogError> {
        let (bytes, bytes_max) = (value.as_ref().map_or(0, Bytes::len), NAMED_ROW_BYTES_MAX);
        if bytes > bytes_max {
            let (bytes, bytes_max) = (bytes as u64, bytes_max as u64);
            return Err(LogError::TooLarge { what: "named row", bytes, bytes_max });
        }
        let op = Op::PutNamed { id, key: key.clone(), version, value };
        answer!(self.core.write(op).await, Version)
    }
}
