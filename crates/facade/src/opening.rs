//! The services of a host whose store is still being opened.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mainspring_api::{
    AdoptRequest, ApproveRequest, Approved, BoxStream, Bytes, Caller, CancelRequest, Clock,
    Condition, CreateRequest, DescribeReport, ExecRequest, ExecStream, ExportRequest, FindRequest,
    FollowRequest, FollowUpdate, ForkRequest, ImportRequest, ListPage, ListRequest, LogRecord,
    Operations, ReplayRequest, ResolveRequest, ResumeRequest, Session, SessionUid, Sessions,
    SessionsError, Timestamp, VerifyProgress, VerifyRequest, WarmHost, async_trait,
};
use mainspring_eventlog::{OpenProgress, Recovering};

/// Answers every call with `store_recovering` and how far the store is, until
/// there is a service; from then on it is that service.
#[derive(Debug)]
pub struct Opening {
    service: OnceLock<Opened>,
    clock: Arc<dyn Clock>,
    since: Timestamp,
    recovering: Mutex<Option<Recovering>>,
}

/// What there is once the store is open.
#[derive(Debug)]
struct Opened {
    sessions: Arc<dyn Sessions>,
    operations: Arc<dyn Operations>,
}

impl Opening {
    /// Of a store whose opening begins now.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let since = clock.now();
        Arc::new(Self { service: OnceLock::new(), clock, since, recovering: Mutex::default() })
    }

    /// What to give to the store that is opened.
    #[must_use]
    pub fn progress(self: &Arc<Self>) -> OpenProgress {
        let this = Arc::clone(self);
        OpenProgress::new(move |recovering| {
            *this.recovering.lock().unwrap_or_else(PoisonError::into_inner) = Some(recovering);
        })
    }

    /// The store is open: calls go to `sessions` and `operations`. The first ones stay.
    pub fn opened(&self, sessions: Arc<dyn Sessions>, operations: Arc<dyn Operations>) {
        let _ = self.service.set(Opened { sessions, operations });
    }

    /// How long it took so far, if the store had to be recovered.
    #[must_use]
    pub fn recovery(&self) -> Option<Duration> {
        self.recovering().map(|_| self.elapsed())
    }

    fn recovering(&self) -> Option<Recovering> {
        *self.recovering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Duration {
        let nanos = |at: Timestamp| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos);
        // A clock that was set back shows no time at all.
        let passed = nanos(self.clock.now()) - nanos(self.since);
        Duration::from_nanos(u64::try_from(passed).unwrap_or(0))
    }

    fn service(&self) -> Result<&dyn Sessions, SessionsError> {
        self.open().map(|opened| &*opened.sessions)
    }

    fn operations(&self) -> Result<&dyn Operations, SessionsError> {
        self.open().map(|opened| &*opened.operations)
    }

    fn open(&self) -> Result<&Opened, SessionsError> {
        if let Some(opened) = self.service.get() {
            return Ok(opened);
        }
        let seconds = self.elapsed().as_secs();
        let message = match self.recovering() {
            None => format!("the store is being opened, {seconds} s so far"),
            Some(Recovering { fraction }) => {
                let percent = fraction.clamp(0.0, 1.0) * 100.0;
                format!("the store is recovering: {percent:.0} %, {seconds} s so far")
            }
        };
        Err(SessionsError::new(Condition::StoreRecovering, message))
    }
}

type Answer<T> = Result<T, SessionsError>;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sessions for Opening {
    async fn create(&self, caller: &Caller, request: CreateRequest) -> Answer<Session> {
        self.service()?.create(caller, request).await
    }

    async fn get(&self, caller: &Caller, session: &SessionUid) -> Answer<Session> {
        self.service()?.get(caller, session).await
    }

    async fn list(&self, caller: &Caller, request: ListRequest) -> Answer<ListPage> {
        self.service()?.list(caller, request).await
    }

    fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        self.service().ok()?.warm_host(session)
    }

    async fn describe(&self, caller: &Caller, session: &SessionUid) -> Answer<DescribeReport> {
        self.service()?.describe(caller, session).await
    }

    async fn exec(&self, caller: &Caller, request: ExecRequest) -> Answer<ExecStream> {
        self.service()?.exec(caller, request).await
    }

    async fn resume(&self, caller: &Caller, request: ResumeRequest) -> Answer<ExecStream> {
        self.service()?.resume(caller, request).await
    }

    async fn follow(
        &self,
        caller: &Caller,
        request: FollowRequest,
    ) -> Answer<BoxStream<'static, Answer<FollowUpdate>>> {
        self.service()?.follow(caller, request).await
    }

    async fn replay(
        &self,
        caller: &Caller,
        request: ReplayRequest,
    ) -> Answer<BoxStream<'static, Answer<LogRecord>>> {
        self.service()?.replay(caller, request).await
    }

    async fn approve(&self, caller: &Caller, request: ApproveRequest) -> Answer<Approved> {
        self.service()?.approve(caller, request).await
    }

    async fn resolve(&self, caller: &Caller, request: ResolveRequest) -> Answer<Session> {
        self.service()?.resolve(caller, request).await
    }

    async fn suspend(&self, caller: &Caller, session: &SessionUid) -> Answer<Session> {
        self.service()?.suspend(caller, session).await
    }

    async fn fork(&self, caller: &Caller, request: ForkRequest) -> Answer<Vec<Session>> {
        self.service()?.fork(caller, request).await
    }

    async fn cancel(&self, caller: &Caller, request: CancelRequest) -> Answer<Session> {
        self.service()?.cancel(caller, request).await
    }

    async fn delete(&self, caller: &Caller, session: &SessionUid) -> Answer<Session> {
        self.service()?.delete(caller, session).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Operations for Opening {
    async fn find(&self, caller: &Caller, request: FindRequest) -> Answer<ListPage> {
        self.operations()?.find(caller, request).await
    }

    async fn verify(
        &self,
        caller: &Caller,
        request: VerifyRequest,
    ) -> Answer<BoxStream<'static, Answer<VerifyProgress>>> {
        self.operations()?.verify(caller, request).await
    }

    async fn export(
        &self,
        caller: &Caller,
        request: ExportRequest,
    ) -> Answer<BoxStream<'static, Answer<Bytes>>> {
        self.operations()?.export(caller, request).await
    }

    async fn import(
        &self,
        caller: &Caller,
        request: ImportRequest,
        lines: BoxStream<'static, Answer<Bytes>>,
    ) -> Answer<Session> {
        self.operations()?.import(caller, request, lines).await
    }

    async fn adopt(&self, caller: &Caller, request: AdoptRequest) -> Answer<Session> {
        self.operations()?.adopt(caller, request).await
    }
}
