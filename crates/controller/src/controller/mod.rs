//! The controller: one session, one fence, new turns.

mod finish;
mod options;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_api::{
    AppendId, Descriptor, Event, EventBody, ExecutionId, ExecutionStart, Fence, Harness, Head,
    Lifecycle, LogRecord, Message, Resumability, Start,
};
use mainspring_eventlog::{NewRecord, SessionRow, mint_any};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::approval::check_approvals;
use crate::error::ControllerError;
use crate::instance;
use crate::journal::Journal;
use crate::machine::{Facts, Machine};
use crate::run::{self, Bounds};
use crate::sink::{Means, RunSink};
use crate::spans;
use crate::tape::Tape;
use crate::writer::{Tag, Writer};

pub use options::{ApprovedRetry, Options};
pub use turn::{Executed, Expected, Turn, TurnDigest};

pub(crate) use finish::unconsumed;

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
    /// head, an id that the journal has, a newer fence. After that `ApprovalParked`, `Canceled`,
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
        let id = match &turn.execution_id {
            Some(id) if turn.is_drawn => id.clone(),
            Some(id) => self.unused(id).await?,
            None => ExecutionId::random(&*self.options.entropy),
        };
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
        run::check_start(harness, &start, turn.deadline).await?;
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
        let head = self.drive(harness, start, sink, &tag, turn.deadline).await?;
        Ok(Executed { execution_id: id, head })
    }

    /// The chosen id, which no turn of the journal may have. One that another
    /// writer begins under it meanwhile moves the head.
    async fn unused(&self, id: &ExecutionId) -> Result<ExecutionId, ControllerError> {
        match self.journal.log().execution(self.journal.uid(), id).await? {
            None => Ok(id.clone()),
            Some(_) => Err(ControllerError::ExecutionExists(id.clone())),
        }
    }

    /// Runs what was begun to its end, within the span of its sink.
    pub(crate) async fn drive(
        &self,
        harness: &Arc<dyn Harness>,
        start: Start,
        sink: RunSink,
        tag: &Tag,
        deadline: Option<Instant>,
    ) -> Result<Head, ControllerError> {
        let span = sink.span();
        let bounds = self.bounds(deadline);
        let ran = run::run(harness, start, sink, &bounds).instrument(span.clone()).await;
        let finished = self.finish(tag, ran).await;
        match &finished {
            Ok(_) | Err(ControllerError::ApprovalParked(_)) => {}
            Err(error) => spans::record_error(&span, error),
        }
        finished
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
            span: spans::invoke_agent(self.options.session.as_ref(), &self.options.harness),
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
            span: Span::none(),
            on_output: None,
        }
    }

    pub(crate) fn bounds(&self, deadline: Option<Instant>) -> Bounds {
        let (stop, cancel) = (self.options.stop.clone(), self.options.cancel.clone());
        Bounds { deadline, stop, cancel }
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

pub(crate) fn is_stateless(descriptor: &Descriptor) -> bool {
    descriptor.capabilities.resumability == Resumability::StatelessReplay
}
