//! Turns: each runs in a task that the host owns.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Caller, CreateRequest, ExecRequest, ExecStream, OnDisconnect, ResumeRequest, Seq, Session,
    SessionUid, SessionsError, Signal,
};
use mainspring_controller::{Expected, Turn};
use mainspring_eventlog::{LogError, SessionRow};
use mainspring_placement::{Call, Lease, Operation, PlacementError, Placer};
use tokio::time::Instant;

use crate::convert;
use crate::feed::Feed;
use crate::service::{Inner, is_host_fault, log_failed, placement_failed, unimplemented};

impl Inner {
    pub(crate) async fn exec(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: ExecRequest,
    ) -> Result<ExecStream, SessionsError> {
        refuse_later_fields(&request)?;
        self.admit_turn()?;
        let deadline = self.deadline(request.deadline_unix)?;
        let turn = Turn {
            inputs: std::mem::take(&mut request.inputs),
            config: request.config.clone(),
            resume_from_seq: request.resume_from_seq,
            expected: Expected::Head,
            execution_id: None,
            deadline,
        };
        turn.check(&self.options.log.limits())
            .map_err(|error| SessionsError::because(Arc::new(error)))?;
        let row = self.find_or_create(caller, &request).await?;
        let uid = row.session.uid.clone();
        let placer = self.route(&row, &request.harness)?;
        let lease = Arc::new(self.lease(&uid, Operation::Exec)?);
        // Read again under the lease: another turn may just have ended.
        let row = self.find_active(&uid).await?;
        let expected = request.expected_last_seq;
        let head = row.view.head;
        let (stream, call, feed) = self.watch(row, deadline, true);
        if let Some(seq) = expected.filter(|seq| Seq::from_i64(*seq) != Some(head.seq)) {
            let seq = Seq::from_i64(seq).unwrap_or(Seq::ZERO);
            let expected = mainspring_api::Head { seq, hash: None };
            let error = log_failed(LogError::Conflict { expected, head }).on(&uid);
            feed.finish(head.seq, Err(error));
            return Ok(stream);
        }
        let journal = self.journal(&uid);
        let held = Arc::clone(&lease);
        self.spawn(uid, lease, feed, false, async move {
            placer.exec(&held, &journal, turn, call).await.map(drop)
        });
        Ok(stream)
    }

    pub(crate) async fn resume(
        self: &Arc<Self>,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        self.admit_turn()?;
        let uid = request.session;
        let row = self.find_active(&uid).await?;
        let lease = Arc::new(self.lease(&uid, Operation::Resume)?);
        let row_now = self.find_active(&uid).await?;
        let placer = self
            .options
            .harnesses
            .find_recorded(&row_now.view, &row.session.harness)
            .map(Arc::clone)
            .map_err(|error| placement_failed(error).on(&uid))?;
        let (stream, call, feed) = self.watch(row_now, None, false);
        let journal = self.journal(&uid);
        let held = Arc::clone(&lease);
        self.spawn(
            uid,
            lease,
            feed,
            true,
            async move { placer.resume(&held, &journal, call).await },
        );
        Ok(stream)
    }

    pub(crate) async fn suspend(
        self: &Arc<Self>,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        let row = self.find_active(session).await?;
        let placer = self.route(&row, "")?;
        let lease = self.lease(session, Operation::Suspend)?;
        let journal = self.journal(session);
        let call = Call { deadline: None, gone: Signal::default(), observer: Feed::new() };
        // The host owns it: a client that goes away leaves no half-done suspend.
        let running = self.running();
        let suspended = tokio::spawn(async move {
            let _running = running;
            placer.suspend(&lease, &journal, call).await
        });
        match suspended.await {
            Ok(Ok(_record)) => Ok(convert::session(self.find(session).await?)),
            Ok(Err(error)) => Err(placement_failed(error).on(session)),
            Err(panic) => Err(task_died(&panic)),
        }
    }

    async fn find_or_create(
        self: &Arc<Self>,
        caller: &Caller,
        request: &ExecRequest,
    ) -> Result<SessionRow, SessionsError> {
        if let Some(session) = &request.session {
            // An unknown override is reported before an unknown session.
            self.options.harnesses.find(&request.harness).map_err(placement_failed)?;
            return self.find_active(session).await;
        }
        if let Some(expected) = request.expected_last_seq.filter(|seq| *seq != 0) {
            // Refused before a session is created, so that none is left behind.
            let seq = Seq::from_i64(expected).unwrap_or(Seq::ZERO);
            let expected = mainspring_api::Head { seq, hash: None };
            let head = mainspring_api::Head::EMPTY;
            return Err(log_failed(LogError::Conflict { expected, head }));
        }
        let create = CreateRequest { harness: request.harness.clone(), ..CreateRequest::default() };
        self.create(caller, create).await
    }

    /// The placer of a session's turn: the override, else the session's own.
    pub(crate) fn route(
        &self,
        row: &SessionRow,
        asked: &str,
    ) -> Result<Arc<Placer>, SessionsError> {
        let name = if asked.is_empty() { &row.session.harness } else { asked };
        let placer = self.options.harnesses.find(name);
        placer.map(Arc::clone).map_err(|error| placement_failed(error).on(&row.session.uid))
    }

    /// The stream of a turn about to start, and the turn's own side.
    fn watch(
        &self,
        row: SessionRow,
        deadline: Option<Instant>,
        show: bool,
    ) -> (ExecStream, Call, Arc<Feed>) {
        let feed = Feed::new();
        let gone = Signal::default();
        let log = Arc::clone(&self.options.log);
        let (uid, after) = (row.session.uid.clone(), row.view.head.seq);
        let first = show.then(|| Box::new(convert::session(row)));
        let stream = feed.watch(log, uid, after, first, gone.clone());
        let call = Call { deadline, gone, observer: Arc::clone(&feed) as _ };
        (stream, call, feed)
    }

    /// Runs `turn` in a task of the host and reports its end to the feed.
    fn spawn(
        self: &Arc<Self>,
        uid: SessionUid,
        lease: Arc<Lease>,
        feed: Arc<Feed>,
        show: bool,
        turn: impl Future<Output = Result<(), PlacementError>> + Send + 'static,
    ) {
        let inner = Arc::clone(self);
        let running = self.running();
        tokio::spawn(async move {
            let _running = running;
            let result = turn.await;
            // Free before the client learns of the end: its next call is not busy.
            drop(lease);
            inner.report(&uid, &feed, show, result).await;
        });
    }

    async fn report(
        &self,
        uid: &SessionUid,
        feed: &Feed,
        show: bool,
        result: Result<(), PlacementError>,
    ) {
        let row = self.find(uid).await;
        let head = row.as_ref().map_or(Seq::ZERO, |row| row.view.head.seq);
        let result = match (result, row) {
            (Err(error), _) => Err(placement_failed(error).on(uid)),
            (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(row)) => Ok(show.then(|| Box::new(convert::session(row)))),
        };
        match &result {
            Ok(_) => tracing::debug!(session = %uid, "turn finished"),
            Err(error) if is_host_fault(error) => {
                tracing::warn!(session = %uid, error_kind = ?mainspring_api::Classify::kind(error), "turn failed");
            }
            Err(error) => {
                tracing::info!(session = %uid, error_kind = ?mainspring_api::Classify::kind(error), "turn failed");
            }
        }
        feed.finish(head, result);
    }

    /// Unix seconds to an instant of the runtime's clock.
    fn deadline(&self, unix: i64) -> Result<Option<Instant>, SessionsError> {
        if unix <= 0 {
            return Ok(None);
        }
        let now = self.options.clock.now();
        let left_ms = (i128::from(unix) - i128::from(now.seconds)) * 1_000
            - i128::from(now.nanos / 1_000_000);
        let left_ms = u64::try_from(left_ms).unwrap_or(0);
        if left_ms == 0 {
            let error = PlacementError::AdmissionInterrupted { out_of_time: true };
            return Err(placement_failed(error));
        }
        // A century is as good as never, and within every clock's range.
        let left = Duration::from_millis(left_ms).min(Duration::from_secs(100 * 365 * 86_400));
        Ok(Some(Instant::now() + left))
    }
}

/// Calls that come in a later version are refused, never ignored.
fn refuse_later_fields(request: &ExecRequest) -> Result<(), SessionsError> {
    if request.execution_id.is_some() {
        return Err(unimplemented("a chosen execution id (x-execution-id)"));
    }
    if request.idempotency_key.is_some() {
        return Err(unimplemented("an idempotency key (x-idempotency-key)"));
    }
    if request.on_disconnect == OnDisconnect::Cancel {
        return Err(unimplemented("cancelling on disconnect (x-on-disconnect)"));
    }
    Ok(())
}

fn task_died(error: &tokio::task::JoinError) -> SessionsError {
    let why = if error.is_panic() { "panicked" } else { "was stopped" };
    SessionsError::new(mainspring_api::Condition::Internal, format!("the operation's task {why}"))
}
