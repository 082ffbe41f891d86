//! What the clients share: how calls are made, and answers read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{BoxStream, Caller, Condition, Outcome, Session, SessionsError};
use mainspring_wire::{WireError, v1};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::heartbeat::{self, Beats, SILENT_INTERVALS_MAX};
use crate::link::{Line, Used};
use crate::metadata;
use crate::status::{Effect, from_status};

/// How requests are made: none is begun that could not be sent whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) bytes_max: usize,
}

impl Outgoing {
    pub(crate) fn request<T: Message>(
        self,
        message: T,
        metadata: MetadataMap,
    ) -> Result<Request<T>, SessionsError> {
        // The library would find out when the call is under way, and then
        // nobody knows what became of it.
        if message.encoded_len() > self.bytes_max {
            let max = self.bytes_max;
            let text = format!("the message is larger than message_bytes_max, {max} bytes");
            return Err(SessionsError::new(Condition::ValueTooLarge, text));
        }
        Ok(request(message, metadata))
    }

    pub(crate) fn call<T: Message>(
        self,
        caller: &Caller,
        message: T,
    ) -> Result<Request<T>, SessionsError> {
        self.request(message, metadata::of_caller(caller))
    }
}

/// A request whose messages are made later.
pub(crate) fn request<T>(message: T, metadata: MetadataMap) -> Request<T> {
    Request::from_parts(metadata, Default::default(), message)
}

pub(crate) fn bad_request(error: WireError) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, error.to_string())
}

/// The peer did it, and its answer cannot be read.
pub(crate) fn bad_answer(error: WireError) -> SessionsError {
    SessionsError::new(Condition::Internal, format!("answer of the host: {error}"))
}

pub(crate) fn written(status: Status) -> SessionsError {
    from_status(&status, Effect::Write)
}

pub(crate) fn read(status: Status) -> SessionsError {
    from_status(&status, Effect::Read)
}

pub(crate) fn session(answer: Response<v1::Session>) -> Result<Session, SessionsError> {
    answer.into_inner().try_into().map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
}

/// Whether the host does not serve the service or the method. Our own hosts
/// say more than the code when it is the service that refuses.
pub(crate) fn is_not_served(status: &Status) -> bool {
    status.code() == Code::Unimplemented && status.details().is_empty()
}

/// The error of a call of `service`, which not every host serves.
pub(crate) fn not_served(
    operation: &str,
    service: &str,
    effect: Effect,
) -> impl Fn(Status) -> SessionsError {
    let text = format!("{operation} needs {service}, which this host does not serve");
    move |status| {
        if is_not_served(&status) {
            return SessionsError::new(Condition::Unimplemented, text.clone());
        }
        from_status(&status, effect)
    }
}

/// The messages of a stream, up to and with the first error.
pub(crate) fn items<T, U>(
    messages: Streaming<T>,
    effect: Effect,
) -> BoxStream<'static, Result<U, SessionsError>>
where
    T: Send + 'static,
    U: TryFrom<T, Error = WireError> + Send + 'static,
{
    Box::pin(stream::unfold(Some(messages), move |messages| async move {
        let mut messages: Streaming<T> = messages?;
        let item = match messages.next().await? {
            Ok(message) => U::try_from(message).map_err(bad_answer),
            Err(status) => Err(from_status(&status, effect)),
        };
        let rest = item.is_ok().then_some(messages);
        Some((item, rest))
    }))
}

/// The signs of life that one client asks for, and what it knows of its host.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    interval: Option<Duration>,
    /// Whether the host has agreed to give them, once.
    known: Arc<AtomicBool>,
    line: Arc<Line>,
}

/// An answer, and what it comes over.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    response: Response<Streaming<T>>,
    used: Used,
}

impl Pulse {
    pub(crate) fn new(interval: Option<Duration>, line: &Arc<Line>) -> Self {
        Self { interval, known: Arc::default(), line: Arc::clone(line) }
    }

    pub(crate) const fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Waits for an answer to begin. That a host which gives signs of life does
    /// at once, as does one that only looks a session up.
    pub(crate) async fn answer<T>(
        &self,
        opens_at_once: bool,
        effect: Effect,
        answer: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
    ) -> Result<Result<Answer<T>, Status>, SessionsError> {
        let used = self.line.used();
        let judged = opens_at_once || self.known.load(Ordering::Relaxed);
        let answer = match self.interval.filter(|_| judged) {
            None => answer.await,
            Some(interval) => {
                let max = interval * SILENT_INTERVALS_MAX;
                let waited = tokio::time::timeout(max, answer).await;
                waited.map_err(|_| silent(max, effect, &used))?
            }
        };
        if let Ok(answer) = &answer
            && heartbeat::silence_max(answer.metadata()).is_some()
        {
            self.known.store(true, Ordering::Relaxed);
        }
        Ok(answer.map(|response| Answer { response, used }))
    }
}

/// As [`items`], of a host that may have agreed to give signs of life: silence
/// ends the stream then.
pub(crate) fn live_items<T, U>(
    answer: Answer<T>,
    effect: Effect,
) -> BoxStream<'static, Result<U, SessionsError>>
where
    T: Beats + Send + 'static,
    U: TryFrom<T, Error = WireError> + Send + 'static,
{
    let Answer { response, used } = answer;
    let silence_max = heartbeat::silence_max(response.metadata());
    let state = Some((response.into_inner(), used));
    Box::pin(stream::unfold(state, move |state| async move {
        let (mut messages, used): (Streaming<T>, Used) = state?;
        let item = loop {
            match next(&mut messages, silence_max, effect, &used).await {
                Ok(None) => return None,
                Ok(Some(message)) if message.is_heartbeat() => {}
                Ok(Some(message)) => break U::try_from(message).map_err(bad_answer),
                Err(error) => break Err(error),
            }
        };
        let rest = item.is_ok().then_some((messages, used));
        Some((item, rest))
    }))
}

/// The items, once the first of them is there: an error instead of it is that
/// of the call.
pub(crate) async fn opened<U: Send + 'static>(
    mut items: BoxStream<'static, Result<U, SessionsError>>,
) -> Result<BoxStream<'static, Result<U, SessionsError>>, SessionsError> {
    match items.next().await.transpose()? {
        Some(first) => Ok(Box::pin(stream::iter([Ok(first)]).chain(items))),
        None => Ok(Box::pin(stream::empty())),
    }
}

fn silent(max: Duration, effect: Effect, used: &Used) -> SessionsError {
    used.is_silent();
    let text = format!("no heartbeat for {} s", max.as_secs());
    let outcome = match effect {
        Effect::Read => Outcome::NotApplied,
        Effect::Write => Outcome::Unknown,
    };
    SessionsError::new(Condition::Unavailable, text).with_outcome(outcome)
}

async fn next<T>(
    messages: &mut Streaming<T>,
    silence_max: Option<Duration>,
    effect: Effect,
    used: &Used,
) -> Result<Option<T>, SessionsError> {
    let message = match silence_max {
        None => messages.message().await,
        Some(max) => match tokio::time::timeout(max, messages.message()).await {
            Ok(message) => message,
            Err(_) => return Err(silent(max, effect, used)),
        },
    };
    message.map_err(|status| from_status(&status, effect))
}
