//! A model that a case scripts, and that counts what it is asked.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_api::{
    BoxFuture, Message, ModelError, ModelProvider, ModelReply, ModelRequest, StreamingModel,
    async_trait,
};

type Answer = Result<ModelReply, ModelError>;
type Respond = dyn Fn(ModelRequest) -> BoxFuture<'static, Answer> + Send + Sync;

/// Answers `echo:` and the last message's text unless told otherwise.
#[derive(Default)]
pub(crate) struct TestModel {
    asked: Mutex<Vec<ModelRequest>>,
    failures_left: Mutex<usize>,
    respond: Mutex<Option<Arc<Respond>>>,
    streams: AtomicBool,
}

impl fmt::Debug for TestModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestModel")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestModel {
    /// Calls that reached the provider, failed ones too.
    pub(crate) fn calls(&self) -> usize {
        lock(&self.asked).len()
    }

    /// The requests that reached it.
    pub(crate) fn asked(&self) -> Vec<ModelRequest> {
        lock(&self.asked).clone()
    }

    /// The texts of the requests' last messages.
    pub(crate) fn texts(&self) -> Vec<String> {
        lock(&self.asked).iter().map(last_text).collect()
    }

    /// The next `count` calls fail.
    pub(crate) fn fail(&self, count: usize) {
        *lock(&self.failures_left) = count;
    }

    /// Answers with `respond` from now on.
    pub(crate) fn respond<F>(&self, respond: impl Fn(ModelRequest) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        *lock(&self.respond) = Some(Arc::new(move |request| Box::pin(respond(request))));
    }

    /// Hands out its answers in chunks from now on.
    pub(crate) fn stream_chunks(&self) {
        self.streams.store(true, Ordering::SeqCst);
    }

    /// What it answers when nothing else was asked of it.
    pub(crate) fn echo(request: &ModelRequest) -> ModelReply {
        ModelReply {
            message: Message::assistant(format!("echo:{}", last_text(request))),
            ..ModelReply::default()
        }
    }

    /// The failure that [`TestModel::fail`] asks for.
    pub(crate) fn failure() -> ModelError {
        ModelError::Unavailable { message: "out of order".to_owned(), source: None }
    }

    async fn answer(&self, request: &ModelRequest) -> Answer {
        lock(&self.asked).push(request.clone());
        {
            let mut left = lock(&self.failures_left);
            if *left > 0 {
                *left -= 1;
                return Err(Self::failure());
            }
        }
        let respond = lock(&self.respond).clone();
        match respond {
            Some(respond) => respond(request.clone()).await,
            None => Ok(Self::echo(request)),
        }
    }
}

fn last_text(request: &ModelRequest) -> String {
    request.messages.last().map(Message::plain_text).unwrap_or_default()
}

#[async_trait]
impl ModelProvider for TestModel {
    async fn complete(&self, request: &ModelRequest) -> Answer {
        self.answer(request).await
    }

    fn streaming(&self) -> Option<&dyn StreamingModel> {
        self.streams.load(Ordering::SeqCst).then_some(self)
    }
}

#[async_trait]
impl StreamingModel for TestModel {
    async fn stream(
        &self,
        request: &ModelRequest,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Answer {
        let reply = self.answer(request).await?;
        // The first chunk is empty, as providers send it: it carries only a role.
        on_chunk("");
        reply.message.plain_text().split_inclusive(':').for_each(on_chunk);
        Ok(reply)
    }
}
