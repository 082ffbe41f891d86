//! Messages and parts.

use mainspring_api::{DataPart, FilePart, FileSource, Message, Opaque, Part, ReasoningPart};

use crate::error::{FieldPath, WireError, Within as _, each, optional};
use crate::json::{json_from_struct, struct_from_json};
use crate::tool::{tool_result_from, tool_result_to};
use crate::v1;

/// How many parts may be nested in one another (in a reasoning summary or in
/// a tool result's content).
///
/// Protobuf decoders stop at 100 levels. A part costs two, free-form JSON of
/// the greatest depth 72, and the messages around them at most six.
pub const PART_DEPTH_MAX: usize = 8;

impl TryFrom<Message> for v1::Message {
    type Error = WireError;

    fn try_from(message: Message) -> Result<Self, WireError> {
        Ok(Self {
            role: message.role,
            parts: each("parts", message.parts, |part| part_to(part, 0))?,
        })
    }
}

impl TryFrom<v1::Message> for Message {
    type Error = WireError;

    fn try_from(message: v1::Message) -> Result<Self, WireError> {
        Ok(Self {
            role: message.role,
            parts: each("parts", message.parts, |part| part_from(part, 0))?,
        })
    }
}

impl TryFrom<Part> for v1::Part {
    type Error = WireError;

    fn try_from(part: Part) -> Result<Self, WireError> {
        part_to(part, 0)
    }
}

impl TryFrom<v1::Part> for Part {
    type Error = WireError;

    fn try_from(part: v1::Part) -> Result<Self, WireError> {
        part_from(part, 0)
    }
}

fn check_level(level: usize) -> Result<(), WireError> {
    if level < PART_DEPTH_MAX {
        return Ok(());
    }
    Err(WireError::TooDeep { path: FieldPath::default(), what: "parts", depth_max: PART_DEPTH_MAX })
}

pub(crate) fn part_to(part: Part, level: usize) -> Result<v1::Part, WireError> {
    use v1::part::Part as Member;
    check_level(level)?;
    let part = match part {
        Part::Empty => None,
        Part::Text(text) => Some(Member::Text(v1::TextPart { text })),
        Part::File(file) => Some(Member::File(file_to(file))),
        Part::Data(part) => Some(Member::Data(v1::DataPart {
            data: optional("data.data", part.data, struct_from_json)?,
        })),
        Part::Reasoning(part) => {
            Some(Member::Reasoning(reasoning_to(part, level).within("reasoning")?))
        }
        Part::ToolCall(call) => Some(Member::ToolCall(call.try_into().within("tool_call")?)),
        Part::ToolResult(result) => {
            Some(Member::ToolResult(tool_result_to(result, level + 1).within("tool_result")?))
        }
    };
    Ok(v1::Part { part })
}

pub(crate) fn part_from(part: v1::Part, level: usize) -> Result<Part, WireError> {
    use v1::part::Part as Member;
    check_level(level)?;
    Ok(match part.part {
        None => Part::Empty,
        Some(Member::Text(part)) => Part::Text(part.text),
        Some(Member::File(file)) => Part::File(file_from(file)),
        Some(Member::Data(part)) => {
            Part::Data(DataPart { data: optional("data.data", part.data, json_from_struct)? })
        }
        Some(Member::Reasoning(part)) => {
            Part::Reasoning(reasoning_from(part, level).within("reasoning")?)
        }
        Some(Member::ToolCall(call)) => Part::ToolCall(call.try_into().within("tool_call")?),
        Some(Member::ToolResult(result)) => {
            Part::ToolResult(tool_result_from(result, level + 1).within("tool_result")?)
        }
    })
}

fn file_to(file: FilePart) -> v1::FilePart {
    use v1::file_part::Source;
    v1::FilePart {
        mime: file.mime,
        name: file.name,
        digest: file.digest,
        source: file.source.map(|source| match source {
            FileSource::Bytes(bytes) => Source::Bytes(bytes),
            FileSource::Uri(uri) => Source::Uri(uri),
        }),
    }
}

fn file_from(file: v1::FilePart) -> FilePart {
    use v1::file_part::Source;
    FilePart {
        mime: file.mime,
        name: file.name,
        digest: file.digest,
        source: file.source.map(|source| match source {
            Source::Bytes(bytes) => FileSource::Bytes(bytes),
            Source::Uri(uri) => FileSource::Uri(uri),
        }),
    }
}

fn reasoning_to(part: ReasoningPart, level: usize) -> Result<v1::ReasoningPart, WireError> {
    use v1::reasoning_part::Opaque as Wire;
    Ok(v1::ReasoningPart {
        provider: part.provider,
        model_id: part.model_id,
        opaque: part.opaque.map(|opaque| match opaque {
            Opaque::Bytes(bytes) => Wire::OpaqueBytes(bytes),
            Opaque::Uri(uri) => Wire::OpaqueUri(uri),
        }),
        summary: each("summary", part.summary, |part| part_to(part, level + 1))?,
        item_id: part.item_id,
        ordinal: part.ordinal,
        validity_scope: part.validity_scope,
        opaque_digest: part.opaque_digest,
    })
}

fn reasoning_from(part: v1::ReasoningPart, level: usize) -> Result<ReasoningPart, WireError> {
    use v1::reasoning_part::Opaque as Wire;
    Ok(ReasoningPart {
        provider: part.provider,
        model_id: part.model_id,
        opaque: part.opaque.map(|opaque| match opaque {
            Wire::OpaqueBytes(bytes) => Opaque::Bytes(bytes),
            Wire::OpaqueUri(uri) => Opaque::Uri(uri),
        }),
        summary: each("summary", part.summary, |part| part_from(part, level + 1))?,
        item_id: part.item_id,
        ordinal: part.ordinal,
        validity_scope: part.validity_scope,
        opaque_digest: part.opaque_digest,
    })
}
