//! What a harness says, as far as it is judged before the sink sees it.

use mainspring_api::{Condition, Event, HarnessError, Message, Part, SinkError};
use mainspring_wire::{WireError, v1};
use tonic::Status;

use crate::status::{Effect, from_status};

pub(crate) fn protocol(rule: impl Into<String>) -> HarnessError {
    HarnessError::Protocol { message: rule.into() }
}

pub(crate) fn unreadable(error: WireError) -> HarnessError {
    protocol(error.to_string())
}

/// The event, or why it is none. What a report says about a receipt is judged
/// as such, also when this side could not hold it.
pub(crate) fn read(message: v1::Event) -> Result<Event, HarnessError> {
    if let Some(v1::event::Body::Result(result)) = &message.body
        && forges_receipt(result)
    {
        return Err(SinkError::ApprovalReceiptReport.into());
    }
    Event::try_from(message).map_err(unreadable)
}

/// Receipt fields that no host has ever set. The controller judges the others.
fn forges_receipt(result: &v1::ToolResult) -> bool {
    v1::tool_result::Code::try_from(result.code).is_err()
        || result.approval_request_seq < 0
        || result.approval_decision_seq < 0
}

/// The error of a call that never came here, because the harness's side refused
/// it for the host. In process it would be this one; no other is taken from a
/// status, because no other is decided there.
pub(crate) fn refused_there(status: &Status) -> Option<SinkError> {
    match from_status(status, Effect::Write).condition() {
        Condition::ApprovalReceiptReport => Some(SinkError::ApprovalReceiptReport),
        Condition::InvalidToolArgs => Some(SinkError::InvalidToolArgs),
        Condition::MissingSessionUid => Some(SinkError::MissingSessionUid),
        Condition::InvalidApprovalCall => {
            Some(SinkError::InvalidApprovalCall("the harness refused it"))
        }
        _ => None,
    }
}

/// The text of an output. Parts that would be lost fail the turn by name.
pub(crate) fn text_only(message: &Message) -> Result<String, HarnessError> {
    let other = message.parts.iter().find_map(|part| match part {
        Part::Text(_) => None,
        Part::Empty => Some("an empty"),
        Part::File(_) => Some("a file"),
        Part::Data(_) => Some("a data"),
        Part::Reasoning(_) => Some("a reasoning"),
        Part::ToolCall(_) => Some("a tool call"),
        Part::ToolResult(_) => Some("a tool result"),
    });
    match other {
        None => Ok(message.plain_text()),
        Some(part) => Err(protocol(format!("output has {part} part; only text can be recorded"))),
    }
}
