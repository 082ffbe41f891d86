//! The model input hash: SHA-256 over a Go-style JSON encoding of the request.
//!
//! It is not the canonical form: fields stand in declaration order under their
//! Go names, absent lists and maps are `null`, `<`, `>`, `&`, U+2028 and U+2029
//! are escaped, maps sort by bytes, and `-0` stays. Every journal stores this
//! hash and every replay checks it, so its bytes are frozen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mainspring_api::{
    FileSource, Hash, InvalidJson, Json, JsonObject, Mediation, Message, ModelRequest, Opaque,
    Part, ResultCode, ToolCall, ToolChoiceMode, ToolDefinition, ToolResult,
};
use sha2::{Digest as _, Sha256};

/// The hash of a request, in the form that it has after a trip over the wire:
/// an in-process harness and a remote one get the same hash.
///
/// # Errors
/// [`InvalidJson`] when free-form JSON in it cannot be recorded.
pub fn input_hash(request: &ModelRequest) -> Result<Hash, InvalidJson> {
    let mut out = String::with_capacity(512);
    write_request(&mut out, request)?;
    Ok(Hash::new(Sha256::digest(out.as_bytes()).into()))
}

type Result<T, E = InvalidJson> = std::result::Result<T, E>;

fn write_request(out: &mut String, request: &ModelRequest) -> Result<()> {
    out.push_str("{\"Model\":");
    go_json_string(out, &request.model);
    out.push_str(",\"Messages\":");
    list_or_null(out, &request.messages, write_message)?;
    out.push_str(",\"Params\":");
    if request.params.is_empty() {
        out.push_str("null");
    } else {
        map(out, &request.params, |out, value| {
            go_json_string(out, value);
            Ok(())
        })?;
    }
    if !request.tools.is_empty() {
        out.push_str(",\"Tools\":");
        list(out, &request.tools, write_definition)?;
    }
    if let Some(choice) = &request.tool_choice {
        let mode = match choice.mode {
            ToolChoiceMode::Unspecified => "",
            ToolChoiceMode::Auto => "AUTO",
            ToolChoiceMode::None => "NONE",
            ToolChoiceMode::Required => "REQUIRED",
        };
        out.push_str(",\"ToolChoice\":{");
        member(out, "Mode", mode);
        out.push(',');
        member(out, "Name", &choice.name);
        out.push('}');
    }
    out.push('}');
    Ok(())
}

fn write_message(out: &mut String, message: &Message) -> Result<()> {
    out.push('{');
    member(out, "Role", &message.role);
    // A message without parts is an empty list after the wire, not null.
    out.push_str(",\"Parts\":");
    list(out, &message.parts, write_part)?;
    out.push('}');
    Ok(())
}

fn write_part(out: &mut String, part: &Part) -> Result<()> {
    out.push_str("{\"Text\":");
    match part {
        Part::Text(text) => {
            out.push('{');
            member(out, "Text", text);
            out.push('}');
        }
        _ => out.push_str("null"),
    }
    out.push_str(",\"File\":");
    match part {
        Part::File(file) => {
            let (bytes, uri) = match &file.source {
                Some(FileSource::Bytes(bytes)) => (Some(bytes), ""),
                Some(FileSource::Uri(uri)) => (None, uri.as_str()),
                None => (None, ""),
            };
            out.push('{');
            member(out, "MIME", &file.mime);
            out.push_str(",\"Bytes\":");
            bytes_or_null(out, bytes.map(AsRef::as_ref));
            for (key, value) in [("URI", uri), ("Digest", &file.digest), ("Name", &file.name)] {
                out.push(',');
                member(out, key, value);
            }
            out.push('}');
        }
        _ => out.push_str("null"),
    }
    out.push_str(",\"Data\":");
    match part {
        // The domain's data part is the object itself.
        Part::Data(data) => object_or_null(out, data.data.as_ref())?,
        _ => out.push_str("null"),
    }
    out.push_str(",\"Reasoning\":");
    match part {
        Part::Reasoning(r) => {
            let (bytes, uri) = match &r.opaque {
                Some(Opaque::Bytes(bytes)) => (Some(bytes), ""),
                Some(Opaque::Uri(uri)) => (None, uri.as_str()),
                None => (None, ""),
            };
            out.push('{');
            member(out, "Provider", &r.provider);
            out.push(',');
            member(out, "ModelID", &r.model_id);
            out.push_str(",\"Opaque\":");
            bytes_or_null(out, bytes.map(AsRef::as_ref));
            out.push(',');
            member(out, "OpaqueURI", uri);
            out.push(',');
            member(out, "OpaqueDigest", &r.opaque_digest);
            out.push_str(",\"Summary\":");
            list_or_null(out, &r.summary, write_part)?;
            out.push(',');
            member(out, "ItemID", &r.item_id);
            let _ = write!(out, ",\"Ordinal\":{},", r.ordinal);
            member(out, "ValidityScope", &r.validity_scope);
            out.push('}');
        }
        _ => out.push_str("null"),
    }
    match part {
        Part::ToolCall(call) => {
            out.push_str(",\"ToolCall\":");
            write_call(out, call)?;
        }
        Part::ToolResult(result) => {
            out.push_str(",\"ToolResult\":");
            write_result(out, result)?;
        }
        _ => {}
    }
    out.push('}');
    Ok(())
}

fn write_call(out: &mut String, call: &ToolCall) -> Result<()> {
    let mediation = match call.mediation {
        Mediation::Unspecified => "",
        Mediation::InHarnessReported => "IN_HARNESS_REPORTED",
        Mediation::ControllerMediated => "CONTROLLER_MEDIATED",
        Mediation::RequiresApproval => "REQUIRES_APPROVAL",
    };
    out.push('{');
    member(out, "ID", &call.id);
    out.push(',');
    member(out, "Tool", &call.tool);
    out.push_str(",\"Args\":");
    object_or_null(out, call.args.as_ref())?;
    out.push(',');
    member(out, "Mediation", mediation);
    out.push(',');
    member(out, "IdempotencyKey", &call.idempotency_key);
    out.push('}');
    Ok(())
}

fn write_result(out: &mut String, result: &ToolResult) -> Result<()> {
    out.push('{');
    member(out, "ID", &result.id);
    out.push_str(",\"Output\":");
    object_or_null(out, result.output.as_ref())?;
    out.push(',');
    member(out, "OutputURI", &result.output_uri);
    out.push(',');
    member(out, "OutputDigest", &result.output_digest);
    let _ = write!(out, ",\"IsError\":{},", result.is_error);
    member(out, "Error", &result.error);
    if !result.content.is_empty() {
        out.push_str(",\"Content\":");
        list(out, &result.content, write_part)?;
    }
    let code = match result.code {
        ResultCode::Unspecified => 0,
        ResultCode::ApprovalDenied => 1,
        ResultCode::ExecutorError => 2,
    };
    for (key, value) in [
        ("Code", code),
        ("ApprovalRequestSeq", result.approval_request_seq),
        ("ApprovalDecisionSeq", result.approval_decision_seq),
    ] {
        if value != 0 {
            let _ = write!(out, ",\"{key}\":{value}");
        }
    }
    out.push('}');
    Ok(())
}

fn write_definition(out: &mut String, tool: &ToolDefinition) -> Result<()> {
    out.push('{');
    member(out, "Name", &tool.name);
    out.push(',');
    member(out, "Description", &tool.description);
    out.push_str(",\"InputSchema\":");
    object_or_null(out, tool.input_schema.as_ref())?;
    out.push('}');
    Ok(())
}

fn member(out: &mut String, key: &str, value: &str) {
    let _ = write!(out, "\"{key}\":");
    go_json_string(out, value);
}

fn bytes_or_null(out: &mut String, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) if !bytes.is_empty() => {
            out.push('"');
            BASE64.encode_string(bytes, out);
            out.push('"');
        }
        _ => out.push_str("null"),
    }
}

fn list<T>(
    out: &mut String,
    items: &[T],
    write: impl Fn(&mut String, &T) -> Result<()>,
) -> Result<()> {
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

fn list_or_null<T>(
    out: &mut String,
    items: &[T],
    write: impl Fn(&mut String, &T) -> Result<()>,
) -> Result<()> {
    if items.is_empty() {
        out.push_str("null");
        return Ok(());
    }
    list(out, items, write)
}

/// Keys in byte order, which is how a `BTreeMap<String, _>` iterates.
fn map<V>(
    out: &mut String,
    map: &BTreeMap<String, V>,
    write: impl Fn(&mut String, &V) -> Result<()>,
) -> Result<()> {
    out.push('{');
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        go_json_string(out, key);
        out.push(':');
        write(out, value)?;
    }
    out.push('}');
    Ok(())
}

fn object_or_null(out: &mut String, object: Option<&JsonObject>) -> Result<()> {
    match object {
        None => {
            out.push_str("null");
            Ok(())
        }
        Some(members) => {
            Json::check_object(members, 0)?;
            map(out, members, write_json)
        }
    }
}

fn write_json(out: &mut String, value: &Json) -> Result<()> {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Json::Number(number) => write_number(out, *number)?,
        Json::String(text) => go_json_string(out, text),
        Json::Array(items) => list(out, items, write_json)?,
        Json::Object(members) => map(out, members, write_json)?,
    }
    Ok(())
}

/// Go's float64 form. It has ECMAScript's digits and thresholds; only minus
/// zero differs.
fn write_number(out: &mut String, number: f64) -> Result<()> {
    if !number.is_finite() {
        return Err(InvalidJson::NotFinite);
    }
    if number == 0.0 && number.is_sign_negative() {
        out.push_str("-0");
    } else {
        out.push_str(ryu_js::Buffer::new().format_finite(number));
    }
    Ok(())
}

/// Writes a string as Go's JSON encoder does.
pub fn go_json_string(out: &mut String, text: &str) {
    out.push('"');
    for ch in text.chars() {
        match ch {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(ch));
            }
            _ => out.push(ch),
        }
    }
    out.push('"');
}
