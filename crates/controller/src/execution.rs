//! A recorded execution, read back.

use mainspring_api::{EventBody, ExecutionId, ExecutionStart, Message, Seq};
use mainspring_eventlog::{ExecutionView, SessionView};

use crate::controller::{Turn, TurnDigest};
use crate::error::ControllerError;
use crate::journal::Journal;
use crate::tape::Tape;

/// Records that are read first for an opening: most turns have few inputs.
const OPENING_RECORDS: u64 = 8;

/// How a recorded execution was started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    /// Its id; absent for a range without one.
    pub(crate) id: Option<ExecutionId>,
    pub(crate) start: ExecutionStart,
    pub(crate) inputs: Vec<Message>,
}

/// Reads the start and the inputs of the execution that begins at `first`, and
/// no further than it has to: a start says how many inputs there are.
pub(crate) async fn opening(
    journal: &Journal,
    first: Seq,
    last: Seq,
) -> Result<Opening, ControllerError> {
    let mut opening = Opening::default();
    let mut declared = None;
    let mut next = first;
    while next <= last {
        let upto = if next == first {
            last.min(Seq::new(first.get() + OPENING_RECORDS - 1))
        } else {
            last
        };
        for stored in journal.page(next, upto).await? {
            next = stored.seq.next();
            let event = stored.event()?;
            if stored.seq == first {
                opening.id.clone_from(&event.execution_id);
            } else if event.execution_id != opening.id {
                continue;
            }
            match event.body {
                EventBody::ExecutionStart(Some(start)) => {
                    declared = start.input_count.and_then(|count| usize::try_from(count).ok());
                    opening.start = start;
                }
                EventBody::Input(Some(message)) => opening.inputs.push(message),
                _ => {}
            }
            if declared.is_some_and(|declared| opening.inputs.len() >= declared) {
                return Ok(opening);
            }
        }
    }
    Ok(opening)
}

/// What tells a recorded turn from another one of its id, as
/// [`Turn::digest`](crate::Turn::digest). Reads its start and inputs only.
///
/// # Errors
/// The log's; an event that cannot be read.
pub async fn recorded_turn(
    journal: &Journal,
    view: &ExecutionView,
) -> Result<TurnDigest, ControllerError> {
    let Opening { start, inputs, .. } = opening(journal, view.first_seq, view.last_seq).await?;
    let turn =
        Turn { config: start.config, resume_from_seq: start.resume_from_seq, ..Turn::new(inputs) };
    turn.digest(&start.harness)
}

/// Refuses a tool call without approval that a fork copied without its result.
/// One result right after it among the effects answers it, also one that came
/// after the fork.
pub(crate) async fn refuse_inherited_intent(
    journal: &Journal,
    view: &ExecutionView,
    fork: Option<Seq>,
) -> Result<(), ControllerError> {
    let Some(fork) = fork.filter(|fork| *fork > view.first_seq) else { return Ok(()) };
    let mut tape = Tape::of(journal, &view.id, view.first_seq, view.last_seq);
    let mut unanswered: Option<Seq> = None;
    while let Some(effects) = tape.page().await? {
        for effect in effects {
            let answers = matches!(
                effect.body,
                // A gate is answered by its request; it is looked at as a gate.
                EventBody::ToolResult(_) | EventBody::ApprovalRequest(_)
            );
            if let Some(seq) = unanswered.take().filter(|_| !answers) {
                return Err(ControllerError::InheritedToolIntent(seq));
            }
            if effect.seq > fork {
                return Ok(());
            }
            if matches!(effect.body, EventBody::ToolCall(_)) {
                unanswered = Some(effect.seq);
            }
        }
    }
    match unanswered {
        Some(seq) => Err(ControllerError::InheritedToolIntent(seq)),
        None => Ok(()),
    }
}

/// Refuses ill-formed evidence of executions.
pub(crate) fn check_evidence(view: &SessionView) -> Result<(), ControllerError> {
    match view.legacy_fault.as_ref().or(view.evidence_fault.as_ref()) {
        Some(fault) => Err(ControllerError::invalid(fault.seq, &fault.what)),
        None => Ok(()),
    }
}

/// Refuses records without an id among those that have one: whose they are is
/// not known. What else is ill-formed in other executions is not looked at.
pub(crate) fn check_ids(view: &SessionView) -> Result<(), ControllerError> {
    match &view.legacy_fault {
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
    check_evidence(&row.view)?;
    let Some(view) = row.view.pending() else {
        return Ok(None);
    };
    check_inputs(view)?;
    if view.start.is_none() {
        return Ok(None);
    }
    let opening = opening(journal, view.first_seq, view.last_seq).await?;
    Ok(Some((view.id.clone(), opening.start)))
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
