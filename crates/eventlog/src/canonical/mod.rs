//! The canonical form: RFC 8785 over proto3-JSON, written in one pass.
//!
//! Members come out in sorted order by construction; only free-form objects
//! and maps need sorting, by UTF-16 code units. `spec` rules in short: keys are
//! proto field names, default values are left out, set messages are written
//! even when empty, 64-bit integers are strings, enums are names.

mod bodies;
mod json;
mod names;
mod object;
mod time;

use mainspring_api::{Event, EventBody, InvalidJson, Json, ToolCall};

pub use time::rfc3339;

pub(crate) use json::write_string;
pub(crate) use names::{choice_name, code_name, lifecycle_name, mediation_name};

/// How deep parts may contain parts (reasoning summaries, tool results).
///
/// Together with the bound on free-form JSON it keeps every event within what
/// protobuf decoders accept.
pub const PART_DEPTH_MAX: usize = 8;

/// Why an event has no canonical form. Carries no part of the event's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// Free-form JSON that cannot be recorded.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// A time that RFC 3339 cannot name.
    #[error("timestamp is outside the years 1 to 9999")]
    Timestamp,
    /// Parts within parts, too deep.
    #[error("parts are nested deeper than {PART_DEPTH_MAX} levels")]
    PartsTooDeep,
    /// A stream acknowledgement, which is never journaled.
    #[error("EVENT_PARKED is never journaled")]
    Parked,
}

/// The canonical bytes of `event`.
///
/// # Errors
/// [`CanonicalError`] when it has none.
pub fn event_bytes(event: &Event) -> Result<Vec<u8>, CanonicalError> {
    if matches!(event.body, EventBody::Parked(_)) {
        return Err(CanonicalError::Parked);
    }
    let mut out = String::with_capacity(512);
    bodies::write_event(&mut out, event)?;
    Ok(out.into_bytes())
}

/// The canonical bytes of a tool call on its own: what the digest of a call
/// that waits for approval covers.
///
/// # Errors
/// [`CanonicalError`] when its arguments have none.
pub(crate) fn tool_call_bytes(call: &ToolCall) -> Result<Vec<u8>, CanonicalError> {
    let mut out = String::new();
    bodies::write_tool_call(&mut out, call)?;
    Ok(out.into_bytes())
}

/// The canonical text of any JSON value.
///
/// # Errors
/// [`InvalidJson::NotFinite`] when a number has no canonical text.
pub fn json_text(value: &Json) -> Result<String, InvalidJson> {
    let mut out = String::new();
    json::write_json(&mut out, value)?;
    Ok(out)
}

/// The canonical text of a finite double: ECMAScript's `Number::toString`.
#[must_use]
pub fn number_text(number: f64) -> String {
    ryu_js::Buffer::new().format_finite(number).to_owned()
}

type Result<T, E = CanonicalError> = std::result::Result<T, E>;
