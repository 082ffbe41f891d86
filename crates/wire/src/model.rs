//! Model calls and usage.

use mainspring_api::{ModelCall, ToolChoice, Usage};

use crate::enums::{mode_from, mode_to};
use crate::error::{WireError, each, optional};
use crate::v1;

impl TryFrom<ModelCall> for v1::ModelCall {
    type Error = WireError;

    fn try_from(call: ModelCall) -> Result<Self, WireError> {
        Ok(Self {
            model: call.model,
            params: call.params,
            input_hash: call.input_hash,
            id: call.id,
            messages: each("messages", call.messages, TryInto::try_into)?,
            tools: each("tools", call.tools, TryInto::try_into)?,
            tool_choice: call.tool_choice.map(Into::into),
        })
    }
}

impl TryFrom<v1::ModelCall> for ModelCall {
    type Error = WireError;

    fn try_from(call: v1::ModelCall) -> Result<Self, WireError> {
        Ok(Self {
            model: call.model,
            params: call.params,
            input_hash: call.input_hash,
            id: call.id,
            messages: each("messages", call.messages, TryInto::try_into)?,
            tools: each("tools", call.tools, TryInto::try_into)?,
            tool_choice: optional("tool_choice", call.tool_choice, TryInto::try_into)?,
        })
    }
}

impl From<ToolChoice> for v1::ToolChoice {
    fn from(choice: ToolChoice) -> Self {
        Self { mode: mode_to(choice.mode), name: choice.name }
    }
}

impl TryFrom<v1::ToolChoice> for ToolChoice {
    type Error = WireError;

    fn try_from(choice: v1::ToolChoice) -> Result<Self, WireError> {
        Ok(Self { mode: mode_from("mode", choice.mode)?, name: choice.name })
    }
}

impl From<Usage> for v1::Usage {
    fn from(usage: Usage) -> Self {
        Self {
            model: usage.model,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            reasoning_tokens: usage.reasoning_tokens,
        }
    }
}

impl From<v1::Usage> for Usage {
    fn from(usage: v1::Usage) -> Self {
        Self {
            model: usage.model,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            reasoning_tokens: usage.reasoning_tokens,
        }
    }
}
