//! What the frames that answer a tool call must say.

use mainspring_api::{ApprovalRef, ApprovalResult, ResultCode, ToolResult};

use crate::harness::link::LinkError;

/// A park names the very call that waits, and a recorded request.
pub(crate) fn check_park(
    park: &ApprovalRef,
    execution_id: &str,
    call_id: &str,
) -> Result<(), LinkError> {
    if park.execution_id == execution_id && park.tool_call_id == call_id && park.request().is_some()
    {
        return Ok(());
    }
    Err(LinkError::protocol("park does not name the tool call that waits"))
}

/// A decision names the call and a recorded request.
pub(crate) fn check_approval(approval: &ApprovalResult, call_id: &str) -> Result<(), LinkError> {
    if approval.tool_call_id == call_id && approval.request_seq > 0 {
        return Ok(());
    }
    Err(LinkError::protocol("approval does not name the tool call that waits"))
}

/// The receipt that follows a decision belongs to it and agrees with it.
pub(crate) fn check_receipt(
    result: &ToolResult,
    approval: &ApprovalResult,
    call_id: &str,
) -> Result<(), LinkError> {
    check_id(result, call_id)?;
    if result.approval_request_seq != approval.request_seq || result.approval_decision_seq < 1 {
        return Err(LinkError::protocol("tool receipt does not name the approval before it"));
    }
    let agrees = if approval.approved {
        matches!(
            (result.code, result.is_error),
            (ResultCode::Unspecified, false) | (ResultCode::ExecutorError, true)
        )
    } else {
        result.code == ResultCode::ApprovalDenied && result.is_error
    };
    if agrees {
        return Ok(());
    }
    Err(LinkError::protocol("status of the tool result contradicts the decision"))
}

/// The result of a call without a gate carries nothing of one.
pub(crate) fn check_ungated(result: &ToolResult, call_id: &str) -> Result<(), LinkError> {
    check_id(result, call_id)?;
    if carries_receipt(result) {
        return Err(LinkError::protocol(
            "tool result carries an approval receipt without an approval",
        ));
    }
    Ok(())
}

/// Whether fields are set that only the host may set, on a gated call.
pub(crate) fn carries_receipt(result: &ToolResult) -> bool {
    result.approval_request_seq != 0
        || result.approval_decision_seq != 0
        || result.code == ResultCode::ApprovalDenied
        || result.decision.is_some()
}

fn check_id(result: &ToolResult, call_id: &str) -> Result<(), LinkError> {
    if result.id == call_id {
        return Ok(());
    }
    Err(LinkError::protocol("correlation: tool result has the id of another call"))
}
