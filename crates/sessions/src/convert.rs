//! A row as its users see it.

use mainspring_api::{ApprovalRef, ExecState, Seq, Session};
use mainspring_eventlog::{SessionRow, SessionView};

/// What the turn axis of a session says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExecStateProjection {
    /// How the latest turn stands, as the journal implies it.
    #[default]
    Derived,
    /// What the reference says: `PENDING` without records, `AWAITING` while a
    /// request waits, else `COMPLETED`, whatever became of the turn. Filters by
    /// state and hosts that look for open turns go by the derived one still.
    Reference,
}

impl ExecStateProjection {
    fn of(self, view: &SessionView) -> ExecState {
        match self {
            Self::Derived => view.exec_state(),
            Self::Reference if view.head.seq == Seq::ZERO => ExecState::Pending,
            Self::Reference if view.pending_gate().is_some() => ExecState::Awaiting,
            Self::Reference => ExecState::Completed,
        }
    }
}

/// The session of a row.
pub(crate) fn session(row: SessionRow, states: ExecStateProjection) -> Session {
    let exec_state = states.of(&row.view);
    let pending_approval = row.view.pending_gate().map(|(execution, gate, request)| ApprovalRef {
        execution_id: execution.id.to_string(),
        tool_call_id: gate.call_id.clone(),
        request_seq: request.as_i64(),
    });
    let fault = row.view.evidence_fault.as_ref().or(row.view.legacy_fault.as_ref());
    let fault = fault.map(|fault| format!("seq {}: {}", fault.seq, fault.what));
    let (parent_uid, fork_seq) = match row.parent {
        Some((uid, seq)) => (Some(uid), seq),
        None => Default::default(),
    };
    let s = row.session;
    Session {
        uid: s.uid,
        project: s.project,
        name: s.name,
        harness: s.harness,
        model: s.model,
        version: row.version,
        create_time: row.create_time,
        update_time: row.update_time,
        exec_state,
        compute_state: row.view.compute_state,
        deletion_state: row.view.deletion,
        pending_approval,
        last_seq: row.view.head.seq,
        parent_uid,
        fork_seq,
        identity: s.identity,
        origin: s.origin,
        labels: s.labels,
        annotations: s.annotations,
        owner: s.owner,
        fault,
    }
}
