//! The canonical form: RFC 8785 over proto3-JSON, written in one pass.
//!
//! Members come out in sorted order by construction; only free-form objects
//! and maps need sorting, by UTF-16 code units. `spec` rules in short: keys are
//! proto field names, default values are left out, set messages are written
//! even when empty, 64-bit integers are strings, enums are names.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mainspring_api::{
    ApprovalRef, ApprovalRequest, ApprovalResult, Event, EventBody, ExecutionStart, FilePart,
    FileSource, HarnessEnd, IdentityRef, InvalidJson, Json, JsonObject, Lifecycle, LifecycleKind,
    Mediation, Message, ModelCall, Opaque, Part, ReasoningPart, RecordedError, ResultCode,
    Timestamp, ToolCall, ToolChoice, ToolChoiceMode, ToolDefinition, ToolResult, Usage,
};

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
    write_event(&mut out, event)?;
    Ok(out.into_bytes())
}

/// The canonical text of any JSON value.
///
/// # Errors
/// [`InvalidJson::NotFinite`] when a number has no canonical text.
pub fn json_text(value: &Json) -> Result<String, InvalidJson> {
    let mut out = String::new();
    write_json(&mut out, value)?;
    Ok(out)
}

/// The canonical text of a finite double: ECMAScript's `Number::toString`.
#[must_use]
pub fn number_text(number: f64) -> String {
    ryu_js::Buffer::new().format_finite(number).to_owned()
}

type Result<T, E = CanonicalError> = std::result::Result<T, E>;

/// Writes the members of one object, which must come in sorted order.
struct Object<'a> {
    out: &'a mut String,
    last: &'static str,
}

impl<'a> Object<'a> {
    fn open(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, last: "" }
    }

    fn close(self) {
        self.out.push('}');
    }

    fn key(&mut self, key: &'static str) -> &mut String {
        debug_assert!(self.last < key, "{key} after {}", self.last);
        if !self.last.is_empty() {
            self.out.push(',');
        }
        self.last = key;
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }

    fn text(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            write_string(self.key(key), value);
        }
    }

    /// A name or decimal that needs no escaping.
    fn plain(&mut self, key: &'static str, value: &str) {
        let out = self.key(key);
        out.push('"');
        out.push_str(value);
        out.push('"');
    }

    fn int64(&mut self, key: &'static str, value: i64) {
        if value != 0 {
            let _ = write!(self.key(key), "\"{value}\"");
        }
    }

    fn int32(&mut self, key: &'static str, value: i32) {
        if value != 0 {
            let _ = write!(self.key(key), "{value}");
        }
    }

    fn flag(&mut self, key: &'static str, value: bool) {
        if value {
            self.key(key).push_str("true");
        }
    }

    fn bytes(&mut self, key: &'static str, value: &[u8]) {
        let out = self.key(key);
        out.push('"');
        BASE64.encode_string(value, out);
        out.push('"');
    }

    fn object(&mut self, key: &'static str, value: Option<&JsonObject>) -> Result<()> {
        if let Some(members) = value {
            Json::check_object(members, 0)?;
            write_json_object(self.key(key), members)?;
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        key: &'static str,
        items: &[T],
        mut write: impl FnMut(&mut String, &T) -> Result<()>,
    ) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let out = self.key(key);
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(out, item)?;
        }
        out.push(']');
        Ok(())
    }
}

fn write_event(out: &mut String, event: &Event) -> Result<()> {
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

pub(crate) const fn lifecycle_name(kind: LifecycleKind) -> &'static str {
    match kind {
        LifecycleKind::Unspecified => "LIFECYCLE_UNSPECIFIED",
        LifecycleKind::Suspend => "LIFECYCLE_SUSPEND",
        LifecycleKind::Resume => "LIFECYCLE_RESUME",
        LifecycleKind::Fork => "LIFECYCLE_FORK",
        LifecycleKind::Baseline => "LIFECYCLE_BASELINE",
        LifecycleKind::Cancel => "LIFECYCLE_CANCEL",
        LifecycleKind::Delete => "LIFECYCLE_DELETE",
    }
}

pub(crate) const fn mediation_name(mediation: Mediation) -> &'static str {
    match mediation {
        Mediation::Unspecified => "MEDIATION_UNSPECIFIED",
        Mediation::InHarnessReported => "MEDIATION_IN_HARNESS_REPORTED",
        Mediation::ControllerMediated => "MEDIATION_CONTROLLER_MEDIATED",
        Mediation::RequiresApproval => "MEDIATION_REQUIRES_APPROVAL",
    }
}

pub(crate) const fn code_name(code: ResultCode) -> &'static str {
    match code {
        ResultCode::Unspecified => "CODE_UNSPECIFIED",
        ResultCode::ApprovalDenied => "APPROVAL_DENIED",
        ResultCode::ExecutorError => "EXECUTOR_ERROR",
    }
}

pub(crate) const fn choice_name(mode: ToolChoiceMode) -> &'static str {
    match mode {
        ToolChoiceMode::Unspecified => "MODE_UNSPECIFIED",
        ToolChoiceMode::Auto => "MODE_AUTO",
        ToolChoiceMode::None => "MODE_NONE",
        ToolChoiceMode::Required => "MODE_REQUIRED",
    }
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

fn write_tool_call(out: &mut String, call: &ToolCall) -> Result<()> {
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

/// RFC 3339 in UTC with the fewest of 0, 3, 6 or 9 fraction digits that are exact.
#[must_use]
pub fn rfc3339(ts: Timestamp) -> String {
    let (days, second) = (ts.seconds.div_euclid(86_400), ts.seconds.rem_euclid(86_400));
    // Days to a proleptic Gregorian date, counting years from 1 March so that
    // the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    let nanos = ts.nanos;
    let _ = match nanos {
        0 => Ok(()),
        n if n % 1_000_000 == 0 => write!(text, ".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => write!(text, ".{:06}", n / 1_000),
        n => write!(text, ".{n:09}"),
    };
    text.push('Z');
    text
}

fn write_json(out: &mut String, value: &Json) -> Result<(), InvalidJson> {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Number(number) if number.is_finite() => {
            out.push_str(ryu_js::Buffer::new().format_finite(*number));
        }
        Json::Number(_) => return Err(InvalidJson::NotFinite),
        Json::String(text) => write_string(out, text),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(out, item)?;
            }
            out.push(']');
        }
        Json::Object(members) => write_json_object(out, members)?,
    }
    Ok(())
}

fn write_json_object(out: &mut String, members: &JsonObject) -> Result<(), InvalidJson> {
    write_map(out, members, write_json)
}

fn write_map<V, E>(
    out: &mut String,
    map: &BTreeMap<String, V>,
    mut write: impl FnMut(&mut String, &V) -> Result<(), E>,
) -> Result<(), E> {
    // A BTreeMap is in code-point order. UTF-16 order differs only where
    // U+E000..U+FFFF (UTF-8 lead byte EE or EF) meets an astral character.
    let agrees = map.keys().all(|key| key.bytes().all(|b| b < 0xee));
    let mut entries: Vec<(&String, &V)> = map.iter().collect();
    if !agrees {
        entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    }
    out.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, key);
        out.push(':');
        write(out, value)?;
    }
    out.push('}');
    Ok(())
}

/// Writes a JSON string; only `"`, `\` and U+0000 to U+001F are escaped.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut clean = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            0x08 => "\\b",
            b'\t' => "\\t",
            b'\n' => "\\n",
            0x0c => "\\f",
            b'\r' => "\\r",
            0x00..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[clean..at]);
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
        clean = at + 1;
    }
    out.push_str(&text[clean..]);
    out.push('"');
}
