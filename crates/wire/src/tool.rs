//! Tool calls, results and declarations.

use mainspring_api::{ToolCall, ToolDefinition, ToolResult, ToolSpec};

use crate::enums::{code_from, code_to, mediation_from, mediation_to};
use crate::error::{WireError, each, optional};
use crate::json::{json_from_struct, struct_from_json};
use crate::message::{part_from, part_to};
use crate::v1;

impl TryFrom<ToolCall> for v1::ToolCall {
    type Error = WireError;

    fn try_from(call: ToolCall) -> Result<Self, WireError> {
        Ok(Self {
            id: call.id,
            tool: call.tool,
            args: optional("args", call.args, struct_from_json)?,
            mediation: mediation_to(call.mediation),
            idempotency_key: call.idempotency_key,
        })
    }
}

impl TryFrom<v1::ToolCall> for ToolCall {
    type Error = WireError;

    fn try_from(call: v1::ToolCall) -> Result<Self, WireError> {
        Ok(Self {
            id: call.id,
            tool: call.tool,
            args: optional("args", call.args, json_from_struct)?,
            mediation: mediation_from("mediation", call.mediation)?,
            idempotency_key: call.idempotency_key,
        })
    }
}

/// Leaves out `decision`, which is never serialised.
impl TryFrom<ToolResult> for v1::ToolResult {
    type Error = WireError;

    fn try_from(result: ToolResult) -> Result<Self, WireError> {
        tool_result_to(result, 0)
    }
}

impl TryFrom<v1::ToolResult> for ToolResult {
    type Error = WireError;

    fn try_from(result: v1::ToolResult) -> Result<Self, WireError> {
        tool_result_from(result, 0)
    }
}

/// `level` is that of the content's parts.
pub(crate) fn tool_result_to(
    result: ToolResult,
    level: usize,
) -> Result<v1::ToolResult, WireError> {
    Ok(v1::ToolResult {
        id: result.id,
        output: optional("output", result.output, struct_from_json)?,
        output_uri: result.output_uri,
        output_digest: result.output_digest,
        is_error: result.is_error,
        error: result.error,
        content: each("content", result.content, |part| part_to(part, level))?,
        code: code_to(result.code),
        approval_request_seq: result.approval_request_seq,
        approval_decision_seq: result.approval_decision_seq,
    })
}

/// `level` is that of the content's parts.
pub(crate) fn tool_result_from(
    result: v1::ToolResult,
    level: usize,
) -> Result<ToolResult, WireError> {
    let position = |field: &str, number: i64| {
        if number < 0 {
            return Err(WireError::out_of_range(field, number));
        }
        Ok(number)
    };
    Ok(ToolResult {
        id: result.id,
        output: optional("output", result.output, json_from_struct)?,
        output_uri: result.output_uri,
        output_digest: result.output_digest,
        is_error: result.is_error,
        error: result.error,
        content: each("content", result.content, |part| part_from(part, level))?,
        code: code_from("code", result.code)?,
        approval_request_seq: position("approval_request_seq", result.approval_request_seq)?,
        approval_decision_seq: position("approval_decision_seq", result.approval_decision_seq)?,
        decision: None,
    })
}

impl From<ToolSpec> for v1::ToolSpec {
    fn from(spec: ToolSpec) -> Self {
        Self {
            name: spec.name,
            description: spec.description,
            mediation: mediation_to(spec.mediation),
        }
    }
}

impl TryFrom<v1::ToolSpec> for ToolSpec {
    type Error = WireError;

    fn try_from(spec: v1::ToolSpec) -> Result<Self, WireError> {
        Ok(Self {
            name: spec.name,
            description: spec.description,
            mediation: mediation_from("mediation", spec.mediation)?,
        })
    }
}

impl TryFrom<ToolDefinition> for v1::ToolDefinition {
    type Error = WireError;

    fn try_from(tool: ToolDefinition) -> Result<Self, WireError> {
        Ok(Self {
            name: tool.name,
            description: tool.description,
            input_schema: optional("input_schema", tool.input_schema, struct_from_json)?,
        })
    }
}

impl TryFrom<v1::ToolDefinition> for ToolDefinition {
    type Error = WireError;

    fn try_from(tool: v1::ToolDefinition) -> Result<Self, WireError> {
        Ok(Self {
            name: tool.name,
            description: tool.description,
            input_schema: optional("input_schema", tool.input_schema, json_from_struct)?,
        })
    }
}
