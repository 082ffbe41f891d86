//! The harness that converses.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{
    Descriptor, EventSink, Harness, HarnessError, Message, ModelRequest, Start, async_trait,
};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::history::conversation;

/// What a turn with a config of any other shape fails with. It quotes nothing:
/// a config may hold what must not reach a journal's error text.
pub const CHAT_CONFIG_INVALID: &str =
    "chat config is not a json object with an optional string \"system_prompt\"";

/// Sends the whole conversation to a model, once per turn.
///
/// The config is empty, or a JSON object with an optional string
/// `system_prompt`, which then leads the messages. The completion is its output.
#[derive(Debug, Clone, Default)]
pub struct Chat {
    model: String,
}

impl Chat {
    /// Its id.
    pub const ID: &str = "chat";

    /// A chat that leaves the model to the host.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A chat that asks for `model`; empty leaves it to the host.
    #[must_use]
    pub fn with_model(model: impl Into<String>) -> Self {
        Self { model: model.into() }
    }
}

#[async_trait]
impl Harness for Chat {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        let models = Some(self.model.clone()).filter(|model| !model.is_empty());
        Ok(Descriptor {
            id: Self::ID.to_owned(),
            version: "1".to_owned(),
            models: models.into_iter().collect(),
            ..Descriptor::default()
        })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let config = Config::parse(&start.config)?;
        let system = config.system_prompt.filter(|prompt| !prompt.is_empty());
        let mut messages: Vec<Message> =
            system.map(|prompt| Message::text("system", prompt)).into_iter().collect();
        messages.extend(conversation(&*start.history).await?);
        messages.extend(start.inputs);
        let model = if self.model.is_empty() { start.model } else { self.model.clone() };
        sink.model(ModelRequest { model, messages, ..ModelRequest::default() }).await?;
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq)]
struct Config {
    system_prompt: Option<String>,
}

impl Config {
    fn parse(bytes: &[u8]) -> Result<Self, HarnessError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        // The parser's own error quotes the member that it did not like.
        serde_json::from_slice(bytes).map_err(|_| HarnessError::failed(CHAT_CONFIG_INVALID))
    }
}

/// Written by hand because a derived one also takes an array, and `null` for
/// an absent string.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ConfigVisitor)
    }
}

struct ConfigVisitor;

impl<'de> Visitor<'de> for ConfigVisitor {
    type Value = Config;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a chat config")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Config, A::Error> {
        let mut config = Config::default();
        while let Some(key) = map.next_key::<String>()? {
            if key != "system_prompt" || config.system_prompt.is_some() {
                return Err(A::Error::custom("unknown or duplicate member"));
            }
            config.system_prompt = Some(map.next_value()?);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_shape_is_a_config() {
        for (text, prompt) in [
            ("", None),
            ("{}", None),
            (" {\"system_prompt\":\"be brief\"}\n", Some("be brief")),
            ("{\"system_prompt\":\"\"}", Some("")),
        ] {
            let config = Config::parse(text.as_bytes()).unwrap();
            assert_eq!(config.system_prompt.as_deref(), prompt, "{text}");
        }
        for bad in [
            "null",
            "[]",
            "[\"s3cret\"]",
            "\"s3cret\"",
            "{\"system_prompt\":null}",
            "{\"system_prompt\":7}",
            "{\"system_prompt\":[\"s3cret\"]}",
            "{\"system_prompt\":\"a\",\"system_prompt\":\"s3cret\"}",
            "{\"system_prompt\":\"a\",\"system\\u005fprompt\":\"s3cret\"}",
            "{\"s3cret\":1}",
            "{\"system_prompt\":\"\\ud800\"}",
            "{} s3cret",
            "{\"system_prompt\":NaN}",
            "s3cret",
        ] {
            let error = Config::parse(bad.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), CHAT_CONFIG_INVALID, "{bad}");
        }
        let error = Config::parse(b"{\"system_prompt\":\"\xff\"}").unwrap_err();
        assert_eq!(error.to_string(), CHAT_CONFIG_INVALID);
    }
}
