//! A service that breaks the contract in one way.

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    AdoptRequest, ApproveRequest, Approved, BoxStream, Bytes, Caller, CancelRequest, Classify as _,
    Condition, CreateRequest, DescribeReport, ErrorKind, EventBody, ExecRequest, ExecState,
    ExecStream, ExecUpdate, ExportRequest, FindRequest, FollowRequest, FollowUpdate, ForkRequest,
    ImportRequest, ListPage, ListRequest, LogRecord, Operations, Outcome, ReplayRequest,
    ResolveRequest, ResumeRequest, Seq, Session, SessionUid, Sessions, SessionsError, Standing,
    VerifyProgress, VerifyRequest, WarmHost, async_trait,
};
use mainspring_sessions::Service;

use crate::fault::{
    ApproveField, CreateField, ExecField, Fault, FindField, ForkField, ListField, ReplayField,
};

type Answer<T> = Result<T, SessionsError>;
type Items<T> = BoxStream<'static, Answer<T>>;

/// The service, but for its fault.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) sound: Service,
    pub(crate) fault: Fault,
}

impl Broken {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn caller(&self, caller: &Caller) -> Caller {
        let mut caller = caller.clone();
        match self.fault {
            Fault::ForgetsTheCaller => {
                if let Some(identity) = caller.identity.as_mut() {
                    identity.subject = "everybody".to_owned();
                }
            }
            Fault::TrustsEverybody if caller.identity.is_none() => {
                caller.identity = Some(mainspring_api::CallerIdentity {
                    issuer: crate::host::ISSUER.to_owned(),
                    subject: "alice".to_owned(),
                });
            }
            Fault::MethodIsLost => caller.method = "",
            _ => {}
        }
        caller
    }

    /// An answer that says something else than what is.
    fn told<T>(&self, answer: Answer<T>) -> Answer<T> {
        answer.map_err(|error| self.error(error))
    }

    fn error(&self, error: SessionsError) -> SessionsError {
        blurred(self.fault, error)
    }

    /// Refuses what must not wait for a turn, while one runs.
    async fn waits(&self, session: &SessionUid) -> Answer<()> {
        let caller = crate::host::caller("alice", "");
        match self.sound.get(&caller, session).await?.exec_state {
            ExecState::Running => Err(SessionsError::new(Condition::SessionBusy, "it runs")),
            _ => Ok(()),
        }
    }

    /// Whether the session is there: what a foreigner must not learn.
    async fn disclosed<T>(&self, session: &SessionUid, answer: Answer<T>) -> Answer<T> {
        match answer {
            Err(error)
                if self.is(Fault::ForeignIsNotFound) && error.kind() == ErrorKind::Denied =>
            {
                let there = self.sound.log().get(session, Default::default()).await.is_ok();
                let condition =
                    if there { Condition::PermissionDenied } else { Condition::SessionNotFound };
                Err(SessionsError::new(condition, "not yours, or not there"))
            }
            other => self.told(other),
        }
    }

    fn turn(&self, stream: ExecStream) -> ExecStream {
        match self.fault {
            Fault::ExecHidesItsSession => Box::pin(stream.skip(1)),
            Fault::ExecShowsItsSessionAgain => altered(stream, |updates| {
                let session = updates.iter().find_map(|update| match update {
                    Ok(ExecUpdate::Session(session)) => Some(session.clone()),
                    _ => None,
                });
                updates.extend(session.map(|session| Ok(ExecUpdate::Session(session))));
            }),
            Fault::ExecHidesTheLastSession => altered(stream, |updates| {
                let is_session = |update: &_| matches!(update, Ok(ExecUpdate::Session(_)));
                let last = updates.iter().rposition(is_session);
                last.map(|last| updates.remove(last));
            }),
            Fault::DeadlineIsInternal => Box::pin(
                stream.map(|update| update.map_err(|e| blurred(Fault::DeadlineIsInternal, e))),
            ),
            Fault::ExecHidesTheLastRecord => altered(stream, |updates| {
                let last = updates.iter().rposition(is_record);
                last.map(|last| updates.remove(last));
            }),
            Fault::ExecRepeatsARecord => altered(stream, |updates| {
                let first = updates.iter().position(is_record);
                if let Some((first, Ok(update))) = first.map(|at| (at, updates[at].clone())) {
                    updates.insert(first, Ok(update));
                }
            }),
            Fault::ExecHidesDeltas => {
                altered(stream, |updates| updates.retain(|update| !is_delta(update)))
            }
            Fault::ExecDeltasComeLast => altered(stream, |updates| {
                updates.sort_by_key(is_delta);
            }),
            Fault::ExecEndsWell => altered(stream, |updates| updates.retain(Result::is_ok)),
            Fault::ExecSeemsRepeatable => Box::pin(
                stream
                    .map(|update| update.map_err(|error| error.with_outcome(Outcome::NotApplied))),
            ),
            _ => stream,
        }
    }
}

/// An error with another condition, where the fault says so.
fn blurred(fault: Fault, error: SessionsError) -> SessionsError {
    let condition = match (fault, error.condition()) {
        (Fault::UnknownIsInternal, Condition::SessionNotFound) => Condition::Internal,
        (Fault::BusyIsUnavailable, Condition::SessionBusy) => Condition::Unavailable,
        (Fault::DeniedByName, Condition::PermissionDenied) => Condition::FailedPrecondition,
        (Fault::DeniedByName, Condition::AuthorizationUnavailable) => Condition::PermissionDenied,
        (Fault::DeadlineIsInternal, Condition::DeadlineExceeded) => Condition::Internal,
        _ => return error,
    };
    SessionsError::new(condition, error.to_string())
}

fn is_record(update: &Answer<ExecUpdate>) -> bool {
    matches!(update, Ok(ExecUpdate::Record(_)))
}

fn is_delta(update: &Answer<ExecUpdate>) -> bool {
    matches!(update, Ok(ExecUpdate::Delta(_)))
}

/// The whole stream, changed at its end.
fn altered(
    stream: ExecStream,
    change: impl FnOnce(&mut Vec<Answer<ExecUpdate>>) + Send + 'static,
) -> ExecStream {
    let whole = async move {
        let mut updates: Vec<_> = stream.collect().await;
        change(&mut updates);
        stream::iter(updates)
    };
    Box::pin(stream::once(whole).flatten())
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sessions for Broken {
    async fn create(&self, caller: &Caller, mut request: CreateRequest) -> Answer<Session> {
        match self.fault {
            Fault::CreateDrops(CreateField::Project) => request.project.clear(),
            Fault::CreateDrops(CreateField::Harness) => request.harness.clear(),
            Fault::CreateDrops(CreateField::Labels) => request.labels.clear(),
            Fault::CreateDrops(CreateField::Identity) => request.identity = None,
            Fault::CreateDrops(CreateField::Key) => request.idempotency_key = None,
            Fault::CreateIsKeyed => request.idempotency_key = Some("always".to_owned()),
            Fault::CreateChoosesAProject => request.project = "another".to_owned(),
            _ => {}
        }
        self.told(self.sound.create(&self.caller(caller), request).await)
    }

    async fn get(&self, caller: &Caller, session: &SessionUid) -> Answer<Session> {
        let got = self.sound.get(&self.caller(caller), session).await;
        let mut got = self.disclosed(session, got).await?;
        if self.is(Fault::GetIsStale) {
            got.exec_state = ExecState::Pending;
            got.identity = Some(Default::default());
        }
        Ok(got)
    }

    async fn list(&self, caller: &Caller, mut request: ListRequest) -> Answer<ListPage> {
        match self.fault {
            Fault::ListDrops(ListField::Project) => request.project.clear(),
            Fault::ListDrops(ListField::Size) => request.page_size = 0,
            Fault::ListDrops(ListField::Token) => request.page_token.clear(),
            _ => {}
        }
        let mut page = self.told(self.sound.list(&self.caller(caller), request).await)?;
        if self.is(Fault::ListIsReversed) {
            page.sessions.reverse();
        }
        Ok(page)
    }

    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        self.sound.warm_host(session)
    }

    async fn describe(&self, caller: &Caller, session: &SessionUid) -> Answer<DescribeReport> {
        let described = self.sound.describe(&self.caller(caller), session).await;
        let mut report = self.disclosed(session, described).await?;
        if self.is(Fault::DescribeIsIdle) {
            report.standing = Standing::Idle;
        }
        Ok(report)
    }

    async fn exec(&self, caller: &Caller, mut request: ExecRequest) -> Answer<ExecStream> {
        match self.fault {
            Fault::ExecDrops(ExecField::Inputs) => request.inputs.clear(),
            Fault::ExecDrops(ExecField::Cursor) => request.resume_from_seq = 0,
            Fault::ExecDrops(ExecField::Harness) => request.harness.clear(),
            Fault::ExecDrops(ExecField::Config) => request.config = Bytes::new(),
            Fault::ExecDrops(ExecField::Expected) => request.expected_last_seq = None,
            Fault::ExecDrops(ExecField::Deadline) => request.deadline_unix = 0,
            Fault::ExecDrops(ExecField::Id) => request.execution_id = None,
            Fault::ExecDrops(ExecField::Key) => request.idempotency_key = None,
            Fault::ExecDrops(ExecField::OnDisconnect) => request.on_disconnect = Default::default(),
            _ => {}
        }
        if let Some(session) = request.session.clone() {
            if self.is(Fault::CreateOfTheUnknown)
                && self.sound.log().get(&session, Default::default()).await.is_err()
            {
                request.session = None;
            }
            let stream = self.sound.exec(&self.caller(caller), request).await;
            return self.disclosed(&session, stream).await.map(|stream| self.turn(stream));
        }
        self.told(self.sound.exec(&self.caller(caller), request).await)
            .map(|stream| self.turn(stream))
    }

    async fn resume(&self, caller: &Caller, request: ResumeRequest) -> Answer<ExecStream> {
        let session = request.session.clone();
        if self.is(Fault::ResumeLies) {
            let session = self.sound.get(caller, &session).await?;
            let update = ExecUpdate::Session(Box::new(session));
            return Ok(Box::pin(stream::iter([Ok(update)])));
        }
        if self.is(Fault::SuspendsBeforeAResume) {
            self.sound.suspend(caller, &session).await?;
        }
        let stream = self.sound.resume(&self.caller(caller), request).await;
        let stream = self.disclosed(&session, stream).await?;
        Ok(match self.fault {
            Fault::ResumeHidesItsRecords => {
                altered(stream, |updates| updates.retain(|update| !is_record(update)))
            }
            _ => stream,
        })
    }

    async fn follow(
        &self,
        caller: &Caller,
        mut request: FollowRequest,
    ) -> Answer<Items<FollowUpdate>> {
        let session = request.session.clone();
        if self.is(Fault::FollowDropsCursor) {
            request.after_seq = Seq::ZERO;
        }
        let head = self.sound.log().get(&session, Default::default()).await;
        let head = head.map(|row| row.view.head.seq).unwrap_or_default();
        let stream = self.sound.follow(&self.caller(caller), request).await;
        let stream = self.disclosed(&session, stream).await?;
        let fault = self.fault;
        Ok(Box::pin(
            stream
                .take_while(move |update| {
                    let ends = fault == Fault::FollowEndsAtTheHead
                        && matches!(update, Ok(FollowUpdate::Record(record)) if record.seq > head);
                    std::future::ready(!ends)
                })
                .filter(move |update| {
                    let shown = match update {
                        Ok(FollowUpdate::Record(record)) => {
                            fault != Fault::FollowSkips || record.seq.get() % 4 != 0
                        }
                        Ok(FollowUpdate::Delta(_) | FollowUpdate::DeltaGap) => {
                            fault != Fault::FollowHidesDeltas
                        }
                        _ => true,
                    };
                    std::future::ready(shown)
                }),
        ))
    }

    async fn replay(
        &self,
        caller: &Caller,
        mut request: ReplayRequest,
    ) -> Answer<Items<LogRecord>> {
        match self.fault {
            Fault::ReplayDrops(ReplayField::From) => request.from_seq = 0,
            Fault::ReplayDrops(ReplayField::To) => request.to_seq = 0,
            _ => {}
        }
        let session = request.session.clone();
        if self.is(Fault::ReplayIsBusy) {
            self.waits(&session).await?;
        }
        let records = self.sound.replay(&self.caller(caller), request).await;
        let records = self.disclosed(&session, records).await?;
        if !self.is(Fault::ReplaySkips) {
            return Ok(records);
        }
        let shown = |record: &Answer<LogRecord>| {
            let output = |record: &LogRecord| matches!(record.event.body, EventBody::Output(_));
            std::future::ready(!record.as_ref().is_ok_and(output))
        };
        Ok(Box::pin(records.filter(shown)))
    }

    async fn approve(&self, caller: &Caller, mut request: ApproveRequest) -> Answer<Approved> {
        let session = request.session.clone();
        match self.fault {
            Fault::ApproveDrops(ApproveField::Yes) => request.approved = !request.approved,
            Fault::ApproveDrops(ApproveField::Reason) => request.reason.clear(),
            Fault::ApproveDrops(ApproveField::Identity) => request.identity = None,
            Fault::ApproveDrops(ApproveField::Digest) => request.digest = None,
            Fault::ApproveLies => {
                let mut request = ReplayRequest {
                    session: session.clone(),
                    from_seq: 0,
                    to_seq: 0,
                    verify: false,
                };
                let head = self.sound.get(caller, &session).await?;
                request.from_seq = head.last_seq.as_i64();
                let mut records = self.sound.replay(caller, request).await?;
                let decision = records.next().await.expect("it has a record")?;
                return Ok(Approved { session: head, decision });
            }
            _ => {}
        }
        let approved = self.sound.approve(&self.caller(caller), request).await;
        let approved = self.disclosed(&session, approved).await?;
        if self.is(Fault::ApproveResumes) {
            let request = ResumeRequest { session, approval_ttl: None };
            self.sound.resume(caller, request).await?.for_each(|_| async {}).await;
        }
        Ok(approved)
    }

    async fn resolve(&self, caller: &Caller, request: ResolveRequest) -> Answer<Session> {
        let session = request.session.clone();
        if self.is(Fault::ResolveLies) {
            return self.sound.get(caller, &session).await;
        }
        let resolved = self.sound.resolve(&self.caller(caller), request).await;
        self.disclosed(&session, resolved).await
    }

    async fn suspend(&self, caller: &Caller, session: &SessionUid) -> Answer<Session> {
        if self.is(Fault::SuspendLies) {
            return self.sound.get(caller, session).await;
        }
        if self.is(Fault::SuspendedIsFailure) {
            let is_cold = self.sound.get(caller, session).await?.compute_state;
            if is_cold == mainspring_api::ComputeState::Cold {
                return Err(SessionsError::new(Condition::FailedPrecondition, "already"));
            }
        }
        let suspended = self.sound.suspend(&self.caller(caller), session).await;
        self.disclosed(session, suspended).await
    }

    async fn fork(&self, caller: &Caller, mut request: ForkRequest) -> Answer<Vec<Session>> {
        match self.fault {
            Fault::ForkDrops(ForkField::At) => request.at_seq = 0,
            Fault::ForkDrops(ForkField::Count) => request.count = 1,
            Fault::ForkDrops(ForkField::Labels) => request.labels.clear(),
            Fault::ForkDrops(ForkField::Names) => request.child_names.clear(),
            Fault::ForkDrops(ForkField::Identity) => request.identity = None,
            Fault::SuspendsBeforeAFork => {
                self.sound.suspend(caller, &request.session).await?;
            }
            Fault::ForkIsBusy => self.waits(&request.session).await?,
            _ => {}
        }
        let session = request.session.clone();
        let children = self.sound.fork(&self.caller(caller), request).await;
        self.disclosed(&session, children).await
    }

    async fn cancel(&self, caller: &Caller, mut request: CancelRequest) -> Answer<Session> {
        let session = request.session.clone();
        match self.fault {
            Fault::CancelDropsReason => request.reason = Default::default(),
            Fault::CancelLies => return self.sound.get(caller, &session).await,
            _ => {}
        }
        let canceled = self.sound.cancel(&self.caller(caller), request).await;
        if self.is(Fault::CancelOfTheEnded) && canceled.is_err() {
            return self.sound.get(caller, &session).await;
        }
        self.disclosed(&session, canceled).await
    }

    async fn delete(&self, caller: &Caller, session: &SessionUid) -> Answer<Session> {
        if self.is(Fault::DeleteLies) {
            return self.sound.get(caller, session).await;
        }
        let deleted = self.sound.delete(&self.caller(caller), session).await;
        self.disclosed(session, deleted).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Operations for Broken {
    async fn find(&self, caller: &Caller, mut request: FindRequest) -> Answer<ListPage> {
        match self.fault {
            Fault::FindDrops(FindField::States) => request.states.clear(),
            Fault::FindDrops(FindField::Labels) => request.labels.clear(),
            Fault::FindDrops(FindField::Harness) => request.harness.clear(),
            _ => {}
        }
        self.told(self.sound.find(&self.caller(caller), request).await)
    }

    async fn verify(
        &self,
        caller: &Caller,
        mut request: VerifyRequest,
    ) -> Answer<Items<VerifyProgress>> {
        if self.is(Fault::VerifyDropsHead) {
            request.expect_head = None;
        }
        let session = request.session.clone();
        let steps = self.sound.verify(&self.caller(caller), request).await;
        self.disclosed(&session, steps).await
    }

    async fn export(&self, caller: &Caller, request: ExportRequest) -> Answer<Items<Bytes>> {
        let session = request.session.clone();
        let lines = self.sound.export(&self.caller(caller), request).await;
        self.disclosed(&session, lines).await
    }

    async fn import(
        &self,
        caller: &Caller,
        request: ImportRequest,
        lines: Items<Bytes>,
    ) -> Answer<Session> {
        if self.is(Fault::ImportLies) {
            return self.sound.create(caller, CreateRequest::default()).await;
        }
        self.told(self.sound.import(&self.caller(caller), request, lines).await)
    }

    async fn adopt(&self, caller: &Caller, request: AdoptRequest) -> Answer<Session> {
        self.told(self.sound.adopt(&self.caller(caller), request).await)
    }
}
