//! The start of an execution, as a frame and back.

use std::sync::Arc;

use mainspring_api::{
    Event, ExecutionId, HarnessError, History, HistoryError, SessionUid, Start, async_trait,
};
use mainspring_wire::{ControllerFrame, Frame, StartFrame, WireError, v1};
use prost::Message as _;

use crate::harness::extensions::HarnessExtensions;
use crate::harness::link::LinkError;

/// Events read at a time.
const HISTORY_PAGE: usize = 256;

/// The history of one execution, read once: for the check before the turn is
/// recorded, and for the frame after it.
///
/// It is kept as it is sent: as messages its events take some ten times as much.
#[derive(Debug)]
pub(crate) struct ReadHistory {
    execution_id: ExecutionId,
    /// A start that has nothing but the history; empty above the bound.
    encoded: Vec<u8>,
    /// What it has, or would have.
    bytes: usize,
}

impl ReadHistory {
    /// Reads the history of `start`, counting beyond the bound without keeping.
    pub(crate) async fn of(start: &Start, message_bytes_max: usize) -> Result<Self, HarnessError> {
        let (encoded, bytes) = read(&*start.history, message_bytes_max).await?;
        Ok(Self { execution_id: start.execution_id.clone(), encoded, bytes })
    }

    pub(crate) fn is_of(&self, start: &Start) -> bool {
        self.execution_id == start.execution_id
    }
}

/// The start frame with the length of the history alone, which is not read.
pub(crate) fn to_frame_with_head(
    start: Start,
    message_bytes_max: usize,
) -> Result<v1::ControllerFrame, HarnessError> {
    let head = start.history.len();
    let head = i64::try_from(head).map_err(|_| HarnessError::Protocol {
        message: format!("start cannot be sent: history of {head} events"),
    })?;
    let frame = without_history(start, head)?;
    let bytes = frame.encoded_len();
    if bytes > message_bytes_max {
        return Err(HarnessError::StartTooLarge {
            bytes: bytes as u64,
            bytes_max: message_bytes_max as u64,
        });
    }
    Ok(frame)
}

fn without_history(start: Start, history_head: i64) -> Result<v1::ControllerFrame, HarnessError> {
    let frame = ControllerFrame {
        session: session_text(start.session.as_ref()),
        execution_id: start.execution_id.to_string(),
        frame: Frame::Start(Box::new(StartFrame {
            config: start.config,
            history: Vec::new(),
            inputs: start.inputs,
            resume_from_seq: start.resume_from_seq,
            model: start.model,
            history_head,
        })),
    };
    v1::ControllerFrame::try_from(frame).map_err(unsendable)
}

/// The start frame, with the whole history.
pub(crate) fn to_frame(
    start: Start,
    history: &ReadHistory,
    message_bytes_max: usize,
) -> Result<v1::ControllerFrame, HarnessError> {
    let mut frame = without_history(start, 0)?;
    let too_large = |bytes: usize| HarnessError::StartTooLarge {
        bytes: bytes as u64,
        bytes_max: message_bytes_max as u64,
    };
    // The estimate lacks the length prefixes around the history.
    let estimate = frame.encoded_len().saturating_add(history.bytes);
    if estimate > message_bytes_max {
        return Err(too_large(estimate));
    }
    if let Some(v1::controller_frame::Frame::Start(message)) = &mut frame.frame {
        message.merge(&*history.encoded).map_err(|error| HarnessError::Protocol {
            message: format!("start cannot be sent: start.history: {error}"),
        })?;
    }
    let bytes = frame.encoded_len();
    if bytes > message_bytes_max {
        return Err(too_large(bytes));
    }
    Ok(frame)
}

/// Every event as a part of a start, and how many bytes that is. Once the bound
/// is passed they are counted and no longer kept.
async fn read(history: &dyn History, bytes_max: usize) -> Result<(Vec<u8>, usize), HarnessError> {
    let mut encoded = Vec::new();
    let mut bytes = 0usize;
    let mut from = 0u64;
    loop {
        let page = history.range(from, HISTORY_PAGE).await?;
        if page.is_empty() {
            return Ok((encoded, bytes));
        }
        from += page.len() as u64;
        for event in page {
            let event = v1::Event::try_from(event)
                .map_err(|error| unsendable(error.within("start.history")))?;
            let part = v1::Start { history: vec![event], ..v1::Start::default() };
            bytes = bytes.saturating_add(part.encoded_len());
            if bytes <= bytes_max {
                part.encode(&mut encoded).expect("a vector has room");
            } else {
                encoded = Vec::new();
            }
        }
    }
}

fn unsendable(error: WireError) -> HarnessError {
    HarnessError::Protocol { message: format!("start cannot be sent: {error}") }
}

pub(crate) fn session_text(session: Option<&SessionUid>) -> String {
    session.map(ToString::to_string).unwrap_or_default()
}

/// The start that a first frame carries, and the length of a history that is
/// read by range; the start's own is then empty.
pub(crate) fn from_frame(
    frame: v1::ControllerFrame,
    agreed: HarnessExtensions,
) -> Result<(Start, u64), LinkError> {
    let frame = ControllerFrame::try_from(frame)
        .map_err(|error| LinkError::protocol(format!("first frame: {error}")))?;
    let Frame::Start(start) = frame.frame else {
        return Err(LinkError::protocol(format!(
            "first frame is {}, not start",
            frame.frame.name()
        )));
    };
    if agreed.history_range && !start.history.is_empty() {
        return Err(LinkError::protocol("start carries the history that is read by range"));
    }
    if !agreed.history_range && start.history_head != 0 {
        return Err(LinkError::protocol("history by range was not agreed on"));
    }
    let head = u64::try_from(start.history_head)
        .map_err(|_| LinkError::protocol("first frame: start.history_head is negative"))?;
    let execution_id = ExecutionId::new(&frame.execution_id)
        .map_err(|error| LinkError::protocol(format!("first frame: {error}")))?;
    let session = match frame.session.as_str() {
        "" => None,
        text => Some(
            SessionUid::new(text)
                .map_err(|error| LinkError::protocol(format!("first frame: {error}")))?,
        ),
    };
    let start = Start {
        session,
        execution_id,
        model: start.model,
        config: start.config,
        history: Arc::new(Received(start.history)),
        inputs: start.inputs,
        resume_from_seq: start.resume_from_seq,
    };
    Ok((start, head))
}

/// History that came with the start.
#[derive(Debug)]
struct Received(Vec<Event>);

#[async_trait]
impl History for Received {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    async fn range(&self, from: u64, limit: usize) -> Result<Vec<Event>, HistoryError> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(self.0.iter().skip(from).take(limit).cloned().collect())
    }
}
