//! Turns: each runs in a task that the host owns.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Caller, Classify as _, ComputeState, Condition, CreateRequest, ExecRequest, ExecStream,
    ExecutionId, Head, OnDisconnect, Outcome, ResumeRequest, Seq, Session, SessionUid,
    SessionsError,
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
            execution_id: Some(ExecutionId::random(&*self.options.entropy)),
            deadline,
        };
        turn.check(&self.options.log.limits())
            .map_err(|error| SessionsError::because(Arc::new(error)))?;
        let row = self.find_or_create(caller, &request).await?;
        let uid = row.session.uid.clone();
        if turn.inputs.is_empty() && row.view.pending().is_some_and(|turn| turn.gate.is_some()) {
            return self
                .go_on(Recovery {
                    session: uid,
                    approval_ttl: request.approval_ttl,
                    deadline,
                    expected: request.expected_last_seq,
                    show_first: true,
                })
                .await;
        }
        if let Some((execution, _)) = row.view.open_gate() {
            let error = ControllerError::ApprovalBlocked(execution.id.clone());
            return Err(placement_failed(error.into()).on(&uid));
        }
        let placer = self.route(&row, &request.harness)?;
        let lease = Arc::new(self.lease(&uid, Operation::Exec)?);
        // Read again under the lease: another turn may just have ended.
        let row = self.find_active(&uid).await?;
        let expected = expected_head(request.expected_last_seq, row.view.head)?;
        let approval_ttl = self.approval_ttl(request.approval_ttl);
        let (stream, call, feed) = self.watch(row, deadline, approval_ttl, true);
        match expected {
            // From here on it is this head, not only its position.
            Ok(head) => turn.expected = head,
            Err(error) => {
                feed.finish(Err(log_failed(error).on(&uid)));
                return Ok(stream);
            }
        }
        lease.drives(turn.execution_id.clone(), call.stop.clone());
        let journal = self.journal(&uid);
        let held = Arc::clone(&lease);
        self.spawn(lease, feed, approval_ttl, false, async move {
            placer.exec(&held, &journal, turn, call).await.map(drop)
        });
        Ok(stream)
    }

    pub(crate) async fn resume(
        self: &Arc<Self>,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        self.go_on(Recovery {
            session: request.session,
            approval_ttl: request.approval_ttl,
            deadline: None,
            expected: None,
            show_first: false,
        })
        .await
    }

    /// Goes on with the session's open turn, as it was recorded.
    async fn go_on(self: &Arc<Self>, recovery: Recovery) -> Result<ExecStream, SessionsError> {
        self.admit_turn()?;
        let Recovery { session: uid, approval_ttl, deadline, expected, show_first } = recovery;
        let row = self.find_active(&uid).await?;
        self.expire_if_due(&row).await?;
        let lease = Arc::new(self.lease(&uid, Operation::Resume)?);
        let journal = self.journal(&uid);
        // Ill-formed evidence comes before any question of who serves it.
        mainspring_controller::resume_invocation(&journal)
            .await
            .map_err(|error| placement_failed(error.into()).on(&uid))?;
        let row = self.find_active(&uid).await?;
        if let Err(error) = expected_head(expected, row.view.head)? {
            return Err(log_failed(error).on(&uid));
        }
        let placer = self.recorded(&row)?;
        let execution = row.view.pending().map(|turn| turn.id.clone());
        let approval_ttl = self.approval_ttl(approval_ttl);
        let (stream, call, feed) = self.watch(row, deadline, approval_ttl, show_first);
        lease.drives(execution, call.stop.clone());
        let held = Arc::clone(&lease);
        self.spawn(lease, feed, approval_ttl, true, async move {
            placer.resume(&held, &journal, call).await
        });
        Ok(stream)
    }

    /// The placer of the harness that recorded the open turn.
    fn recorded(&self, row: &SessionRow) -> Result<Arc<Placer>, SessionsError> {
        let harnesses = &self.options.harnesses;
        let waits = row.view.open_gate().is_some_and(|(_, gate)| gate.decision.is_none());
        let placer = match harnesses.find_recorded(&row.view, &row.session.harness) {
            // A turn that waits for a decision parks again, without a harness.
            Err(_) if waits => harnesses.find(""),
            found => found,
        };
        placer.map(Arc::clone).map_err(|error| placement_failed(error).on(&row.session.uid))
    }

    pub(crate) async fn suspend(
        self: &Arc<Self>,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        self.admit_turn()?;
        let row = self.find_active(session).await?;
        let placer = match row.view.open_gate() {
            // A hand-off after a park that failed is made up for where it failed.
            Some(_) => self.recorded(&row)?,
            None => self.route(&row, "")?,
        };
        let lease = self.lease(session, Operation::Suspend)?;
        let journal = self.journal(session);
        let inner = Arc::clone(self);
        self.owned(async move {
            let session = lease.session();
            let suspended = placer.suspend(&lease, &journal, Call::default()).await;
            suspended.map_err(|error| placement_failed(error).on(session))?;
            // A turn on another harness may have left compute elsewhere.
            inner.release(session, &placer).await;
            Ok(convert::session(inner.find(session).await?))
        })
        .await
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
        approval_ttl: Option<Duration>,
        show: bool,
    ) -> (ExecStream, Call, Arc<Feed>) {
        let (uid, after) = (row.session.uid.clone(), row.view.head.seq);
        let feed = Feed::new(after);
        let observer = Arc::clone(&feed) as _;
        let call = Call { deadline, approval_ttl, observer, ..Call::default() };
        let log = Arc::clone(&self.options.log);
        let first = show.then(|| Box::new(convert::session(row)));
        let stream = feed.watch(log, uid, first, call.gone.clone());
        (stream, call, feed)
    }

    /// Runs `turn` in a task of the host and reports its end to the feed. A
    /// turn that parked is no failure: the session that waits comes last.
    fn spawn(
        self: &Arc<Self>,
        lease: Arc<Lease>,
        feed: Arc<Feed>,
        approval_ttl: Option<Duration>,
        show: bool,
        turn: impl Future<Output = Result<(), PlacementError>> + Send + 'static,
    ) {
        let inner = Arc::clone(self);
        let running = self.running();
        let uid = lease.session().clone();
        let shown = self.feeds.show(&uid, &feed);
        tokio::spawn(async move {
            let _running = running;
            let (parked, result) = match turn.await {
                Err(PlacementError::Controller(ControllerError::ApprovalParked(_))) => {
                    (true, Ok(()))
                }
                other => (false, other),
            };
            let row = match result.is_ok() && (show || parked) {
                true => Some(inner.find(&uid).await),
                false => None,
            };
            let waiting = row.as_ref().and_then(|row| row.as_ref().ok()).filter(|_| parked);
            let waiting = waiting.cloned();
            let (asked, failed) = (feed.has_recorded(), result.is_err());
            // Free before the client learns of the end: its next call is not busy.
            drop(lease);
            drop(shown);
            report(&uid, &feed, result, row);
            match waiting {
                Some(row) => inner.on_park(row, approval_ttl, asked).await,
                None => inner.release_when_idle(&uid).await,
            }
            // A turn that failed beside its park has asked all the same.
            if failed
                && asked
                && let Ok(row) = inner.find(&uid).await
                && row.view.pending_gate().is_some()
            {
                inner.on_park(row, approval_ttl, asked).await;
            }
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
    pub(crate) async fn release_when_idle(self: &Arc<Self>, session: &SessionUid) {
        let Ok(row) = self.find(session).await else { return };
        if row.view.compute_state == ComputeState::Cold {
            return;
        }
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

/// What is gone on with, and within which bounds.
struct Recovery {
    session: SessionUid,
    approval_ttl: Option<Duration>,
    deadline: Option<Instant>,
    expected: Option<i64>,
    /// Whether the session is shown first, too.
    show_first: bool,
}

/// Where a call must start, if the journal ends where it says.
fn expected_head(
    expected: Option<i64>,
    head: Head,
) -> Result<Result<Expected, LogError>, SessionsError> {
    let Some(seq) = expected else { return Ok(Ok(Expected::Head)) };
    let seq = Seq::from_i64(seq).ok_or_else(|| negative(seq))?;
    Ok(Expected::Seq(seq).resolve(head).map(Expected::At))
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
