//! Turns: each runs in a task that the host owns.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Action, Bytes, Caller, Classify as _, ComputeState, Condition, CreateRequest, ExecRequest,
    ExecStream, ExecutionId, Head, OnDisconnect, Outcome, Seq, SessionUid, SessionsError, Signal,
};
use mainspring_controller::{ControllerError, Expected, Turn, TurnDigest};
use mainspring_eventlog::{LogError, SessionRow};
use mainspring_placement::{Call, Lease, Operation, PlacementError, Placer};
use tokio::time::Instant;

use crate::feed::{Feed, Watch};
use crate::live::{Listed, LiveTurn};
use crate::repeat::{Chosen, keyed_uid};
use crate::resume::{May, Recovery};
use crate::service::{Inner, invalid, is_host_fault, log_failed, placement_failed};

/// A turn that is to begin, if nothing refuses it.
pub(crate) struct Beginning {
    pub(crate) turn: Turn,
    pub(crate) request: ExecRequest,
    /// Its id and what tells it apart, when its caller chose the id.
    pub(crate) chosen: Option<(ExecutionId, TurnDigest)>,
}

impl Inner {
    pub(crate) async fn exec(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: ExecRequest,
    ) -> Result<ExecStream, SessionsError> {
        let chosen = Chosen::of(&request)?;
        let turn = Turn {
            config: std::mem::replace(&mut request.config, Bytes::new()),
            resume_from_seq: request.resume_from_seq,
            ..Turn::new(std::mem::take(&mut request.inputs))
        };
        turn.check(&self.options.log.limits())
            .map_err(|error| SessionsError::because(Arc::new(error)))?;
        if let Some(seq) = request.expected_last_seq {
            Seq::from_i64(seq).ok_or_else(|| negative(seq))?;
        }
        let row = self.find_or_create(caller, &request).await?;
        let chosen = chosen.map(|chosen| chosen.execution(&row.session.uid));
        let open = row.view.pending().filter(|turn| turn.gate.is_some());
        let goes_on = turn.inputs.is_empty()
            && open.is_some_and(|open| chosen.as_ref().is_none_or(|chosen| *chosen == open.id));
        if goes_on {
            self.allow_on(caller, Action::Resume, &row).await?;
            let deadline = self.deadline(request.deadline_unix)?;
            let recovery = Recovery {
                deadline,
                expected: request.expected_last_seq,
                show_first: true,
                on_disconnect: request.on_disconnect,
                ..Recovery::of(row.session.uid, request.approval_ttl)
            };
            return self.go_on(recovery, May::Everything).await;
        }
        match chosen {
            Some(id) => self.exec_once(caller, row, request, turn, id).await,
            None => {
                let begun = self.begin(row, Beginning { turn, request, chosen: None }).await?;
                Ok(begun.expect("an id that is drawn is not taken"))
            }
        }
    }

    /// Begins a turn. `None` when there is one of the chosen id by now.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        row: SessionRow,
        beginning: Beginning,
    ) -> Result<Option<ExecStream>, SessionsError> {
        let Beginning { mut turn, request, chosen } = beginning;
        let uid = row.session.uid.clone();
        self.admit_turn()?;
        turn.deadline = self.deadline(request.deadline_unix)?;
        if let Some((execution, _)) = row.view.open_gate() {
            let error = ControllerError::ApprovalBlocked(execution.id.clone());
            return Err(placement_failed(error.into()).on(&uid));
        }
        let placer = self.route(&row, &request.harness).await?;
        let (chosen_id, digest) = chosen.unzip();
        let lease = self.lease_for(&uid, Operation::Exec, chosen_id.clone())?;
        // Read again under the lease: another turn may just have ended.
        let row = self.find_active(&uid).await?;
        self.refuse_driven_elsewhere(&row).await?;
        if let Some(id) = &chosen_id
            && self.recorded_execution(&uid, id).await?.is_some()
        {
            return Ok(None);
        }
        turn.is_drawn = chosen_id.is_none();
        let execution = chosen_id.unwrap_or_else(|| ExecutionId::random(&*self.options.entropy));
        turn.execution_id = Some(execution.clone());
        let expected = expected_head(request.expected_last_seq, row.view.head)?;
        let approval_ttl = self.approval_ttl(request.approval_ttl);
        self.note_turns_of(&row).await;
        let before = row.view.head.seq;
        let feed = Feed::new(before);
        let on_disconnect = Some((request.on_disconnect, &execution));
        let stream = self.watch(&feed, row, before, true, on_disconnect);
        let stream = stream.expect("nobody has left a turn that did not begin");
        match expected {
            // From here on it is this head, not only its position.
            Ok(head) => turn.expected = head,
            Err(error) => {
                feed.finish(Err(log_failed(error).on(&uid)));
                return Ok(Some(stream));
            }
        }
        let call = call_of(&feed, turn.deadline, approval_ttl);
        let live =
            LiveTurn { execution: execution.clone(), before, digest, feed: Arc::clone(&feed) };
        let listed = Listed::new(self, &uid, live);
        lease.drives(Some(execution), call.stop.clone());
        let (lease, journal) = (Arc::new(lease), self.journal(&uid));
        let running = RunningTurn { lease: Arc::clone(&lease), listed: Some(listed), feed };
        self.spawn(running, approval_ttl, false, async move {
            placer.exec(&lease, &journal, turn, call).await.map(drop)
        });
        Ok(Some(stream))
    }

    async fn find_or_create(
        self: &Arc<Self>,
        caller: &Caller,
        request: &ExecRequest,
    ) -> Result<SessionRow, SessionsError> {
        if let Some(session) = &request.session {
            let found = self.find_active_for(caller, &[Action::Exec], session).await;
            let known = [Condition::SessionNotFound, Condition::SessionDeleted];
            if found.as_ref().is_err_and(|error| known.contains(&error.condition())) {
                // An unknown override is reported before an unknown session.
                let found = self.routed(|harnesses| harnesses.find(&request.harness)).await;
                found.map_err(placement_failed)?;
            }
            return found;
        }
        if let Some(expected) = request.expected_last_seq.filter(|seq| *seq != 0) {
            // Refused before a session is created, so that none is left behind.
            let seq = Seq::from_i64(expected).ok_or_else(|| negative(expected))?;
            let expected = Head { seq, hash: None };
            return Err(log_failed(LogError::Conflict { expected, head: Head::EMPTY }));
        }
        let key = request.idempotency_key.clone();
        let uid = match &key {
            Some(key) => keyed_uid(caller.identity.as_ref(), key),
            None => SessionUid::random(&*self.options.entropy),
        };
        let create = CreateRequest { harness: request.harness.clone(), ..Default::default() };
        let session = self.new_session(caller, create, uid)?;
        self.allow(caller, Action::Create).await?;
        self.allow_first_turn(caller, &session.uid).await?;
        if key.is_none() {
            self.admit_turn()?;
            self.deadline(request.deadline_unix)?;
        }
        self.create_as(session, key.is_some()).await
    }

    /// The placer of a session's turn: the override, else the session's own.
    pub(crate) async fn route(
        self: &Arc<Self>,
        row: &SessionRow,
        asked: &str,
    ) -> Result<Arc<Placer>, SessionsError> {
        let stored = &row.session.harness;
        let placer = self.routed(|harnesses| harnesses.find_for_turn(stored, asked)).await;
        placer.map_err(|error| placement_failed(error).on(&row.session.uid))
    }

    /// A stream of a turn, after a position. `None` as [`Feed::watch`].
    /// `show` says whether the session comes first.
    pub(crate) fn watch(
        self: &Arc<Self>,
        feed: &Feed,
        row: SessionRow,
        after: Seq,
        show: bool,
        on_disconnect: Option<(OnDisconnect, &ExecutionId)>,
    ) -> Option<ExecStream> {
        let session = row.session.uid.clone();
        let lost = Signal::default();
        let watched = feed.watch(Watch {
            log: Arc::clone(&self.options.log),
            session: session.clone(),
            first: show.then(|| Box::new(self.shown(row))),
            after,
            lost: lost.clone(),
        })?;
        if let Some((OnDisconnect::Cancel, execution)) = on_disconnect {
            self.cancel_when_lost(session, execution.clone(), lost, feed.over());
        }
        Some(watched)
    }

    /// Runs `turn` in a task of the host and reports its end to the feed. A
    /// turn that parked is no failure: the session that waits comes last.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        begun: RunningTurn,
        approval_ttl: Option<Duration>,
        show: bool,
        turn: impl Future<Output = Result<(), PlacementError>> + Send + 'static,
    ) {
        let inner = Arc::clone(self);
        let running = self.running();
        let RunningTurn { lease, listed, feed } = begun;
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
            drop(listed);
            // Free before the client learns of the end: its next call is not busy.
            drop(lease);
            drop(shown);
            inner.report(&uid, &feed, result, row);
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

    /// Tells the feed how a turn ended.
    fn report(
        &self,
        uid: &SessionUid,
        feed: &Feed,
        result: Result<(), PlacementError>,
        session: Option<Result<SessionRow, SessionsError>>,
    ) {
        let result = match (result, session) {
            (Err(error), _) => {
                Err(turn_failed(placement_failed(error), feed.has_recorded()).on(uid))
            }
            (Ok(()), Some(Err(error))) => Err(turn_failed(error, feed.has_recorded())),
            (Ok(()), Some(Ok(row))) => Ok(Some(Box::new(self.shown(row)))),
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

    /// Ends the compute of a session on every runtime but `kept`'s.
    pub(crate) async fn release(&self, session: &SessionUid, kept: &Placer) {
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
    pub(crate) fn deadline(&self, unix: i64) -> Result<Option<Instant>, SessionsError> {
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

/// A turn that holds its lease.
pub(crate) struct RunningTurn {
    pub(crate) lease: Arc<Lease>,
    /// Where it can be found; a resume may have no turn to go on with.
    pub(crate) listed: Option<Listed>,
    pub(crate) feed: Arc<Feed>,
}

/// The call of a turn that is watched through `feed`.
pub(crate) fn call_of(
    feed: &Arc<Feed>,
    deadline: Option<Instant>,
    approval_ttl: Option<Duration>,
) -> Call {
    let observer = Arc::clone(feed) as _;
    Call { deadline, approval_ttl, observer, gone: feed.gone(), ..Call::default() }
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

/// Where a call must start, if the journal ends where it says.
pub(crate) fn expected_head(
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
