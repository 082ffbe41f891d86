//! What a store needs of an ordered key-value engine.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// One ordered keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Schema version and store id.
    Meta,
    /// A row for each session.
    Rows,
    /// Records, by session and position.
    Records,
    /// Executions other than the latest, by session and id.
    Executions,
    /// The list order, by project, create time descending, and uid.
    Order,
    /// Notes that were added to records later.
    Notes,
    /// Imports that are not published yet.
    Staging,
    /// Whose records a session shows, by the name that they are kept under and
    /// the name of the session's own.
    Children,
    /// Small named rows, by kind and name.
    Named,
    /// Sessions of an owner, those with an open turn, and those that the host
    /// looks for in every project.
    Index,
    /// What decides about the messages of a log that is kept elsewhere.
    Judged,
}

impl Space {
    /// Every space.
    pub const ALL: [Self; 11] = [
        Self::Meta,
        Self::Rows,
        Self::Records,
        Self::Executions,
        Self::Order,
        Self::Notes,
        Self::Staging,
        Self::Children,
        Self::Named,
        Self::Index,
        Self::Judged,
    ];

    /// Its stable name on disk.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Rows => "rows",
            Self::Records => "records",
            Self::Executions => "executions",
            Self::Order => "order",
            Self::Notes => "notes",
            Self::Staging => "staging",
            Self::Children => "children",
            Self::Named => "named",
            Self::Index => "index",
            Self::Judged => "judged",
        }
    }
}

/// Why an engine failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    /// What it was doing, and the engine's words.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl EngineError {
    /// An error of `what` with its cause.
    #[must_use]
    pub fn of(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { message: what.to_owned(), source: Some(Box::new(source)) }
    }
}

/// Visits entries in key order until it breaks.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A consistent view of all spaces.
pub trait KvRead {
    /// The value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// Entries with `from <= key < to`, in key order.
    fn scan(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError>;
}

/// A transaction.
pub trait KvWrite: KvRead {
    /// Sets a key.
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), EngineError>;

    /// Sets the value of a record. An engine over a log that has the record
    /// already need not have its value made.
    fn put_record(
        &mut self,
        key: &[u8],
        value: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<(), EngineError> {
        self.put(Space::Records, key, &value())
    }

    /// Removes a key.
    fn delete(&mut self, space: Space, key: &[u8]) -> Result<(), EngineError>;
}

/// What an engine takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// Bytes of its files; 0 for one that has none.
    pub disk_bytes: u64,
    /// Bytes of the keys and values that are there.
    pub live_bytes: u64,
    /// Bytes of its files that a compaction would give back, as far as the
    /// engine can tell.
    pub dead_bytes: u64,
}

/// Whether a transaction is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Commit it.
    Yes,
    /// Let everybody see it now; a later [`Keep::Yes`] makes it durable. For
    /// what can be had again from elsewhere: until then a crash, or reopening,
    /// may take it away. An engine may as well make it durable at once.
    Behind,
    /// Abort it: nothing was changed.
    No,
}

/// An ordered key-value engine. The store on top serialises its transactions.
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// Runs `f` on a consistent view.
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError>;

    /// Runs `f` in one transaction and, if it says so, commits durably, or so
    /// that a later commit makes it durable.
    ///
    /// # Errors
    /// After an error of the commit itself it is not known whether the
    /// transaction is there, and the engine must be reopened before it is read.
    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError>;

    /// Discards every cache and opens the durable state again.
    fn reopen(&self) -> Result<(), EngineError>;

    /// Whether commits are durable and reads may touch a disk.
    fn is_durable(&self) -> bool;

    /// Copies the durable state aside, before it is changed to a newer form.
    /// Returns where the copy is; `None` for an engine that keeps nothing.
    ///
    /// # Guarantees
    /// The copy is whole and durable when this returns; an older one of the
    /// same label stays as it is.
    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError>;

    /// What it takes. May read all of it: for offline commands.
    fn usage(&self) -> Result<EngineUsage, EngineError>;
}

/// Several owners of one engine, as a test that opens a second store on it.
#[deny(clippy::missing_trait_methods)]
impl<E: Engine> Engine for Arc<E> {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        (**self).read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        (**self).write(f)
    }

    fn reopen(&self) -> Result<(), EngineError> {
        (**self).reopen()
    }

    fn is_durable(&self) -> bool {
        (**self).is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        (**self).backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        (**self).usage()
    }
}
