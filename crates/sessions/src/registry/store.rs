//! Registrations and reserved names as rows of the store.

use mainspring_api::{AppendId, Bytes, Condition, Entropy, SessionsError};
use mainspring_controller::settle;
use mainspring_eventlog::{EventLog, LogError, NamedRow, NamedRows, RowKey};

use super::row::{Row, Stored};
use crate::service::log_failed;

/// The kind of a registration's row.
const HARNESS: &str = "harness";

/// The kind of the rows of names that hosts have for harnesses of their own.
const RESERVED: &str = "reserved-harness";

/// Rows that are read at a time.
const PAGE: usize = 500;

/// The rows of a store.
pub(super) struct Rows<'a> {
    rows: &'a dyn NamedRows,
    entropy: &'a dyn Entropy,
}

impl<'a> Rows<'a> {
    pub(super) fn of(
        log: &'a dyn EventLog,
        entropy: &'a dyn Entropy,
    ) -> Result<Self, SessionsError> {
        let rows = log.rows().ok_or_else(|| {
            let message = "this store keeps no registrations";
            SessionsError::new(Condition::Unimplemented, message)
        })?;
        Ok(Self { rows, entropy })
    }

    /// A registration, and the version of its row.
    pub(super) async fn get(&self, name: &str) -> Result<Option<(u64, Stored)>, SessionsError> {
        // A name that can be no key is none that was registered.
        let Ok(key) = RowKey::new(HARNESS, name) else { return Ok(None) };
        let row = self.rows.named(&key).await.map_err(log_failed)?;
        Ok(row.map(|row| (row.version, Stored::read(&row.value))))
    }

    /// Stores a registration, if its row has not moved.
    pub(super) async fn put(
        &self,
        name: &str,
        version: u64,
        row: &Row,
    ) -> Result<(), SessionsError> {
        self.put_bytes(HARNESS, name, version, row.bytes()).await.map_err(log_failed)
    }

    /// Up to `limit` registrations by name, after a name.
    pub(super) async fn page(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, SessionsError> {
        let rows = self.rows.named_of(HARNESS, after, limit).await.map_err(log_failed)?;
        Ok(rows.into_iter().map(|(name, row)| (name, Stored::read(&row.value))).collect())
    }

    /// Up to `limit` rows of registrations as they are stored, with their versions.
    pub(super) async fn versions(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, SessionsError> {
        self.rows.named_of(HARNESS, after, limit).await.map_err(log_failed)
    }

    /// Every registration.
    pub(super) async fn all(&self) -> Result<Vec<(String, Stored)>, SessionsError> {
        let mut all: Vec<(String, Stored)> = Vec::new();
        loop {
            let after = all.last().map_or("", |(name, _)| name.as_str());
            let page = self.page(after, PAGE).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Whether a host, this one or another, has the name for a harness of its own.
    pub(super) async fn is_reserved(&self, name: &str) -> Result<bool, SessionsError> {
        let Ok(key) = RowKey::new(RESERVED, name) else { return Ok(false) };
        Ok(self.rows.named(&key).await.map_err(log_failed)?.is_some())
    }

    /// Keeps a name from being registered, for good.
    pub(super) async fn reserve(&self, name: &str) -> Result<(), SessionsError> {
        if self.is_reserved(name).await? {
            return Ok(());
        }
        match self.put_bytes(RESERVED, name, 0, Bytes::new()).await {
            // Somebody else reserved it in the meantime.
            Ok(()) | Err(LogError::Moved { .. }) => Ok(()),
            Err(error) => Err(log_failed(error)),
        }
    }

    async fn put_bytes(
        &self,
        kind: &str,
        name: &str,
        version: u64,
        value: Bytes,
    ) -> Result<(), LogError> {
        let (key, id) = (RowKey::new(kind, name)?, AppendId::random(self.entropy));
        let put = settle(|| self.rows.put_named(id, &key, version, Some(value.clone()))).await;
        put.map(drop)
    }
}
