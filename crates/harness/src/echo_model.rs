//! The built-in model.

use mainspring_api::{
    Message, ModelError, ModelProvider, ModelReply, ModelRequest, Usage, async_trait,
};

use crate::echo::Echo;

/// Answers `echo:` and the last user message's text, at no cost.
///
/// It stands in for a provider on a host that has none, so it takes only the
/// empty model id and `echo`: answering for another would be a lie.
#[derive(Debug, Clone, Copy, Default)]
pub struct EchoModel;

#[async_trait]
impl ModelProvider for EchoModel {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        if !matches!(request.model.as_str(), "" | Echo::ID) {
            return Err(ModelError::NotConfigured { model: request.model.clone() });
        }
        let said = request.messages.iter().rev().find(|m| m.role == "user");
        let text = said.map(Message::plain_text).unwrap_or_default();
        Ok(ModelReply {
            message: Message::assistant(format!("echo:{text}")),
            usage: Usage::default(),
        })
    }
}
