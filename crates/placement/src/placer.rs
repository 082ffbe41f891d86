//! Placing one harness's sessions and running their turns.

use std::sync::{Arc, Mutex, PoisonError};

use mainspring_api::{
    AppendId, Capabilities, Clock, Descriptor, Entropy, Fence, Fidelity, Harness,
    HarnessConnection, HarnessConnector, HarnessError, Head, Incarnation, Lifecycle, LifecycleKind,
    LogRecord, ModelPolicy, ModelProvider, Resumability, Runtime, RuntimeCapabilities, Seq,
    SessionSpec, SessionUid, Signal, SnapshotRef, ToolCall, ToolExecutor, random_hex,
};
use mainspring_controller::{
    ApprovedRetry, Controller, ControllerError, Executed, Expected, IgnoreAll, InstanceOf, Journal,
    Observer, Options, Replayed, Turn, TurnStop, settle,
};
use mainspring_eventlog::{Holder, SessionRow};
use tokio::time::{Duration, Instant};

use crate::error::PlacementError;
use crate::guard::Lease;
use crate::history::JournalHistory;

/// How long a harness may take to be reached and to describe itself at admission.
pub(crate) const ADMISSION_MAX: Duration = Duration::from_secs(10);

/// Whether a runtime can run a harness: a memory harness needs memory snapshots.
#[must_use]
pub fn can_place(harness: &Capabilities, runtime: &RuntimeCapabilities) -> bool {
    match harness.resumability {
        Resumability::StatelessReplay => true,
        Resumability::RequiresMemorySnapshot => runtime.memory_snapshot,
    }
}

/// How a placer is set up.
#[derive(Debug, Clone)]
pub struct PlacerOptions {
    /// The harness's name on this host, as it is recorded.
    pub name: String,
    /// Where it runs.
    pub runtime: Arc<dyn Runtime>,
    /// How it is reached.
    pub connector: Arc<dyn HarnessConnector>,
    /// Answers its model calls.
    pub model: Arc<dyn ModelProvider>,
    /// Which models may be used; `None` means any.
    pub policy: Option<ModelPolicy>,
    /// Runs its mediated tools; `None` refuses them.
    pub tools: Option<Arc<dyn ToolExecutor>>,
    /// What becomes of an approved call that was started and has no receipt.
    pub approved_retry: ApprovedRetry,
    /// The id that it must describe itself with; empty means any.
    pub descriptor_id: String,
    /// Who mints fences: this incarnation of the host process.
    pub holder: Holder,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
}

/// Places the sessions of one harness.
#[derive(Debug)]
pub struct Placer {
    pub(crate) options: PlacerOptions,
    /// What the harness last said of itself, where that cannot change behind
    /// its address: it lets a refusal come before compute is started.
    described: Mutex<Option<Descriptor>>,
}

/// What bounds and observes one call.
#[derive(Debug, Clone)]
pub struct Call {
    /// When it must have ended.
    pub deadline: Option<Instant>,
    /// Set when the caller goes away; it counts until the turn begins.
    pub gone: Signal<()>,
    /// Set by the host to stop the turn: before it begins, or at its next effect.
    pub stop: Signal<TurnStop>,
    /// How long a request for approval of the turn stays open; `None` means for good.
    pub approval_ttl: Option<Duration>,
    /// Is told of records and deltas.
    pub observer: Arc<dyn Observer>,
}

impl Default for Call {
    /// A call without bounds that nobody watches.
    fn default() -> Self {
        Self {
            deadline: None,
            gone: Signal::default(),
            stop: Signal::default(),
            approval_ttl: None,
            observer: Arc::new(IgnoreAll),
        }
    }
}

/// A harness that can be called.
struct Connected {
    connection: HarnessConnection,
    descriptor: Descriptor,
    compute_instance: String,
}

/// Compute that a turn can run on, under a fence.
struct Placed {
    connected: Connected,
    fence: Fence,
}

impl Placer {
    /// A placer.
    #[must_use]
    pub fn new(options: PlacerOptions) -> Arc<Self> {
        Arc::new(Self { options, described: Mutex::new(None) })
    }

    /// The harness's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The runtime.
    #[must_use]
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.options.runtime
    }

    /// Runs a new turn on the session's compute.
    ///
    /// # Errors
    /// In the order of cost: an open approval, an unplaceable harness, no
    /// compute, no connection, a moved head; until then neither fence nor
    /// record exists. Then the controller's; a turn that parked has its compute
    /// suspended and that recorded, else it is what failed there that is told.
    ///
    /// # Cancellation
    /// A dropped future leaves a turn that can be resumed.
    pub async fn exec(
        &self,
        lease: &Lease,
        journal: &Journal,
        mut turn: Turn,
        call: Call,
    ) -> Result<Executed, PlacementError> {
        let row = open(lease, journal).await?;
        if let Some((execution, _)) = row.view.open_gate() {
            return Err(ControllerError::ApprovalBlocked(execution.id.clone()).into());
        }
        // A losing call is told so before it costs anything, and stops nobody.
        turn.expected = Expected::At(turn.expected.resolve(row.view.head)?);
        turn.deadline = turn.deadline.or(call.deadline);
        let placed = self.place(journal, &row, None, &call).await?;
        let options = self.placed_options(journal, &row, &placed, &call);
        let controller = Controller::new(journal.clone(), options).await?;
        let harness = placed.connected.connection.harness();
        let result = controller.exec(&harness, turn).await;
        self.close(journal.uid(), placed.connected.connection).await;
        match result {
            Ok(executed) => Ok(executed),
            Err(error) => Err(self.parked(journal, &controller, error).await),
        }
    }

    /// Brings the session's compute back and finishes its interrupted turn.
    /// Records that it was resumed, under the same fence.
    ///
    /// # Errors
    /// As [`Placer::exec`]; a failed resume, and one whose turn parks again,
    /// leaves no resume record. A turn that waits for a decision, or that was
    /// inherited with an open intent, is told so before any compute is touched.
    pub async fn resume(
        &self,
        lease: &Lease,
        journal: &Journal,
        call: Call,
    ) -> Result<(), PlacementError> {
        let row = open(lease, journal).await?;
        self.refuse_waiting(journal, &row, &call).await?;
        let from = checkpoint(&row);
        let placed = self.place(journal, &row, Some(&from), &call).await?;
        let options = self.placed_options(journal, &row, &placed, &call);
        let controller = Controller::new(journal.clone(), options).await?;
        let harness = placed.connected.connection.harness();
        let resumed = controller.resume(&harness, call.deadline).await;
        self.close(journal.uid(), placed.connected.connection).await;
        if let Err(error) = resumed.result {
            return Err(self.parked(journal, &controller, error).await);
        }
        let body = Lifecycle { kind: LifecycleKind::Resume, ..Lifecycle::default() };
        controller.record_lifecycle(body).await?;
        Ok(())
    }

    /// Frees the session's compute and records what was captured.
    ///
    /// The fence comes first, so that no other host's running compute is torn down.
    ///
    /// # Errors
    /// The first failure; then nothing is recorded, and a retry works.
    pub async fn suspend(
        &self,
        lease: &Lease,
        journal: &Journal,
        call: Call,
    ) -> Result<LogRecord, PlacementError> {
        let row = open(lease, journal).await?;
        let fence = self.acquire(journal, &row).await?;
        let head = row.view.head.seq;
        let options = Options { fence: Some(fence), ..self.controller_options(journal, &call) };
        let controller = Controller::new(journal.clone(), options).await?;
        self.capture(journal, &controller, head).await
    }

    /// Captures the session's compute and records that, under the controller's fence.
    pub(crate) async fn capture(
        &self,
        journal: &Journal,
        controller: &Controller,
        head: Seq,
    ) -> Result<LogRecord, PlacementError> {
        let snapshot =
            self.options.runtime.snapshot(journal.uid(), head, Fidelity::External).await?;
        let body = Lifecycle { kind: LifecycleKind::Suspend, snapshot, ..Lifecycle::default() };
        Ok(controller.record_lifecycle(body).await?)
    }

    /// Runs the session's completed turns again on a harness of this placer,
    /// with no model and nothing written. Takes no lease and no fence.
    ///
    /// # Errors
    /// As [`Controller::replay`], and when no harness can be reached.
    pub async fn replay(&self, journal: &Journal, call: &Call) -> Result<Replayed, PlacementError> {
        let spec = self.spec(Some(journal.uid()));
        let connection = self.connect(journal, spec, None, call).await?.connection;
        let harness = connection.harness();
        let controller =
            Controller::reader(journal.clone(), self.controller_options(journal, call));
        let replayed = controller.replay(&harness).await;
        self.close(journal.uid(), connection).await;
        Ok(replayed?)
    }

    /// Checks that sessions of this harness can be placed at all. Touches no
    /// session's compute: what is not known yet is asked of compute of its own.
    ///
    /// # Errors
    /// An unreachable or unplaceable harness; nothing was placed or recorded.
    pub async fn admit(&self, journal: &Journal, call: &Call) -> Result<(), PlacementError> {
        if let Some(descriptor) = self.known_descriptor(&self.spec(None)).await? {
            return self.check(&descriptor);
        }
        let uid = SessionUid::new(&format!("probe-{}", random_hex(&*self.options.entropy, 12)))
            .expect("hex fits a uid");
        let probed = self.connect(journal, self.spec(Some(&uid)), None, call).await;
        let admitted = match probed {
            Ok(connected) => {
                self.close(&uid, connected.connection).await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.release(&uid).await;
        admitted
    }

    /// The tool call of the session's open turn that no resume of this placer
    /// may answer by itself: nobody knows what became of it. Reads one record.
    ///
    /// # Errors
    /// The log's.
    pub async fn unknown_effect(
        &self,
        journal: &Journal,
        row: &SessionRow,
    ) -> Result<Option<(Seq, ToolCall)>, PlacementError> {
        let (tools, retry) = (self.options.tools.as_deref(), self.options.approved_retry);
        Ok(mainspring_controller::unknown_effect(journal, row, tools, retry).await?)
    }

    /// Ends the compute that this placer's runtime has for a session, if it has any.
    pub async fn release(&self, session: &SessionUid) {
        if let Err(error) = self.options.runtime.stop(session).await {
            tracing::warn!(session = %session, error = %error, "compute not released");
        }
    }

    /// Compute, connection, descriptor, fence: in the order of cost.
    async fn place(
        &self,
        journal: &Journal,
        row: &SessionRow,
        restore: Option<&SnapshotRef>,
        call: &Call,
    ) -> Result<Placed, PlacementError> {
        if let Some(descriptor) = self.known_descriptor(&self.spec(Some(journal.uid()))).await? {
            self.check(&descriptor)?;
        }
        let connected =
            self.connect(journal, self.spec(Some(journal.uid())), restore, call).await?;
        let fenced = match (call.gone.get(), call.stop.get()) {
            (Some(()), _) => Err(PlacementError::AdmissionInterrupted { out_of_time: false }),
            (None, Some(stop)) => Err(not_begun(stop)),
            (None, None) => self.acquire(journal, row).await,
        };
        match fenced {
            Ok(fence) => Ok(Placed { connected, fence }),
            Err(error) => {
                self.close(journal.uid(), connected.connection).await;
                Err(error)
            }
        }
    }

    /// A descriptor that is known without compute.
    async fn known_descriptor(
        &self,
        spec: &SessionSpec,
    ) -> Result<Option<Descriptor>, PlacementError> {
        if let Some(probed) = self.options.runtime.probe(spec).await? {
            return Ok(Some(probed));
        }
        Ok(self.described.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn connect(
        &self,
        journal: &Journal,
        spec: SessionSpec,
        restore: Option<&SnapshotRef>,
        call: &Call,
    ) -> Result<Connected, PlacementError> {
        let history = JournalHistory::new(journal);
        let runtime = &self.options.runtime;
        let reach = async {
            let incarnation = match restore {
                None => runtime.create(&spec, history).await?,
                Some(from) => runtime.restore(from, &spec, history).await?,
            };
            let connection = self.options.connector.connect(&incarnation).await?;
            Ok::<_, PlacementError>((incarnation, connection))
        };
        let (incarnation, connection) = self.bounded(call, None, reach).await??;
        match self.describe(&incarnation, connection.harness(), call).await {
            Ok(descriptor) => {
                let compute_instance = incarnation.compute_instance;
                Ok(Connected { connection, descriptor, compute_instance })
            }
            Err(error) => {
                self.close(journal.uid(), connection).await;
                Err(error)
            }
        }
    }

    async fn describe(
        &self,
        incarnation: &Incarnation,
        harness: Arc<dyn Harness>,
        call: &Call,
    ) -> Result<Descriptor, PlacementError> {
        let bound = Instant::now() + ADMISSION_MAX;
        let described = self.bounded(call, Some(bound), harness.describe()).await?;
        let name = || self.options.name.clone();
        let descriptor = described.map_err(|source| match source {
            HarnessError::Unavailable { .. } | HarnessError::Deadline { .. } => {
                PlacementError::HarnessUnavailable { harness: name(), source }
            }
            source => PlacementError::HarnessDescribeFailed { harness: name(), source },
        })?;
        if !incarnation.live_describer {
            // Kept also when it is refused: the next refusal starts no compute.
            *self.described.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(descriptor.clone());
        }
        self.check(&descriptor)?;
        Ok(descriptor)
    }

    /// Waits for `step` no longer than the call, its caller, or `bound` lasts.
    async fn bounded<T>(
        &self,
        call: &Call,
        bound: Option<Instant>,
        step: impl Future<Output = T>,
    ) -> Result<T, PlacementError> {
        let until = |at: Option<Instant>| async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = call.gone.wait() => {
                Err(PlacementError::AdmissionInterrupted { out_of_time: false })
            }
            stop = call.stop.wait() => Err(not_begun(stop)),
            () = until(call.deadline) => {
                Err(PlacementError::AdmissionInterrupted { out_of_time: true })
            }
            () = until(bound) => Err(PlacementError::HarnessUnavailable {
                harness: self.options.name.clone(),
                source: HarnessError::Deadline {
                    message: format!("no answer within {} s", ADMISSION_MAX.as_secs()),
                },
            }),
            value = step => Ok(value),
        }
    }

    /// The descriptor's id comes before its capabilities: a foreign harness is
    /// not judged by what it can do.
    fn check(&self, descriptor: &Descriptor) -> Result<(), PlacementError> {
        let expected = &self.options.descriptor_id;
        if !expected.is_empty() && *expected != descriptor.id {
            return Err(PlacementError::DescriptorMismatch {
                expected: expected.clone(),
                actual: descriptor.id.clone(),
            });
        }
        if can_place(&descriptor.capabilities, &self.options.runtime.capabilities()) {
            return Ok(());
        }
        Err(PlacementError::Unplaceable {
            harness: self.options.name.clone(),
            runtime: self.options.runtime.name(),
        })
    }

    /// A fence, only if the head has not moved: a losing call stops nobody.
    pub(crate) async fn acquire(
        &self,
        journal: &Journal,
        row: &SessionRow,
    ) -> Result<Fence, PlacementError> {
        let id = AppendId::random(&*self.options.entropy);
        let head: Head = row.view.head;
        let holder = self.options.holder.clone();
        let (log, uid, fence) = (journal.log(), journal.uid(), row.fence.fence);
        Ok(settle(|| log.acquire_if_head(uid, id, fence, head, holder.clone())).await?)
    }

    /// What a controller needs on placed compute: the harness was described on
    /// this very connection, so nothing but the start itself stands between the
    /// fence and the turn.
    fn placed_options(
        &self,
        journal: &Journal,
        row: &SessionRow,
        placed: &Placed,
        call: &Call,
    ) -> Options {
        let connected = &placed.connected;
        Options {
            fence: Some(placed.fence),
            descriptor: Some(connected.descriptor.clone()),
            model_default: row.session.model.clone(),
            compute_instance: connected.compute_instance.clone(),
            instance_of: InstanceOf::Harness(self.options.name.clone()),
            cancel: connected.connection.cancel_signal().clone(),
            ..self.controller_options(journal, call)
        }
    }

    pub(crate) fn controller_options(&self, journal: &Journal, call: &Call) -> Options {
        Options {
            session: Some(journal.uid().clone()),
            fence: None,
            holder: self.options.holder.clone(),
            harness: self.options.name.clone(),
            policy: self.options.policy.clone(),
            tools: self.options.tools.clone(),
            approved_retry: self.options.approved_retry,
            approval_ttl: call.approval_ttl,
            observer: Arc::clone(&call.observer),
            clock: Arc::clone(&self.options.clock),
            entropy: Arc::clone(&self.options.entropy),
            gone: call.gone.clone(),
            stop: call.stop.clone(),
            ..Options::new(Arc::clone(&self.options.model))
        }
    }

    fn spec(&self, uid: Option<&SessionUid>) -> SessionSpec {
        SessionSpec {
            uid: uid.cloned(),
            harness: self.options.name.clone(),
            ..SessionSpec::default()
        }
    }

    pub(crate) async fn close(&self, session: &SessionUid, connection: HarnessConnection) {
        if let Err(error) = connection.close().await {
            tracing::warn!(session = %session, error = %error, "harness connection not closed");
        }
    }
}

/// A turn that was told to stop before anything of it was recorded.
fn not_begun(stop: TurnStop) -> PlacementError {
    match stop {
        TurnStop::Cancel(_) => PlacementError::AdmissionInterrupted { out_of_time: false },
        TurnStop::Interrupt => PlacementError::HostStopping,
    }
}

/// The row at a verified head.
async fn open(lease: &Lease, journal: &Journal) -> Result<SessionRow, PlacementError> {
    debug_assert_eq!(lease.session(), journal.uid(), "a lease is for its own session");
    Ok(journal.open().await?)
}

/// What the session's compute is brought back from.
fn checkpoint(row: &SessionRow) -> SnapshotRef {
    let uid = row.session.uid.as_str();
    let own = row.view.last_suspend.as_ref().filter(|suspend| suspend.snapshot.local == uid);
    own.map_or_else(
        || SnapshotRef { local: uid.to_owned(), ..SnapshotRef::default() },
        |suspend| suspend.snapshot.clone(),
    )
}
