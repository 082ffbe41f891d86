//! The controller: one session, one fence, new turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainspring_api::{
    AppendId, Bytes, CancelReason, Clock, Descriptor, Entropy, Event, EventBody, ExecutionId,
    ExecutionStart, Fence, Harness, HarnessEnd, Head, Lifecycle, LogRecord, Message, ModelPolicy,
    ModelProvider, OsEntropy, RecordedError, Resumability, Seq, SessionUid, Signal, SinkError,
    Start, SystemClock, ToolExecutor,
};
use mainspring_eventlog::{
    Batch, Holder, Level, Limits, LogError, NewRecord, SessionRow, mint_any,
};
use tokio::time::Instant;

use crate::approval::check_approvals;
use crate::cancel::end_canceled;
use crate::error::ControllerError;
use crate::instance::{self, InstanceOf};
use crate::journal::Journal;
use crate::machine::{Facts, Machine};
use crate::observer::{IgnoreAll, Observer};
use crate::recorded::normalise;
use crate::run::{self, Bounds, Ran, TurnStop};
use crate::sink::{Means, RunSink};
use crate::tape::Tape;
use crate::writer::{Tag, Writer};

/// What a resume does with an approved tool call that was started and has no
/// receipt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovedRetry {
    /// Runs it again, as the contract says.
    #[default]
    Always,
    /// Runs it again only if its executor declares the tool repeatable. Its
    /// start is noted durably before it is made.
    DeclaredOnly,
}

/// How a controller is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The session scope that harnesses and tools see; a controller with an
    /// executor, and a legacy turn, need one.
    pub session: Option<SessionUid>,
    /// The fence to write under; `None` mints one, which supersedes every older writer.
    pub fence: Option<Fence>,
    /// Who mints it.
    pub holder: Holder,
    /// The harness's name; empty means the id that it describes itself with.
    pub harness: String,
    /// Answers model calls.
    pub model: Arc<dyn ModelProvider>,
    /// Which models may be used; `None` means any.
    pub policy: Option<ModelPolicy>,
    /// The session's default model; of use only under a policy.
    pub model_default: String,
    /// Runs mediated tools; `None` refuses them.
    pub tools: Option<Arc<dyn ToolExecutor>>,
    /// What becomes of an approved call that was started and has no receipt.
    pub approved_retry: ApprovedRetry,
    /// How long a request for approval stays open; `None` means for good. The
    /// time is noted beside the request; ending it then is the host's part.
    pub approval_ttl: Option<Duration>,
    /// The compute that runs the turn; memory tier only, else empty.
    pub compute_instance: String,
    /// Whose recorded compute it is compared with.
    pub instance_of: InstanceOf,
    /// Is told of records and deltas.
    pub observer: Arc<dyn Observer>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// What the harness said of itself on this very connection; `None` asks it.
    pub descriptor: Option<Descriptor>,
    /// Set when the caller goes away. It counts until the turn begins.
    pub gone: Signal<()>,
    /// Set by the host to stop the running turn at its next effect.
    pub stop: Signal<TurnStop>,
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
            policy: None,
            model_default: String::new(),
            tools: None,
            approved_retry: ApprovedRetry::default(),
            approval_ttl: None,
            compute_instance: String::new(),
            instance_of: InstanceOf::default(),
            observer: Arc::new(IgnoreAll),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            descriptor: None,
            gone: Signal::default(),
            stop: Signal::default(),
            cancel: Signal::default(),
        }
    }
}

/// Calls of a controller that were made and answered.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    model: AtomicU64,
    tool: AtomicU64,
}

impl Counters {
    pub(crate) fn count_model(&self) {
        self.model.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_tool(&self) {
        self.tool.fetch_add(1, Ordering::Relaxed);
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
        let start = ExecutionStart::default();
        let batch = Batch::link(Head::EMPTY, self.records(&Tag::Execution(id), start))?;
        Ok(limits.check(&batch)?)
    }

    /// The start record and one record for each input. `start` says who runs it.
    fn records(&self, tag: &Tag, start: ExecutionStart) -> Vec<NewRecord> {
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
    pub(crate) counters: Arc<Counters>,
}

impl Controller {
    /// A controller that may write. Mints a fence unless one is given.
    ///
    /// # Errors
    /// `MissingSessionUid` for an executor without a session scope; nothing was
    /// minted. The log's, when minting fails.
    pub async fn new(journal: Journal, options: Options) -> Result<Self, ControllerError> {
        if options.tools.is_some() && options.session.is_none() {
            return Err(ControllerError::MissingSessionUid);
        }
        let fence = match options.fence {
            Some(fence) => fence,
            None => {
                let id = || AppendId::random(&*options.entropy);
                mint_any(&**journal.log(), journal.uid(), id, options.holder.clone()).await?
            }
        };
        Ok(Self { journal, options, fence, counters: Arc::default() })
    }

    /// A controller that only replays; it mints nothing and supersedes nobody.
    #[must_use]
    pub fn reader(journal: Journal, options: Options) -> Self {
        Self { journal, options, fence: Fence::NONE, counters: Arc::default() }
    }

    /// The fence that it writes under.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Model calls that were made and answered.
    #[must_use]
    pub fn model_invocations(&self) -> u64 {
        self.counters.model.load(Ordering::Relaxed)
    }

    /// Tool calls that were made and answered; an approved one also when its
    /// executor failed, since its failure is its receipt.
    #[must_use]
    pub fn tool_invocations(&self) -> u64 {
        self.counters.tool.load(Ordering::Relaxed)
    }

    /// Runs a new turn.
    ///
    /// # Errors
    /// In this order, each before anything of the turn is recorded: a tampered
    /// journal, ill-formed evidence of approvals, an open approval, an ill-formed
    /// legacy prefix, compute that does not hold the session's memory, a
    /// harness that cannot describe itself, a model that is not allowed, a moved
    /// head or newer fence. After that `ApprovalParked`, `Canceled`,
    /// `Interrupted`, or the harness's own error, with an error record at the
    /// end of the turn.
    ///
    /// # Cancellation
    /// A dropped future leaves a turn that can be resumed.
    pub async fn exec(
        &self,
        harness: &Arc<dyn Harness>,
        turn: Turn,
    ) -> Result<Executed, ControllerError> {
        let row = self.journal.open().await?;
        self.admit(&row).await?;
        let descriptor = self.describe(harness, turn.deadline).await?;
        let model = self.default_model(&descriptor)?;
        let head = turn.expected.resolve(row.view.head)?;
        let id = turn
            .execution_id
            .clone()
            .unwrap_or_else(|| ExecutionId::random(&*self.options.entropy));
        let tag = Tag::Execution(id.clone());
        let mut start = Start {
            session: self.options.session.clone(),
            execution_id: id.clone(),
            model: model.clone(),
            config: turn.config.clone(),
            history: self.journal.history(head.seq.next()),
            inputs: turn.inputs.clone(),
            resume_from_seq: turn.resume_from_seq,
        };
        harness.check_start(&start).await.map_err(ControllerError::Run)?;
        self.check_caller(turn.deadline)?;
        let mut writer = self.writer(head);
        let recorded = ExecutionStart {
            harness: self.harness_name(&descriptor).to_owned(),
            harness_version: descriptor.version.clone(),
            compute_instance: self.options.compute_instance.clone(),
            model: model.clone(),
            ..ExecutionStart::default()
        };
        start.inputs = record_start(&mut writer, turn.records(&tag, recorded)).await?;
        let machine = Machine::live(self.facts(model, Some(&descriptor)));
        let sink = self.live_sink(machine, None, tag.clone(), writer, harness);
        let ran = run::run(harness, start, sink, &self.bounds(turn.deadline)).await;
        let head = self.finish(&tag, ran).await?;
        Ok(Executed { execution_id: id, head })
    }

    /// What refuses every new turn, before anybody is asked anything.
    async fn admit(&self, row: &SessionRow) -> Result<(), ControllerError> {
        // Whether a gate is open is known once its evidence holds.
        if let Some(latest) = &row.view.latest {
            check_approvals(&self.journal, latest).await?;
        }
        if let Some((execution, _)) = row.view.open_gate() {
            return Err(ControllerError::ApprovalBlocked(execution.id.clone()));
        }
        if let Some(fault) = &row.view.legacy_fault {
            return Err(ControllerError::invalid(fault.seq, &fault.what));
        }
        self.check_instance(row).await
    }

    /// Compares the compute at hand with the one that the journal records.
    pub(crate) async fn check_instance(&self, row: &SessionRow) -> Result<(), ControllerError> {
        let (whose, actual) = (&self.options.instance_of, &self.options.compute_instance);
        instance::check(&self.journal, row, whose, actual).await
    }

    /// The default model of a new turn; empty without a policy.
    fn default_model(&self, descriptor: &Descriptor) -> Result<String, ControllerError> {
        let Some(policy) = &self.options.policy else { return Ok(String::new()) };
        policy.check()?;
        let asked = &self.options.model_default;
        let default = if asked.is_empty() { &policy.default } else { asked };
        let refused =
            std::iter::once(default).chain(&descriptor.models).find(|m| !policy.allows(m));
        match refused {
            Some(model) => Err(ControllerError::ModelNotAllowed(model.clone())),
            None => Ok(default.clone()),
        }
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

    /// What the machine is told of a turn.
    pub(crate) fn facts(&self, model: String, descriptor: Option<&Descriptor>) -> Facts {
        Facts {
            legacy: false,
            model,
            policy: self.options.policy.clone(),
            has_session: self.options.session.is_some(),
            stateless: descriptor.map(is_stateless),
        }
    }

    pub(crate) fn live_sink(
        &self,
        machine: Machine,
        tape: Option<Tape>,
        tag: Tag,
        writer: Writer,
        harness: &Arc<dyn Harness>,
    ) -> RunSink {
        let means = Means {
            model: Some(Arc::clone(&self.options.model)),
            tools: self.options.tools.clone(),
            harness: Some(Arc::clone(harness)),
            ..self.means(tag)
        };
        RunSink::new(machine, tape, Some(writer), means)
    }

    /// The means of a run that can only serve.
    pub(crate) fn means(&self, tag: Tag) -> Means {
        Means {
            tag,
            session: self.options.session.clone(),
            model: None,
            tools: None,
            harness: None,
            approved_retry: self.options.approved_retry,
            approval_ttl: self.options.approval_ttl,
            clock: Arc::clone(&self.options.clock),
            counters: Arc::clone(&self.counters),
            stop: self.options.stop.clone(),
            on_output: None,
        }
    }

    pub(crate) fn bounds(&self, deadline: Option<Instant>) -> Bounds {
        let (stop, cancel) = (self.options.stop.clone(), self.options.cancel.clone());
        Bounds { deadline, stop, cancel }
    }

    /// Ends a turn as its run deserves: an end, an error, or neither.
    pub(crate) async fn finish(&self, tag: &Tag, ran: Ran) -> Result<Head, ControllerError> {
        let Ran { result, closing, writer, out_of_time } = ran;
        let mut writer = writer.expect("a live sink gives its writer back");
        if let Some(stop) = closing.stop {
            return Err(stopped(stop, result.err()));
        }
        match self.options.stop.get() {
            Some(TurnStop::Cancel(reason)) => {
                return self.finish_canceled(tag, writer, reason).await;
            }
            // What was done before the host's word reached it is done.
            Some(TurnStop::Interrupt)
                if closing.latched || result.is_err() || closing.unconsumed.is_some() =>
            {
                return Err(ControllerError::Interrupted);
            }
            Some(TurnStop::Interrupt) | None => {}
        }
        let failure = match (closing.failure, result, closing.unconsumed) {
            (Some(failure), _, _) => Some(ControllerError::latched(failure)),
            (None, Err(_), _) if out_of_time => Some(ControllerError::DeadlineExceeded),
            (None, Err(error), _) => Some(ControllerError::Run(error)),
            (None, Ok(()), Some(seq)) => Some(unconsumed(seq)),
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

    /// Ends a turn that the host canceled; whatever its run made of that.
    async fn finish_canceled(
        &self,
        tag: &Tag,
        mut writer: Writer,
        reason: CancelReason,
    ) -> Result<Head, ControllerError> {
        let row = self.journal.log().get(self.journal.uid(), Level::Committed).await?;
        end_canceled(&mut writer, tag, &row, reason, &*self.options.clock).await?;
        Err(ControllerError::Canceled(reason))
    }
}

/// Records the start and all inputs as one unit, so that no turn begins in
/// part, and returns the inputs as recorded.
async fn record_start(
    writer: &mut Writer,
    records: Vec<NewRecord>,
) -> Result<Vec<Message>, ControllerError> {
    let written = writer.append(records).await?;
    Ok(written
        .into_iter()
        .filter_map(|record| match record.event.body {
            EventBody::Input(message) => message,
            _ => None,
        })
        .collect())
}

/// The verdict of a run that was stopped: neither an error nor an end follows.
/// A failure beside a park is not hidden by it.
fn stopped(stop: SinkError, run: Option<mainspring_api::HarnessError>) -> ControllerError {
    match (stop, run) {
        (SinkError::Parked(park), Some(error)) if !error.is_unwinding_of(&park) => {
            ControllerError::Run(error)
        }
        (stop, _) => ControllerError::latched(stop),
    }
}

pub(crate) fn unconsumed(seq: Seq) -> ControllerError {
    let what = "the recorded effect was not asked for";
    ControllerError::ReplayDiverged(mainspring_api::Divergence::at(seq, what))
}

pub(crate) fn is_stateless(descriptor: &Descriptor) -> bool {
    descriptor.capabilities.resumability == Resumability::StatelessReplay
}

/// gRPC's DEADLINE_EXCEEDED, as error records carry it.
const DEADLINE_CODE: i32 = 4;
