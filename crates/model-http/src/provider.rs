//! The model contract over one endpoint.

use std::fmt;

use mainspring_api::{
    ModelError, ModelProvider, ModelReply, ModelRequest, StreamingModel, async_trait,
};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tokio::time::timeout;

use crate::client::{BodyBound, Endpoint};
use crate::completion::Completion;
use crate::config::{HttpModelConfigError, HttpModelOptions};
use crate::request::{Delivery, encode};
use crate::sse::SseParser;
use crate::url;

/// The model id that harnesses without a choice of their own ask for.
const STAND_IN: &str = "echo";

/// A model behind an OpenAI-compatible endpoint.
pub struct HttpModel {
    endpoint: Endpoint,
    model: String,
}

impl HttpModel {
    /// A provider. Nothing is sent yet.
    ///
    /// # Errors
    /// [`HttpModelConfigError`], naming the rule.
    pub fn new(options: HttpModelOptions) -> Result<Self, HttpModelConfigError> {
        if options.model.is_empty() {
            return Err(HttpModelConfigError::NoModel);
        }
        let url = url::join(&options.base_url, &options.path)?;
        Ok(Self { endpoint: Endpoint::new(&options, url)?, model: options.model })
    }

    /// Where requests go.
    #[must_use]
    pub fn url(&self) -> &str {
        self.endpoint.url.as_str()
    }

    /// The model that is asked for when a request names none.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    fn resolve<'a>(&'a self, request: &'a ModelRequest) -> &'a str {
        match request.model.as_str() {
            "" | STAND_IN => &self.model,
            named => named,
        }
    }

    async fn within(
        &self,
        call: impl Future<Output = Result<ModelReply, ModelError>> + Send,
    ) -> Result<ModelReply, ModelError> {
        let within = self.endpoint.limits.call_within;
        let answered = timeout(within, call).await;
        answered
            .unwrap_or_else(|_| {
                Err(ModelError::Unavailable {
                    message: format!("no complete answer within {within:?}"),
                    source: None,
                })
            })
            .map_err(|error| self.endpoint.redact(error))
    }

    async fn whole(
        &self,
        model: &str,
        mut response: Response,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError> {
        let body = self.endpoint.body(&mut response).await?;
        let mut completion = Completion::default();
        completion.absorb(&body, on_chunk)?;
        completion.into_reply(model)
    }

    async fn streamed(
        &self,
        model: &str,
        mut response: Response,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError> {
        let mut completion = Completion::default();
        let mut done = false;
        let mut parser = SseParser::new(self.endpoint.limits.sse_line_bytes_max);
        let mut bound = BodyBound::new(self.endpoint.limits.body_bytes_max);
        while let Some(chunk) = self.endpoint.chunk(&mut response).await? {
            bound.take(chunk.len())?;
            parser.feed(&chunk, &mut |data| {
                completion_data(data, &mut done, &mut completion, on_chunk)
            })?;
            if done {
                return completion.into_reply(model);
            }
        }
        parser.finish(&mut |data| completion_data(data, &mut done, &mut completion, on_chunk))?;
        if !done && !completion.is_finished() {
            return Err(ModelError::BadAnswer {
                message: "the stream ended before the answer did".to_owned(),
            });
        }
        completion.into_reply(model)
    }
}

/// One event of a stream. What comes after the end is not part of the answer.
fn completion_data(
    data: &str,
    done: &mut bool,
    completion: &mut Completion,
    on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
) -> Result<(), ModelError> {
    match data.trim() {
        _ if *done => Ok(()),
        "" => Ok(()),
        "[DONE]" => {
            *done = true;
            Ok(())
        }
        document => completion.absorb(document.as_bytes(), on_chunk),
    }
}

#[async_trait]
impl ModelProvider for HttpModel {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let model = self.resolve(request);
        let body = encode(request, model, Delivery::Whole)?;
        self.within(async {
            let response = self.endpoint.post(body).await?;
            self.whole(model, response, &mut |_| {}).await
        })
        .await
    }

    fn streaming(&self) -> Option<&dyn StreamingModel> {
        Some(self)
    }
}

#[async_trait]
impl StreamingModel for HttpModel {
    async fn stream(
        &self,
        request: &ModelRequest,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError> {
        let model = self.resolve(request);
        let body = encode(request, model, Delivery::Streamed)?;
        self.within(async {
            let response = self.endpoint.post(body).await?;
            if is_json(&response) {
                // A server without streaming answers in one piece.
                return self.whole(model, response, on_chunk).await;
            }
            self.streamed(model, response, on_chunk).await
        })
        .await
    }
}

fn is_json(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"application/json"))
}

/// Shows neither headers nor the address, which may hold a key in its query.
impl fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpModel")
            .field("host", &self.endpoint.url.host_str())
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
