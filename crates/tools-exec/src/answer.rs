//! From what a tool wrote to the result of its call.

use mainspring_api::{Part, ToolResult};
use mainspring_eventlog::json;

/// The result of a call that went well, by what the tool wrote.
///
/// What begins with `{` is a JSON object and becomes `output`; other text
/// becomes one part; white space becomes neither. The effect has happened, so
/// what cannot be recorded is a result that says so, and never no result.
pub(crate) fn result_of(written: Vec<u8>) -> ToolResult {
    let Ok(text) = String::from_utf8(written) else {
        return failure("result is not utf-8".to_owned());
    };
    let told = text.trim();
    if told.is_empty() {
        return ToolResult::default();
    }
    if !told.starts_with('{') {
        return ToolResult {
            content: vec![Part::Text(without_line_end(text))],
            ..ToolResult::default()
        };
    }
    match json::parse_object(told.as_bytes()) {
        Ok(output) => ToolResult { output: Some(output), ..ToolResult::default() },
        Err(error) => ToolResult {
            content: vec![Part::Text(without_line_end(text))],
            ..failure(format!("result cannot be recorded as json: {error}"))
        },
    }
}

/// A result that tells the model what failed.
pub(crate) fn failure(error: String) -> ToolResult {
    ToolResult { is_error: true, error, ..ToolResult::default() }
}

/// `what`, and what was said about it, if anything was.
pub(crate) fn with_words(what: &str, words: &str) -> String {
    match words.trim() {
        "" => what.to_owned(),
        words => format!("{what}: {words}"),
    }
}

/// Commands end what they print with a line end that is no part of it.
fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}
