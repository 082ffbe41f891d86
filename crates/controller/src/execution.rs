//! A recorded execution, read back.

use mainspring_api::{EventBody, ExecutionId, ExecutionStart, Mediation, Message, Seq};
use mainspring_eventlog::{ExecutionView, SessionRow};

use crate::error::ControllerError;
use crate::journal::Journal;
use crate::recorded::Effect;

/// What an execution's records say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    pub(crate) start: ExecutionStart,
    pub(crate) inputs: Vec<Message>,
    pub(crate) effects: Vec<Effect>,
}

/// Reads the records of one execution.
pub(crate) async fn load(
    journal: &Journal,
    view: &ExecutionView,
) -> Result<Recorded, ControllerError> {
    let mut recorded = Recorded::default();
    journal
        .read_range(view.first_seq, view.last_seq, |stored| {
            let event = stored.event()?;
            if event.execution_id.as_ref() != Some(&view.id) {
                return Ok(());
            }
            match event.body {
                EventBody::ExecutionStart(Some(start)) => recorded.start = start,
                EventBody::Input(Some(message)) => recorded.inputs.push(message),
                body => recorded.effects.extend(Effect::of(stored.seq, body, &stored.notes)),
            }
            Ok(())
        })
        .await?;
    Ok(recorded)
}

impl Recorded {
    /// Refuses by name what this version cannot drive or serve.
    pub(crate) fn refuse_tools(&self) -> Result<(), ControllerError> {
        let gated = self.effects.iter().any(|effect| match &effect.body {
            EventBody::ToolCall(Some(call)) => call.mediation == Mediation::RequiresApproval,
            EventBody::ApprovalRequest(_) | EventBody::ApprovalResult(_) => true,
            _ => false,
        });
        if gated {
            return Err(ControllerError::Unsupported("a recorded tool call with approval"));
        }
        if self.effects.iter().any(|effect| matches!(effect.body, EventBody::ToolCall(_))) {
            return Err(ControllerError::Unsupported("a recorded mediated tool call"));
        }
        Ok(())
    }

    /// Refuses a tool call that a fork copied without its result.
    pub(crate) fn refuse_inherited_intent(&self, fork: Option<Seq>) -> Result<(), ControllerError> {
        let Some(fork) = fork else { return Ok(()) };
        for (index, effect) in self.effects.iter().enumerate() {
            if effect.seq >= fork || !matches!(effect.body, EventBody::ToolCall(_)) {
                continue;
            }
            let next = self.effects.get(index + 1).map(|effect| &effect.body);
            if !matches!(next, Some(EventBody::ToolResult(_) | EventBody::ApprovalRequest(_))) {
                return Err(ControllerError::InheritedToolIntent(effect.seq));
            }
        }
        Ok(())
    }
}

/// Refuses ill-formed evidence of executions.
pub(crate) fn check_evidence(row: &SessionRow) -> Result<(), ControllerError> {
    let view = &row.view;
    match view.legacy_fault.as_ref().or(view.evidence_fault.as_ref()) {
        Some(fault) => Err(ControllerError::invalid(fault.seq, &fault.what)),
        None => Ok(()),
    }
}

/// The start of the pending execution, as it was recorded; none for an empty,
/// finished or start-less journal. Reads only.
///
/// # Errors
/// The same evidence errors as a resume.
pub async fn resume_invocation(
    journal: &Journal,
) -> Result<Option<(ExecutionId, ExecutionStart)>, ControllerError> {
    let row = journal.open().await?;
    check_evidence(&row)?;
    let Some(view) = row.view.pending() else {
        return Ok(None);
    };
    check_inputs(view)?;
    if view.start.is_none() {
        return Ok(None);
    }
    let recorded = load(journal, view).await?;
    Ok(Some((view.id.clone(), recorded.start)))
}

/// Refuses a pending execution that lacks inputs.
pub(crate) fn check_inputs(view: &ExecutionView) -> Result<(), ControllerError> {
    match view.missing_inputs() {
        0 => Ok(()),
        missing => {
            Err(ControllerError::IncompleteInvocation { execution: view.id.clone(), missing })
        }
    }
}
