//! Going on with a session: its open turn, or its compute.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{
    Action, Caller, ExecStream, ExecutionId, OnDisconnect, ResumeRequest, Seq, Session, SessionUid,
    SessionsError,
};
use mainspring_eventlog::{ExecutionView, SessionRow, SessionView};
use mainspring_placement::{Call, Operation, Placer};
use tokio::time::Instant;

use crate::exec::{RunningTurn, call_of, expected_head};
use crate::feed::Feed;
use crate::live::{Listed, LiveTurn};
use crate::service::{Inner, log_failed, placement_failed};

/// What is gone on with, and within which bounds.
pub(crate) struct Recovery {
    pub(crate) session: SessionUid,
    pub(crate) approval_ttl: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) expected: Option<i64>,
    /// Whether the session is shown first, too.
    pub(crate) show_first: bool,
    pub(crate) on_disconnect: OnDisconnect,
    /// The turn that must be open still; with it, the turn is shown from its
    /// first record on.
    pub(crate) only: Option<ExecutionId>,
}

impl Recovery {
    /// Of whatever is open, without bounds.
    pub(crate) fn of(session: SessionUid, approval_ttl: Option<Duration>) -> Self {
        Self {
            session,
            approval_ttl,
            deadline: None,
            expected: None,
            show_first: false,
            on_disconnect: OnDisconnect::Detach,
            only: None,
        }
    }
}

/// What the caller was allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum May<'a> {
    /// Whatever going on takes.
    Everything,
    /// To resume; it is asked about effects if it comes to that.
    Resume(&'a Caller),
}

impl Inner {
    pub(crate) async fn resume(
        self: &Arc<Self>,
        caller: &Caller,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        let ResumeRequest { session, approval_ttl } = request;
        let row = self.find_active_for(caller, &[Action::Resume], &session).await?;
        let may = if drives_effects(&row.view) {
            self.allow_on(caller, Action::Exec, &row).await?;
            May::Everything
        } else {
            May::Resume(caller)
        };
        self.go_on(Recovery::of(session, approval_ttl), may).await
    }

    /// As [`Inner::resume`], by the host itself.
    pub(crate) async fn resume_as_host(
        self: &Arc<Self>,
        request: ResumeRequest,
    ) -> Result<ExecStream, SessionsError> {
        let recovery = Recovery::of(request.session, request.approval_ttl);
        self.go_on(recovery, May::Everything).await
    }

    /// Goes on with the session's open turn, as it was recorded.
    pub(crate) async fn go_on(
        self: &Arc<Self>,
        recovery: Recovery,
        may: May<'_>,
    ) -> Result<ExecStream, SessionsError> {
        let gone_on = self.go_on_with(Recovery { only: None, ..recovery }, may).await?;
        Ok(gone_on.expect("any turn will do"))
    }

    /// As [`Inner::go_on`]. `None` when the turn that must be open is not.
    pub(crate) async fn go_on_with(
        self: &Arc<Self>,
        recovery: Recovery,
        may: May<'_>,
    ) -> Result<Option<ExecStream>, SessionsError> {
        self.admit_turn()?;
        let uid = recovery.session.clone();
        let row = self.find_active(&uid).await?;
        self.expire_if_due(&row).await?;
        let open = row.view.pending().map(|turn| turn.id.clone());
        let lease = self.lease_for(&uid, Operation::Resume, recovery.only.clone().or(open))?;
        let row = self.find_active(&uid).await?;
        if !recovery.only.as_ref().is_none_or(|only| is_interrupted(&row.view, only)) {
            return Ok(None);
        }
        if let May::Resume(caller) = may
            && drives_effects(&row.view)
        {
            self.allow_on(caller, Action::Exec, &row).await?;
        }
        self.refuse_driven_elsewhere(&row).await?;
        let journal = self.journal(&uid);
        // Ill-formed evidence comes before any question of who serves it.
        mainspring_controller::resume_invocation(&journal)
            .await
            .map_err(|error| placement_failed(error.into()).on(&uid))?;
        let row = self.find_active(&uid).await?;
        // The journal may have been long: another host may have been faster.
        self.refuse_driven_elsewhere(&row).await?;
        if let Err(error) = expected_head(recovery.expected, row.view.head)? {
            return Err(log_failed(error).on(&uid));
        }
        let placer = self.recorded(&row).await?;
        let open = row.view.pending().map(|turn| (turn.id.clone(), before(turn)));
        let approval_ttl = self.approval_ttl(recovery.approval_ttl);
        self.note_turns_of(&row).await;
        let head = row.view.head.seq;
        let feed = Feed::new(head);
        let after = match (&recovery.only, &open) {
            (Some(_), Some((_, before))) => *before,
            _ => head,
        };
        let on_disconnect = open.as_ref().map(|(id, _)| (recovery.on_disconnect, id));
        let stream = self.watch(&feed, row, after, recovery.show_first, on_disconnect);
        let stream = stream.expect("nobody has left a turn that did not begin");
        let call = call_of(&feed, recovery.deadline, approval_ttl);
        let listed = open.as_ref().map(|(execution, before)| {
            let (execution, feed) = (execution.clone(), Arc::clone(&feed));
            Listed::new(self, &uid, LiveTurn { execution, before: *before, digest: None, feed })
        });
        lease.drives(open.map(|(execution, _)| execution), call.stop.clone());
        let lease = Arc::new(lease);
        let running = RunningTurn { lease: Arc::clone(&lease), listed, feed };
        self.spawn(running, approval_ttl, true, async move {
            placer.resume(&lease, &journal, call).await
        });
        Ok(Some(stream))
    }

    /// The placer of the harness that recorded the open turn.
    async fn recorded(self: &Arc<Self>, row: &SessionRow) -> Result<Arc<Placer>, SessionsError> {
        let own = &row.session.harness;
        let waits = row.view.open_gate().is_some_and(|(_, gate)| gate.decision.is_none());
        let found = self.routed(|harnesses| harnesses.find_recorded(&row.view, own)).await;
        let placer = match found {
            // A turn that waits for a decision parks again, without a harness.
            Err(_) if waits => self.options.harnesses.find(""),
            found => found,
        };
        placer.map_err(|error| placement_failed(error).on(&row.session.uid))
    }

    pub(crate) async fn suspend(
        self: &Arc<Self>,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<Session, SessionsError> {
        let row = self.find_active_for(caller, &[Action::Suspend], session).await?;
        self.admit_turn()?;
        let placer = match row.view.open_gate() {
            // A hand-off after a park that failed is made up for where it failed.
            Some(_) => self.recorded(&row).await?,
            None => self.route(&row, "").await?,
        };
        let lease = self.lease(session, Operation::Suspend)?;
        self.refuse_driven_elsewhere(&self.find_active(session).await?).await?;
        let journal = self.journal(session);
        let inner = Arc::clone(self);
        self.owned(async move {
            let session = lease.session();
            let suspended = placer.suspend(&lease, &journal, Call::default()).await;
            suspended.map_err(|error| placement_failed(error).on(session))?;
            // A turn on another harness may have left compute elsewhere.
            inner.release(session, &placer).await;
            Ok(inner.shown(inner.find(session).await?))
        })
        .await
    }
}

/// The position before an execution's first record.
fn before(turn: &ExecutionView) -> Seq {
    Seq::new(turn.first_seq.get().saturating_sub(1))
}

/// Whether a resume runs the harness, and does not only bring compute back or
/// park again.
fn drives_effects(view: &SessionView) -> bool {
    let legacy = view.legacy.as_ref().filter(|_| view.executions == 0);
    match view.pending() {
        Some(_) => view.open_gate().is_none_or(|(_, gate)| gate.decision.is_some()),
        None => legacy.is_some_and(|legacy| legacy.pending_input().is_some()),
    }
}

/// Whether an execution is the session's latest, has neither end nor trailing
/// error, and waits for no decision: somebody drives it, or nobody.
pub(crate) fn is_interrupted(view: &SessionView, execution: &ExecutionId) -> bool {
    view.pending_gate().is_none()
        && view
            .pending()
            .is_some_and(|latest| latest.id == *execution && latest.trailing_error.is_none())
}
