//! The optional parts of the contract. A store that has one says so with the
//! accessor of its name; one that has not refuses what needs it by name.

use std::fmt;

use async_trait::async_trait;
use mainspring_api::{AppendId, BoxStream, Bytes, Head, SessionUid};

use super::types::{Holder, SessionRow};
use crate::chain::StoredRecord;
use crate::error::LogError;

/// Records as they are committed.
pub trait Follow: fmt::Debug + Send + Sync {
    /// Every record after `after`, in order: first what is there, then each
    /// one once it is durable. The stream ends when the store closes, or after
    /// an error.
    ///
    /// # Guarantees
    /// - No record is skipped and none comes twice, however slow the reader is.
    /// - A reader that does not read costs no memory and holds nobody up.
    ///
    /// # Errors
    /// In the stream: `SessionNotFound`; `Tampered` when the journal does not
    /// pass through `after`; `Deleted` when its records were purged.
    fn follow(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<StoredRecord, LogError>>;
}

/// Dropping the records of deleted sessions.
#[async_trait]
pub trait Purge: fmt::Debug + Send + Sync {
    /// Drops the records of a session that is to be deleted, and keeps a
    /// tombstone: uid, project, owner, create time, head and deletion.
    ///
    /// # Guarantees
    /// - The uid stays taken, and the row says what it said of the head.
    /// - What a fork still shows is kept until that fork is purged too.
    /// - Sent again it answers the same. A crash leaves a session that can be
    ///   purged again.
    ///
    /// # Errors
    /// `SessionNotFound`; `Invalid` unless the session is to be deleted.
    async fn purge(&self, id: AppendId, session: &SessionUid) -> Result<SessionRow, LogError>;
}

/// Small rows beside the sessions: registered harnesses, reserved names.
#[async_trait]
pub trait NamedRows: fmt::Debug + Send + Sync {
    /// A row, as it was last put.
    async fn named(&self, key: &RowKey) -> Result<Option<NamedRow>, LogError>;

    /// Up to `limit` rows of a kind, by name, after the name `after`.
    async fn named_of(
        &self,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, LogError>;

    /// Puts a row (or removes it, with `None`), if its version is still
    /// `version`; 0 where there never was one. Returns the new version.
    ///
    /// # Guarantees
    /// Versions of a key only rise, also over its removal.
    ///
    /// # Errors
    /// `Moved` when the version moved; `TooLarge` for a value over
    /// [`NAMED_ROW_BYTES_MAX`].
    async fn put_named(
        &self,
        id: AppendId,
        key: &RowKey,
        version: u64,
        value: Option<Bytes>,
    ) -> Result<u64, LogError>;
}

/// The bytes that the value of a named row may have.
pub const NAMED_ROW_BYTES_MAX: usize = 256 << 10;

/// The bytes that the kind or the name of a named row may have.
pub const ROW_KEY_BYTES_MAX: usize = 256;

/// The place of a named row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    kind: String,
    name: String,
}

impl RowKey {
    /// The row `name` of a kind, such as `harness`.
    ///
    /// # Errors
    /// `Invalid` when a part is empty, too long or holds a zero byte.
    pub fn new(kind: &str, name: &str) -> Result<Self, LogError> {
        let ok = |part: &str| (1..=ROW_KEY_BYTES_MAX).contains(&part.len()) && !part.contains('\0');
        if ok(kind) && ok(name) {
            return Ok(Self { kind: kind.to_owned(), name: name.to_owned() });
        }
        Err(LogError::Invalid("the kind or name of a row is empty, too long or holds a zero byte"))
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A named row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRow {
    /// How often the key was put or removed.
    pub version: u64,
    /// What was put.
    pub value: Bytes,
}

/// Signs of life of those who hold fences. **Advice, never authority**: the
/// fence alone decides who may write.
///
/// A store without this part is exclusive to one process, so any other holder
/// is dead.
#[async_trait]
pub trait Liveness: fmt::Debug + Send + Sync {
    /// Gives signs of life for `holder` from now on, until this handle closes.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn announce(&self, holder: &Holder) -> Result<(), LogError>;

    /// Whether a sign of life of the holder with this id came lately, by the
    /// reader's own clock. One that was never seen is dead.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn is_alive(&self, holder: &str) -> Result<bool, LogError>;
}

/// Which host has a session at hand. **Advice, never authority**: any host
/// serves any session, the warm one with less work.
#[async_trait]
pub trait Warmth: fmt::Debug + Send + Sync {
    /// The host that has `session` at hand, as far as this one knows; `None`
    /// when no host that gives signs of life is known to.
    ///
    /// # Guarantees
    /// - It asks nobody: it is cheap enough for every answer.
    /// - It tells nothing of whether there is such a session.
    /// - Once all hosts have heard of each other they name the same one; a host
    ///   that is alone names itself.
    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost>;

    /// Tells the other hosts where clients reach this one, with its signs of
    /// life, until this handle closes. The last one told is the one in force.
    ///
    /// # Errors
    /// `Invalid` for an address over [`HOST_ADDRESS_BYTES_MAX`]; `Unavailable`.
    async fn advertise(&self, address: &str) -> Result<(), LogError>;
}

/// The bytes that the address of a host may have.
pub const HOST_ADDRESS_BYTES_MAX: usize = 1_024;

/// A host that has a session at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmHost {
    /// Its incarnation, as it announced itself.
    pub holder: Holder,
    /// Where clients reach it; empty when it has not told.
    pub address: String,
}
