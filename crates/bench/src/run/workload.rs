//! Sessions with events of one size.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use mainspring_api::{
    AppendId, Entropy as _, Event, EventBody, ExecutionId, ExecutionStart, Fence, Head, Message,
    OsEntropy, Seq, SessionUid,
};
use mainspring_eventlog::{Batch, EventLog, NewRecord, NewSession, canonical};

/// Canonical bytes of an event, unless a row says otherwise.
pub const EVENT_BYTES: usize = 600;

/// Records of one append when a journal is filled.
pub const FILL_RECORDS: u64 = 1_000;

/// A moment.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// A random id.
pub fn fresh_id() -> AppendId {
    let mut raw = [0; 16];
    OsEntropy.fill(&mut raw);
    AppendId::new(raw)
}

/// Outputs of an agent whose canonical form has one size. The texts differ, and
/// do not compress to nothing.
#[derive(Debug, Clone)]
pub struct Events {
    execution: ExecutionId,
    /// Shared: a copy for each of many writers would be most of their memory.
    texts: Arc<[String]>,
}

impl Events {
    /// Events of this many canonical bytes.
    pub fn of_bytes(bytes: usize) -> Result<Self> {
        let execution = ExecutionId::chosen("00000000000000a1")?;
        let around = canonical::event_bytes(&output(&execution, "x"))?.len() - 1;
        let length = bytes.saturating_sub(around);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let texts = (0..256).map(|_| text(&mut state, length)).collect();
        let events = Self { execution, texts };
        let size = canonical::event_bytes(&events.event(Seq::new(2)))?.len();
        anyhow::ensure!(size == bytes, "an event of {bytes} bytes came out as {size}");
        Ok(events)
    }

    /// The event of this position: the first one starts the execution.
    pub fn event(&self, seq: Seq) -> Event {
        if seq == Seq::new(1) {
            let body = ExecutionStart {
                input_count: Some(0),
                harness: "bench".to_owned(),
                harness_version: "1".to_owned(),
                ..ExecutionStart::default()
            };
            return Event::in_execution(&self.execution, EventBody::ExecutionStart(Some(body)));
        }
        let index = usize::try_from(seq.get()).unwrap_or(0) % self.texts.len();
        output(&self.execution, &self.texts[index])
    }
}

fn output(execution: &ExecutionId, text: &str) -> Event {
    Event::in_execution(execution, EventBody::Output(Some(Message::assistant(text))))
}

/// Characters that JSON does not escape, from a xorshift generator.
fn text(state: &mut u64, length: usize) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
    let letter = |_| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        char::from(LETTERS[(*state >> 58) as usize])
    };
    (0..length).map(letter).collect()
}

/// The one who writes a session.
#[derive(Debug, Clone)]
pub struct Writer {
    /// The session.
    pub uid: SessionUid,
    /// Where it ends.
    pub head: Head,
    events: Events,
}

impl Writer {
    /// Creates the session `name`.
    pub async fn create(log: &dyn EventLog, name: &str, events: &Events) -> Result<Self> {
        let uid = SessionUid::new(name)?;
        log.create(fresh_id(), NewSession::bare(uid.clone(), "bench")).await?;
        Ok(Self { uid, head: Head::EMPTY, events: events.clone() })
    }

    /// As [`Writer::create`], with a journal of `length` records.
    pub async fn filled(
        log: &dyn EventLog,
        name: &str,
        events: &Events,
        length: u64,
    ) -> Result<Self> {
        let mut writer = Self::create(log, name, events).await?;
        while writer.head.seq.get() < length {
            let batch = writer.link(length)?;
            writer.append(log, &batch).await?;
        }
        Ok(writer)
    }

    /// The next records, not linked yet, up to `length` in all.
    pub fn next(&self, length: u64) -> Vec<NewRecord> {
        let from = self.head.seq.get() + 1;
        let to = length.min(from + FILL_RECORDS - 1);
        (from..=to).map(|seq| self.events.event(Seq::new(seq)).into()).collect()
    }

    /// One record more.
    pub fn one(&self) -> Vec<NewRecord> {
        vec![self.events.event(self.head.seq.next()).into()]
    }

    /// The next records, linked.
    pub fn link(&self, length: u64) -> Result<Batch> {
        Ok(Batch::link(self.head, self.next(length))?)
    }

    /// Appends a batch at the head.
    pub async fn append(&mut self, log: &dyn EventLog, batch: &Batch) -> Result<()> {
        self.head = log.append(&self.uid, fresh_id(), Fence::NONE, batch).await?;
        Ok(())
    }

    /// Appends one record.
    pub async fn append_one(&mut self, log: &dyn EventLog) -> Result<()> {
        let batch = Batch::link(self.head, self.one())?;
        self.append(log, &batch).await
    }
}
