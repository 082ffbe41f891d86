//! A new turn, and where it starts.

use mainspring_api::{Bytes, EventBody, ExecutionId, ExecutionStart, Head, Message, Seq};
use mainspring_eventlog::{Batch, Limits, LogError, NewRecord};
use tokio::time::Instant;

use crate::error::ControllerError;
use crate::recorded::normalise;
use crate::writer::Tag;

/// Where a turn must start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Wherever the journal ends.
    Head,
    /// At this position.
    Seq(Seq),
    /// At this head, which the caller has read.
    At(Head),
}

impl Expected {
    /// The head that a turn starts at, if the journal's is the expected one.
    ///
    /// # Errors
    /// The log's conflict.
    pub fn resolve(self, head: Head) -> Result<Head, LogError> {
        let expected = match self {
            Self::Head => return Ok(head),
            Self::Seq(seq) if seq == head.seq => return Ok(head),
            Self::At(at) if at == head => return Ok(head),
            Self::Seq(seq) => Head { seq, hash: None },
            Self::At(at) => at,
        };
        Err(LogError::Conflict { expected, head })
    }
}

/// A new turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// What it is about.
    pub inputs: Vec<Message>,
    /// Opaque configuration, recorded verbatim.
    pub config: Bytes,
    /// The harness's own cursor.
    pub resume_from_seq: i64,
    /// Where the journal must end.
    pub expected: Expected,
    /// Its id, which the journal must not have; `None` draws one.
    pub execution_id: Option<ExecutionId>,
    /// Whether that id was drawn at random just now, and need not be looked for
    /// in the journal.
    pub is_drawn: bool,
    /// When it must have ended.
    pub deadline: Option<Instant>,
}

impl Turn {
    /// A turn at the head with these inputs.
    #[must_use]
    pub fn new(inputs: Vec<Message>) -> Self {
        Self {
            inputs,
            config: Bytes::new(),
            resume_from_seq: 0,
            expected: Expected::Head,
            execution_id: None,
            is_drawn: false,
            deadline: None,
        }
    }

    /// Checks that the turn's start can be recorded, before anything else is done.
    ///
    /// # Errors
    /// An input without a canonical form, or above its bound, by name.
    pub fn check(&self, limits: &Limits) -> Result<(), ControllerError> {
        let id = ExecutionId::new("0000000000000000").expect("it is not empty");
        let start = ExecutionStart::default();
        let batch = Batch::link(Head::EMPTY, self.records(&Tag::Execution(id), start))?;
        Ok(limits.check(&batch)?)
    }

    /// What tells turns of one id apart: inputs, configuration, cursor and the
    /// harness that runs it.
    ///
    /// # Errors
    /// An input without a canonical form.
    pub fn digest(&self, harness: &str) -> Result<TurnDigest, ControllerError> {
        let id = ExecutionId::new("0000000000000000").expect("it is not empty");
        let start = ExecutionStart { harness: harness.to_owned(), ..ExecutionStart::default() };
        let batch = Batch::link(Head::EMPTY, self.records(&Tag::Execution(id), start))?;
        // The last hash covers every record before it.
        Ok(TurnDigest(batch.head()))
    }

    /// The start record and one record for each input. `start` says who runs it.
    pub(super) fn records(&self, tag: &Tag, start: ExecutionStart) -> Vec<NewRecord> {
        let start = ExecutionStart {
            config: self.config.clone(),
            resume_from_seq: self.resume_from_seq,
            input_count: Some(i64::try_from(self.inputs.len()).unwrap_or(i64::MAX)),
            ..start
        };
        let start = NewRecord::from(tag.event(EventBody::ExecutionStart(Some(start))));
        let inputs = self.inputs.iter().cloned().map(|mut input| {
            normalise(&mut input);
            NewRecord::from(tag.event(EventBody::Input(Some(input))))
        });
        std::iter::once(start).chain(inputs).collect()
    }
}

/// What tells turns of one id apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnDigest(Head);

/// A turn that ended.
#[derive(Debug, Clone)]
pub struct Executed {
    /// Its execution.
    pub execution_id: ExecutionId,
    /// The head after it.
    pub head: Head,
}
