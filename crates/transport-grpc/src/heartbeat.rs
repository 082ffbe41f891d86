//! Signs of life on streams that have nothing to say, for those who ask:
//! balancers cut such streams, ignore pings, and some stop forwarding without
//! a word.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{BoxStream, Condition, SessionsError};
use mainspring_wire::{operations_v1, v1};
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::metadata::HEARTBEAT;

/// The longest interval that may be asked for.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs(3600);

/// Intervals without any message after which a client takes a stream for lost.
pub const SILENT_INTERVALS_MAX: u32 = 3;

/// How often a client asks for them, unless it is told otherwise.
pub(crate) const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(15);

/// An interval in whole seconds, from 1 to [`HEARTBEAT_MAX`].
fn interval(text: &str) -> Option<Duration> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse::<u32>().ok().filter(|seconds| digits && *seconds > 0)?;
    Some(Duration::from_secs(seconds.into())).filter(|interval| *interval <= HEARTBEAT_MAX)
}

/// What a call asks for.
pub(crate) fn asked(metadata: &MetadataMap) -> Result<Option<Duration>, SessionsError> {
    let Some(value) = metadata.get(HEARTBEAT) else {
        return Ok(None);
    };
    value.to_str().ok().and_then(interval).map(Some).ok_or_else(|| {
        SessionsError::new(
            Condition::InvalidArgument,
            format!(
                "{HEARTBEAT}: it is not a whole number of seconds from 1 to {}",
                HEARTBEAT_MAX.as_secs()
            ),
        )
    })
}

/// How long an answer may be silent: hosts that send no heartbeats do not
/// answer with the key either, and are not judged by them.
pub(crate) fn silence_max(answer: &MetadataMap) -> Option<Duration> {
    let interval = answer.get(HEARTBEAT)?.to_str().ok().and_then(interval)?;
    Some(interval * SILENT_INTERVALS_MAX)
}

/// A message that can be a sign of life and nothing else.
pub(crate) trait Beats: Sized {
    /// The sign.
    fn heartbeat() -> Self;
    /// Whether this is one, and no value.
    fn is_heartbeat(&self) -> bool;
}

impl Beats for v1::ExecUpdate {
    fn heartbeat() -> Self {
        let update = v1::exec_update::Update::Heartbeat(v1::Heartbeat {});
        Self { update: Some(update) }
    }

    fn is_heartbeat(&self) -> bool {
        matches!(self.update, Some(v1::exec_update::Update::Heartbeat(_)))
    }
}

impl Beats for v1::LogRecord {
    fn heartbeat() -> Self {
        Self { heartbeat: Some(v1::Heartbeat {}), ..Self::default() }
    }

    fn is_heartbeat(&self) -> bool {
        self.heartbeat.is_some()
    }
}

/// A follower is told of heartbeats, so that none is left out.
impl Beats for operations_v1::FollowUpdate {
    fn heartbeat() -> Self {
        use operations_v1::follow_update::{Heartbeat, Update};
        Self { update: Some(Update::Heartbeat(Heartbeat {})) }
    }

    fn is_heartbeat(&self) -> bool {
        false
    }
}

/// `messages`, and a heartbeat whenever there was none for `interval`.
pub(crate) fn with_heartbeats<T: Beats + Send + 'static>(
    messages: BoxStream<'static, Result<T, Status>>,
    interval: Option<Duration>,
) -> BoxStream<'static, Result<T, Status>> {
    let Some(interval) = interval else {
        return messages;
    };
    Box::pin(stream::unfold(messages, move |mut messages| async move {
        match tokio::time::timeout(interval, messages.next()).await {
            Ok(message) => Some((message?, messages)),
            Err(_) => Some((Ok(T::heartbeat()), messages)),
        }
    }))
}
