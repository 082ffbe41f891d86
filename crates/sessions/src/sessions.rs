//! `api::Sessions`, each operation in the order of the contract: form, lookup,
//! meaning, act.

use async_trait::async_trait;
use mainspring_api::{
    Action, AppendId, ApproveRequest, Approved, BoxStream, Caller, CancelRequest, CreateRequest,
    DescribeReport, ExecRequest, ExecStream, FollowRequest, FollowUpdate, ForkRequest, ListPage,
    ListRequest, LogRecord, ReplayRequest, ResolveRequest, ResumeRequest, Session, SessionUid,
    Sessions, SessionsError,
};
use mainspring_controller::settle;
use mainspring_eventlog::{ListQuery, NewSession, SessionRow};

use crate::convert;
use crate::operations::page_size;
use crate::service::{Inner, Service, log_failed, placement_failed, unimplemented};

impl Inner {
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<SessionRow, SessionsError> {
        self.allow(caller, Action::Create).await?;
        self.admit_turn()?;
        if request.idempotency_key.is_some() {
            return Err(unimplemented("an idempotency key (x-idempotency-key)"));
        }
        // The harness is resolved now, not at the first turn. Between this and
        // the insert it may be retired: then the two calls overlap, and the
        // create counts as the earlier one. A create that begins after a retire
        // has answered is refused, which is all that a caller can tell apart;
        // this host's registry is the only one that changes its store.
        self.options.harnesses.find_for_new(&request.harness).map_err(placement_failed)?;
        let entropy = &*self.options.entropy;
        let session = NewSession {
            uid: SessionUid::random(entropy),
            project: self.project(&request.project).to_owned(),
            name: request.name,
            harness: request.harness,
            model: request.model,
            labels: request.labels,
            annotations: request.annotations,
            origin: request.origin,
            identity: request.identity.filter(|identity| !identity.is_empty()),
            owner: self.owner_for(caller),
        };
        let (log, id) = (&self.options.log, AppendId::random(entropy));
        settle(|| log.create(id, session.clone())).await.map_err(log_failed)
    }
}

#[async_trait]
impl Sessions for Service {
    async fn create(
        &self,
        caller: &Caller,
        request: CreateRequest,
    ) -> Result<Session, SessionsError> {
        self.inner.create(caller, request).await.map(convert::session)
    }

    async fn get(&self, caller: &Caller, session: &SessionUid) -> Result<Session, SessionsError> {
        let row = self.inner.find_for(caller, &[Action::Read], session).await?;
        Ok(self.inner.seen(row))
    }

    async fn list(&self, caller: &Caller, request: ListRequest) -> Result<ListPage, SessionsError> {
        self.inner.allow(caller, Action::List).await?;
        let query = ListQuery {
            owner: self.inner.restricted_to(caller)?,
            project: self.inner.project(&request.project).to_owned(),
            page_size: page_size(request.page_size),
            ..ListQuery::default()
        };
        self.list_page(query, &request.page_token).await
    }

    async fn describe(
        &self,
        _caller: &Caller,
        _session: &SessionUid,
    ) -> Result<DescribeReport, SessionsError> {
        Err(unimplemented("describe"))
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
        _caller: &Caller,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        self.inner.resume(request).await
    }

    async fn follow(
        &self,
        _caller: &Caller,
        _request: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        Err(unimplemented("follow"))
    }

    async fn replay(
        &self,
        _caller: &Caller,
        request: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        self.inner.replay(request).await
    }

    async fn approve(
        &self,
        _caller: &Caller,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        self.inner.approve(request).await
    }

    async fn resolve(
        &self,
        _caller: &Caller,
        request: ResolveRequest,
    ) -> Result<Session, SessionsError> {
        self.inner.resolve(request).await
    }

    async fn suspend(
        &self,
        _caller: &Caller,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        self.inner.suspend(session).await
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
        _caller: &Caller,
        _session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        Err(unimplemented("delete"))
    }
}
