//! From a model's tool calls to effects, and back into the conversation.

use mainspring_api::{EventSink, Mediation, Message, Part, SinkError, ToolCall, ToolResult};

use crate::keys::Keys;

/// The tool calls of a message, in order.
pub fn tool_calls(message: &Message) -> impl Iterator<Item = &ToolCall> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    })
}

/// A copy of a model's call that can be given to the sink.
///
/// The message that carries the call must stay as it was returned, or the next
/// request would not hash as it did when it was recorded.
#[must_use]
pub fn mediate(call: &ToolCall, mediation: Mediation, key: String) -> ToolCall {
    ToolCall { mediation, idempotency_key: key, ..call.clone() }
}

/// Has the controller run every tool call of `message`, one after the other.
///
/// # Errors
/// The first refusal of the sink. A park is one: return it promptly.
pub async fn call_tools(
    sink: &dyn EventSink,
    message: &Message,
    keys: &mut Keys,
) -> Result<Vec<ToolResult>, SinkError> {
    let mut results = Vec::new();
    for call in tool_calls(message) {
        let call = mediate(call, Mediation::ControllerMediated, keys.next_key());
        results.push(sink.tool_call(call).await?);
    }
    Ok(results)
}

/// The message that feeds results back to the model.
#[must_use]
pub fn tool_message(results: impl IntoIterator<Item = ToolResult>) -> Message {
    Message { role: "tool".to_owned(), parts: results.into_iter().map(Part::ToolResult).collect() }
}
