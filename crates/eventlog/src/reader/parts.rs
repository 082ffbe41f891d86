//! Messages, parts, model calls and tools.

use mainspring_api::{
    DataPart, FilePart, FileSource, Mediation, Message, ModelCall, Opaque, Part, ReasoningPart,
    ResultCode, ToolCall, ToolChoice, ToolChoiceMode, ToolDefinition, ToolResult,
};

use super::ReadError;
use super::fields::Fields;
use crate::canonical::{PART_DEPTH_MAX, choice_name, code_name, mediation_name};

type Result<T> = std::result::Result<T, ReadError>;

pub(super) fn message(mut f: Fields) -> Result<Message> {
    let message = Message { role: f.text("role")?, parts: parts(&mut f, "parts", 0)? };
    f.end()?;
    Ok(message)
}

fn parts(f: &mut Fields, key: &str, depth: usize) -> Result<Vec<Part>> {
    f.list(key)?.into_iter().map(|item| part(item, depth)).collect()
}

fn part(mut f: Fields, depth: usize) -> Result<Part> {
    if depth >= PART_DEPTH_MAX {
        return Err(f.too_deep());
    }
    let Some(key) = f.one_key()? else {
        return Ok(Part::Empty);
    };
    let member = |f: &mut Fields| {
        f.object(&key).map(|inner| inner.expect("one_key names a member that is there"))
    };
    match key.as_str() {
        "text" => {
            let mut inner = member(&mut f)?;
            let text = inner.text("text")?;
            inner.end()?;
            Ok(Part::Text(text))
        }
        "file" => file(member(&mut f)?).map(Part::File),
        "data" => {
            let mut inner = member(&mut f)?;
            let data = inner.free("data")?;
            inner.end()?;
            Ok(Part::Data(DataPart { data }))
        }
        "reasoning" => reasoning(member(&mut f)?, depth).map(Part::Reasoning),
        "tool_call" => tool_call(member(&mut f)?).map(Part::ToolCall),
        "tool_result" => tool_result(member(&mut f)?, depth + 1).map(Part::ToolResult),
        _ => Err(f.unsupported("field", &key)),
    }
}

fn file(mut f: Fields) -> Result<FilePart> {
    let bytes = f.bytes("bytes")?.map(FileSource::Bytes);
    let uri = f.optional_text("uri")?.map(FileSource::Uri);
    let part = FilePart {
        mime: f.text("mime")?,
        source: one_of(&f, bytes, uri)?,
        name: f.text("name")?,
        digest: f.text("digest")?,
    };
    f.end()?;
    Ok(part)
}

fn reasoning(mut f: Fields, depth: usize) -> Result<ReasoningPart> {
    let bytes = f.bytes("opaque_bytes")?.map(Opaque::Bytes);
    let uri = f.optional_text("opaque_uri")?.map(Opaque::Uri);
    let part = ReasoningPart {
        provider: f.text("provider")?,
        model_id: f.text("model_id")?,
        opaque: one_of(&f, bytes, uri)?,
        summary: parts(&mut f, "summary", depth + 1)?,
        item_id: f.text("item_id")?,
        ordinal: f.int32("ordinal")?,
        validity_scope: f.text("validity_scope")?,
        opaque_digest: f.text("opaque_digest")?,
    };
    f.end()?;
    Ok(part)
}

fn one_of<T>(f: &Fields, first: Option<T>, second: Option<T>) -> Result<Option<T>> {
    match (first, second) {
        (Some(_), Some(_)) => Err(f.both_set()),
        (first, second) => Ok(first.or(second)),
    }
}

pub(super) fn tool_call(mut f: Fields) -> Result<ToolCall> {
    const MEDIATIONS: [Mediation; 4] = [
        Mediation::Unspecified,
        Mediation::InHarnessReported,
        Mediation::ControllerMediated,
        Mediation::RequiresApproval,
    ];
    let call = ToolCall {
        id: f.text("id")?,
        tool: f.text("tool")?,
        args: f.free("args")?,
        mediation: f.name("mediation", &MEDIATIONS, mediation_name)?,
        idempotency_key: f.text("idempotency_key")?,
    };
    f.end()?;
    Ok(call)
}

pub(super) fn tool_result(mut f: Fields, depth: usize) -> Result<ToolResult> {
    const CODES: [ResultCode; 3] =
        [ResultCode::Unspecified, ResultCode::ApprovalDenied, ResultCode::ExecutorError];
    let result = ToolResult {
        id: f.text("id")?,
        output: f.free("output")?,
        output_uri: f.text("output_uri")?,
        output_digest: f.text("output_digest")?,
        is_error: f.flag("is_error")?,
        error: f.text("error")?,
        content: parts(&mut f, "content", depth)?,
        code: f.name("code", &CODES, code_name)?,
        approval_request_seq: f.int64("approval_request_seq")?,
        approval_decision_seq: f.int64("approval_decision_seq")?,
        decision: None,
    };
    f.end()?;
    Ok(result)
}

pub(super) fn model_call(mut f: Fields) -> Result<ModelCall> {
    let call = ModelCall {
        model: f.text("model")?,
        params: f.strings("params")?,
        input_hash: f.text("input_hash")?,
        id: f.text("id")?,
        messages: f.list("messages")?.into_iter().map(message).collect::<Result<_>>()?,
        tools: f.list("tools")?.into_iter().map(tool_definition).collect::<Result<_>>()?,
        tool_choice: f.object("tool_choice")?.map(tool_choice).transpose()?,
    };
    f.end()?;
    Ok(call)
}

fn tool_definition(mut f: Fields) -> Result<ToolDefinition> {
    let tool = ToolDefinition {
        name: f.text("name")?,
        description: f.text("description")?,
        input_schema: f.free("input_schema")?,
    };
    f.end()?;
    Ok(tool)
}

fn tool_choice(mut f: Fields) -> Result<ToolChoice> {
    const MODES: [ToolChoiceMode; 4] = [
        ToolChoiceMode::Unspecified,
        ToolChoiceMode::Auto,
        ToolChoiceMode::None,
        ToolChoiceMode::Required,
    ];
    let choice = ToolChoice { mode: f.name("mode", &MODES, choice_name)?, name: f.text("name")? };
    f.end()?;
    Ok(choice)
}
