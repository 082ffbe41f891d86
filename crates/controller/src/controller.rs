//! The controller: one session, one fence, new turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_api::{
    AppendId, Bytes, CancelReason, Descriptor, Entropy, Event, EventBody, ExecutionId,
    ExecutionStart, Fence, Harness, HarnessEnd, Head, Lifecycle, LogRecord, Message, ModelProvider,
    OsEntropy, RecordedError, Seq, SessionUid, Signal, Start,
};
use mainspring_eventlog::{Batch, Holder, Limits, LogError, NewRecord, SessionRow, mint_any};
use tokio::time::Instant;

use crate::error::ControllerError;
use crate::journal::Journal;
use crate::machine::Machine;
use crate::observer::{IgnoreAll, Observer};
use crate::recorded::normalise;
use crate::run::{self, Ran};
use crate::sink::RunSink;
use crate::writer::{Tag, Writer};

/// How a controller is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The session scope that harnesses see; a legacy turn needs one.
    pub session: Option<SessionUid>,
    /// The fence to write under; `None` mints one, which supersedes every older writer.
    pub fence: Option<Fence>,
    /// Who mints it.
    pub holder: Holder,
    /// The harness's name; empty means the id that it describes itself with.
    pub harness: String,
    /// Answers model calls.
    pub model: Arc<dyn ModelProvider>,
    /// Is told of records and deltas.
    pub observer: Arc<dyn Observer>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// What the harness said of itself on this very connection; `None` asks it.
    pub descriptor: Option<Descriptor>,
    /// Set when the caller goes away. It counts until the turn begins.
    pub gone: Signal<()>,
    /// Tells the harness that its turn is to stop, before it is dropped.
    pub cancel: Signal<CancelReason>,
}

impl Options {
    /// Options with a model and nothing else; mints a fence, tells nobody.
    #[must_use]
    pub fn new(model: Arc<dyn ModelProvider>) -> Self {
        Self {
            session: None,
            fence: None,
            holder: Holder { id: "controller".to_owned(), name: "controller".to_owned() },
            harness: String::new(),
            model,
            observer: Arc::new(IgnoreAll),
            entropy: Arc::new(OsEntropy),
            descriptor: None,
            gone: Signal::default(),
            cancel: Signal::default(),
        }
    }
}

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
    /// Chosen id; `None` draws one.
    pub execution_id: Option<ExecutionId>,
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
            deadline: None,
        }
    }
}

impl Turn {
    /// Checks that the turn's start can be recorded, before anything else is done.
    ///
    /// # Errors
    /// An input without a canonical form, or above its bound, by name.
    pub fn check(&self, limits: &Limits) -> Result<(), ControllerError> {
        let id = ExecutionId::new("0000000000000000").expect("it is not empty");
        let batch = Batch::link(Head::EMPTY, self.records(&Tag::Execution(id), "", ""))?;
        Ok(limits.check(&batch)?)
    }

    /// The start record and one record for each input.
    fn records(&self, tag: &Tag, harness: &str, version: &str) -> Vec<NewRecord> {
        let start = ExecutionStart {
            config: self.config.clone(),
            resume_from_seq: self.resume_from_seq,
            input_count: Some(i64::try_from(self.inputs.len()).unwrap_or(i64::MAX)),
            harness: harness.to_owned(),
            harness_version: version.to_owned(),
            compute_instance: String::new(),
            model: String::new(),
        };
        let start = NewRecord::from(tag.event(EventBody::ExecutionStart(Some(start))));
        let inputs = self.inputs.iter().cloned().map(|mut input| {
            normalise(&mut input);
            NewRecord::from(tag.event(EventBody::Input(Some(input))))
        });
        std::iter::once(start).chain(inputs).collect()
    }
}

/// A turn that ended.
#[derive(Debug, Clone)]
pub struct Executed {
    /// Its execution.
    pub execution_id: ExecutionId,
    /// The head after it.
    pub head: Head,
}

/// Drives one session under one fence.
#[derive(Debug)]
pub struct Controller {
    pub(crate) journal: Journal,
    pub(crate) options: Options,
    pub(crate) fence: Fence,
    pub(crate) model_calls: Arc<AtomicU64>,
}

impl Controller {
    /// A controller that may write. Mints a fence unless one is given.
    ///
    /// # Errors
    /// The log's, when minting fails.
    pub async fn new(journal: Journal, options: Options) -> Result<Self, ControllerError> {
        let fence = match options.fence {
            Some(fence) => fence,
            None => {
                let id = || AppendId::random(&*options.entropy);
                mint_any(&**journal.log(), journal.uid(), id, options.holder.clone()).await?
            }
        };
        Ok(Self { journal, options, fence, model_calls: Arc::default() })
    }

    /// A controller that only replays; it mints nothing and supersedes nobody.
    #[must_use]
    pub fn reader(journal: Journal, options: Options) -> Self {
        Self { journal, options, fence: Fence::NONE, model_calls: Arc::default() }
    }

    /// The fence that it writes under.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Model calls that were made and answered.
    #[must_use]
    pub fn model_invocations(&self) -> u64 {
        self.model_calls.load(Ordering::Relaxed)
    }

    /// Runs a new turn.
    ///
    /// # Errors
    /// In this order, each before anything of the turn is recorded: a tampered
    /// journal, an open approval, an ill-formed legacy prefix, a harness that
    /// cannot describe itself, a moved head or newer fence. After that the
    /// harness's own error, with an error record at the end of the turn.
    ///
    /// # Cancellation
    /// A dropped future leaves a turn that can be resumed.
    pub async fn exec(
        &self,
        harness: &Arc<dyn Harness>,
        turn: Turn,
    ) -> Result<Executed, ControllerError> {
        let row = self.journal.open().await?;
        admit(&row)?;
        let descriptor = self.describe(harness, turn.deadline).await?;
        let head = turn.expected.resolve(row.view.head)?;
        let id = turn
            .execution_id
            .clone()
            .unwrap_or_else(|| ExecutionId::random(&*self.options.entropy));
        let tag = Tag::Execution(id.clone());
        let mut start = Start {
            session: self.options.session.clone(),
            execution_id: id.clone(),
            model: String::new(),
            config: turn.config.clone(),
            history: self.journal.history(head.seq.next()),
            inputs: turn.inputs.clone(),
            resume_from_seq: turn.resume_from_seq,
        };
        harness.check_start(&start).await.map_err(ControllerError::Run)?;
        self.check_caller(turn.deadline)?;
        let mut writer = self.writer(head);
        start.inputs = self.record_start(&mut writer, &tag, &turn, &descriptor).await?;
        let sink = self.live_sink(Machine::live(), tag.clone(), writer);
        let ran = run::run(harness, start, sink, turn.deadline, &self.options.cancel).await;
        let head = finish(&tag, ran).await?;
        Ok(Executed { execution_id: id, head })
    }

    /// Records a transition of the session at its head, under this fence.
    ///
    /// # Errors
    /// The log's; then nothing was recorded.
    pub async fn record_lifecycle(&self, body: Lifecycle) -> Result<LogRecord, ControllerError> {
        let row = self.journal.open().await?;
        let event = Event::of(EventBody::Lifecycle(Some(body)));
        Ok(self.writer(row.view.head).append_one(event.into()).await?)
    }

    /// Records the start and all inputs as one unit, so that no turn begins in part.
    async fn record_start(
        &self,
        writer: &mut Writer,
        tag: &Tag,
        turn: &Turn,
        descriptor: &Descriptor,
    ) -> Result<Vec<Message>, ControllerError> {
        let records = turn.records(tag, self.harness_name(descriptor), &descriptor.version);
        let written = writer.append(records).await?;
        Ok(written
            .into_iter()
            .filter_map(|record| match record.event.body {
                EventBody::Input(message) => message,
                _ => None,
            })
            .collect())
    }

    /// The last look at the caller: after this the turn is the journal's.
    fn check_caller(&self, deadline: Option<Instant>) -> Result<(), ControllerError> {
        if self.options.gone.get().is_some() {
            return Err(ControllerError::NotStarted { out_of_time: false });
        }
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return Err(ControllerError::NotStarted { out_of_time: true });
        }
        Ok(())
    }

    pub(crate) async fn describe(
        &self,
        harness: &Arc<dyn Harness>,
        deadline: Option<Instant>,
    ) -> Result<Descriptor, ControllerError> {
        match &self.options.descriptor {
            Some(descriptor) => Ok(descriptor.clone()),
            None => run::describe(harness, deadline).await,
        }
    }

    pub(crate) fn harness_name<'a>(&'a self, descriptor: &'a Descriptor) -> &'a str {
        if self.options.harness.is_empty() { &descriptor.id } else { &self.options.harness }
    }

    pub(crate) fn writer(&self, head: Head) -> Writer {
        Writer::new(
            self.journal.clone(),
            self.fence,
            head,
            Arc::clone(&self.options.observer),
            Arc::clone(&self.options.entropy),
        )
    }

    pub(crate) fn live_sink(&self, machine: Machine, tag: Tag, writer: Writer) -> RunSink {
        let model = Arc::clone(&self.options.model);
        RunSink::live(machine, tag, writer, model, Arc::clone(&self.model_calls))
    }
}

/// What refuses every new turn, from the fold alone.
fn admit(row: &SessionRow) -> Result<(), ControllerError> {
    if let Some((execution, _)) = row.view.open_gate() {
        return Err(ControllerError::ApprovalBlocked(execution.id.clone()));
    }
    match &row.view.legacy_fault {
        Some(fault) => Err(ControllerError::invalid(fault.seq, &fault.what)),
        None => Ok(()),
    }
}

/// Ends a turn as its run deserves: an end, an error, or neither.
pub(crate) async fn finish(tag: &Tag, ran: Ran) -> Result<Head, ControllerError> {
    let Ran { result, closing, writer, out_of_time } = ran;
    let mut writer = writer.expect("a live sink gives its writer back");
    let failure = match (closing.failure, result, closing.unconsumed) {
        (Some(failure), _, _) => Some(ControllerError::latched(failure)),
        (None, Err(_), _) if out_of_time => Some(ControllerError::DeadlineExceeded),
        (None, Err(error), _) => Some(ControllerError::Run(error)),
        (None, Ok(()), Some(seq)) => Some(ControllerError::ReplayDiverged(format!(
            "the effect recorded at seq {seq} was not asked for"
        ))),
        (None, Ok(()), None) => None,
    };
    let Some(failure) = failure else {
        let end = EventBody::End(Some(HarnessEnd::completed()));
        writer.append_one(tag.event(end).into()).await?;
        return Ok(writer.head);
    };
    let error = RecordedError {
        code: if out_of_time { DEADLINE_CODE } else { 0 },
        description: failure.to_string(),
    };
    // The turn has failed whether or not this lands: a superseded writer leaves no mark.
    let recorded = writer.append_one(tag.event(EventBody::Error(Some(error))).into()).await;
    if let Err(error) = recorded {
        tracing::debug!(session = %writer.journal.uid(), error = %error, "error record not appended");
    }
    Err(failure)
}

/// gRPC's DEADLINE_EXCEEDED, as error records carry it.
const DEADLINE_CODE: i32 = 4;
