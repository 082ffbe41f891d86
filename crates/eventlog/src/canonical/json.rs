//! Canonical JSON: free-form values, strings, maps.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainspring_api::{InvalidJson, Json, JsonObject};

pub(super) fn write_json(out: &mut String, value: &Json) -> Result<(), InvalidJson> {
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

pub(super) fn write_json_object(out: &mut String, members: &JsonObject) -> Result<(), InvalidJson> {
    write_map(out, members, write_json)
}

pub(super) fn write_map<V, E>(
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
