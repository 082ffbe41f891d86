//! Why a session does or does not move, and what to do about it.
//!
//! Answered from the row, the leases of this host, the store's word on who is
//! alive, and at most three single records: never from a whole journal.

use mainspring_api::{
    Action, Caller, Classify as _, DeletionState, DescribeReport, EndState, ErrorKind, EventBody,
    ExecState, FenceHolder, LastError, OpenCall, RunningOperation, Seq, SessionUid, SessionsError,
    Standing, StoreDurability, ToolCall, WarmHost,
};
use mainspring_controller::EXPIRES_NOTE;
use mainspring_eventlog::reader::parse_rfc3339;
use mainspring_eventlog::{
    ExecutionView, GateView, Level, LogError, ReadLimit, SessionRow, SessionView, StoredRecord,
    tool_call_digest,
};

use crate::advice::{Findings, Why};
use crate::elsewhere::possible_driver;
use crate::service::{Inner, log_failed, placement_failed};

impl Inner {
    pub(crate) async fn describe(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<DescribeReport, SessionsError> {
        let row = self.find_for(caller, &[Action::Read], session).await?;
        let holder = self.holder(&row).await?;
        let running = self.running_operation(&row);
        let mut damage = fault(&row.view).map(|fault| (fault.0, fault.1.to_owned()));
        let mut open_call = None;
        let mut last_error = None;
        if !row.purged {
            match self.look(&row).await {
                Ok(seen) => (open_call, last_error) = seen,
                // Whatever it is, that nothing can be said of it is the answer.
                Err((seq, error)) if error.kind() == ErrorKind::Corrupt => {
                    damage.get_or_insert((seq, error.to_string()));
                }
                Err((_, error)) => return Err(error),
            }
        }
        let why = match damage {
            _ if row.view.deletion == DeletionState::Pending => Why::Deleted { purged: row.purged },
            Some((seq, what)) => Why::Damaged { seq, what },
            None => self.why(&row, holder.as_ref(), running.as_ref(), open_call.as_ref()).await?,
        };
        let execution_id = row.view.latest.as_ref().map(|latest| latest.id.clone());
        let findings = Findings { session, execution: execution_id.as_ref(), why: &why };
        let shows_call = matches!(
            why.standing(),
            Standing::Parked | Standing::Decided | Standing::UnknownEffect
        );
        let open_call = open_call.filter(|_| shows_call);
        let (summary, next_commands) =
            (findings.summary(open_call.as_ref()), findings.commands(open_call.as_ref()));
        let durability = self.options.log.durability();
        Ok(DescribeReport {
            standing: why.standing(),
            summary,
            execution_id,
            holder,
            running,
            open_call,
            last_error,
            durability: Some(StoreDurability {
                class: durability.class().to_owned(),
                summary: durability.to_string(),
            }),
            warm_host: self.warm_host(session),
            next_commands,
            session: self.seen(row),
        })
    }

    /// Who has the session at hand, as far as the store of many hosts knows.
    pub(crate) fn warm_host(&self, session: &SessionUid) -> Option<WarmHost> {
        let warm = self.options.log.warmth()?.warm_host(session)?;
        let is_here = warm.holder.id == self.options.holder.id;
        Some(WarmHost { name: warm.holder.name, address: warm.address, is_here })
    }

    /// Who may write, and whether the store thinks that they live.
    async fn holder(&self, row: &SessionRow) -> Result<Option<FenceHolder>, SessionsError> {
        let Some(holder) = &row.fence.holder else { return Ok(None) };
        let is_here = holder.id == self.options.holder.id;
        let uid = &row.session.uid;
        let is_alive = is_here || self.is_alive(holder).await.map_err(|error| error.on(uid))?;
        let (name, since) = (holder.name.clone(), row.fence.since);
        Ok(Some(FenceHolder { name, since, is_here, is_alive }))
    }

    /// What runs here. A turn whose end is recorded does not, though its lease
    /// goes a moment later.
    fn running_operation(&self, row: &SessionRow) -> Option<RunningOperation> {
        let held = self.guard.held(&row.session.uid)?;
        let ended = row.view.latest.as_ref().filter(|latest| latest.end.is_some());
        if ended.is_some_and(|latest| held.execution.as_ref() == Some(&latest.id)) {
            return None;
        }
        Some(RunningOperation {
            operation: held.operation.to_string(),
            since: held.since,
            execution_id: held.execution,
        })
    }

    async fn why(
        &self,
        row: &SessionRow,
        holder: Option<&FenceHolder>,
        running: Option<&RunningOperation>,
        open_call: Option<&OpenCall>,
    ) -> Result<Why, SessionsError> {
        if let Some(running) = running {
            return Ok(Why::Running { operation: running.operation.clone() });
        }
        let Some(turn) = row.view.pending() else { return Ok(settled(&row.view)) };
        if let Some(holder) = holder.filter(|holder| holder.is_alive && !holder.is_here)
            && possible_driver(row).is_some()
        {
            return Ok(Why::RunningElsewhere { holder: holder.name.clone() });
        }
        if row.view.pending_gate().is_some() {
            return Ok(Why::Parked);
        }
        let is_unknown = open_call.is_some() && self.is_unknown(row, turn).await?;
        let open = row.view.open_gate().map(|(_, gate)| gate);
        let cut_call = turn.unanswered.filter(|call| !row.view.owns(*call));
        Ok(match open {
            Some(GateView { decision: Some((_, approved)), .. }) if !is_unknown => {
                Why::Decided { approved: *approved }
            }
            _ if is_unknown => Why::UnknownEffect { inherited: cut_call.is_some() },
            _ if turn.missing_inputs() > 0 => Why::Unstarted { missing: turn.missing_inputs() },
            _ if inherits_a_gate(&row.view, turn) => Why::Inherited,
            _ if turn.trailing_error.is_some() => Why::AttemptFailed,
            _ => Why::Interrupted,
        })
    }

    /// Whether a resume would refuse the call that the turn is cut at.
    async fn is_unknown(
        &self,
        row: &SessionRow,
        turn: &ExecutionView,
    ) -> Result<bool, SessionsError> {
        // Whatever the tool is, what a fork copied is never called by itself.
        if turn.unanswered.is_some_and(|call| !row.view.owns(call)) {
            return Ok(true);
        }
        let harnesses = &self.options.harnesses;
        let recorded = harnesses.find_recorded(&row.view, &row.session.harness);
        // Tools are the host's, as a rule: another harness's say the same.
        let placer = recorded.or_else(|_| harnesses.find("")).map_err(placement_failed)?;
        let unknown = placer.unknown_effect(&self.journal(&row.session.uid), row).await;
        let unknown = unknown.map_err(|error| placement_failed(error).on(&row.session.uid))?;
        Ok(unknown.is_some())
    }

    /// The call that the latest turn is cut at, and its last error.
    async fn look(
        &self,
        row: &SessionRow,
    ) -> Result<(Option<OpenCall>, Option<LastError>), (Seq, SessionsError)> {
        let open_call = match row.view.pending() {
            Some(turn) => self.open_call(row, turn).await?,
            None => None,
        };
        let Some(seq) = error_at(&row.view) else { return Ok((open_call, None)) };
        let body = self.record(row, seq).await?.event().map_err(at(row, seq))?.body;
        let error = match body {
            EventBody::Error(Some(error)) => Some(error),
            EventBody::End(Some(end)) => end.error,
            _ => None,
        };
        let last_error =
            error.map(|error| LastError { seq, code: error.code, message: error.description });
        Ok((open_call, last_error))
    }

    async fn open_call(
        &self,
        row: &SessionRow,
        turn: &ExecutionView,
    ) -> Result<Option<OpenCall>, (Seq, SessionsError)> {
        let gate = row.view.open_gate().map(|(_, gate)| gate);
        let Some(seq) = gate.map(|gate| gate.call).or(turn.unanswered) else { return Ok(None) };
        let body = self.record(row, seq).await?.event().map_err(at(row, seq))?.body;
        let EventBody::ToolCall(Some(call)) = body else { return Ok(None) };
        let digest = digest_of(&call).map_err(at(row, seq))?;
        let request = gate.and_then(|gate| gate.request);
        let expires = match request {
            Some(seq) => self.record(row, seq).await?.notes.remove(EXPIRES_NOTE),
            None => None,
        };
        Ok(Some(OpenCall {
            execution_id: turn.id.clone(),
            tool_call_id: call.id,
            tool: call.tool,
            seq,
            request_seq: request,
            digest,
            expires: expires.as_deref().and_then(parse_rfc3339),
            approved: gate.and_then(|gate| gate.decision).map(|(_, approved)| approved),
        }))
    }

    async fn record(
        &self,
        row: &SessionRow,
        seq: Seq,
    ) -> Result<StoredRecord, (Seq, SessionsError)> {
        let limit = ReadLimit { records: 1, ..ReadLimit::default() };
        let page = self.options.log.read(&row.session.uid, seq, limit, Level::Committed).await;
        let what = "the journal ends before its head";
        let first = page.map(|page| page.into_iter().next());
        let first = first.and_then(|first| first.ok_or(LogError::Tampered { seq, what }));
        first.map_err(at(row, seq))
    }
}

fn at(row: &SessionRow, seq: Seq) -> impl Fn(LogError) -> (Seq, SessionsError) + use<'_> {
    move |error| (seq, log_failed(error).on(&row.session.uid))
}

fn digest_of(call: &ToolCall) -> Result<String, LogError> {
    tool_call_digest(call).map_err(LogError::Unrecordable)
}

fn fault(view: &SessionView) -> Option<(Seq, &str)> {
    let fault = view.evidence_fault.as_ref().or(view.legacy_fault.as_ref())?;
    Some((fault.seq, &fault.what))
}

/// Where the last error of the latest turn is recorded.
fn error_at(view: &SessionView) -> Option<Seq> {
    match (&view.latest, &view.legacy) {
        (Some(latest), _) => match latest.end {
            Some((seq, Some(EndState::Completed))) if seq > Seq::ZERO => None,
            Some((seq, _)) => Some(seq),
            None => latest.trailing_error,
        },
        (None, Some(legacy)) if legacy.failed => legacy.last_settled,
        _ => None,
    }
}

/// Where a session stands that has no open turn.
fn settled(view: &SessionView) -> Why {
    let legacy = view.legacy.as_ref().filter(|_| view.executions == 0);
    if legacy.is_some_and(|legacy| legacy.pending_input().is_some()) {
        return Why::Interrupted;
    }
    match view.exec_state() {
        ExecState::Failed => Why::Failed,
        ExecState::Pending => Why::Idle { last: None },
        // An old turn without an end that no input asks for.
        ExecState::Running => Why::Idle { last: Some("has no end") },
        ExecState::Canceled => Why::Idle { last: Some("was cancelled") },
        _ => Why::Idle { last: Some("has completed") },
    }
}

/// Whether the turn is cut at a gated call of another session.
fn inherits_a_gate(view: &SessionView, turn: &ExecutionView) -> bool {
    let gate = turn.gate.as_ref().filter(|gate| gate.receipt.is_none());
    gate.is_some_and(|gate| !view.owns(gate.call))
}
