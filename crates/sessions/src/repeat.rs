//! Calls that may be made again: a key names the session that a call creates,
//! and the execution that it runs; an execution's id may be chosen as it is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Action, Caller, CallerIdentity, CancelReason, CancelRequest, Condition, EndState, EventBody,
    ExecRequest, ExecStream, ExecUpdate, ExecutionId, Outcome, RequestId, SessionUid,
    SessionsError, Signal,
};
use mainspring_controller::{Turn, TurnDigest, TurnStop, recorded_turn};
use mainspring_eventlog::{ExecutionView, SessionRow};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::approvals;
use crate::exec::Beginning;
use crate::live::LiveTurn;
use crate::resume::{May, Recovery, is_interrupted};
use crate::service::{Inner, invalid, log_failed, placement_failed};

/// How long a repeated call waits for the one that is just starting the turn.
const JOIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// How a caller names an execution.
pub(crate) enum Chosen {
    Id(ExecutionId),
    Key(String),
}

impl Chosen {
    /// What a request chose, if anything; refuses what is not well formed.
    pub(crate) fn of(request: &ExecRequest) -> Result<Option<Self>, SessionsError> {
        match (&request.execution_id, &request.idempotency_key) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err(invalid("an execution id and an idempotency key exclude each other"))
            }
            (Some(id), None) => {
                let id = ExecutionId::chosen(id.as_str());
                Ok(Some(Self::Id(id.map_err(|error| invalid(error.to_string()))?)))
            }
            (None, Some(key)) => check_key(key).map(|()| Some(Self::Key(key.clone()))),
        }
    }

    /// The execution's id on a session.
    pub(crate) fn execution(self, session: &SessionUid) -> ExecutionId {
        match self {
            Self::Id(id) => id,
            Self::Key(key) => {
                let text = hex(&digest(&[session.as_str(), &key])[..8]);
                ExecutionId::chosen(&text).expect("it is 16 hex digits")
            }
        }
    }
}

/// Refuses a key that is none: 1 to 128 characters of the alphabet of request ids.
pub(crate) fn check_key(key: &str) -> Result<(), SessionsError> {
    match RequestId::new(key) {
        Ok(_) => Ok(()),
        Err(error) => Err(invalid(format!("invalid idempotency key: {}", error.why))),
    }
}

/// The uid of the session that this caller creates with this key. Callers
/// without an identity are one.
pub(crate) fn keyed_uid(caller: Option<&CallerIdentity>, key: &str) -> SessionUid {
    let (issuer, subject) =
        caller.map_or(("", ""), |caller| (caller.issuer.as_str(), caller.subject.as_str()));
    let text = hex(&digest(&[issuer, subject, key])[..12]);
    SessionUid::new(&format!("sess-{text}")).expect("hex fits a uid")
}

/// Of all parts, whatever they hold.
pub(crate) fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

impl Inner {
    /// Runs the execution of this id, or shows it to whoever asks for it again.
    pub(crate) async fn exec_once(
        self: &Arc<Self>,
        caller: &Caller,
        mut row: SessionRow,
        request: ExecRequest,
        turn: Turn,
        id: ExecutionId,
    ) -> Result<ExecStream, SessionsError> {
        let uid = row.session.uid.clone();
        let name = self.harness_name(&row, &request.harness);
        let asked = turn.digest(name);
        let asked = asked.map_err(|error| SessionsError::because(Arc::new(error)).on(&uid))?;
        let mut changes = self.guard.changes();
        let until = Instant::now() + JOIN_WAIT_MAX;
        loop {
            if self.guard.drives(&uid).as_ref() == Some(&id) {
                if let Some(live) = self.live.find(&uid, &id) {
                    self.compare_live(&uid, &live, &asked).await?;
                    let on_disconnect = Some((request.on_disconnect, &id));
                    let (feed, before) = (&live.feed, live.before);
                    if let Some(stream) = self.watch(feed, row, before, true, on_disconnect) {
                        return Ok(stream);
                    }
                    // Everybody left it: it is given up, or has just begun.
                    live.feed.begun().wait().await;
                } else if !changes.next_until(until).await {
                    return Err(starting(&uid, &id));
                }
            } else if let Some(view) = self.recorded_execution(&uid, &id).await? {
                self.compare_recorded(&row, &view, &asked).await?;
                match self.show(caller, &uid, &request, &view).await {
                    Ok(Some(stream)) => return Ok(stream),
                    Ok(None) => {}
                    Err(error) if self.is_for(&uid, &id, &error) => {}
                    Err(error) => return Err(error),
                }
            } else {
                let chosen = Some((id.clone(), asked));
                let request = request.clone();
                let begun = self.begin(row, Beginning { turn: turn.clone(), request, chosen });
                match begun.await {
                    Ok(Some(stream)) => return Ok(stream),
                    Ok(None) => {}
                    Err(error) if self.is_for(&uid, &id, &error) => {}
                    Err(error) => return Err(error),
                }
            }
            row = self.find_active(&uid).await?;
        }
    }

    /// Whether a call was refused because the same one was faster.
    fn is_for(&self, session: &SessionUid, id: &ExecutionId, refused: &SessionsError) -> bool {
        refused.condition() == Condition::SessionBusy
            && self.guard.drives(session).as_ref() == Some(id)
    }

    pub(crate) async fn recorded_execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionView>, SessionsError> {
        let found = self.options.log.execution(session, id).await;
        found.map_err(|error| log_failed(error).on(session))
    }

    /// The name that a turn records as its harness's.
    fn harness_name<'a>(&'a self, row: &'a SessionRow, asked: &'a str) -> &'a str {
        let default = self.options.harnesses.default_name();
        let names = [asked, row.session.harness.as_str(), default];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or(default)
    }

    async fn compare_live(
        &self,
        session: &SessionUid,
        live: &LiveTurn,
        asked: &TurnDigest,
    ) -> Result<(), SessionsError> {
        match &live.digest {
            Some(digest) if digest == asked => Ok(()),
            Some(_) => Err(other(session, &live.execution)),
            None => {
                let row = self.find_active(session).await?;
                match self.recorded_execution(session, &live.execution).await? {
                    Some(view) => self.compare_recorded(&row, &view, asked).await,
                    // Drawn by the host, and not recorded yet: nobody can mean it.
                    None => Err(other(session, &live.execution)),
                }
            }
        }
    }

    async fn compare_recorded(
        &self,
        row: &SessionRow,
        view: &ExecutionView,
        asked: &TurnDigest,
    ) -> Result<(), SessionsError> {
        let uid = &row.session.uid;
        if !row.view.owns(view.first_seq) {
            let message = format!("execution {} was inherited through a fork", view.id);
            return Err(SessionsError::new(Condition::AlreadyExists, message).on(uid));
        }
        let recorded = recorded_turn(&self.journal(uid), view).await;
        match recorded.map_err(|error| placement_failed(error.into()).on(uid))? {
            recorded if recorded == *asked => Ok(()),
            _ => Err(other(uid, &view.id)),
        }
    }

    /// Shows an execution that nobody drives here: what is recorded of it and
    /// how it ended, or it is gone on with. `None` when it has moved meanwhile.
    async fn show(
        self: &Arc<Self>,
        caller: &Caller,
        uid: &SessionUid,
        request: &ExecRequest,
        view: &ExecutionView,
    ) -> Result<Option<ExecStream>, SessionsError> {
        let row = self.find_active(uid).await?;
        self.expire_if_due(&row).await?;
        let row = self.find_active(uid).await?;
        if is_interrupted(&row.view, &view.id) {
            self.allow_on(caller, Action::Resume, &row).await?;
            let recovery = Recovery {
                deadline: self.deadline(request.deadline_unix)?,
                show_first: true,
                on_disconnect: request.on_disconnect,
                only: Some(view.id.clone()),
                ..Recovery::of(uid.clone(), request.approval_ttl)
            };
            return self.go_on_with(recovery, May::Everything).await;
        }
        let Some(view) = self.recorded_execution(uid, &view.id).await? else { return Ok(None) };
        let mut last = Vec::new();
        let mut to = view.last_seq;
        if row.view.pending_gate().is_some_and(|(latest, ..)| latest.id == view.id) {
            // As the turn itself was shown: its compute was suspended after it asked.
            let suspend = row.view.last_suspend.as_ref().map(|suspend| suspend.seq);
            to = suspend.filter(|seq| *seq == to.next()).unwrap_or(to);
            last.push(Ok(ExecUpdate::Session(Box::new(self.shown(row.clone())))));
        } else if let Err(error) = self.how_it_ended(uid, &view).await? {
            last.push(Err(error));
        }
        let first = Ok(ExecUpdate::Session(Box::new(self.shown(row))));
        let records = self.records(uid.clone(), view.first_seq, to);
        let records =
            records.map(|record| record.map(|record| ExecUpdate::Record(Box::new(record))));
        let updates = stream::once(async { first }).chain(records).chain(stream::iter(last));
        // Nothing follows an error.
        let updates = updates.scan(false, |failed, update| {
            let update = (!*failed).then_some(update);
            *failed |= update.as_ref().is_some_and(Result::is_err);
            std::future::ready(update)
        });
        Ok(Some(Box::pin(updates)))
    }

    /// The status of an execution that is over, as its journal has it.
    async fn how_it_ended(
        &self,
        session: &SessionUid,
        view: &ExecutionView,
    ) -> Result<Result<(), SessionsError>, SessionsError> {
        let ended = |condition, message: String| {
            let error = SessionsError::new(condition, message);
            Ok(Err(error.with_outcome(Outcome::Applied).on(session)))
        };
        let at = match (view.end, view.trailing_error) {
            (Some((_, Some(EndState::Completed))), _) => return Ok(Ok(())),
            (Some((seq, _)), _) | (None, Some(seq)) => seq,
            (None, None) => {
                let what = "was abandoned: another turn has begun since";
                let message = format!("execution {} {what}", view.id);
                return ended(Condition::FailedPrecondition, message);
            }
        };
        let record = self.records(session.clone(), at, at).next().await.transpose()?;
        let error = match record.map(|record| record.event.body) {
            Some(EventBody::Error(error)) => error,
            Some(EventBody::End(end)) => end.and_then(|end| end.error),
            _ => None,
        };
        let (code, text) = error.map_or_else(Default::default, |e| (e.code, e.description));
        let condition = match (view.end, code) {
            (Some((_, Some(EndState::Canceled | EndState::Failed))), _) | (_, CANCELLED) => {
                Condition::Cancelled
            }
            (_, DEADLINE_EXCEEDED) => Condition::DeadlineExceeded,
            _ => Condition::HarnessFailed,
        };
        ended(condition, text)
    }

    /// Cancels a turn whose caller asked for that, when its stream is lost
    /// before the turn is over.
    pub(crate) fn cancel_when_lost(
        self: &Arc<Self>,
        session: SessionUid,
        execution_id: ExecutionId,
        lost: Signal<()>,
        over: Signal<()>,
    ) {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = lost.wait() => {}
                () = over.wait() => return,
            }
            let _running = inner.running();
            let stop = TurnStop::Cancel(CancelReason::User);
            inner.guard.stop(&session, &execution_id, stop);
            over.wait().await;
            // It may have parked before it heard of it.
            let request = CancelRequest {
                session: session.clone(),
                execution_id,
                reason: CancelReason::User,
            };
            match inner.cancel_turn(&request).await {
                Ok(()) => {}
                // It never began, or ended otherwise.
                Err(error) if error.condition() == Condition::FailedPrecondition => {}
                Err(error) => {
                    approvals::report(&session, &error, "a turn that lost its client goes on");
                }
            }
        });
    }
}

/// gRPC's codes, as recorded errors carry them.
const CANCELLED: i32 = 1;
const DEADLINE_EXCEEDED: i32 = 4;

fn other(session: &SessionUid, execution: &ExecutionId) -> SessionsError {
    let what = "exists already, with other inputs, configuration, cursor or harness";
    let message = format!("execution {execution} {what}");
    SessionsError::new(Condition::AlreadyExists, message).on(session)
}

fn starting(session: &SessionUid, execution: &ExecutionId) -> SessionsError {
    let message = format!(
        "execution {execution} is being started, for more than {} s",
        JOIN_WAIT_MAX.as_secs()
    );
    SessionsError::new(Condition::SessionBusy, message).on(session)
}
