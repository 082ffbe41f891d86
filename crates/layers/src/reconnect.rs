//! The decorator.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    ApproveRequest, Approved, BoxStream, Caller, CancelRequest, CreateRequest, DescribeReport,
    ExecRequest, ExecStream, FollowRequest, FollowUpdate, ForkRequest, ListPage, ListRequest,
    LogRecord, ReplayRequest, ResolveRequest, ResumeRequest, Session, SessionUid, Sessions,
    SessionsError, WarmHost,
};

use crate::retry::ReconnectOptions;
use crate::{exec, follow, resume};

/// A sessions service whose streams outlive their connections.
///
/// # Guarantees
/// - A record that was committed comes once, in order, whatever happens to the
///   connection.
/// - `exec` runs one turn: its execution id, or its idempotency key, is chosen
///   before it is first sent, and the same is sent again. A server that does not
///   know such names, which it says or shows by the id of its first record, is
///   not asked again: then the loss is passed on.
/// - A stream that is without a connection for
///   [`ReconnectOptions::reconnect_max`] ends with its last error. One that has
///   a connection may be silent for as long as it likes.
/// - A stream whose credentials ran out is connected once more, with those that
///   there are then, and ends with the error if they do not hold either.
#[derive(Debug, Clone)]
pub struct Reconnect {
    inner: Arc<dyn Sessions>,
    options: Arc<ReconnectOptions>,
}

impl Reconnect {
    /// Goes before `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Sessions>, options: ReconnectOptions) -> Self {
        Self { inner, options: Arc::new(options) }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Sessions for Reconnect {
    async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<Session, SessionsError> {
        self.inner.create(caller, request).await
    }

    async fn get(&self, caller: &Caller, session: &SessionUid) -> Result<Session, SessionsError> {
        self.inner.get(caller, session).await
    }

    async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage, SessionsError> {
        self.inner.list(caller, request).await
    }

    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        self.inner.warm_host(session)
    }

    async fn describe(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<DescribeReport, SessionsError> {
        self.inner.describe(caller, session).await
    }

    async fn exec(
        &self,
        caller: &Caller,
        request: ExecRequest,
    ) -> Result<ExecStream, SessionsError> {
        exec::exec(&self.inner, &self.options, caller, request).await
    }

    async fn resume(
        &self,
        caller: &Caller,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        resume::resume(&self.inner, &self.options, caller, request).await
    }

    async fn follow(
        &self,
        caller: &Caller,
        request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        follow::follow(&self.inner, &self.options, caller, request).await
    }

    async fn replay(
        &self,
        caller: &Caller,
        request: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        self.inner.replay(caller, request).await
    }

    async fn approve(
        &self,
        caller: &Caller,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        self.inner.approve(caller, request).await
    }

    async fn resolve(
        &self,
        caller: &Caller,
        request: ResolveRequest,
    ) -> Result<Session, SessionsError> {
        self.inner.resolve(caller, request).await
    }

    async fn suspend(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        self.inner.suspend(caller, session).await
    }

    async fn fork(
        &self,
        caller: &Caller,
        request: ForkRequest,
    ) -> Result<Vec<Session>, SessionsError> {
        self.inner.fork(caller, request).await
    }

    async fn cancel(
        &self,
        caller: &Caller,
        request: CancelRequest,
    ) -> Result<Session, SessionsError> {
        self.inner.cancel(caller, request).await
    }

    async fn delete(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        self.inner.delete(caller, session).await
    }
}
