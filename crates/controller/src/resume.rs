//! Finishing an interrupted turn.

use std::sync::Arc;

use mainspring_api::{
    ApprovalRef, Bytes, Descriptor, EventBody, Harness, Seq, Start, ToolCall, ToolExecutor,
};
use mainspring_eventlog::{ExecutionView, GateView, SessionRow};
use tokio::time::Instant;

use crate::approval::check_approvals;
use crate::controller::{ApprovedRetry, Controller, is_stateless};
use crate::error::ControllerError;
use crate::execution::{self, check_evidence, check_inputs, refuse_inherited_intent};
use crate::journal::Journal;
use crate::legacy;
use crate::machine::{Beyond, Facts, Machine};
use crate::recorded::EffectNotes;
use crate::resolve::{is_repeatable, is_unknown};
use crate::run;
use crate::tape::Tape;
use crate::writer::{Tag, Writer};

/// What a resume came to.
#[derive(Debug)]
pub struct Resumed {
    /// Whether a turn was driven (or found parked).
    pub resumed: bool,
    /// How it ended; `Ok` also when there was nothing to do.
    pub result: Result<(), ControllerError>,
}

impl Resumed {
    const fn nothing(result: Result<(), ControllerError>) -> Self {
        Self { resumed: false, result }
    }

    const fn driven(result: Result<(), ControllerError>) -> Self {
        Self { resumed: true, result }
    }
}

/// What is left to do of a turn.
enum Prepared {
    /// Nothing: no turn is open.
    Nothing,
    /// It waits for a decision.
    Parked(Result<ApprovalRef, ControllerError>),
    /// It is to be run.
    Run(Box<Pending>),
}

struct Pending {
    machine: Machine,
    tape: Tape,
    tag: Tag,
    start: Start,
    writer: Writer,
}

impl Controller {
    /// Finishes the interrupted turn, if there is one.
    ///
    /// Recorded effects are served; a trailing model call is made once more, a
    /// trailing tool call only if its executor may repeat it or a person allowed
    /// it, a decided gate is carried out, and from there the turn goes on live.
    /// The execution keeps its id. A turn that waits for a decision is parked
    /// again, without a harness; its request is recorded first if it is missing.
    ///
    /// # Errors
    /// With `resumed` false nothing was run or appended; with true at most an
    /// error record was, and for a park neither.
    ///
    /// # Cancellation
    /// A dropped future leaves a turn that can be resumed.
    pub async fn resume(&self, harness: &Arc<dyn Harness>, deadline: Option<Instant>) -> Resumed {
        match self.prepare(harness, deadline).await {
            Err(error) => Resumed::nothing(Err(error)),
            Ok(Prepared::Nothing) => Resumed::nothing(Ok(())),
            Ok(Prepared::Parked(Ok(park))) => {
                Resumed::driven(Err(ControllerError::ApprovalParked(park)))
            }
            Ok(Prepared::Parked(Err(error))) => Resumed::driven(Err(error)),
            Ok(Prepared::Run(pending)) => {
                let Pending { machine, tape, tag, start, writer } = *pending;
                let sink = self.live_sink(machine, Some(tape), tag.clone(), writer, harness);
                let driven = self.drive(harness, start, sink, &tag, deadline).await;
                Resumed::driven(driven.map(drop))
            }
        }
    }

    /// Parks again a turn that waits for a decision, without a harness in reach;
    /// records the request first if it is missing. `None` when no turn waits.
    ///
    /// # Errors
    /// As [`Controller::resume`], before the harness is asked anything.
    pub async fn park_again(&self) -> Result<Option<ApprovalRef>, ControllerError> {
        let row = self.journal.open().await?;
        self.check_instance(&row).await?;
        check_evidence(&row.view)?;
        let Some(view) = row.view.pending() else { return Ok(None) };
        check_inputs(view)?;
        check_approvals(&self.journal, view).await?;
        match undecided(&row, view)? {
            None => Ok(None),
            Some(gate) => self.waiting(&row, view, gate).await.map(Some),
        }
    }

    /// Refuses, from the journal alone, an open turn that has a tool call without
    /// a receipt which no resume may answer. Reads only.
    ///
    /// # Errors
    /// `InheritedToolIntent`, `UnansweredToolCall`; the log's.
    pub async fn refuse_unresumable(&self) -> Result<(), ControllerError> {
        let row = self.journal.open().await?;
        match row.view.pending() {
            None => Ok(()),
            Some(view) => self.refuse_calls(&row, view).await,
        }
    }

    async fn refuse_calls(
        &self,
        row: &SessionRow,
        view: &ExecutionView,
    ) -> Result<(), ControllerError> {
        refuse_inherited_intent(&self.journal, view, row.view.last_fork).await?;
        self.refuse_unknown(row).await
    }

    async fn prepare(
        &self,
        harness: &Arc<dyn Harness>,
        deadline: Option<Instant>,
    ) -> Result<Prepared, ControllerError> {
        let row = self.journal.open().await?;
        self.check_instance(&row).await?;
        check_evidence(&row.view)?;
        if let Some(view) = row.view.pending() {
            check_inputs(view)?;
            check_approvals(&self.journal, view).await?;
            if let Some(gate) = undecided(&row, view)? {
                return Ok(Prepared::Parked(self.waiting(&row, view, gate).await));
            }
            return self.prepare_modern(harness, deadline, &row, view).await;
        }
        if let Some(ended) = &row.view.latest {
            check_approvals(&self.journal, ended).await?;
        }
        match &row.view.legacy {
            Some(legacy) if row.view.executions == 0 => match legacy.pending_input() {
                Some(input) => self.prepare_legacy(&row, input).await,
                None => Ok(Prepared::Nothing),
            },
            _ => Ok(Prepared::Nothing),
        }
    }

    /// The request that a turn waits for a decision on.
    async fn waiting(
        &self,
        row: &SessionRow,
        view: &ExecutionView,
        gate: &GateView,
    ) -> Result<ApprovalRef, ControllerError> {
        let request = match gate.request {
            Some(request) => request,
            None => self.repair_request(row, view, gate).await?,
        };
        Ok(ApprovalRef {
            execution_id: view.id.to_string(),
            tool_call_id: gate.call_id.clone(),
            request_seq: request.as_i64(),
        })
    }

    /// Records the request of a gate that was cut right after its intent.
    async fn repair_request(
        &self,
        row: &SessionRow,
        view: &ExecutionView,
        gate: &GateView,
    ) -> Result<Seq, ControllerError> {
        let tag = Tag::Execution(view.id.clone());
        let ttl = self.options.approval_ttl;
        let record = tag.approval_request(&gate.call_id, ttl, &*self.options.clock);
        Ok(self.writer(row.view.head).append_one(record).await?.seq)
    }

    async fn prepare_modern(
        &self,
        harness: &Arc<dyn Harness>,
        deadline: Option<Instant>,
        row: &SessionRow,
        view: &ExecutionView,
    ) -> Result<Prepared, ControllerError> {
        self.refuse_calls(row, view).await?;
        let mut descriptor = None;
        if names_harness(view) || view.gate.is_some() {
            let described = self.describe(harness, deadline).await?;
            self.check_identity(view, &described)?;
            if view.gate.is_some() && !is_stateless(&described) {
                return Err(ControllerError::ApprovalUnavailable);
            }
            descriptor = Some(described);
        }
        let opening = execution::opening(&self.journal, view.first_seq, view.last_seq).await?;
        let start = Start {
            session: self.options.session.clone(),
            execution_id: view.id.clone(),
            model: opening.start.model.clone(),
            config: opening.start.config,
            history: self.journal.history(view.first_seq),
            inputs: opening.inputs,
            resume_from_seq: opening.start.resume_from_seq,
        };
        // A start that cannot be delivered fails no turn: nothing is run or recorded.
        run::check_start(harness, &start, deadline).await?;
        let facts = self.facts(opening.start.model, descriptor.as_ref());
        Ok(Prepared::Run(Box::new(Pending {
            machine: Machine::new(Beyond::Live, facts),
            tape: Tape::of(&self.journal, &view.id, view.first_seq, view.last_seq),
            tag: Tag::Execution(view.id.clone()),
            start,
            writer: self.writer(row.view.head),
        })))
    }

    /// Refuses a turn whose last tool call may have happened and may not be repeated.
    async fn refuse_unknown(&self, row: &SessionRow) -> Result<(), ControllerError> {
        let (tools, retry) = (self.options.tools.as_deref(), self.options.approved_retry);
        match unknown_effect(&self.journal, row, tools, retry).await? {
            Some((seq, call)) => Err(ControllerError::UnansweredToolCall { seq, call_id: call.id }),
            None => Ok(()),
        }
    }

    async fn prepare_legacy(
        &self,
        row: &SessionRow,
        input: Seq,
    ) -> Result<Prepared, ControllerError> {
        let session = self.options.session.as_ref();
        let token = legacy::token(&self.journal, session, input).await?;
        let turn = legacy::turn(&self.journal, input, row.view.head.seq).await?;
        if let (Some(call), Some(executor)) = (&turn.unanswered, &self.options.tools)
            && !is_repeatable(&**executor, &call.1.tool)
        {
            let (seq, call) = call.clone();
            return Err(ControllerError::UnansweredToolCall { seq, call_id: call.id });
        }
        let start = Start {
            session: self.options.session.clone(),
            execution_id: token.clone(),
            model: String::new(),
            config: Bytes::new(),
            history: self.journal.history(input),
            inputs: turn.inputs,
            resume_from_seq: 0,
        };
        let facts = Facts { legacy: true, ..self.facts(String::new(), None) };
        Ok(Prepared::Run(Box::new(Pending {
            machine: Machine::new(Beyond::Live, facts),
            tape: Tape::legacy(&self.journal, input, row.view.head.seq),
            tag: Tag::Legacy(token),
            start,
            writer: self.writer(row.view.head),
        })))
    }

    /// Compares the harness with the one that recorded an execution.
    pub(crate) fn check_identity(
        &self,
        view: &ExecutionView,
        descriptor: &Descriptor,
    ) -> Result<(), ControllerError> {
        match &view.start {
            Some(start) => self.check_names(&start.harness, &start.harness_version, descriptor),
            None => Ok(()),
        }
    }

    /// The name comes before the version; what is not recorded is not compared.
    pub(crate) fn check_names(
        &self,
        harness: &str,
        version: &str,
        descriptor: &Descriptor,
    ) -> Result<(), ControllerError> {
        let actual = self.harness_name(descriptor);
        if !harness.is_empty() && harness != actual {
            return Err(ControllerError::HarnessMismatch {
                recorded: harness.to_owned(),
                actual: actual.to_owned(),
            });
        }
        if !version.is_empty() && version != descriptor.version {
            return Err(ControllerError::HarnessVersionMismatch {
                recorded: version.to_owned(),
                actual: descriptor.version.clone(),
            });
        }
        Ok(())
    }
}

/// The tool call of the session's open turn that a resume with these means may
/// not answer by itself: nobody knows what became of it. Reads one record.
///
/// # Errors
/// The log's.
pub async fn unknown_effect(
    journal: &Journal,
    row: &SessionRow,
    tools: Option<&dyn ToolExecutor>,
    retry: ApprovedRetry,
) -> Result<Option<(Seq, ToolCall)>, ControllerError> {
    let (Some(executor), Some(view)) = (tools, row.view.pending()) else { return Ok(None) };
    let open = row.view.open_gate().map(|(_, gate)| gate);
    let (seq, gated) = match (open, view.unanswered) {
        (Some(gate), _) if matches!(gate.decision, Some((_, true))) => (gate.call, true),
        (None, Some(seq)) => (seq, false),
        _ => return Ok(None),
    };
    if gated && retry == ApprovedRetry::Always {
        return Ok(None);
    }
    let (call, notes) = recorded_call(journal, seq).await?;
    let is_settled =
        !is_unknown(&notes, !gated || notes.started) || is_repeatable(executor, &call.tool);
    Ok((!is_settled).then_some((seq, call)))
}

async fn recorded_call(
    journal: &Journal,
    seq: Seq,
) -> Result<(ToolCall, EffectNotes), ControllerError> {
    let mut found = (ToolCall::default(), EffectNotes::default());
    journal
        .read_range(seq, seq, |stored| {
            // One without a body is refused where it is compared.
            if let EventBody::ToolCall(Some(call)) = stored.event()?.body {
                found = (call, EffectNotes::of(&stored.notes));
            }
            Ok(())
        })
        .await?;
    Ok(found)
}

/// The gate that a turn waits for a decision on, if it does.
fn undecided<'a>(
    row: &SessionRow,
    view: &'a ExecutionView,
) -> Result<Option<&'a GateView>, ControllerError> {
    let Some(gate) = view.gate.as_ref().filter(|gate| gate.receipt.is_none()) else {
        return Ok(None);
    };
    if !row.view.owns(gate.call) {
        return Err(ControllerError::InheritedToolIntent(gate.call));
    }
    Ok(gate.decision.is_none().then_some(gate))
}

/// Whether an execution records who ran it.
pub(crate) fn names_harness(view: &ExecutionView) -> bool {
    view.start
        .as_ref()
        .is_some_and(|start| !start.harness.is_empty() || !start.harness_version.is_empty())
}
