//! What must hold of a journal, whatever was done to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_api::{EndState, EventBody, ExecutionId, Harness, Mediation, SessionUid};
use mainspring_controller::{ApprovedRetry, Controller, Journal, Options, inspect_approval};
use mainspring_eventlog::{EventLog, Level, StoredRecord};
use mainspring_testkit::{read_all, verify_all};

use crate::Trace;
use crate::turnstile::Turnstile;
use crate::world::{Ledger, SimModel, Told, is_declared};

type Checked = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The chain holds, nothing that was told is lost, the evidence is well formed,
/// and no key was attempted more often than it may.
pub(crate) async fn journal(
    log: &dyn EventLog,
    uid: &SessionUid,
    told: &Told,
    ledger: &Ledger,
    retry: ApprovedRetry,
) -> Checked {
    verify_all(log, uid).await.map_err(text)?;
    let records = read_all(log, uid).await.map_err(text)?;
    for record in told.records() {
        let index = usize::try_from(record.seq.get()).expect("it fits") - 1;
        let kept = records.get(index).is_some_and(|kept| kept.hash == record.hash);
        if !kept {
            return Err(format!("record {} was told and is not there", record.seq));
        }
    }
    for pair in records.windows(2) {
        if pair[1].fence < pair[0].fence {
            return Err(format!("an older fence wrote record {}", pair[1].seq));
        }
    }
    let row = log.get(uid, Level::Strict).await.map_err(text)?;
    if let Some(fault) = row.view.evidence_fault.or(row.view.legacy_fault) {
        return Err(format!("ill-formed at {}: {}", fault.seq, fault.what));
    }
    executions(&records)?;
    attempts(&records, ledger, retry)
}

/// An execution's end is its last record, and there is one at most.
fn executions(records: &[StoredRecord]) -> Checked {
    let mut ended: BTreeMap<ExecutionId, u64> = BTreeMap::new();
    for record in records {
        let event = record.event().map_err(text)?;
        let Some(id) = event.execution_id else { continue };
        if let Some(end) = ended.get(&id) {
            return Err(format!("record {} follows the end at {end}", record.seq));
        }
        if matches!(event.body, EventBody::End(_)) {
            ended.insert(id, record.seq.get());
        }
    }
    Ok(())
}

/// What may not be repeated was attempted once, and once more for each word of
/// a person; what was denied, never.
fn attempts(records: &[StoredRecord], ledger: &Ledger, retry: ApprovedRetry) -> Checked {
    let mut calls = BTreeMap::new();
    let mut denied = Vec::new();
    for record in records {
        let event = record.event().map_err(text)?;
        match event.body {
            EventBody::ToolCall(Some(call)) => {
                calls.insert(call.idempotency_key.clone(), call);
            }
            EventBody::ApprovalResult(Some(body)) if !body.approved => {
                denied.push((event.execution_id, body.tool_call_id));
            }
            _ => {}
        }
    }
    for (key, entry) in ledger.entries() {
        let Some(call) = calls.get(&key) else {
            // Recorded by nobody whose journal this is: the intent came first, always.
            if entry.attempts > 0 {
                return Err(format!("{key} was attempted without an intent"));
            }
            continue;
        };
        let gated = call.mediation == Mediation::RequiresApproval;
        if entry.declared && entry.effects > 1 {
            return Err(format!("{key} is declared and happened {} times", entry.effects));
        }
        let by_contract = gated && retry == ApprovedRetry::Always;
        let bound = 1 + entry.allowed;
        if !is_declared(&call.tool) && !by_contract && entry.attempts > bound {
            return Err(format!("{key} was attempted {} times, {bound} allowed", entry.attempts));
        }
        let is_denied = denied.iter().any(|(execution, id)| {
            *id == call.id && execution.as_ref().is_some_and(|id| key.starts_with(id.as_str()))
        });
        if gated && is_denied && entry.attempts > 0 {
            return Err(format!("{key} was denied and attempted"));
        }
    }
    Ok(())
}

/// Every completed turn runs again, with no model and no tool in reach.
pub(crate) async fn replay(
    store: &Arc<dyn EventLog>,
    uid: &SessionUid,
    harness: &Arc<dyn Harness>,
) -> Checked {
    let journal = Journal::new(Arc::clone(store), uid.clone());
    inspect_approval(&journal, 0).await.map_err(text)?;
    let model = SimModel { host: 0, turnstile: Turnstile::new(0) };
    let options = Options { session: Some(uid.clone()), ..Options::new(Arc::new(model)) };
    let before = store.get(uid, Level::Strict).await.map_err(text)?;
    let replayed = Controller::reader(journal, options).replay(harness).await.map_err(text)?;
    let after = store.get(uid, Level::Strict).await.map_err(text)?;
    if before != after {
        return Err("a replay changed the session".to_owned());
    }
    let records = read_all(&**store, uid).await.map_err(text)?;
    let mut completed = 0;
    for record in &records {
        if let EventBody::End(Some(end)) = record.event().map_err(text)?.body {
            completed += u64::from(end.end_state() == Some(EndState::Completed));
        }
    }
    if replayed.turns != completed {
        return Err(format!("{} of {completed} turns were replayed", replayed.turns));
    }
    Ok(())
}

/// The journal in short.
pub(crate) async fn trace(log: &dyn EventLog, uid: &SessionUid) -> Result<Trace, String> {
    let records = read_all(log, uid).await.map_err(text)?;
    let kinds: Result<Vec<_>, String> = records
        .iter()
        .map(|record| Ok(record.event().map_err(text)?.kind().name().replace("EVENT_", "")))
        .collect();
    let row = log.get(uid, Level::Strict).await.map_err(text)?;
    Ok(Trace { kinds: kinds?.join(" "), fences: row.fence.fence.get() })
}
