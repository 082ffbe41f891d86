//! What a log that is kept elsewhere folds to, on an engine.
//!
//! An embedded store decides and applies an operation in one transaction. Where
//! the log itself decides, as on Kafka, each host folds it: [`Op::terms`] is all
//! that a decision needs, [`encode`] and [`decode`] carry the rest, and
//! [`Replica::apply`] applies, in the log's order, what was decided.

mod codec;
mod terms;

use std::fmt;
use std::sync::{Arc, PoisonError};

use futures_util::stream;
use mainspring_api::{
    BoxStream, Event, ExecutionId, Head, Seq, SessionUid, SystemClock, Timestamp,
};

use super::committer::Shared;
use super::import as staging;
use super::ops::{self, OpError, Transaction, decode_named, live_named};
use super::verify::Verification;
use super::{engine_failed, fold, follow, keys, read, read_shared};
use crate::chain::{Batch, StoredRecord};
use crate::engine::{Engine, EngineError, KvRead, KvWrite, Space};
use crate::error::LogError;
use crate::log::{
    Limits, ListQuery, Mark, NamedRow, NewSession, Page, ReadLimit, RowKey, SessionRow, Verified,
};
use crate::view::{ExecutionView, SessionView};

pub use super::import::{OpWriter, import, staged_name};
pub use super::ops::{Op, Reply};
pub use super::row::is_broken;
pub use codec::{DecodeError, decode, encode, record_value};
pub use terms::{Child, Terms};

/// The state that a log of operations folds to.
pub struct Replica<E: Engine> {
    pub(super) shared: Arc<Shared<E>>,
}

impl<E: Engine> Clone for Replica<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E: Engine> fmt::Debug for Replica<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("engine", &self.shared.engine).finish_non_exhaustive()
    }
}

/// What a log has decided to count.
#[derive(Debug, Clone, Copy)]
pub enum Decided<'a> {
    /// An operation, and the time that its writer gave it.
    Op(&'a Op, Timestamp),
    /// Something on this session that this version cannot read.
    Broken(&'a SessionUid, &'a LogError),
}

impl<E: Engine> Replica<E> {
    /// The state that `engine` holds. Up to twice `rows` rows are kept in memory,
    /// each of about 3 KB, besides those of the transaction under way.
    #[must_use]
    pub fn over(engine: E, limits: Limits, rows: usize) -> Self {
        let clock = Arc::new(SystemClock);
        let rows = ops::Rows::of(rows);
        let shared = Shared::new(engine, limits, clock, std::time::Duration::ZERO, rows);
        Self { shared: Arc::new(shared) }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.shared.engine
    }

    /// Applies operations that were decided to count, in order and within a
    /// transaction of the engine's writer, from the start when that begins again.
    /// `before` is called with the place of each operation.
    ///
    /// Once it is committed, [`Replica::committed`] follows; if it is not,
    /// [`Replica::forget`].
    ///
    /// # Guarantees
    /// An operation that this version cannot apply leaves its session behind as
    /// one that cannot be read, and its answer is the error; the others go on.
    ///
    /// # Errors
    /// Of the engine: the transaction is not to be committed.
    pub fn apply(
        &self,
        kv: &mut dyn KvWrite,
        decided: &[Decided<'_>],
        before: &dyn Fn(usize),
    ) -> Result<Vec<Result<Reply, LogError>>, EngineError> {
        let mut rows = self.shared.rows();
        rows.abort();
        let mut answers = Vec::with_capacity(decided.len());
        for (place, decided) in decided.iter().enumerate() {
            before(place);
            answers.push(self.apply_one(kv, &mut rows, *decided)?);
        }
        rows.write(kv)?;
        Ok(answers)
    }

    fn apply_one(
        &self,
        kv: &mut dyn KvWrite,
        rows: &mut ops::Rows,
        decided: Decided<'_>,
    ) -> Result<Result<Reply, LogError>, EngineError> {
        let (op, now) = match decided {
            Decided::Op(op, now) => (op, now),
            Decided::Broken(session, error) => {
                ops::break_off(kv, rows, session, error)?;
                return Ok(Err(error.clone()));
            }
        };
        match Transaction::judged(kv, rows, &self.shared.limits, now).apply_whole(op) {
            Ok(reply) => Ok(Ok(reply)),
            Err(OpError::Refused(error)) => {
                if let Some(session) = op.changes() {
                    ops::break_off(kv, rows, session, &error)?;
                }
                Ok(Err(error))
            }
            Err(OpError::Engine(error)) => Err(error),
        }
    }

    /// What was applied is committed: tells those who follow.
    pub fn committed(&self, decided: &[Decided<'_>], answers: &[Result<Reply, LogError>]) {
        self.shared.rows().commit();
        for (decided, answer) in decided.iter().zip(answers) {
            if let (Decided::Op(op, now), Ok(_)) = (decided, answer) {
                self.shared.tell(op, *now);
            }
        }
    }

    /// What the state says about an operation that may have taken effect: its
    /// answer, if it has.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn settled(&self, op: &Op) -> Result<Option<Reply>, LogError> {
        let op = op.clone();
        self.read(move |kv| ops::settled(kv, &mut ops::Rows::default(), &op)).await
    }

    /// Nothing is known any more of what the engine holds: a transaction was not
    /// committed, or it was filled anew.
    pub fn forget(&self) {
        self.shared.rows().forget();
        self.shared.followers.all_changed();
    }

    /// Ends the streams of those who follow.
    pub fn close(&self) {
        self.shared.followers.close();
    }

    pub(super) async fn read<T, F>(&self, f: F) -> Result<T, LogError>
    where
        T: Send + 'static,
        F: Fn(&dyn KvRead) -> Result<T, OpError> + Send + 'static,
    {
        read_shared(Arc::clone(&self.shared), f).await
    }

    /// As [`EventLog::get`](crate::EventLog::get).
    ///
    /// # Errors
    /// As there, which holds for all that follow.
    pub async fn get(&self, session: &SessionUid) -> Result<SessionRow, LogError> {
        let session = session.clone();
        self.read(move |kv| Ok(read::load_row(kv, &session)?.row)).await
    }

    /// As [`EventLog::list`](crate::EventLog::list).
    pub async fn list(&self, query: ListQuery) -> Result<Page, LogError> {
        query.check()?;
        self.read(move |kv| read::list(kv, &query)).await
    }

    /// As [`EventLog::marked`](crate::EventLog::marked).
    pub async fn marked(
        &self,
        mark: Mark,
        after: Option<&SessionUid>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, LogError> {
        let after = after.cloned();
        self.read(move |kv| read::marked(kv, mark, after.as_ref(), limit)).await
    }

    /// As [`EventLog::read`](crate::EventLog::read).
    pub async fn records(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
    ) -> Result<Vec<StoredRecord>, LogError> {
        let session = session.clone();
        self.read(move |kv| read::records(kv, &read::load_row(kv, &session)?, from, limit)).await
    }

    /// As [`EventLog::execution`](crate::EventLog::execution).
    pub async fn execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionView>, LogError> {
        let (session, id) = (session.clone(), id.clone());
        self.read(move |kv| ops::execution(kv, &read::load_row(kv, &session)?, &id)).await
    }

    /// As [`EventLog::verify`](crate::EventLog::verify).
    #[must_use]
    pub fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        let pages = Verification::new(Arc::clone(&self.shared), session.clone(), after);
        Box::pin(stream::unfold(pages, Verification::next))
    }

    /// The fold of a journal as it was at `at`. Records never change, so this
    /// stays true.
    pub async fn view_at(&self, session: &SessionUid, at: Head) -> Result<SessionView, LogError> {
        let session = session.clone();
        self.read(move |kv| fold::view_at(kv, &read::load_row(kv, &session)?, at)).await
    }

    /// As [`EventLog::staged`](crate::EventLog::staged).
    pub async fn staged(&self, store: &SessionUid) -> Result<Head, LogError> {
        let store = store.clone();
        self.read(move |kv| {
            Ok(match ops::staged(kv, &store)? {
                Some(ops::Staged::Open(open)) => open.view.head,
                _ => Head::EMPTY,
            })
        })
        .await
    }

    /// The session that an import became, and the head that it was published
    /// with; `None` when it was not published.
    pub async fn published(
        &self,
        store: &SessionUid,
    ) -> Result<Option<(SessionRow, Option<Head>)>, LogError> {
        let store = store.clone();
        self.read(move |kv| match ops::staged(kv, &store)? {
            Some(ops::Staged::Published(uid, head)) => {
                Ok(Some((read::load_row(kv, &uid)?.row, head)))
            }
            _ => Ok(None),
        })
        .await
    }

    /// Records of an import that is not published yet, as they were staged.
    pub async fn staged_records(
        &self,
        store: &SessionUid,
        from: Seq,
        limit: ReadLimit,
    ) -> Result<Vec<StoredRecord>, LogError> {
        let store = store.clone();
        self.read(move |kv| read::stored_from(kv, &store, from, limit)).await
    }

    /// Imports that were last gone on with before `before` and are not published.
    pub async fn staged_before(&self, before: Timestamp) -> Result<Vec<SessionUid>, LogError> {
        self.read(move |kv| Ok(staging::staged_before(kv, before)?)).await
    }

    /// As [`NamedRows::named`](crate::NamedRows::named).
    pub async fn named(&self, key: &RowKey) -> Result<Option<NamedRow>, LogError> {
        let key = keys::named(key.kind(), key.name());
        self.read(move |kv| {
            let stored = kv.get(Space::Named, &key)?;
            Ok(stored.map(|stored| decode_named(&stored)).transpose()?.and_then(live_named))
        })
        .await
    }

    /// As [`NamedRows::named_of`](crate::NamedRows::named_of).
    pub async fn named_of(
        &self,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, LogError> {
        let (kind, after) = (kind.to_owned(), after.to_owned());
        self.read(move |kv| read::named_of(kv, &kind, &after, limit)).await
    }

    /// As [`Follow::follow`](crate::Follow::follow).
    #[must_use]
    pub fn follow(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<StoredRecord, LogError>> {
        follow::follow(&self.shared, session, after)
    }
}

impl<E: Engine> Shared<E> {
    fn rows(&self) -> std::sync::MutexGuard<'_, ops::Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The markers of a fork's children, each linked after `at`.
///
/// # Errors
/// `Unrecordable` and `TooLarge` for a marker.
pub fn linked(
    at: Head,
    children: Vec<(NewSession, Event)>,
    limits: &Limits,
) -> Result<Vec<(NewSession, Batch)>, LogError> {
    let link = |(child, marker): (NewSession, Event)| {
        let batch = Batch::link(at, vec![marker.into()])?;
        limits.check(&batch)?;
        Ok((child, batch))
    };
    children.into_iter().map(link).collect()
}

/// The failure of an engine as the contract tells it.
#[must_use]
pub fn unavailable(error: EngineError) -> LogError {
    engine_failed(error)
}

#[cfg(test)]
mod tests;
