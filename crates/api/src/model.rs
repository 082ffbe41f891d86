//! Model requests, replies, and who answers them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Classify, ErrorKind, Outcome};
use crate::json::JsonObject;
use crate::message::Message;

/// What a harness asks of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    /// Model id; empty means the provider's default.
    pub model: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Provider parameters.
    pub params: BTreeMap<String, String>,
    /// Tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Whether it must.
    pub tool_choice: Option<ToolChoice>,
}

/// A model call as an event carries it.
///
/// A journaled call keeps `model`, `params`, `input_hash` and `id`; the hash
/// covers the rest, which travels only between harness and host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelCall {
    /// Model id.
    pub model: String,
    /// Provider parameters.
    pub params: BTreeMap<String, String>,
    /// Hash of the request, in hex.
    pub input_hash: String,
    /// Id of this call.
    pub id: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Whether it must.
    pub tool_choice: Option<ToolChoice>,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolDefinition {
    /// Tool name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Option<JsonObject>,
}

/// Whether and which tool the model must call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolChoice {
    /// Whether.
    pub mode: ToolChoiceMode,
    /// Which; only with [`ToolChoiceMode::Required`].
    pub name: String,
}

/// Whether the model must call a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolChoiceMode {
    /// Not said.
    #[default]
    Unspecified,
    /// The model decides.
    Auto,
    /// It must not.
    None,
    /// It must.
    Required,
}

/// Token counts of a model call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Model id.
    pub model: String,
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Of those, tokens spent on reasoning.
    pub reasoning_tokens: i64,
}

/// A completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelReply {
    /// The assistant's message.
    pub message: Message,
    /// What it cost.
    pub usage: Usage,
}

/// Which models a host lets its sessions use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPolicy {
    /// What a request that names no model gets.
    pub default: String,
    /// Every model that may be used, the default among them.
    pub allowed: Vec<String>,
}

/// Why a model policy is ill-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("model policy is invalid: {0}")]
pub struct InvalidModelPolicy(pub &'static str);

impl ModelPolicy {
    /// Checks the policy itself.
    ///
    /// # Errors
    /// [`InvalidModelPolicy`], naming the rule.
    pub fn check(&self) -> Result<(), InvalidModelPolicy> {
        if self.default.is_empty() {
            return Err(InvalidModelPolicy("its default is empty"));
        }
        if self.allowed.iter().any(String::is_empty) {
            return Err(InvalidModelPolicy("an allowed model has no id"));
        }
        if !self.allows(&self.default) {
            return Err(InvalidModelPolicy("its default is not among the allowed models"));
        }
        Ok(())
    }

    /// Whether `model` may be used.
    #[must_use]
    pub fn allows(&self, model: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == model)
    }
}

/// Answers model requests.
#[async_trait]
pub trait ModelProvider: fmt::Debug + Send + Sync + 'static {
    /// Completes `request`.
    ///
    /// # Cancellation
    /// Dropping the future abandons the call.
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError>;

    /// Completion in chunks, if this provider can do it.
    fn streaming(&self) -> Option<&dyn StreamingModel> {
        None
    }
}

/// A provider that hands out its answer as it is written.
#[async_trait]
pub trait StreamingModel: Send + Sync {
    /// Completes `request`; the chunks given to `on_chunk` concatenate to the
    /// text of the reply.
    async fn stream(
        &self,
        request: &ModelRequest,
        // Spelled out: `async_trait` would give an elided lifetime a name, and
        // then no chunk that is made inside the call could be handed out.
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError>;
}

/// Why a model gave no completion. Never carries a key or a prompt.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The request holds a part that the provider cannot take.
    #[error("model cannot take a {part} part")]
    UnsupportedPart {
        /// The kind of part.
        part: &'static str,
    },
    /// The provider refused the request.
    #[error("model provider refused ({status}): {message}")]
    Refused {
        /// HTTP status, or 0.
        status: u16,
        /// The provider's words, cut to a bound.
        message: String,
    },
    /// The provider's answer cannot be used.
    #[error("model answer: {message}")]
    BadAnswer {
        /// What is wrong with it.
        message: String,
    },
    /// The provider could not be reached or stopped answering.
    #[error("model provider unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// The cause.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// No provider is configured for this model.
    #[error("no model provider for {model:?}")]
    NotConfigured {
        /// The model that was asked for.
        model: String,
    },
}

impl Classify for ModelError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnsupportedPart { .. } => ErrorKind::InvalidInput,
            Self::Refused { .. } | Self::NotConfigured { .. } => ErrorKind::Precondition,
            Self::BadAnswer { .. } => ErrorKind::Internal,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::UnsupportedPart { .. } => "unsupported_part",
            Self::Refused { .. } => "model_refused",
            Self::BadAnswer { .. } => "model_bad_answer",
            Self::Unavailable { .. } => "model_unavailable",
            Self::NotConfigured { .. } => "model_not_configured",
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome::Unknown
    }
}
