//! Decisions: a person's, the host's policy's, and a person's word on a tool
//! call whose outcome nobody knows.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring_api::{
    Action, ApprovalRef, ApproveRequest, Approved, Caller, Classify, Decision, ErrorKind,
    ExecStream, PendingApproval, ResolveRequest, ResumeRequest, Session, SessionUid, SessionsError,
};
use mainspring_controller::{Approval, IgnoreAll, Resolving, inspect_approval};
use mainspring_eventlog::{SessionRow, tool_call_digest};
use mainspring_placement::{Lease, Operation};
use tokio::time::Instant;

use crate::service::{Inner, invalid, is_host_fault, placement_failed};

/// How long the host's policy may think about one request.
const POLICY_MAX: Duration = Duration::from_secs(10);

/// How long a decision of the host, or a cancel, waits for the lease of a
/// session that a short operation holds.
pub(crate) const LEASE_WAIT_MAX: Duration = Duration::from_secs(10);

impl Inner {
    pub(crate) async fn approve(
        self: &Arc<Self>,
        caller: &Caller,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        check_named(&request.approval)?;
        let actions = [Action::Read, Action::Approve];
        self.find_active_for(caller, &actions, &request.session).await?;
        let lease = self.lease(&request.session, Operation::Approve)?;
        self.decide(lease, request).await
    }

    /// A decision of the host's own: it waits for what is going on, but not
    /// for a turn.
    pub(crate) async fn approve_as_host(
        self: &Arc<Self>,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        self.find_active(&request.session).await?;
        let (session, clock) = (&request.session, &*self.options.clock);
        let until = Instant::now() + LEASE_WAIT_MAX;
        let lease = self.guard.acquire_until(session, Operation::Approve, clock, until).await;
        let lease = lease.map_err(|error| placement_failed(error).on(session))?;
        self.decide(lease, request).await
    }

    async fn decide(
        self: &Arc<Self>,
        lease: Lease,
        request: ApproveRequest,
    ) -> Result<Approved, SessionsError> {
        let options = &self.options;
        let approval = Approval {
            approval: request.approval,
            decision: Decision {
                approved: request.approved,
                reason: request.reason,
                identity: request.identity,
            },
            digest: request.digest,
            holder: options.holder.clone(),
            clock: Arc::clone(&options.clock),
            entropy: Arc::clone(&options.entropy),
            observer: Arc::new(IgnoreAll),
        };
        let inner = Arc::clone(self);
        self.owned(async move {
            let session = lease.session();
            let decided = mainspring_controller::approve(&inner.journal(session), approval).await;
            let decision = match decided {
                Ok(decision) => decision,
                Err(error) => {
                    // What another host's turn is about to ask cannot be decided yet.
                    inner.refuse_driven_elsewhere(&inner.find(session).await?).await?;
                    return Err(placement_failed(error.into()).on(session));
                }
            };
            let session = inner.shown(inner.find(session).await?);
            Ok(Approved { session, decision })
        })
        .await
    }

    pub(crate) async fn resolve(
        self: &Arc<Self>,
        caller: &Caller,
        request: ResolveRequest,
    ) -> Result<Session, SessionsError> {
        if request.tool_call_id.is_empty() {
            return Err(invalid("tool_call_id is empty"));
        }
        let actions = [Action::Read, Action::Approve];
        self.find_active_for(caller, &actions, &request.session).await?;
        let lease = self.lease(&request.session, Operation::Resolve)?;
        self.refuse_driven_elsewhere(&self.find_active(&request.session).await?).await?;
        let resolving = Resolving {
            execution: request.execution_id,
            tool_call_id: request.tool_call_id,
            resolution: request.resolution,
            holder: self.options.holder.clone(),
            entropy: Arc::clone(&self.options.entropy),
            observer: Arc::new(IgnoreAll),
        };
        let inner = Arc::clone(self);
        self.owned(async move {
            let session = lease.session();
            let resolved = mainspring_controller::resolve(&inner.journal(session), resolving).await;
            resolved.map_err(|error| placement_failed(error.into()).on(session))?;
            Ok(inner.shown(inner.find(session).await?))
        })
        .await
    }

    /// A turn waits for a decision. `asked` says that it has only just asked.
    pub(crate) async fn on_park(
        self: &Arc<Self>,
        row: SessionRow,
        ttl: Option<Duration>,
        asked: bool,
    ) {
        self.watch_request(&row, ttl).await;
        if asked && self.options.approval_policy.is_some() {
            let (inner, session) = (Arc::clone(self), row.session.uid);
            tokio::spawn(async move {
                if let Err(error) = inner.ask_policy(&session, ttl).await {
                    report(&session, &error, "the policy's decision is not recorded");
                }
            });
        }
    }

    /// Asks the policy about the request that the session waits on.
    async fn ask_policy(
        self: &Arc<Self>,
        session: &SessionUid,
        ttl: Option<Duration>,
    ) -> Result<(), SessionsError> {
        let Some(policy) = &self.options.approval_policy else { return Ok(()) };
        let state = inspect_approval(&self.journal(session), 0).await;
        let state = state.map_err(|error| placement_failed(error.into()).on(session))?;
        let waiting = state.and_then(|state| {
            let request = state.request.as_ref().filter(|_| state.decision.is_none())?;
            Some(PendingApproval {
                session: session.clone(),
                approval: ApprovalRef {
                    execution_id: state.execution.to_string(),
                    tool_call_id: state.call.id.clone(),
                    request_seq: request.seq.as_i64(),
                },
                digest: tool_call_digest(&state.call).ok()?,
                call: state.call,
            })
        });
        let Some(pending) = waiting else { return Ok(()) };
        let Ok(decided) = tokio::time::timeout(POLICY_MAX, policy.decide(&pending)).await else {
            tracing::warn!(session = %session, "the approval policy has not answered in time");
            return Ok(());
        };
        let Some(decision) = decided else { return Ok(()) };
        let request = ApproveRequest {
            session: session.clone(),
            approval: pending.approval,
            approved: decision.approved,
            reason: decision.reason,
            identity: decision.identity,
            digest: Some(pending.digest),
        };
        self.approve_as_host(request).await?;
        self.finish_turn(session, ttl);
        Ok(())
    }

    /// Goes on with a turn that the host itself has decided about, as the call
    /// that made the request would have.
    pub(crate) fn finish_turn(self: &Arc<Self>, session: &SessionUid, ttl: Option<Duration>) {
        let (inner, session) = (Arc::clone(self), session.clone());
        tokio::spawn(async move {
            let request = ResumeRequest { session: session.clone(), approval_ttl: ttl };
            let finished = match inner.resume_as_host(request).await {
                Err(error) => Err(error),
                Ok(updates) => watch_to_the_end(updates).await,
            };
            if let Err(error) = finished {
                report(&session, &error, "a decided turn was not finished; it can be resumed");
            }
        });
    }
}

/// Watches a turn of the host's own: a stream that is dropped early gives it up.
pub(crate) async fn watch_to_the_end(mut updates: ExecStream) -> Result<(), SessionsError> {
    while let Some(update) = updates.next().await {
        update?;
    }
    Ok(())
}

pub(crate) fn report(session: &SessionUid, error: &SessionsError, what: &'static str) {
    if is_host_fault(error) {
        tracing::warn!(session = %session, code = error.code(), "{what}");
    } else {
        tracing::info!(session = %session, code = error.code(), "{what}");
    }
}

/// Whether a decision can never be recorded, however often it is tried.
pub(crate) fn is_settled(error: &impl Classify) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Precondition
            | ErrorKind::NotFound
            | ErrorKind::Corrupt
            | ErrorKind::InvalidInput
    )
}

/// A decision names its request in full.
fn check_named(approval: &ApprovalRef) -> Result<(), SessionsError> {
    if approval.execution_id.is_empty() {
        return Err(invalid("execution_id is empty"));
    }
    if approval.tool_call_id.is_empty() {
        return Err(invalid("tool_call_id is empty"));
    }
    if approval.request_seq <= 0 {
        return Err(invalid(format!("request_seq is {}", approval.request_seq)));
    }
    Ok(())
}
