//! History by range: what a harness asks for, and what it is answered.
//!
//! A request travels as an event, and is none: it has its own type here, and
//! [`mainspring_api::Event`] refuses it, so that no journal can take it.

use mainspring_api::{Event, ExecutionId};

use crate::error::{WireError, each};
use crate::event::body_mismatch;
use crate::v1;

/// Asks for events before the execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryRequest {
    /// Position of the first, from 1 on.
    pub from_seq: i64,
    /// At most so many.
    pub limit: i32,
}

impl HistoryRequest {
    /// The request that `event` is, if it is one.
    ///
    /// # Errors
    /// [`WireError::BodyMismatch`] when its kind and its body disagree on that.
    pub fn of(event: &v1::Event) -> Result<Option<Self>, WireError> {
        const REQUEST: v1::EventKind = v1::EventKind::EventHistoryRequest;
        match (&event.body, event.kind()) {
            (Some(v1::event::Body::HistoryRequest(request)), REQUEST) => {
                Ok(Some(Self { from_seq: request.from_seq, limit: request.limit }))
            }
            (None, REQUEST) => Err(WireError::missing("history_request")),
            (Some(body @ v1::event::Body::HistoryRequest(_)), kind)
            | (Some(body), kind @ REQUEST) => Err(body_mismatch(kind.as_str_name(), body)),
            _ => Ok(None),
        }
    }

    /// The request as a harness sends it.
    #[must_use]
    pub fn in_execution(self, execution: &ExecutionId) -> v1::Event {
        v1::Event {
            execution_id: execution.to_string(),
            kind: v1::EventKind::EventHistoryRequest as i32,
            body: Some(v1::event::Body::HistoryRequest(v1::HistoryRequest {
                from_seq: self.from_seq,
                limit: self.limit,
            })),
            ..v1::Event::default()
        }
    }
}

/// Events before the execution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryPage {
    /// Position of the first, as it was asked for.
    pub from_seq: i64,
    /// The events, in order.
    pub events: Vec<Event>,
    /// Whether nothing comes after them.
    pub end: bool,
}

impl TryFrom<HistoryPage> for v1::HistoryPage {
    type Error = WireError;

    fn try_from(page: HistoryPage) -> Result<Self, WireError> {
        Ok(Self {
            from_seq: page.from_seq,
            events: each("events", page.events, TryInto::try_into)?,
            end: page.end,
        })
    }
}

impl TryFrom<v1::HistoryPage> for HistoryPage {
    type Error = WireError;

    fn try_from(page: v1::HistoryPage) -> Result<Self, WireError> {
        Ok(Self {
            from_seq: page.from_seq,
            events: each("events", page.events, TryInto::try_into)?,
            end: page.end,
        })
    }
}
