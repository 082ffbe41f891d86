//! Recorded effects, and the one form in which values are recorded and handed on.

use std::time::Duration;

use mainspring_api::{
    Bytes, Clock, Event, EventBody, FileSource, Json, JsonObject, Message, ModelReply, Notes,
    Opaque, Part, Seq, Timestamp, ToolResult, Usage,
};
use mainspring_eventlog::canonical::rfc3339;
use mainspring_eventlog::{LogError, json, reader};

/// Note beside an output: the usage that the provider returned.
pub(crate) const USAGE_NOTE: &str = "usage";

/// Note beside a request for approval: when it expires, in RFC 3339.
pub const EXPIRES_NOTE: &str = "expires";

/// Note beside an approved gated call: its executor was started.
pub(crate) const STARTED_NOTE: &str = "started";

/// Note beside a tool call: its executor failed, gave a reply that is none, or
/// was not there, and the harness was told. What follows is then no result of it.
pub(crate) const FAILED_NOTE: &str = "failed";

/// Note beside a result that a harness reported under the id of a call which it
/// had made here. After a failed call it is a report and no result of the call.
pub(crate) const REPORTED_NOTE: &str = "reported";

/// Note beside a tool call, with a number: one more start is allowed, by a
/// person, or because it is known that nothing came of the one before.
pub(crate) const RETRY_NOTE: &str = "retry.";

/// Note beside a tool call, with a number: the start that was allowed under it.
pub(crate) const RESTARTED_NOTE: &str = "restarted.";

/// Starts of one call that people may allow.
pub(crate) const RETRIES_MAX: u32 = 64;

/// One recorded effect of an execution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effect {
    pub(crate) seq: Seq,
    pub(crate) body: EventBody,
    pub(crate) notes: EffectNotes,
}

/// What is noted beside an effect.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EffectNotes {
    /// The usage that the provider returned.
    pub(crate) usage: Option<Usage>,
    /// Whether the executor of an approved call was started.
    pub(crate) started: bool,
    /// Whether its executor failed.
    pub(crate) failed: bool,
    /// Whether a result is a report under the id of a call made here.
    pub(crate) reported: bool,
    /// Starts that were allowed.
    pub(crate) retries: u32,
    /// Starts that were made under those.
    pub(crate) restarted: u32,
}

impl EffectNotes {
    pub(crate) fn of(notes: &Notes) -> Self {
        let count = |prefix: &str| {
            (1..=RETRIES_MAX).take_while(|n| notes.contains_key(&format!("{prefix}{n}"))).count()
                as u32
        };
        Self {
            usage: notes.get(USAGE_NOTE).and_then(|note| read_usage(note)),
            started: notes.contains_key(STARTED_NOTE),
            // Who may be started once more has failed, too.
            failed: notes.contains_key(FAILED_NOTE) || count(RETRY_NOTE) > 0,
            reported: notes.contains_key(REPORTED_NOTE),
            retries: count(RETRY_NOTE),
            restarted: count(RESTARTED_NOTE),
        }
    }

    /// The start that is allowed and that nobody has made.
    pub(crate) fn allowed(&self) -> Option<u32> {
        (self.retries > self.restarted).then_some(self.restarted + 1)
    }
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
        is_effect.then(|| Self { seq, body, notes: EffectNotes::of(notes) })
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

/// The same for a tool result.
pub(crate) fn normalise_result(result: &mut ToolResult) {
    result.decision = None;
    normalise_parts(&mut result.content);
}

/// When a request that is made now expires.
pub(crate) fn expiry_text(clock: &dyn Clock, ttl: Duration) -> String {
    let now = clock.now();
    let nanos = i64::from(now.nanos) + i64::from(ttl.subsec_nanos());
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    // The year 9999 is the last that RFC 3339 can say.
    let seconds =
        now.seconds.saturating_add(seconds).saturating_add(nanos / NANOS).min(RFC3339_SECONDS_MAX);
    let nanos = u32::try_from(nanos % NANOS).expect("it is below a second");
    rfc3339(Timestamp { seconds, nanos })
}

const NANOS: i64 = 1_000_000_000;

/// 9999-12-31T23:59:59Z.
const RFC3339_SECONDS_MAX: i64 = 253_402_300_799;

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
                normalise_result(result);
            }
            Part::Empty | Part::Text(_) | Part::Data(_) | Part::ToolCall(_) => {}
        }
    }
}

/// The event as a reader will get it, so that live and replay see the same.
///
/// Only free-form numbers can differ (minus zero): what has none is not decoded.
pub(crate) fn recorded_form(canonical: &Bytes, event: Event) -> Result<Event, LogError> {
    let same = match &event.body {
        EventBody::Input(Some(message)) | EventBody::Output(Some(message)) => {
            are_texts(&message.parts)
        }
        EventBody::ToolCall(Some(call)) => call.args.as_ref().is_none_or(has_no_minus_zero),
        EventBody::ToolResult(Some(result)) => {
            are_texts(&result.content) && result.output.as_ref().is_none_or(has_no_minus_zero)
        }
        _ => true,
    };
    if same {
        return Ok(event);
    }
    reader::event_from_bytes(canonical)
        .map_err(|error| LogError::Corrupt { what: format!("just written: {error}") })
}

fn are_texts(parts: &[Part]) -> bool {
    parts.iter().all(|part| matches!(part, Part::Text(_) | Part::Empty))
}

fn has_no_minus_zero(object: &JsonObject) -> bool {
    fn has_none(value: &Json) -> bool {
        match value {
            Json::Number(number) => *number != 0.0 || number.is_sign_positive(),
            Json::Array(values) => values.iter().all(has_none),
            Json::Object(members) => members.values().all(has_none),
            Json::Null | Json::Bool(_) | Json::String(_) => true,
        }
    }
    object.values().all(has_none)
}

#[cfg(test)]
mod tests {
    use mainspring_api::{ToolCall, ToolResult};
    use mainspring_eventlog::canonical;

    use super::*;

    #[test]
    fn the_recorded_form_is_what_a_reader_gets() {
        let numbers = [0.0, -0.0, 1.0, -1.5, 1e21, 5e-324, 9_007_199_254_740_993.0];
        let values = numbers.map(Json::Number).into_iter();
        let values = values.chain([Json::Null, Json::Bool(true), Json::String("-0".to_owned())]);
        for value in values {
            let object = |value: Json| JsonObject::from([("a".to_owned(), value)]);
            let nested = Json::Array(vec![Json::Object(object(value.clone()))]);
            for args in [None, Some(JsonObject::new()), Some(object(value)), Some(object(nested))] {
                let call = ToolCall { id: "c".to_owned(), args, ..ToolCall::default() };
                let result = ToolResult { output: call.args.clone(), ..ToolResult::default() };
                for body in [EventBody::ToolCall(Some(call)), EventBody::ToolResult(Some(result))] {
                    let event = Event::of(body);
                    let canonical = Bytes::from(canonical::event_bytes(&event).unwrap());
                    let read = reader::event_from_bytes(&canonical).unwrap();
                    let form = recorded_form(&canonical, event).unwrap();
                    // Equality takes both zeros for one.
                    assert_eq!(format!("{form:?}"), format!("{read:?}"));
                }
            }
        }
    }

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
