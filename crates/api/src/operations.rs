//! What operators and auditors do with journals.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::BoxStream;
use crate::auth::Caller;
use crate::id::{AppendId, Head, SessionUid};
use crate::session::{ExecState, Owner, Session};
use crate::sessions::{ListPage, SessionsError};

/// Which sessions to find.
#[derive(Debug, Clone, Default)]
pub struct FindRequest {
    /// Project; empty means the default one.
    pub project: String,
    /// Owner; `None` means the caller's own, or all where no authoriser is set.
    pub owner: Option<Owner>,
    /// Turn states; empty means all.
    pub states: Vec<ExecState>,
    /// Labels that must all be there.
    pub labels: BTreeMap<String, String>,
    /// Harness; empty means all.
    pub harness: String,
    /// Rows a page; 0 or less means 50, above 500 means 500.
    pub page_size: i32,
    /// Where to go on; empty means the start.
    pub page_token: String,
}

/// Which journal to verify.
#[derive(Debug, Clone)]
pub struct VerifyRequest {
    /// The session.
    pub session: SessionUid,
    /// The head that it must have; a shorter log is reported.
    pub expect_head: Option<Head>,
}

/// How far a verification is.
#[derive(Debug, Clone)]
pub enum VerifyProgress {
    /// Records checked so far, of the total.
    Checked {
        /// So many.
        records: u64,
        /// Of so many.
        total: u64,
    },
    /// The chain holds.
    Done(VerifyReport),
}

/// A chain that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// The session.
    pub session: Option<SessionUid>,
    /// Its head.
    pub head: Head,
    /// Whether the head is attested by something outside the records.
    pub head_attested: bool,
}

/// Which part of a journal to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRequest {
    /// The session.
    pub session: SessionUid,
    /// The record after which to begin; [`Head::EMPTY`] for the whole journal.
    pub after: Head,
}

/// Where imported records go.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    /// Uid for a journal that names none; a fresh one when absent.
    pub session: Option<SessionUid>,
    /// Harness for a journal that names none.
    pub harness: String,
    /// Project for a journal that names none.
    pub project: String,
    /// Name for a journal that names none.
    pub name: String,
    /// The import's id: the same again goes on with what it staged. A fresh one
    /// when absent.
    pub id: Option<AppendId>,
}

/// A session without an owner, and who is to own it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptRequest {
    /// The session.
    pub session: SessionUid,
    /// Its owner from now on.
    pub owner: Owner,
}

/// Finding, verifying, exporting and importing journals.
#[async_trait]
pub trait Operations: fmt::Debug + Send + Sync + 'static {
    /// Sessions that match.
    async fn find(&self, caller: &Caller, request: FindRequest) -> Result<ListPage, SessionsError>;

    /// Recomputes the chain of a whole journal. The stream ends after
    /// [`VerifyProgress::Done`] or the first error.
    async fn verify(
        &self,
        caller: &Caller,
        request: VerifyRequest,
    ) -> Result<BoxStream<'static, Result<VerifyProgress, SessionsError>>, SessionsError>;

    /// The journal as lines of JSON, each with its line end: the records after
    /// the position that was asked for, in order, then the head.
    ///
    /// # Guarantees
    /// Records are verified as they are sent, from that position on.
    ///
    /// # Errors
    /// `conflict` when the journal does not pass through that position.
    async fn export(
        &self,
        caller: &Caller,
        request: ExportRequest,
    ) -> Result<BoxStream<'static, Result<Bytes, SessionsError>>, SessionsError>;

    /// Stages and verifies `lines`, then publishes the session in one step.
    ///
    /// # Guarantees
    /// - On any error nothing is visible.
    /// - The same id again, with the same lines from the first, goes on with what
    ///   is staged, as far as the store kept it.
    async fn import(
        &self,
        caller: &Caller,
        request: ImportRequest,
        lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    ) -> Result<Session, SessionsError>;

    /// Gives a session that has no owner to one. The same again answers the same.
    ///
    /// # Errors
    /// `failed_precondition` when it has another owner.
    async fn adopt(&self, caller: &Caller, request: AdoptRequest)
    -> Result<Session, SessionsError>;
}
