//! Recorded effects, and the one form in which values are recorded and handed on.

use mainspring_api::{
    Bytes, Event, EventBody, FileSource, Json, JsonObject, Message, ModelReply, Notes, Opaque,
    Part, Seq, Usage,
};
use mainspring_eventlog::{LogError, json, reader};

/// Note beside an output: the usage that the provider returned.
pub(crate) const USAGE_NOTE: &str = "usage";

/// One recorded effect of an execution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effect {
    pub(crate) seq: Seq,
    pub(crate) body: EventBody,
    /// The usage noted beside an output.
    pub(crate) usage: Option<Usage>,
}

impl Effect {
    /// The effect of a record, or `None` when it is none.
    pub(crate) fn of(seq: Seq, body: EventBody, notes: &Notes) -> Option<Self> {
        let is_effect = matches!(
            body,
            EventBody::ModelCall(_)
                | EventBody::Output(_)
                | EventBody::ToolCall(_)
                | EventBody::ToolResult(_)
                | EventBody::ApprovalRequest(_)
                | EventBody::ApprovalResult(_)
                | EventBody::Usage(_)
        );
        is_effect.then(|| Self {
            seq,
            body,
            usage: notes.get(USAGE_NOTE).and_then(|n| read_usage(n)),
        })
    }
}

/// The usage note of a reply; none for a reply without figures.
pub(crate) fn usage_note(reply: &ModelReply) -> Option<String> {
    let usage = &reply.usage;
    if *usage == Usage::default() {
        return None;
    }
    let text = |value: &str| Json::String(value.to_owned());
    let members: JsonObject = [
        ("model", text(&usage.model)),
        ("input_tokens", text(&usage.input_tokens.to_string())),
        ("output_tokens", text(&usage.output_tokens.to_string())),
        ("reasoning_tokens", text(&usage.reasoning_tokens.to_string())),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    mainspring_eventlog::canonical::json_text(&Json::Object(members)).ok()
}

fn read_usage(note: &str) -> Option<Usage> {
    let members = json::parse_object(note.as_bytes()).ok()?;
    let text = |key: &str| match members.get(key) {
        Some(Json::String(text)) => Some(text.clone()),
        _ => None,
    };
    let number = |key: &str| text(key)?.parse().ok();
    Some(Usage {
        model: text("model")?,
        input_tokens: number("input_tokens")?,
        output_tokens: number("output_tokens")?,
        reasoning_tokens: number("reasoning_tokens")?,
    })
}

/// Removes what a host never records: empty sources, transient decisions.
pub(crate) fn normalise(message: &mut Message) {
    normalise_parts(&mut message.parts);
}

fn normalise_parts(parts: &mut [Part]) {
    for part in parts {
        match part {
            Part::File(file) => {
                let empty = match &file.source {
                    Some(FileSource::Bytes(bytes)) => bytes.is_empty(),
                    Some(FileSource::Uri(uri)) => uri.is_empty(),
                    None => true,
                };
                if empty {
                    file.source = None;
                }
            }
            Part::Reasoning(reasoning) => {
                let empty = match &reasoning.opaque {
                    Some(Opaque::Bytes(bytes)) => bytes.is_empty(),
                    Some(Opaque::Uri(uri)) => uri.is_empty(),
                    None => true,
                };
                if empty {
                    reasoning.opaque = None;
                }
                normalise_parts(&mut reasoning.summary);
            }
            Part::ToolResult(result) => {
                result.decision = None;
                normalise_parts(&mut result.content);
            }
            Part::Empty | Part::Text(_) | Part::Data(_) | Part::ToolCall(_) => {}
        }
    }
}

/// The event as a reader will get it, so that live and replay see the same.
///
/// Only free-form numbers can differ (minus zero), so plain text is not decoded.
pub(crate) fn recorded_form(canonical: &Bytes, event: &Event) -> Result<Event, LogError> {
    let plain = match &event.body {
        EventBody::Input(Some(message)) | EventBody::Output(Some(message)) => {
            message.parts.iter().all(|part| matches!(part, Part::Text(_) | Part::Empty))
        }
        EventBody::ToolCall(_) | EventBody::ToolResult(_) => false,
        _ => true,
    };
    if plain {
        return Ok(event.clone());
    }
    reader::event_from_bytes(canonical)
        .map_err(|error| LogError::Corrupt { what: format!("just written: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_notes_read_back() {
        let usage = Usage {
            model: "m\"".to_owned(),
            input_tokens: 3,
            output_tokens: 4,
            reasoning_tokens: 1,
        };
        let reply = ModelReply { usage: usage.clone(), ..ModelReply::default() };
        assert_eq!(read_usage(&usage_note(&reply).unwrap()), Some(usage));
        assert_eq!(usage_note(&ModelReply::default()), None);
        assert_eq!(read_usage("{}"), None);
    }
}
