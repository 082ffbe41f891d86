//! A row as its users see it.

use mainspring_api::{ApprovalRef, Session};
use mainspring_eventlog::SessionRow;

/// The session of a row.
pub(crate) fn session(row: SessionRow) -> Session {
    let exec_state = row.view.exec_state();
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
