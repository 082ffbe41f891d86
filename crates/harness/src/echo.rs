//! The harness that repeats.

use std::sync::Arc;

use mainspring_api::{
    Descriptor, EventSink, Harness, HarnessError, Message, ModelRequest, Start, async_trait,
};

/// Sends the last input's text to the model `echo`, as one user message. The
/// completion is its output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Echo {
    /// Its id, and the model that it asks for.
    pub const ID: &str = "echo";
}

#[async_trait]
impl Harness for Echo {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor {
            id: Self::ID.to_owned(),
            version: "1".to_owned(),
            models: vec![Self::ID.to_owned()],
            ..Descriptor::default()
        })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        // A turn without inputs is legal; it echoes the empty text.
        let text = start.inputs.last().map(Message::plain_text);
        let request = ModelRequest {
            model: Self::ID.to_owned(),
            messages: vec![Message::user(text.unwrap_or_default())],
            ..ModelRequest::default()
        };
        sink.model(request).await?;
        Ok(())
    }
}
