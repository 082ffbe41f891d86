//! Turns: each runs in a task that the host owns.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Caller, Classify as _, Condition, CreateRequest, ExecRequest, ExecStream, Head, OnDisconnect,
    Outcome, ResumeRequest, Seq, Session, SessionUid, SessionsError, Signal,
};
use mainspring_controller::{ControllerError, Expected, Turn};
use mainspring_eventlog::{LogError, SessionRow};
use mainspring_placement::{Call, Lease, Operation, PlacementError, Placer};
use tokio::time::Instant;

use crate::convert;
use crate::feed::Feed;
use crate::service::{Inner, invalid, is_host_fault, log_failed, placement_failed, unimplemented};

impl Inner {
    pub(crate) async fn exec(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: ExecRequest,
    ) -> Result<ExecStream, SessionsError> {
        refuse_later_fields(&request)?;
        self.admit_turn()?;
        let deadline = self.deadline(request.deadline_unix)?;
        let mut turn = Turn {
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
        if let Some((execution, _)) = row.view.open_gate() {
            let error = ControllerError::ApprovalBlocked(execution.id.clone());
            return Err(placement_failed(error.into()).on(&uid));
        }
        let placer = self.route(&row, &request.harness)?;
        let lease = Arc::new(self.lease(&uid, Operation::Exec)?);
        // Read again under the lease: another turn may just have ended.
        let row = self.find_active(&uid).await?;
        let expected = request.expected_last_seq;
        let head = row.view.head;
        let (stream, call, feed) = self.watch(row, deadline, true);
        if let Some(seq) = expected {
            let seq = Seq::from_i64(seq).ok_or_else(|| negative(seq))?;
            match Expected::Seq(seq).resolve(head) {
                // From here on it is this head, not only its position.
                Ok(head) => turn.expected = Expected::At(head),
                Err(error) => {
                    feed.finish(Err(log_failed(error).on(&uid)));
                    return Ok(stream);
                }
            }
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
        self.find_active(&uid).await?;
        let lease = Arc::new(self.lease(&uid, Operation::Resume)?);
        let journal = self.journal(&uid);
        // Ill-formed evidence comes before any question of who serves it.
        mainspring_controller::resume_invocation(&journal)
            .await
            .map_err(|error| placement_failed(error.into()).on(&uid))?;
        let row = self.find_active(&uid).await?;
        let placer = self
            .options
            .harnesses
            .find_recorded(&row.view, &row.session.harness)
            .map(Arc::clone)
            .map_err(|error| placement_failed(error).on(&uid))?;
        let (stream, call, feed) = self.watch(row, None, false);
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
        self.admit_turn()?;
        let row = self.find_active(session).await?;
        let placer = self.route(&row, "")?;
        let lease = self.lease(session, Operation::Suspend)?;
        let journal = self.journal(session);
        let call = Call {
            deadline: None,
            gone: Signal::default(),
            observer: Arc::new(mainspring_controller::IgnoreAll),
        };
        // The host owns it: a client that goes away leaves no half-done suspend.
        let running = self.running();
        let inner = Arc::clone(self);
        let suspended = tokio::spawn(async move {
            let _running = running;
            let suspended = placer.suspend(&lease, &journal, call).await?;
            // A turn on another harness may have left compute elsewhere.
            inner.release(lease.session(), &placer).await;
            Ok::<_, PlacementError>(suspended)
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
            let found = self.find_active(session).await;
            if found.is_err() {
                // An unknown override is reported before an unknown session.
                self.options.harnesses.find(&request.harness).map_err(placement_failed)?;
            }
            return found;
        }
        if let Some(expected) = request.expected_last_seq.filter(|seq| *seq != 0) {
            // Refused before a session is created, so that none is left behind.
            let seq = Seq::from_i64(expected).ok_or_else(|| negative(expected))?;
            let expected = Head { seq, hash: None };
            return Err(log_failed(LogError::Conflict { expected, head: Head::EMPTY }));
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
        let (uid, after) = (row.session.uid.clone(), row.view.head.seq);
        let feed = Feed::new(after);
        let gone = Signal::default();
        let log = Arc::clone(&self.options.log);
        let first = show.then(|| Box::new(convert::session(row)));
        let stream = feed.watch(log, uid, first, gone.clone());
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
            let session = match show && result.is_ok() {
                true => Some(inner.find(&uid).await),
                false => None,
            };
            // Free before the client learns of the end: its next call is not busy.
            drop(lease);
            report(&uid, &feed, result, session);
            inner.release_when_idle(&uid).await;
        });
    }

    /// Ends the compute of a session on every runtime but `kept`'s.
    async fn release(&self, session: &SessionUid, kept: &Placer) {
        for placer in self.options.harnesses.placers() {
            if !Arc::ptr_eq(placer.runtime(), kept.runtime()) {
                placer.release(session).await;
            }
        }
    }

    /// Compute stays warm for a while; then, if nothing has happened since, it
    /// is freed, which a stateless harness does not notice.
    async fn release_when_idle(self: &Arc<Self>, session: &SessionUid) {
        let Ok(row) = self.find(session).await else { return };
        let (inner, session, head) = (Arc::downgrade(self), session.clone(), row.view.head);
        let idle = self.options.idle;
        tokio::spawn(async move {
            tokio::time::sleep(idle).await;
            let Some(inner) = inner.upgrade() else { return };
            let Ok(_lease) = inner.lease(&session, Operation::Suspend) else { return };
            if inner.find(&session).await.is_ok_and(|row| row.view.head == head) {
                for placer in inner.options.harnesses.placers() {
                    placer.release(&session).await;
                }
            }
        });
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

/// Tells the feed how a turn ended.
fn report(
    uid: &SessionUid,
    feed: &Feed,
    result: Result<(), PlacementError>,
    session: Option<Result<SessionRow, SessionsError>>,
) {
    let result = match (result, session) {
        (Err(error), _) => Err(turn_failed(placement_failed(error), feed.has_recorded()).on(uid)),
        (Ok(()), Some(Err(error))) => Err(turn_failed(error, feed.has_recorded())),
        (Ok(()), Some(Ok(row))) => Ok(Some(Box::new(convert::session(row)))),
        (Ok(()), None) => Ok(None),
    };
    match &result {
        Ok(_) => tracing::debug!(session = %uid, "turn finished"),
        Err(error) if is_host_fault(error) => {
            tracing::warn!(session = %uid, code = error.code(), "turn failed");
        }
        Err(error) => tracing::info!(session = %uid, code = error.code(), "turn failed"),
    }
    feed.finish(result);
}

/// A turn that recorded something has taken effect, however it failed: it must
/// not look like a call that may simply be sent again.
fn turn_failed(error: SessionsError, recorded: bool) -> SessionsError {
    if !recorded || error.outcome() != Outcome::NotApplied {
        return error;
    }
    match error.condition() {
        Condition::Unavailable => {
            SessionsError::new(Condition::Internal, format!("the turn was cut: {error}"))
        }
        _ => error,
    }
    .with_outcome(Outcome::Applied)
}

fn negative(seq: i64) -> SessionsError {
    invalid(format!("expected_last_seq is {seq}"))
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
