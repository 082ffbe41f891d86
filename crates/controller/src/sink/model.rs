//! Model calls.

use std::sync::Arc;

use mainspring_api::{
    Delta, EventBody, ModelCall, ModelReply, ModelRequest, SinkError, random_hex,
};
use mainspring_eventlog::{NewRecord, input_hash};
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument as _;

use super::{Guarded, Inner, refused};
use crate::machine::ModelStep;
use crate::observer::{Observer, tell};
use crate::recorded::{USAGE_NOTE, normalise, usage_note};
use crate::spans;
use crate::writer::Tag;

impl Inner {
    pub(super) async fn model(
        self: &Arc<Self>,
        mut guarded: OwnedMutexGuard<Guarded>,
        mut request: ModelRequest,
    ) -> Result<ModelReply, SinkError> {
        // Refused before anything of the request is looked at.
        guarded.machine.admit()?;
        request.model = guarded.machine.effective_model(&request.model).to_owned();
        let hash = input_hash(&request)
            .map_err(|error| SinkError::Unrecordable(error.to_string()))?
            .to_string();
        let record_intent = match guarded.machine.model(&hash, &request.model)? {
            ModelStep::Served(reply) => {
                self.served(reply.message.plain_text());
                return Ok(*reply);
            }
            ModelStep::Call { record_intent } => record_intent,
        };
        if record_intent {
            let call = ModelCall {
                model: request.model.clone(),
                input_hash: hash,
                id: random_hex(&*guarded.writer()?.entropy, 8),
                ..ModelCall::default()
            };
            guarded.record(self.means.tag.event(EventBody::ModelCall(Some(call))).into()).await?;
        }
        let observer = Arc::clone(&guarded.writer()?.observer);
        let called = self.chat(&request, &*observer).await?;
        self.means.counters.count_model();
        guarded.record_completion(&self.means.tag, called).await
    }

    /// A call that is made, in its span.
    async fn chat(
        self: &Arc<Self>,
        request: &ModelRequest,
        observer: &dyn Observer,
    ) -> Result<ModelReply, SinkError> {
        let span = spans::chat(&self.means.span, self.means.session.as_ref(), &request.model);
        let call = self.call_model(request, observer).instrument(span.clone());
        let called = self.calling(call).await.flatten();
        match &called {
            Ok(reply) => spans::record_usage(&span, &reply.usage),
            Err(error) => spans::record_error(&span, error),
        }
        called
    }

    async fn call_model(
        &self,
        request: &ModelRequest,
        observer: &dyn Observer,
    ) -> Result<ModelReply, SinkError> {
        let Some(model) = &self.means.model else {
            return Err(SinkError::Unsupported("a model call on replay"));
        };
        let delta = |chunk: &str, done| {
            let delta = Delta {
                execution_id: self.means.tag.id().clone(),
                part_index: 0,
                chunk: chunk.to_owned(),
                done,
            };
            tell(|| observer.on_delta(delta));
        };
        let reply = match model.streaming() {
            None => model.complete(request).await,
            Some(streaming) => {
                let mut on_chunk = |chunk: &str| {
                    if !chunk.is_empty() {
                        delta(chunk, false);
                    }
                };
                let reply = streaming.stream(request, &mut on_chunk).await;
                if reply.is_ok() {
                    delta("", true);
                }
                reply
            }
        };
        reply.map_err(|error| SinkError::failed(Arc::new(error)))
    }
}

impl Guarded {
    /// Records a completion and returns it in its recorded form.
    async fn record_completion(
        &mut self,
        tag: &Tag,
        mut reply: ModelReply,
    ) -> Result<ModelReply, SinkError> {
        normalise(&mut reply.message);
        let usage = usage_note(&reply);
        let mut record = NewRecord::from(tag.event(EventBody::Output(Some(reply.message))));
        if let Some(note) = usage {
            record.notes.insert(USAGE_NOTE.to_owned(), note);
        }
        // Its intent says that it was asked for, so its refusal may be handled.
        let written = self.writer()?.append_one(record).await.map_err(refused)?;
        match written.event.body {
            EventBody::Output(Some(message)) => Ok(ModelReply { message, usage: reply.usage }),
            _ => unreachable!("an output reads back as an output"),
        }
    }
}
