//! The service's parts, and what every operation starts with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_api::{
    ApprovalPolicy, Authorizer, Classify as _, Clock, Condition, DeletionState, Entropy, ErrorKind,
    ExecState, ExecutionId, Session, SessionUid, SessionsError, Signal,
};
use mainspring_controller::Journal;
use mainspring_eventlog::{EventLog, Holder, Level, LogError, SessionRow};
use mainspring_placement::{Guard, Harnesses, Lease, Operation, PlacementError};
use tokio::sync::{Notify, watch};

use crate::convert::{self, ExecStateProjection};
use crate::expiry::Expiry;
use crate::follow::Feeds;
use crate::live::LiveTurns;
use crate::reclaim::Reclaim;
use crate::recovery::Projects;
use crate::registry::RoutingSlot;

/// How a service is set up.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The store.
    pub log: Arc<dyn EventLog>,
    /// The harnesses that it serves.
    pub harnesses: Harnesses,
    /// Project of calls that name none.
    pub project: String,
    /// Who mints fences for what needs no compute: this incarnation of the host.
    pub holder: Holder,
    /// Decides what callers may do; without it, everybody may do everything.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Source of ids.
    pub entropy: Arc<dyn Entropy>,
    /// What the turn axis of a session says.
    pub exec_state: ExecStateProjection,
    /// How long compute stays warm after a turn.
    pub idle: Duration,
    /// How long a request for approval stays open when its call does not say;
    /// `None` means for good.
    pub approval_ttl: Option<Duration>,
    /// Is asked about requests for approval before a person is; `None` leaves
    /// them all to people.
    pub approval_policy: Option<Arc<dyn ApprovalPolicy>>,
    /// When deleted sessions are purged; `None` keeps them.
    pub reclaim: Option<Reclaim>,
}

/// The Sessions service. Clones share everything.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: ServiceOptions,
    pub(crate) guard: Guard,
    pub(crate) expiry: Arc<Expiry>,
    pub(crate) live: LiveTurns,
    pub(crate) projects: Projects,
    /// What turns of this host send while they run.
    pub(crate) feeds: Arc<Feeds>,
    journals: Mutex<HashMap<SessionUid, Journal>>,
    pub(crate) draining: Signal<()>,
    /// A session was deleted here: what the reclaimer may rest until.
    pub(crate) deletions: Arc<Notify>,
    /// How registered harnesses are looked up.
    pub(crate) routing: RoutingSlot,
    /// How many turns this host is running.
    turns: watch::Sender<usize>,
}

/// Journals whose verified head is kept, about 200 bytes each.
const JOURNALS_MAX: usize = 16_384;

impl Service {
    /// A service over a store.
    #[must_use]
    pub fn new(options: ServiceOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                guard: Guard::default(),
                expiry: Arc::default(),
                live: LiveTurns::default(),
                projects: Projects::default(),
                feeds: Arc::default(),
                journals: Mutex::default(),
                draining: Signal::default(),
                deletions: Arc::default(),
                routing: RoutingSlot::default(),
                turns: watch::Sender::new(0),
            }),
        }
    }

    /// Refuses new turns from now on.
    pub fn drain(&self) {
        self.inner.draining.set(());
    }

    /// Refuses new turns from now on, and stops those that run at their next
    /// effect. Neither an end nor an error is recorded of them: whoever resumes
    /// one goes on with it.
    pub fn interrupt(&self) {
        self.drain();
        self.inner.guard.interrupt();
    }

    /// Ends requests for approval when their time has come, also those that
    /// were made before this process started. Must be called within a runtime.
    ///
    /// Without this only requests that are made through this service are ended.
    pub fn watch_approvals(&self) {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.scan_requests().await });
    }

    /// Waits until no turn of this host is running.
    pub async fn idle(&self) {
        let mut turns = self.inner.turns.subscribe();
        // The sender lives in `inner`, so waiting cannot fail.
        let _ = turns.wait_for(|running| *running == 0).await;
    }

    /// The store.
    #[must_use]
    pub fn log(&self) -> &Arc<dyn EventLog> {
        &self.inner.options.log
    }
}

/// Counts one running turn until it is dropped.
#[derive(Debug)]
pub(crate) struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.turns.send_modify(|running| *running -= 1);
    }
}

impl Inner {
    pub(crate) fn running(self: &Arc<Self>) -> Running {
        self.turns.send_modify(|running| *running += 1);
        Running(Arc::clone(self))
    }

    /// Refuses what would start a turn while the host is going down.
    pub(crate) fn admit_turn(&self) -> Result<(), SessionsError> {
        match self.draining.get() {
            Some(()) => Err(SessionsError::new(Condition::Draining, "host is shutting down")),
            None => Ok(()),
        }
    }

    /// The session's row, as far as the caller may see it.
    pub(crate) async fn find(&self, session: &SessionUid) -> Result<SessionRow, SessionsError> {
        let row = self.options.log.get(session, Level::Committed).await;
        row.map_err(|error| log_failed(error).on(session))
    }

    /// As [`Inner::find`], and refuses a deleted session.
    pub(crate) async fn find_active(
        &self,
        session: &SessionUid,
    ) -> Result<SessionRow, SessionsError> {
        let row = self.find(session).await?;
        if row.view.deletion == DeletionState::Pending {
            return Err(deleted(session));
        }
        Ok(row)
    }

    pub(crate) fn lease(
        &self,
        session: &SessionUid,
        operation: Operation,
    ) -> Result<Lease, SessionsError> {
        self.lease_for(session, operation, None)
    }

    /// As [`Inner::lease`], for a turn whose id was chosen.
    pub(crate) fn lease_for(
        &self,
        session: &SessionUid,
        operation: Operation,
        chosen: Option<ExecutionId>,
    ) -> Result<Lease, SessionsError> {
        let now = self.options.clock.now();
        self.guard
            .try_acquire_for(session, operation, chosen, now)
            .map_err(|error| placement_failed(error).on(session))
    }

    /// The session's journal, with what this process has verified of it.
    pub(crate) fn journal(&self, session: &SessionUid) -> Journal {
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(journal) = journals.get(session) {
            return journal.clone();
        }
        if journals.len() >= JOURNALS_MAX {
            // One goes, to be verified once more when it is used again.
            if let Some(evicted) = journals.keys().next().cloned() {
                journals.remove(&evicted);
            }
        }
        let journal = Journal::new(Arc::clone(&self.options.log), session.clone());
        journals.insert(session.clone(), journal.clone());
        journal
    }

    /// A journal that nothing is known of, for checks that must read in full.
    pub(crate) fn unverified(&self, session: &SessionUid) -> Journal {
        Journal::new(Arc::clone(&self.options.log), session.clone())
    }

    /// The session of a row.
    pub(crate) fn shown(&self, row: SessionRow) -> Session {
        convert::session(row, self.options.exec_state)
    }

    /// The session as its users see it: one that is driven here is running,
    /// until its turn has ended.
    pub(crate) fn seen(&self, row: SessionRow) -> Session {
        let uid = &row.session.uid;
        let driven = matches!(self.guard.held_for(uid), Some(Operation::Exec | Operation::Resume));
        let ended = row.view.latest.as_ref().filter(|latest| latest.end.is_some());
        // Its lease goes a moment after its end.
        let is_over =
            ended.is_some_and(|latest| self.guard.driven(uid).as_ref() == Some(&latest.id));
        let derived = self.options.exec_state == ExecStateProjection::Derived;
        let mut session = self.shown(row);
        if driven && !is_over && derived {
            session.exec_state = ExecState::Running;
        }
        session
    }

    /// Runs `work` in a task of the host: a client that goes away leaves
    /// nothing half done.
    pub(crate) async fn owned<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, SessionsError>> + Send + 'static,
    ) -> Result<T, SessionsError> {
        let running = self.running();
        let task = tokio::spawn(async move {
            let _running = running;
            work.await
        });
        task.await.unwrap_or_else(|error| {
            let why = if error.is_panic() { "panicked" } else { "was stopped" };
            let message = format!("the operation's task {why}");
            Err(SessionsError::new(Condition::Internal, message))
        })
    }

    pub(crate) fn project<'a>(&'a self, asked: &'a str) -> &'a str {
        if asked.is_empty() { &self.options.project } else { asked }
    }
}

pub(crate) fn log_failed(error: LogError) -> SessionsError {
    SessionsError::because(Arc::new(error))
}

/// A placement error as the service reports it.
pub(crate) fn placement_failed(error: PlacementError) -> SessionsError {
    SessionsError::because(Arc::new(error))
}

pub(crate) fn deleted(session: &SessionUid) -> SessionsError {
    let message = format!("session {session} is deleted");
    SessionsError::new(Condition::SessionDeleted, message).on(session)
}

pub(crate) fn invalid(message: impl Into<String>) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, message)
}

/// Whether a failed turn is the host's fault, for its log level.
pub(crate) fn is_host_fault(error: &SessionsError) -> bool {
    matches!(error.kind(), ErrorKind::Internal | ErrorKind::Corrupt)
}
