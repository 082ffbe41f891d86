//! History by range: pages at the host, and the handle that a harness reads by.

use std::fmt;
use std::sync::Arc;

use mainspring_api::{
    Event, HarnessError, History, HistoryError, SharedError, SinkError, async_trait,
};
use mainspring_wire::{HistoryRequest, v1};
use prost::Message as _;

use crate::harness::event::protocol;
use crate::harness::link::LinkError;
use crate::harness::remote_sink::RemoteSink;

/// Events of a page, at most; what asks for more gets a shorter one.
pub(crate) const PAGE_EVENTS_MAX: usize = 256;

/// Bytes of a page beyond its first event, so that neither side holds more of a
/// long history than it works on.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Reads the page that was asked for. It has at least one event; `room` is what
/// the message leaves for its events.
///
/// # Errors
/// - `Protocol` for a position outside the history, or a limit below 1.
/// - `TooLarge` for an event that no message can carry.
pub(crate) async fn page(
    history: &dyn History,
    request: HistoryRequest,
    room: usize,
) -> Result<v1::HistoryPage, HarnessError> {
    let head = history.len();
    let from = u64::try_from(request.from_seq).ok().filter(|from| (1..=head).contains(from));
    let Some(from) = from else {
        return Err(protocol(format!(
            "history was asked for from seq {}, it is 1 to {head}",
            request.from_seq
        )));
    };
    let limit = match usize::try_from(request.limit) {
        Ok(limit) if limit > 0 => limit.min(PAGE_EVENTS_MAX),
        _ => return Err(protocol(format!("history was asked for {} events", request.limit))),
    };
    let mut events = Vec::new();
    let mut bytes = 0;
    for event in history.range(from - 1, limit).await?.into_iter().take(limit) {
        let event = v1::Event::try_from(event)
            .map_err(|error| protocol(format!("history cannot be sent: {error}")))?;
        let length = event.encoded_len();
        // One byte of tag: the field number of events is below 16.
        let with_frame = 1 + prost::length_delimiter_len(length) + length;
        if events.is_empty() && with_frame > room {
            return Err(HarnessError::Sink(SinkError::TooLarge {
                what: "event of the history",
                bytes: length as u64,
                bytes_max: room as u64,
            }));
        }
        bytes += with_frame;
        if !events.is_empty() && bytes > room.min(PAGE_BYTES_MAX) {
            break;
        }
        events.push(event);
    }
    if events.is_empty() {
        let short = LinkError::protocol("history is shorter than its length");
        return Err(HistoryError(Arc::new(short)).into());
    }
    let end = from - 1 + events.len() as u64 == head;
    Ok(v1::HistoryPage { from_seq: request.from_seq, events, end })
}

/// The history that a harness reads from its host, while its run lasts.
pub(crate) struct RemoteHistory {
    len: u64,
    sink: Arc<RemoteSink>,
}

impl RemoteHistory {
    pub(crate) const fn new(len: u64, sink: Arc<RemoteSink>) -> Self {
        Self { len, sink }
    }
}

impl fmt::Debug for RemoteHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteHistory").field("len", &self.len).finish_non_exhaustive()
    }
}

#[async_trait]
impl History for RemoteHistory {
    fn len(&self) -> u64 {
        self.len
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        if from >= self.len || limit == 0 {
            return Ok(Vec::new());
        }
        let (sink, len) = (Arc::clone(&self.sink), self.len);
        // Its own task, so that a reader that is dropped half way leaves no
        // answer behind for whoever asks next.
        let reading = tokio::spawn(async move { sink.history(from, limit, len).await });
        reading.await.unwrap_or(Err(SinkError::Closed)).map_err(|error| {
            let error: SharedError = Arc::new(error);
            HistoryError(error)
        })
    }
}
