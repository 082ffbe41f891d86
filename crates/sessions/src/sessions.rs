//! `api::Sessions`, each operation in the order of the contract: form, lookup,
//! meaning, act.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    Action, AppendId, ApproveRequest, Approved, BoxStream, Caller, CancelRequest, Condition,
    CreateRequest, DeletionState, DescribeReport, ExecRequest, ExecStream, FollowRequest,
    FollowUpdate, ForkRequest, ListPage, ListRequest, LogRecord, Origin, ReplayRequest,
    ResolveRequest, ResumeRequest, Session, SessionUid, Sessions, SessionsError, WarmHost,
};
use mainspring_controller::settle;
use mainspring_eventlog::{Level, ListQuery, LogError, NewSession, SessionRow};

use crate::operations::page_size;
use crate::repeat::{check_key, keyed_uid};
use crate::service::{Inner, Service, deleted, log_failed, placement_failed};

impl Inner {
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<SessionRow, SessionsError> {
        let uid = match &request.idempotency_key {
            None => SessionUid::random(&*self.options.entropy),
            Some(key) => {
                check_key(key)?;
                keyed_uid(caller.identity.as_ref(), key)
            }
        };
        let is_keyed = request.idempotency_key.is_some();
        let session = self.new_session(caller, request, uid)?;
        self.allow(caller, Action::Create).await?;
        self.create_as(session, is_keyed).await
    }

    /// What a call asks to be created; refuses what exceeds its bound.
    pub(crate) fn new_session(
        &self,
        caller: &Caller,
        request: CreateRequest,
        uid: SessionUid,
    ) -> Result<NewSession, SessionsError> {
        let session = NewSession {
            uid,
            project: self.project(&request.project).to_owned(),
            name: request.name,
            harness: request.harness,
            model: request.model,
            labels: request.labels,
            annotations: request.annotations,
            origin: request.origin.filter(|origin| *origin != Origin::default()),
            identity: request.identity.filter(|identity| !identity.is_empty()),
            owner: self.owner_for(caller),
        };
        session.check().map_err(log_failed)?;
        Ok(session)
    }

    /// Creates a session that the caller may create. With a key, the same again
    /// answers with the session as it is by now.
    pub(crate) async fn create_as(
        self: &Arc<Self>,
        session: NewSession,
        is_keyed: bool,
    ) -> Result<SessionRow, SessionsError> {
        if is_keyed && let Some(row) = self.created_before(&session).await? {
            return Ok(row);
        }
        self.admit_turn()?;
        // The harness is resolved now, not at the first turn. Between this and
        // the insert it may be retired: then the two calls overlap, and the
        // create counts as the earlier one. A create that begins after a retire
        // has answered is refused, which is all that a caller can tell apart.
        self.routed_for_new(&session.harness).await.map_err(placement_failed)?;
        let (log, id) = (&self.options.log, AppendId::random(&*self.options.entropy));
        match settle(|| log.create(id, session.clone())).await {
            // The same call was faster.
            Err(error @ LogError::AlreadyExists(_)) if is_keyed => {
                self.created_before(&session).await?.ok_or_else(|| log_failed(error))
            }
            created => created.map_err(log_failed),
        }
    }

    /// The session that a call with the same key has created; refuses one that
    /// was created otherwise.
    async fn created_before(
        &self,
        session: &NewSession,
    ) -> Result<Option<SessionRow>, SessionsError> {
        match self.options.log.get(&session.uid, Level::Committed).await {
            Ok(row) if row.view.deletion == DeletionState::Pending => Err(deleted(&session.uid)),
            Ok(row) if is_same(&row.session, session) => Ok(Some(row)),
            Ok(_) => {
                let message = "the idempotency key was used for another request";
                Err(SessionsError::new(Condition::AlreadyExists, message).on(&session.uid))
            }
            Err(LogError::SessionNotFound(_)) => Ok(None),
            Err(error) => Err(log_failed(error).on(&session.uid)),
        }
    }
}

/// Whether a session was created so. One that nobody owned may have been given
/// to somebody since; an owner of its own stays what it was.
fn is_same(there: &NewSession, asked: &NewSession) -> bool {
    let owner = if asked.owner.is_none() { &there.owner } else { &asked.owner };
    *there == NewSession { owner: owner.clone(), ..asked.clone() }
}

#[async_trait]
impl Sessions for Service {
    async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<Session, SessionsError> {
        let row = self.inner.create(caller, request).await?;
        Ok(self.inner.shown(row))
    }

    async fn get(&self, caller: &Caller, session: &SessionUid) -> Result<Session, SessionsError> {
        let row = self.inner.find_for(caller, &[Action::Read], session).await?;
        Ok(self.inner.seen(row))
    }

    async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage, SessionsError> {
        let query = ListQuery {
            project: self.inner.project(&request.project).to_owned(),
            page_size: page_size(request.page_size),
            ..ListQuery::default()
        };
        query.check().map_err(log_failed)?;
        self.inner.allow(caller, Action::List).await?;
        let query = ListQuery { owner: self.inner.restricted_to(caller)?, ..query };
        self.list_page(query, &request.page_token).await
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
        self.inner.exec(caller, request).await
    }

    async fn resume(
        &self,
        caller: &Caller,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        self.inner.resume(caller, request).await
    }

    async fn follow(
        &self,
        caller: &Caller,
        request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        self.inner.follow(caller, request).await
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
