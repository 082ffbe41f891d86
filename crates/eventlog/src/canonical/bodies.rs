//! Each message of the schema, member by member.

use std::fmt::Write as _;

use mainspring_api::{
    ApprovalRef, ApprovalRequest, ApprovalResult, Event, EventBody, ExecutionStart, FilePart,
    FileSource, HarnessEnd, IdentityRef, Lifecycle, LifecycleKind, Mediation, Message, ModelCall,
    Opaque, Part, ReasoningPart, RecordedError, ResultCode, Timestamp, ToolCall, ToolChoice,
    ToolChoiceMode, ToolDefinition, ToolResult, Usage,
};

use super::json::{write_map, write_string};
use super::names::{choice_name, code_name, lifecycle_name, mediation_name};
use super::object::Object;
use super::time::rfc3339;
use super::{CanonicalError, PART_DEPTH_MAX, Result};

pub(super) fn write_event(out: &mut String, event: &Event) -> Result<()> {
    use EventBody as B;
    let body = &event.body;
    let mut o = Object::open(out);
    if let Some(actor) = &event.actor {
        write_identity(o.key("actor"), actor);
    }
    match body {
        B::ApprovalRequest(Some(b)) => write_approval_request(o.key("approval"), b),
        B::ApprovalResult(Some(b)) => write_approval_result(o.key("approval_result"), b),
        B::End(Some(b)) => write_end(o.key("end"), b),
        B::Error(Some(b)) => write_error(o.key("error"), b),
        _ => {}
    }
    if let Some(id) = &event.execution_id {
        o.text("execution_id", id.as_str());
    }
    if let B::ExecutionStart(Some(b)) = body {
        write_execution_start(o.key("execution_start"), b);
    }
    if !matches!(body, B::Unspecified) {
        o.plain("kind", body.kind().name());
    }
    match body {
        B::Lifecycle(Some(b)) => write_lifecycle(o.key("lifecycle"), b),
        B::Input(Some(b)) | B::Output(Some(b)) => write_message(o.key("message"), b, 0)?,
        B::ModelCall(Some(b)) => write_model_call(o.key("model"), b)?,
        B::Parked(Some(b)) => write_approval_ref(o.key("parked"), b),
        B::ToolResult(Some(b)) => write_tool_result(o.key("result"), b, 0)?,
        _ => {}
    }
    o.int32("schema_version", event.schema_version);
    if let B::ToolCall(Some(b)) = body {
        write_tool_call(o.key("tool"), b)?;
    }
    if let Some(ts) = event.ts {
        write_timestamp(o.key("ts"), ts)?;
    }
    if let B::Usage(Some(b)) = body {
        write_usage(o.key("usage"), b);
    }
    o.close();
    Ok(())
}

fn write_identity(out: &mut String, identity: &IdentityRef) {
    let mut o = Object::open(out);
    o.text("issuer", &identity.issuer);
    o.text("principal", &identity.principal);
    o.text("subject", &identity.subject);
    o.close();
}

fn write_approval_request(out: &mut String, body: &ApprovalRequest) {
    let mut o = Object::open(out);
    o.text("reason", &body.reason);
    o.text("tool_call_id", &body.tool_call_id);
    o.close();
}

fn write_approval_result(out: &mut String, body: &ApprovalResult) {
    let mut o = Object::open(out);
    o.flag("approved", body.approved);
    o.text("reason", &body.reason);
    o.int64("request_seq", body.request_seq);
    o.text("tool_call_id", &body.tool_call_id);
    o.close();
}

fn write_approval_ref(out: &mut String, body: &ApprovalRef) {
    let mut o = Object::open(out);
    o.text("execution_id", &body.execution_id);
    o.int64("request_seq", body.request_seq);
    o.text("tool_call_id", &body.tool_call_id);
    o.close();
}

fn write_end(out: &mut String, body: &HarnessEnd) {
    let mut o = Object::open(out);
    if let Some(error) = &body.error {
        write_error(o.key("error"), error);
    }
    o.text("state", &body.state);
    o.close();
}

fn write_error(out: &mut String, body: &RecordedError) {
    let mut o = Object::open(out);
    o.int32("code", body.code);
    o.text("description", &body.description);
    o.close();
}

fn write_execution_start(out: &mut String, body: &ExecutionStart) {
    let mut o = Object::open(out);
    o.text("compute_instance", &body.compute_instance);
    if !body.config.is_empty() {
        o.bytes("config", &body.config);
    }
    o.text("harness", &body.harness);
    o.text("harness_version", &body.harness_version);
    if let Some(count) = body.input_count {
        let _ = write!(o.key("input_count"), "\"{count}\"");
    }
    o.text("model", &body.model);
    o.int64("resume_from_seq", body.resume_from_seq);
    o.close();
}

fn write_lifecycle(out: &mut String, body: &Lifecycle) {
    let mut o = Object::open(out);
    o.text("compute_instance", &body.compute_instance);
    o.text("detail", &body.detail);
    if body.kind != LifecycleKind::Unspecified {
        o.plain("kind", lifecycle_name(body.kind));
    }
    o.text("snapshot_external_uri", &body.snapshot.external_uri);
    o.text("snapshot_local", &body.snapshot.local);
    o.flag("snapshot_memory", body.snapshot.memory);
    o.flag("snapshot_sealed", body.snapshot.sealed);
    o.close();
}

fn write_message(out: &mut String, message: &Message, depth: usize) -> Result<()> {
    let mut o = Object::open(out);
    o.list("parts", &message.parts, |out, part| write_part(out, part, depth))?;
    o.text("role", &message.role);
    o.close();
    Ok(())
}

fn write_part(out: &mut String, part: &Part, depth: usize) -> Result<()> {
    if depth >= PART_DEPTH_MAX {
        return Err(CanonicalError::PartsTooDeep);
    }
    let mut o = Object::open(out);
    match part {
        Part::Empty => {}
        Part::Text(text) => {
            let mut inner = Object::open(o.key("text"));
            inner.text("text", text);
            inner.close();
        }
        Part::File(file) => write_file(o.key("file"), file),
        Part::Data(data) => {
            let mut inner = Object::open(o.key("data"));
            inner.object("data", data.data.as_ref())?;
            inner.close();
        }
        Part::Reasoning(reasoning) => write_reasoning(o.key("reasoning"), reasoning, depth)?,
        Part::ToolCall(call) => write_tool_call(o.key("tool_call"), call)?,
        Part::ToolResult(result) => write_tool_result(o.key("tool_result"), result, depth + 1)?,
    }
    o.close();
    Ok(())
}

fn write_file(out: &mut String, file: &FilePart) {
    let mut o = Object::open(out);
    if let Some(FileSource::Bytes(bytes)) = &file.source {
        o.bytes("bytes", bytes);
    }
    o.text("digest", &file.digest);
    o.text("mime", &file.mime);
    o.text("name", &file.name);
    if let Some(FileSource::Uri(uri)) = &file.source {
        write_string(o.key("uri"), uri);
    }
    o.close();
}

fn write_reasoning(out: &mut String, part: &ReasoningPart, depth: usize) -> Result<()> {
    let mut o = Object::open(out);
    o.text("item_id", &part.item_id);
    o.text("model_id", &part.model_id);
    if let Some(Opaque::Bytes(bytes)) = &part.opaque {
        o.bytes("opaque_bytes", bytes);
    }
    o.text("opaque_digest", &part.opaque_digest);
    if let Some(Opaque::Uri(uri)) = &part.opaque {
        write_string(o.key("opaque_uri"), uri);
    }
    o.int32("ordinal", part.ordinal);
    o.text("provider", &part.provider);
    o.list("summary", &part.summary, |out, part| write_part(out, part, depth + 1))?;
    o.text("validity_scope", &part.validity_scope);
    o.close();
    Ok(())
}

pub(super) fn write_tool_call(out: &mut String, call: &ToolCall) -> Result<()> {
    let mut o = Object::open(out);
    o.object("args", call.args.as_ref())?;
    o.text("id", &call.id);
    o.text("idempotency_key", &call.idempotency_key);
    if call.mediation != Mediation::Unspecified {
        o.plain("mediation", mediation_name(call.mediation));
    }
    o.text("tool", &call.tool);
    o.close();
    Ok(())
}

fn write_tool_result(out: &mut String, result: &ToolResult, depth: usize) -> Result<()> {
    let mut o = Object::open(out);
    o.int64("approval_decision_seq", result.approval_decision_seq);
    o.int64("approval_request_seq", result.approval_request_seq);
    if result.code != ResultCode::Unspecified {
        o.plain("code", code_name(result.code));
    }
    o.list("content", &result.content, |out, part| write_part(out, part, depth))?;
    o.text("error", &result.error);
    o.text("id", &result.id);
    o.flag("is_error", result.is_error);
    o.object("output", result.output.as_ref())?;
    o.text("output_digest", &result.output_digest);
    o.text("output_uri", &result.output_uri);
    o.close();
    Ok(())
}

fn write_model_call(out: &mut String, call: &ModelCall) -> Result<()> {
    let mut o = Object::open(out);
    o.text("id", &call.id);
    o.text("input_hash", &call.input_hash);
    o.list("messages", &call.messages, |out, message| write_message(out, message, 0))?;
    o.text("model", &call.model);
    if !call.params.is_empty() {
        write_map(o.key("params"), &call.params, |out, value| {
            write_string(out, value);
            Ok::<(), CanonicalError>(())
        })?;
    }
    if let Some(choice) = &call.tool_choice {
        write_tool_choice(o.key("tool_choice"), choice);
    }
    o.list("tools", &call.tools, write_tool_definition)?;
    o.close();
    Ok(())
}

fn write_tool_choice(out: &mut String, choice: &ToolChoice) {
    let mut o = Object::open(out);
    if choice.mode != ToolChoiceMode::Unspecified {
        o.plain("mode", choice_name(choice.mode));
    }
    o.text("name", &choice.name);
    o.close();
}

fn write_tool_definition(out: &mut String, tool: &ToolDefinition) -> Result<()> {
    let mut o = Object::open(out);
    o.text("description", &tool.description);
    o.object("input_schema", tool.input_schema.as_ref())?;
    o.text("name", &tool.name);
    o.close();
    Ok(())
}

fn write_usage(out: &mut String, usage: &Usage) {
    let mut o = Object::open(out);
    o.int64("input_tokens", usage.input_tokens);
    o.text("model", &usage.model);
    o.int64("output_tokens", usage.output_tokens);
    o.int64("reasoning_tokens", usage.reasoning_tokens);
    o.close();
}

fn write_timestamp(out: &mut String, ts: Timestamp) -> Result<()> {
    if !ts.is_valid() {
        return Err(CanonicalError::Timestamp);
    }
    out.push('"');
    out.push_str(&rfc3339(ts));
    out.push('"');
    Ok(())
}
