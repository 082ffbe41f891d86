//! From the endpoint's answer to a reply, whole or in chunks.

use std::collections::BTreeMap;

use mainspring_api::{Message, ModelError, ModelReply, Part, ReasoningPart, ToolCall, Usage};
use mainspring_eventlog::json;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
struct Answer {
    choices: Option<Vec<Choice>>,
    usage: Option<WireUsage>,
    error: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    index: Option<u64>,
    message: Option<WireMessage>,
    delta: Option<WireMessage>,
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct WireMessage {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<WireCall>>,
}

#[derive(Debug, Deserialize)]
struct WireCall {
    index: Option<u64>,
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<WireFunction>,
}

#[derive(Debug, Deserialize)]
struct WireFunction {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireUsage {
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
    completion_tokens_details: Option<UsageDetails>,
}

#[derive(Debug, Deserialize)]
struct UsageDetails {
    reasoning_tokens: Option<i64>,
}

/// A completion as far as it has arrived. A whole answer is its only chunk.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    text: String,
    reasoning: String,
    calls: BTreeMap<u64, PartialCall>,
    usage: Option<WireUsage>,
    has_choice: bool,
    finished: bool,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    arguments: String,
}

impl Completion {
    /// Takes one JSON document, and hands its text to `on_chunk`.
    pub(crate) fn absorb(
        &mut self,
        document: &[u8],
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<(), ModelError> {
        // The parser's words may quote the answer; its position does not.
        let answer: Answer = serde_json::from_slice(document).map_err(|error| {
            bad(format!("not a chat completion at line {} column {}", error.line(), error.column()))
        })?;
        if let Some(error) = answer.error.filter(|error| !error.is_null()) {
            let message = error_words(&error).unwrap_or("an error without words").to_owned();
            return Err(ModelError::Refused { status: 200, message });
        }
        if answer.usage.is_some() {
            self.usage = answer.usage;
        }
        for choice in answer.choices.into_iter().flatten() {
            // Only one choice is asked for; another would have no place to go.
            if choice.index.unwrap_or(0) == 0 {
                self.absorb_choice(choice, on_chunk)?;
            }
        }
        Ok(())
    }

    fn absorb_choice(
        &mut self,
        choice: Choice,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<(), ModelError> {
        self.has_choice = true;
        self.finished |= choice.finish_reason.is_some();
        let message = choice.message.or(choice.delta).unwrap_or_default();
        self.reasoning.push_str(message.reasoning_content.as_deref().unwrap_or_default());
        // A refusal is what the model said; it comes instead of content.
        for text in [message.content, message.refusal].into_iter().flatten() {
            if !text.is_empty() {
                self.text.push_str(&text);
                on_chunk(&text);
            }
        }
        message.tool_calls.into_iter().flatten().try_for_each(|call| self.absorb_call(call))
    }

    fn absorb_call(&mut self, call: WireCall) -> Result<(), ModelError> {
        if call.kind.is_some_and(|kind| !matches!(kind.as_str(), "" | "function")) {
            return Err(bad("a tool call is not of type function".to_owned()));
        }
        let id = call.id.unwrap_or_default();
        // Some servers leave out the index: a new id starts a new call, anything
        // else continues the last one.
        let index = call.index.unwrap_or_else(|| match self.calls.last_key_value() {
            Some((last, call)) if id.is_empty() || id == call.id => *last,
            Some((last, _)) => last.saturating_add(1),
            None => 0,
        });
        let partial = self.calls.entry(index).or_default();
        let function = call.function;
        let (name, arguments) = function.map_or((None, None), |f| (f.name, f.arguments));
        set_once(&mut partial.id, id, "id")?;
        set_once(&mut partial.name, name.unwrap_or_default(), "name")?;
        partial.arguments.push_str(arguments.as_deref().unwrap_or_default());
        Ok(())
    }

    /// Whether the endpoint said that the answer is complete.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The reply of `model`.
    pub(crate) fn into_reply(self, model: &str) -> Result<ModelReply, ModelError> {
        if !self.has_choice {
            return Err(bad("it has no choices".to_owned()));
        }
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(Part::Reasoning(ReasoningPart {
                provider: "openai".to_owned(),
                model_id: model.to_owned(),
                summary: vec![Part::Text(self.reasoning)],
                ..ReasoningPart::default()
            }));
        }
        if !self.text.is_empty() || self.calls.is_empty() {
            parts.push(Part::Text(self.text));
        }
        for call in self.calls.into_values() {
            parts.push(Part::ToolCall(call.finish()?));
        }
        let usage = self.usage.map(|usage| usage.of(model)).transpose()?;
        Ok(ModelReply {
            message: Message { role: "assistant".to_owned(), parts },
            usage: usage.unwrap_or_default(),
        })
    }
}

impl PartialCall {
    fn finish(self) -> Result<ToolCall, ModelError> {
        if self.id.is_empty() || self.name.is_empty() {
            return Err(bad("a tool call has no id or no name".to_owned()));
        }
        let args = json::parse_object(self.arguments.as_bytes())
            .map_err(|error| bad(format!("arguments of a tool call: {error}")))?;
        Ok(ToolCall { id: self.id, tool: self.name, args: Some(args), ..ToolCall::default() })
    }
}

impl WireUsage {
    fn of(self, model: &str) -> Result<Usage, ModelError> {
        let details = self.completion_tokens_details;
        let counts = [
            self.prompt_tokens,
            self.completion_tokens,
            details.and_then(|details| details.reasoning_tokens),
        ];
        let [input_tokens, output_tokens, reasoning_tokens] = counts.map(Option::unwrap_or_default);
        if input_tokens.min(output_tokens).min(reasoning_tokens) < 0 {
            return Err(bad("a token count is negative".to_owned()));
        }
        Ok(Usage { model: model.to_owned(), input_tokens, output_tokens, reasoning_tokens })
    }
}

/// Servers send an id or a name once, or the same with every chunk.
fn set_once(slot: &mut String, value: String, what: &str) -> Result<(), ModelError> {
    if slot.is_empty() {
        *slot = value;
    } else if !value.is_empty() && *slot != value {
        return Err(bad(format!("the {what} of a tool call changes within the stream")));
    }
    Ok(())
}

/// The words of an error object: its `message`, or the object itself if it is text.
pub(crate) fn error_words(error: &serde_json::Value) -> Option<&str> {
    error.get("message").unwrap_or(error).as_str().filter(|words| !words.is_empty())
}

fn bad(message: String) -> ModelError {
    ModelError::BadAnswer { message }
}
