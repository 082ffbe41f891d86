//! The fold: what a service must know of a session without reading its journal.
//!
//! [`SessionView`] is a pure left fold over records. It holds positions and
//! short names, never contents, and moves in the transaction of each append.
//! Executions other than the latest live in an [`ExecutionTable`] that is read
//! only when an event's execution id changes.

mod execution;

use mainspring_api::{
    ComputeState, DeletionState, EndState, Event, EventBody, ExecState, ExecutionId, Head,
    Lifecycle, LifecycleKind, Seq, SnapshotRef, Usage,
};

pub use execution::{ExecutionView, GateView, StartView};

use crate::error::LogError;

/// The fold of one session's journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionView {
    /// Position and hash of the last record.
    pub head: Head,
    /// Canonical bytes of all records.
    pub bytes: u64,
    /// Executions, by first appearance of their ids.
    pub executions: u64,
    /// The latest of them, by first appearance.
    pub latest: Option<ExecutionView>,
    /// The id-less prefix of an old journal.
    pub legacy: Option<LegacyView>,
    /// The last fork marker.
    pub last_fork: Option<Seq>,
    /// The last suspend.
    pub last_suspend: Option<SuspendView>,
    /// The last recorded compute instance.
    pub instance: Option<InstanceView>,
    /// What the journal implies about compute.
    pub compute_state: ComputeState,
    /// Whether deletion was recorded.
    pub deletion: DeletionState,
    /// Token counts of all usage records.
    pub usage: UsageTotals,
    /// The first position at which an id-less record is out of place.
    pub legacy_fault: Option<Fault>,
    /// The first position at which an execution's evidence is ill-formed.
    pub evidence_fault: Option<Fault>,
}

/// Something ill-formed in a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub seq: Seq,
    /// What.
    pub what: String,
}

/// The id-less prefix of an old journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyView {
    /// Its first record that is not a lifecycle event.
    pub first_seq: Seq,
    /// Its first input.
    pub first_input: Option<Seq>,
    /// Its last input.
    pub last_input: Option<Seq>,
    /// Its last record that is not a lifecycle event.
    pub last_seq: Seq,
    /// Its last end.
    pub last_end: Option<(Seq, Option<EndState>)>,
    /// Its last end or error.
    pub last_settled: Option<Seq>,
    /// Whether its last record is an end or an error.
    pub settled: bool,
    /// Whether that last record is an error.
    pub failed: bool,
}

/// A suspend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendView {
    /// Where it is.
    pub seq: Seq,
    /// What it captured.
    pub snapshot: SnapshotRef,
}

/// A recorded compute instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceView {
    /// The instance.
    pub instance: String,
    /// Where it was recorded.
    pub seq: Seq,
    /// The harness of the turn; empty for a fork marker.
    pub harness: String,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Of those, tokens spent on reasoning.
    pub reasoning_tokens: i64,
}

/// Executions of a session other than the latest, by id.
pub trait ExecutionTable {
    /// The execution of this id, if it was stored.
    fn load(&mut self, id: &ExecutionId) -> Result<Option<ExecutionView>, LogError>;

    /// Stores an execution that is not the latest.
    fn store(&mut self, view: &ExecutionView) -> Result<(), LogError>;
}

/// A table in memory, for folding a whole journal.
impl ExecutionTable for std::collections::HashMap<ExecutionId, ExecutionView> {
    fn load(&mut self, id: &ExecutionId) -> Result<Option<ExecutionView>, LogError> {
        Ok(self.get(id).cloned())
    }

    fn store(&mut self, view: &ExecutionView) -> Result<(), LogError> {
        self.insert(view.id.clone(), view.clone());
        Ok(())
    }
}

impl SessionView {
    /// Folds one more record: `head` is the head after it, `bytes` its canonical size.
    ///
    /// # Errors
    /// Only what the table returns; an ill-formed journal is a fault in the view.
    pub fn apply(
        &mut self,
        event: &Event,
        head: Head,
        bytes: usize,
        table: &mut dyn ExecutionTable,
    ) -> Result<(), LogError> {
        self.head = head;
        self.bytes += bytes as u64;
        let seq = head.seq;
        if let EventBody::Lifecycle(body) = &event.body {
            self.apply_lifecycle(seq, body.as_ref());
            return Ok(());
        }
        if !matches!(event.body, EventBody::ApprovalRequest(_) | EventBody::ApprovalResult(_)) {
            self.compute_state = ComputeState::Live;
        }
        if let EventBody::Usage(Some(usage)) = &event.body {
            self.usage.add(usage);
        }
        match &event.execution_id {
            None => self.apply_legacy(seq, event),
            Some(id) => self.apply_modern(seq, id, event, table)?,
        }
        Ok(())
    }

    fn apply_lifecycle(&mut self, seq: Seq, body: Option<&Lifecycle>) {
        let Some(body) = body else { return };
        match body.kind {
            LifecycleKind::Suspend => {
                self.compute_state = ComputeState::Cold;
                self.last_suspend = Some(SuspendView { seq, snapshot: body.snapshot.clone() });
            }
            LifecycleKind::Resume => self.compute_state = ComputeState::Live,
            LifecycleKind::Fork => {
                self.compute_state = ComputeState::Cold;
                self.last_fork = Some(seq);
                self.instance = None;
                self.note_instance(&body.compute_instance, "", seq);
            }
            LifecycleKind::Delete => self.deletion = DeletionState::Pending,
            LifecycleKind::Unspecified | LifecycleKind::Baseline | LifecycleKind::Cancel => {}
        }
    }

    fn apply_legacy(&mut self, seq: Seq, event: &Event) {
        use EventBody as B;
        if self.executions > 0 {
            self.legacy_fault(seq, "an event without execution id follows one that has it");
            return;
        }
        if matches!(
            event.body,
            B::Unspecified
                | B::ApprovalRequest(_)
                | B::ApprovalResult(_)
                | B::ExecutionStart(_)
                | B::Parked(_)
        ) {
            self.legacy_fault(seq, "not a legacy event");
            return;
        }
        let legacy = self
            .legacy
            .get_or_insert_with(|| LegacyView { first_seq: seq, ..LegacyView::default() });
        legacy.last_seq = seq;
        legacy.settled = matches!(event.body, B::End(_) | B::Error(_));
        legacy.failed = matches!(event.body, B::Error(_));
        if legacy.settled {
            legacy.last_settled = Some(seq);
        }
        match &event.body {
            B::Input(_) => {
                legacy.first_input.get_or_insert(seq);
                legacy.last_input = Some(seq);
            }
            B::End(body) => {
                legacy.last_end = Some((seq, body.as_ref().and_then(|end| end.end_state())));
            }
            _ => {}
        }
    }

    fn legacy_fault(&mut self, seq: Seq, what: &str) {
        self.legacy_fault.get_or_insert_with(|| Fault { seq, what: what.to_owned() });
    }

    fn apply_modern(
        &mut self,
        seq: Seq,
        id: &ExecutionId,
        event: &Event,
        table: &mut dyn ExecutionTable,
    ) -> Result<(), LogError> {
        if self.latest.as_ref().is_some_and(|latest| latest.id == *id) {
            let mut view = self.latest.take().expect("checked just above");
            self.fold_execution(&mut view, seq, event);
            self.latest = Some(view);
            return Ok(());
        }
        if let Some(mut older) = table.load(id)? {
            self.fold_execution(&mut older, seq, event);
            return table.store(&older);
        }
        if self.executions == 0
            && self.legacy.as_ref().is_some_and(|legacy| !legacy.settled)
            && !matches!(event.body, EventBody::ExecutionStart(_))
        {
            self.legacy_fault(
                seq,
                "the id-less prefix is unfinished and no execution start follows",
            );
        }
        self.executions += 1;
        let mut view = ExecutionView::new(id.clone(), seq);
        self.fold_execution(&mut view, seq, event);
        if let Some(previous) = self.latest.replace(view) {
            table.store(&previous)?;
        }
        Ok(())
    }

    fn fold_execution(&mut self, view: &mut ExecutionView, seq: Seq, event: &Event) {
        if let EventBody::ExecutionStart(Some(start)) = &event.body {
            self.note_instance(&start.compute_instance, &start.harness, seq);
        }
        if let Err(what) = view.apply(seq, event) {
            self.evidence_fault.get_or_insert_with(|| Fault { seq, what: what.to_owned() });
        }
    }

    fn note_instance(&mut self, instance: &str, harness: &str, seq: Seq) {
        if !instance.is_empty() {
            self.instance = Some(InstanceView {
                instance: instance.to_owned(),
                seq,
                harness: harness.to_owned(),
            });
        }
    }

    /// The turn axis, as the journal implies it. An interrupted turn is `Running`.
    #[must_use]
    pub fn exec_state(&self) -> ExecState {
        if let Some(latest) = &self.latest {
            return match (&latest.end, latest.trailing_error) {
                (Some((_, Some(EndState::Completed))), _) => ExecState::Completed,
                (Some((_, Some(EndState::Canceled))), _) => ExecState::Canceled,
                (Some(_), _) | (None, Some(_)) => ExecState::Failed,
                (None, None) if self.pending_gate().is_some() => ExecState::Awaiting,
                (None, None) => ExecState::Running,
            };
        }
        match &self.legacy {
            None => ExecState::Pending,
            Some(legacy) if !legacy.settled => ExecState::Running,
            Some(legacy) if legacy.failed => ExecState::Failed,
            Some(legacy) => match legacy.last_end {
                Some((_, Some(EndState::Completed))) => ExecState::Completed,
                Some((_, Some(EndState::Canceled))) => ExecState::Canceled,
                _ => ExecState::Failed,
            },
        }
    }

    /// The gate of the latest execution that this session itself requested and nobody decided.
    #[must_use]
    pub fn pending_gate(&self) -> Option<(&ExecutionView, &GateView, Seq)> {
        let latest = self.latest.as_ref().filter(|latest| latest.end.is_none())?;
        let gate = latest.gate.as_ref()?;
        let request = gate.request.filter(|_| gate.decision.is_none())?;
        self.owns(gate.call).then_some((latest, gate, request))
    }

    /// The gate of the latest execution that is this session's own and has no receipt.
    #[must_use]
    pub fn open_gate(&self) -> Option<(&ExecutionView, &GateView)> {
        let latest = self.latest.as_ref().filter(|latest| latest.end.is_none())?;
        let gate = latest.gate.as_ref().filter(|gate| gate.receipt.is_none())?;
        self.owns(gate.call).then_some((latest, gate))
    }

    /// Whether the record at `seq` is this session's own, not copied by a fork.
    #[must_use]
    pub fn owns(&self, seq: Seq) -> bool {
        self.last_fork.is_none_or(|fork| seq > fork)
    }

    /// The latest execution, if it has no end.
    #[must_use]
    pub fn pending(&self) -> Option<&ExecutionView> {
        self.latest.as_ref().filter(|latest| latest.end.is_none())
    }
}

impl LegacyView {
    /// The last input, if no end and no error follows it.
    #[must_use]
    pub fn pending_input(&self) -> Option<Seq> {
        self.last_input.filter(|input| self.last_settled.is_none_or(|settled| settled < *input))
    }
}

impl UsageTotals {
    fn add(&mut self, usage: &Usage) {
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(usage.reasoning_tokens);
    }
}
