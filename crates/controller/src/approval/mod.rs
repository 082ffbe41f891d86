//! Approvals: their evidence, their state, and decisions.

mod decide;
mod inspect;
mod scan;

pub use decide::{Approval, EXPIRY_PRINCIPAL, approve};
pub use inspect::{ApprovalState, inspect_approval};

pub(crate) use decide::decision_event;
pub(crate) use scan::{check_approvals, scan_approvals};

use mainspring_api::{Part, ResultCode, Seq, ToolResult};

/// What a receipt of a denied call says, whatever the reason was.
pub(crate) const DENIED_TEXT: &str = "Tool execution denied by approval decision.";

/// Which gate a receipt is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) call_id: &'a str,
    pub(crate) request: Seq,
    pub(crate) decision: Seq,
}

impl Binding<'_> {
    /// The receipt of a call that was not run because a person said no.
    pub(crate) fn denied(self) -> ToolResult {
        self.stamp(ToolResult {
            is_error: true,
            error: DENIED_TEXT.to_owned(),
            content: vec![Part::Text(DENIED_TEXT.to_owned())],
            code: ResultCode::ApprovalDenied,
            ..ToolResult::default()
        })
    }

    /// The receipt of a call whose executor failed with these words.
    pub(crate) fn failed(self, error: String) -> ToolResult {
        self.stamp(ToolResult {
            is_error: true,
            content: vec![Part::Text(error.clone())],
            error,
            code: ResultCode::ExecutorError,
            ..ToolResult::default()
        })
    }

    /// The receipt of a call whose executor gave this reply. What only the host
    /// may say is overwritten.
    pub(crate) fn replied(self, reply: ToolResult) -> ToolResult {
        let code = if reply.is_error { ResultCode::ExecutorError } else { ResultCode::Unspecified };
        self.stamp(ToolResult { code, ..reply })
    }

    fn stamp(self, result: ToolResult) -> ToolResult {
        ToolResult {
            id: self.call_id.to_owned(),
            approval_request_seq: self.request.as_i64(),
            approval_decision_seq: self.decision.as_i64(),
            decision: None,
            ..result
        }
    }
}
