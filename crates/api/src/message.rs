//! Messages and their six kinds of part.

use bytes::Bytes;

use crate::json::JsonObject;
use crate::tool::{ToolCall, ToolResult};

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Content, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A message of one text part.
    #[must_use]
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.to_owned(), parts: vec![Part::Text(text.into())] }
    }

    /// A user message of one text part.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::text("user", text)
    }

    /// An assistant message of one text part.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text("assistant", text)
    }

    /// The text parts, concatenated.
    #[must_use]
    pub fn plain_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// One unit of content.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A part with no member set; legal, and kept.
    Empty,
    /// Text.
    Text(String),
    /// Media, inline or by reference.
    File(FilePart),
    /// Free-form JSON.
    Data(DataPart),
    /// Provider reasoning, carried untouched.
    Reasoning(ReasoningPart),
    /// What the model asked for, in an assistant message.
    ToolCall(ToolCall),
    /// What is fed back, in a message of role `tool`.
    ToolResult(ToolResult),
}

/// Media, inline or by reference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilePart {
    /// Media type.
    pub mime: String,
    /// Where the bytes are. Hosts set none when both bytes and uri are empty.
    pub source: Option<FileSource>,
    /// File name.
    pub name: String,
    /// Digest of what a uri points to.
    pub digest: String,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq)]
pub enum FileSource {
    /// Inline.
    Bytes(Bytes),
    /// By reference.
    Uri(String),
}

/// Free-form JSON as content.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataPart {
    /// The object; absent and empty are different.
    pub data: Option<JsonObject>,
}

/// Provider reasoning. Nothing in it is ever interpreted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReasoningPart {
    /// Provider name.
    pub provider: String,
    /// Model id.
    pub model_id: String,
    /// The provider's opaque payload.
    pub opaque: Option<Opaque>,
    /// Readable summary parts.
    pub summary: Vec<Part>,
    /// The provider's item id.
    pub item_id: String,
    /// Position among the provider's items.
    pub ordinal: i32,
    /// Execution id within which the payload is valid.
    pub validity_scope: String,
    /// Digest of the payload.
    pub opaque_digest: String,
}

/// An opaque reasoning payload.
#[derive(Debug, Clone, PartialEq)]
pub enum Opaque {
    /// Inline.
    Bytes(Bytes),
    /// By reference.
    Uri(String),
}
