//! What a turn is about, from the command line.

use mainspring::api::{Bytes, EventBody, Json, JsonObject, Message, ToolResult};
use mainspring::eventlog::reader;
use tokio::io::AsyncReadExt as _;

use crate::args::Exec;
use crate::error::CliError;

/// The messages of a call: texts, then files, then JSON, each in order.
pub(crate) async fn messages(args: &Exec) -> Result<Vec<Message>, CliError> {
    let mut messages: Vec<Message> = args.input.iter().map(Message::user).collect();
    for path in &args.input_file {
        let text = String::from_utf8(read(path).await?)
            .map_err(|_| CliError::usage(format!("{path}: it is not UTF-8 text")))?;
        messages.push(Message::user(text));
    }
    for json in &args.message {
        messages.push(message(json)?);
    }
    Ok(messages)
}

/// A message in its proto-JSON form, read as strictly as a journal.
fn message(json: &str) -> Result<Message, CliError> {
    match body("--message", "EVENT_INPUT", "message", json.as_bytes())? {
        EventBody::Input(Some(message)) => Ok(message),
        _ => Err(CliError::usage("--message: it is not a message")),
    }
}

/// A tool's result in its proto-JSON form, or `@PATH` to read it from a file.
pub(crate) async fn tool_result(text: &str) -> Result<ToolResult, CliError> {
    let json = match text.strip_prefix('@') {
        Some(path) => read(path).await?,
        None => text.as_bytes().to_vec(),
    };
    match body("--result", "EVENT_TOOL_RESULT", "result", &json)? {
        EventBody::ToolResult(Some(result)) => Ok(result),
        _ => Err(CliError::usage("--result: it is not a result")),
    }
}

/// The body of an event, of which only the member `name` is given.
fn body(flag: &str, kind: &str, name: &str, json: &[u8]) -> Result<EventBody, CliError> {
    let bad = |why: String| CliError::usage(format!("{flag}: {why}"));
    let json = reader::parse_event_json(json).map_err(|error| bad(error.to_string()))?;
    let event: JsonObject = [("kind".to_owned(), Json::from(kind)), (name.to_owned(), json)].into();
    let event =
        reader::event_from_json(Json::Object(event)).map_err(|error| bad(error.to_string()))?;
    Ok(event.body)
}

/// The configuration of a turn: text, or `@PATH`.
pub(crate) async fn config(args: &Exec) -> Result<Bytes, CliError> {
    match args.config.as_deref() {
        None => Ok(Bytes::new()),
        Some(text) => match text.strip_prefix('@') {
            Some(path) => Ok(read(path).await?.into()),
            None => Ok(Bytes::copy_from_slice(text.as_bytes())),
        },
    }
}

/// What an input file may hold: more could not be recorded as one event.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file, or standard input for `-`.
pub(crate) async fn read(path: &str) -> Result<Vec<u8>, CliError> {
    let failed = |error: std::io::Error| CliError::file(path, &error);
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX + 1;
    if path == "-" {
        tokio::io::stdin().take(limit).read_to_end(&mut bytes).await.map_err(failed)?;
    } else {
        let file = tokio::fs::File::open(path).await.map_err(failed)?;
        file.take(limit).read_to_end(&mut bytes).await.map_err(failed)?;
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CliError::usage(format!("{path}: it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
