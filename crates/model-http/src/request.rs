//! From a model request to the body of a chat completion.

use mainspring_api::{
    Json, JsonObject, Message, ModelError, ModelRequest, Part, ToolCall, ToolChoice,
    ToolChoiceMode, ToolDefinition, ToolResult,
};
use serde_json::{Map, Number, Value, json};

/// Members that a parameter must not set, because the request says them, or
/// because only the first choice would be recorded.
const RESERVED: [&str; 9] = [
    "function_call",
    "functions",
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "tool_choice",
    "tools",
];

/// Integers up to here are the same number in every reader.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Whether the answer is to come in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Streamed,
}

/// The body, or why it cannot be one. Nothing is sent before this has returned.
pub(crate) fn encode(
    request: &ModelRequest,
    model: &str,
    delivery: Delivery,
) -> Result<Vec<u8>, ModelError> {
    let mut body = Map::new();
    for (name, text) in &request.params {
        if RESERVED.contains(&name.as_str()) {
            return Err(refused(format!("parameter {name:?} would override the request")));
        }
        body.insert(name.clone(), param(text));
    }
    let mut messages = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        encode_message(message, &mut messages)?;
    }
    body.insert("model".to_owned(), model.into());
    body.insert("messages".to_owned(), messages.into());
    if !request.tools.is_empty() {
        let tools: Result<Vec<Value>, _> = request.tools.iter().map(encode_tool).collect();
        body.insert("tools".to_owned(), tools?.into());
    }
    if let Some(choice) = request.tool_choice.as_ref().map(encode_choice).transpose()?.flatten() {
        body.insert("tool_choice".to_owned(), choice);
    }
    if delivery == Delivery::Streamed {
        body.insert("stream".to_owned(), true.into());
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    serde_json::to_vec(&body).map_err(|_| refused("request has no json form".to_owned()))
}

/// A JSON scalar as it is, any other text as a string.
fn param(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Array(_) | Value::Object(_)) | Err(_) => text.into(),
        Ok(scalar) => scalar,
    }
}

fn encode_message(message: &Message, out: &mut Vec<Value>) -> Result<(), ModelError> {
    let mut text: Option<String> = None;
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for part in &message.parts {
        match part {
            Part::Empty | Part::Reasoning(_) => {}
            Part::Text(more) => text.get_or_insert_default().push_str(more),
            Part::File(_) => return Err(unsupported("file")),
            Part::Data(_) => return Err(unsupported("data")),
            Part::ToolCall(_) if message.role != "assistant" => {
                return Err(unsupported("tool_call (outside an assistant message)"));
            }
            Part::ToolCall(call) => calls.push(encode_call(call)?),
            Part::ToolResult(result) => results.push(encode_result(result)?),
        }
    }
    if !results.is_empty() || message.role == "tool" {
        // The endpoint has one message per result and no other content there.
        if text.is_some() || !calls.is_empty() {
            return Err(unsupported("text or tool_call (beside a tool_result)"));
        }
        out.append(&mut results);
        return Ok(());
    }
    let mut encoded = Map::new();
    encoded.insert("role".to_owned(), message.role.as_str().into());
    let content = match text {
        None if !calls.is_empty() => Value::Null,
        text => text.unwrap_or_default().into(),
    };
    encoded.insert("content".to_owned(), content);
    if !calls.is_empty() {
        encoded.insert("tool_calls".to_owned(), calls.into());
    }
    out.push(encoded.into());
    Ok(())
}

fn encode_call(call: &ToolCall) -> Result<Value, ModelError> {
    let arguments = call.args.as_ref().map(object).transpose()?.unwrap_or_default();
    let arguments = Value::from(arguments).to_string();
    let function = json!({"name": call.tool, "arguments": arguments});
    Ok(json!({"id": call.id, "type": "function", "function": function}))
}

/// What the model reads of a result: its content, else the error of a failed
/// call, else its output as JSON.
fn encode_result(result: &ToolResult) -> Result<Value, ModelError> {
    let content = if !result.content.is_empty() {
        result_content(&result.content)?
    } else if result.is_error && !result.error.is_empty() {
        result.error.clone()
    } else if let Some(output) = &result.output {
        Value::from(object(output)?).to_string()
    } else if result.output_uri.is_empty() {
        String::new()
    } else {
        return Err(unsupported("tool_result (with its output kept elsewhere)"));
    };
    Ok(json!({"role": "tool", "tool_call_id": result.id, "content": content}))
}

fn result_content(parts: &[Part]) -> Result<String, ModelError> {
    let mut content = String::new();
    for part in parts {
        match part {
            Part::Empty | Part::Reasoning(_) => {}
            Part::Text(text) => content.push_str(text),
            Part::File(_) => return Err(unsupported("file")),
            Part::Data(_) => return Err(unsupported("data")),
            Part::ToolCall(_) | Part::ToolResult(_) => return Err(unsupported("nested tool")),
        }
    }
    Ok(content)
}

fn encode_tool(tool: &ToolDefinition) -> Result<Value, ModelError> {
    let mut function = Map::new();
    function.insert("name".to_owned(), tool.name.as_str().into());
    if !tool.description.is_empty() {
        function.insert("description".to_owned(), tool.description.as_str().into());
    }
    if let Some(schema) = &tool.input_schema {
        function.insert("parameters".to_owned(), object(schema)?.into());
    }
    Ok(json!({"type": "function", "function": function}))
}

fn encode_choice(choice: &ToolChoice) -> Result<Option<Value>, ModelError> {
    if !choice.name.is_empty() && choice.mode != ToolChoiceMode::Required {
        return Err(refused("a tool choice names a tool without requiring it".to_owned()));
    }
    Ok(match choice.mode {
        ToolChoiceMode::Unspecified => None,
        ToolChoiceMode::Auto => Some("auto".into()),
        ToolChoiceMode::None => Some("none".into()),
        ToolChoiceMode::Required if choice.name.is_empty() => Some("required".into()),
        ToolChoiceMode::Required => {
            Some(json!({"type": "function", "function": {"name": choice.name}}))
        }
    })
}

fn object(members: &JsonObject) -> Result<Map<String, Value>, ModelError> {
    let encoded = members.iter().map(|(key, value)| Ok((key.clone(), json_value(value)?)));
    encoded.collect()
}

fn json_value(value: &Json) -> Result<Value, ModelError> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => self::number(*number)?,
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => Value::Array(items.iter().map(json_value).collect::<Result<_, _>>()?),
        Json::Object(members) => object(members)?.into(),
    })
}

/// Models write `2` and not `2.0`, and read it better.
#[expect(clippy::cast_possible_truncation, reason = "an integral double below 2^53 is an i64")]
fn number(number: f64) -> Result<Value, ModelError> {
    if number.fract() == 0.0 && number.abs() <= INTEGER_MAX {
        return Ok((number as i64).into());
    }
    let finite = Number::from_f64(number);
    finite.map(Value::from).ok_or_else(|| refused("a number is not finite".to_owned()))
}

const fn unsupported(part: &'static str) -> ModelError {
    ModelError::UnsupportedPart { part }
}

/// A refusal of our own, before anything was sent.
fn refused(message: String) -> ModelError {
    ModelError::Refused { status: 0, message }
}
