//! Turns that a host left open, finished by the next one: at its start, and on
//! a store of many hosts from then on, by `takeover.rs`.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    AppendId, Bytes, Classify as _, Condition, DeletionState, ErrorKind, ExecState, ExecutionId,
    SessionUid, SessionsError,
};
use mainspring_controller::settle;
use mainspring_eventlog::{Level, ListQuery, LogError, RowKey, SessionRow};

use crate::approvals::{report, watch_to_the_end};
use crate::elsewhere::possible_driver;
use crate::resume::{May, Recovery};
use crate::service::{Inner, Service, log_failed};

/// Turns that are finished at a time.
const LANES: usize = 16;

/// How often the turns that could not be reached are tried once more.
pub(crate) const ROUNDS_MAX: u32 = 8;

/// The pause before the first of those rounds; each is twice as long as the one
/// before, up to [`PAUSE_MAX`]. All together take about two minutes.
pub(crate) const PAUSE_MIN: Duration = Duration::from_secs(1);

pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Turns that are kept for another round; beyond, one that cannot be reached is refused.
const UNREACHED_MAX: usize = 65_536;

/// Sessions of one page of the search.
const PAGE: usize = 200;

/// The kind of the named rows that say in which projects turns were run.
const PROJECTS_KIND: &str = "turns";

/// Project names that are remembered as noted.
const PROJECTS_MAX: usize = 4_096;

/// Projects that are known to be noted.
#[derive(Debug, Default)]
pub(crate) struct Projects(Mutex<HashSet<String>>);

impl Projects {
    fn names(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of the turns that were open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Gone on with, until they ended or parked.
    pub resumed: usize,
    /// Could not be gone on with, or failed; each is logged with its code.
    pub refused: usize,
    /// Not this host's to go on with: driven by somebody, or by nobody yet, as
    /// in an import; each is logged.
    pub left: usize,
}

#[derive(Debug, Default)]
struct Counts {
    resumed: AtomicUsize,
    refused: AtomicUsize,
    left: AtomicUsize,
    /// What could not be reached, such as a harness that comes up later than
    /// its host.
    unreached: Mutex<Vec<SessionUid>>,
}

impl Counts {
    /// Keeps a turn for another round, if there is room.
    fn keep(&self, session: &SessionUid) -> bool {
        let mut unreached = self.unreached.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = unreached.len() < UNREACHED_MAX;
        if has_room {
            unreached.push(session.clone());
        }
        has_room
    }

    /// Counts what became of a turn; one that was not reached is kept for
    /// another round.
    fn count(&self, session: &SessionUid, became: &Became, next: Round) {
        let count = match became {
            Became::Resumed => &self.resumed,
            Became::Left(_) => &self.left,
            Became::Unreached(_) if next == Round::Another && self.keep(session) => {
                return became.tell(session);
            }
            Became::Unreached(error) | Became::Refused(error) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return refuse(session, error);
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        became.tell(session);
    }

    fn take_unreached(&self) -> Vec<SessionUid> {
        std::mem::take(&mut *self.unreached.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service {
    /// Finds the sessions whose latest turn is open, has no driver and waits for
    /// no decision, and finishes those turns, a bounded number at a time. Those
    /// whose harness cannot be reached are tried again for about two minutes.
    /// Returns when the last one is over; a host that is drained begins no more
    /// of them.
    ///
    /// # Guarantees
    /// A turn that somebody begins or resumes meanwhile is not entered twice.
    ///
    /// # Errors
    /// The log's, when it cannot be searched; what was found by then was gone
    /// on with.
    pub async fn resume_interrupted(&self) -> Result<Recovered, SessionsError> {
        let inner = &self.inner;
        let (counts, failed) = (Counts::default(), Mutex::default());
        let search = Search::begin(inner, &failed).await.map_err(log_failed)?;
        // One turn that takes long holds up its own lane alone.
        stream::unfold(search, Search::next)
            .for_each_concurrent(LANES, |row| inner.recover_into(row, &counts, Round::Another))
            .await;
        inner.recover_unreached(&counts).await;
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(log_failed(error));
        }
        Ok(Recovered {
            resumed: counts.resumed.into_inner(),
            refused: counts.refused.into_inner(),
            left: counts.left.into_inner(),
        })
    }
}

/// The sessions with an open turn, page by page, until the host is drained.
pub(crate) struct Search<'a> {
    inner: &'a Arc<Inner>,
    /// Those that are still to be looked through.
    projects: Vec<String>,
    query: Option<ListQuery>,
    ready: VecDeque<SessionRow>,
    /// Why the search ended early.
    failed: &'a Mutex<Option<LogError>>,
}

impl<'a> Search<'a> {
    /// Of every project that turns were run in.
    pub(crate) async fn begin(
        inner: &'a Arc<Inner>,
        failed: &'a Mutex<Option<LogError>>,
    ) -> Result<Self, LogError> {
        let mut projects = inner.noted_projects().await?;
        projects.push(inner.options.project.clone());
        Ok(Self { inner, projects, query: None, ready: VecDeque::new(), failed })
    }

    pub(crate) async fn next(mut self) -> Option<(SessionRow, Self)> {
        loop {
            if self.inner.admit_turn().is_err() {
                tracing::info!("open turns are left for the next start: the host is going down");
                return None;
            }
            if let Some(row) = self.ready.pop_front() {
                return Some((row, self));
            }
            let mut query = match self.query.take() {
                Some(query) => query,
                None => ListQuery {
                    project: self.projects.pop()?,
                    states: vec![ExecState::Running],
                    page_size: PAGE,
                    ..ListQuery::default()
                },
            };
            match self.inner.options.log.list(query.clone(), Level::Committed).await {
                Ok(page) => {
                    self.ready.extend(page.rows);
                    self.query = page.next.map(|next| {
                        query.after = Some(next);
                        query
                    });
                }
                Err(error) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return None;
                }
            }
        }
    }
}

impl Inner {
    /// Tries those that could not be reached, until each is settled or the
    /// rounds are over.
    async fn recover_unreached(self: &Arc<Self>, counts: &Counts) {
        let mut pause = PAUSE_MIN;
        for round in 1..=ROUNDS_MAX {
            let sessions = counts.take_unreached();
            if sessions.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = self.draining.wait() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
            let next = if round < ROUNDS_MAX { Round::Another } else { Round::Last };
            stream::iter(&sessions)
                .for_each_concurrent(LANES, |session| async move {
                    match self.find(session).await {
                        Ok(row) => self.recover_into(row, counts, next).await,
                        Err(error) => counts.count(session, &Became::Refused(error), next),
                    }
                })
                .await;
        }
    }

    async fn recover_into(self: &Arc<Self>, row: SessionRow, counts: &Counts, next: Round) {
        counts.count(&row.session.uid, &self.recover(&row).await, next);
    }

    /// Finishes the open turn of a session, if it is this host's to go on with.
    pub(crate) async fn recover(self: &Arc<Self>, row: &SessionRow) -> Became {
        let finished = match self.ownerless(row).await {
            Ok(execution) => self.finish_ownerless(row, execution).await,
            Err(Left::Because(why)) => return Became::Left(why),
            Err(Left::Failed(error)) => Err(error),
        };
        match finished {
            Ok(true) => Became::Resumed,
            Ok(false) => Became::Left(GONE_ON_WITH),
            Err(error) => match error.condition() {
                // Somebody else was first, or has taken it since: a client, a
                // cancel, another host. The fence has decided between them.
                Condition::SessionBusy | Condition::Fenced | Condition::Conflict => {
                    Became::Left(GONE_ON_WITH)
                }
                // What would pass by itself, but for this host's end.
                Condition::Draining | Condition::Interrupted => Became::Refused(error),
                _ if error.kind() == ErrorKind::Unavailable => Became::Unreached(error),
                _ => Became::Refused(error),
            },
        }
    }

    /// The open turn of a session, if it is this host's to go on with.
    async fn ownerless(&self, row: &SessionRow) -> Result<ExecutionId, Left> {
        if row.view.deletion == DeletionState::Pending {
            return Err(Left::Because("an open turn is left: its session is deleted"));
        }
        let Some(latest) = row.view.pending() else {
            return Err(Left::Because("an open turn is left: it has no id"));
        };
        let Some(holder) = &row.fence.holder else {
            return Err(Left::Because("an open turn is left: no host ever drove it"));
        };
        let is_own = holder.id == self.options.holder.id;
        if !is_own
            && possible_driver(row).is_some()
            && self.is_alive(holder).await.map_err(Left::Failed)?
        {
            return Err(Left::Because("an open turn is left: another host drives it"));
        }
        Ok(latest.id.clone())
    }

    /// Whether there was a turn to finish still.
    async fn finish_ownerless(
        self: &Arc<Self>,
        row: &SessionRow,
        execution: ExecutionId,
    ) -> Result<bool, SessionsError> {
        let recovery =
            Recovery { only: Some(execution), ..Recovery::of(row.session.uid.clone(), None) };
        match self.go_on_with(recovery, May::Everything).await? {
            None => Ok(false),
            Some(updates) => watch_to_the_end(updates).await.map(|()| true),
        }
    }

    /// Notes where turns are run, before one is, so that a later host finds it.
    /// The default project needs no note.
    pub(crate) async fn note_turns_of(&self, row: &SessionRow) {
        let project = &row.session.project;
        if *project == self.options.project || self.projects.names().contains(project) {
            return;
        }
        match self.note_turns(project).await {
            Ok(()) => {
                let mut names = self.projects.names();
                if names.len() >= PROJECTS_MAX {
                    names.clear();
                }
                names.insert(project.clone());
            }
            Err(error) => tracing::warn!(
                session = %row.session.uid, code = error.code(),
                "a later host will not find this project's open turns by itself"
            ),
        }
    }

    async fn note_turns(&self, project: &str) -> Result<(), LogError> {
        // Without the part there is nothing to note it in; that is the store's to say.
        let Some(rows) = self.options.log.rows() else { return Ok(()) };
        let key = RowKey::new(PROJECTS_KIND, project)?;
        if rows.named(&key).await?.is_some() {
            return Ok(());
        }
        let id = AppendId::random(&*self.options.entropy);
        match settle(|| rows.put_named(id, &key, 0, Some(Bytes::new()))).await {
            // Another host was first.
            Ok(_) | Err(LogError::Moved { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The projects that turns were noted of, without the default one.
    async fn noted_projects(&self) -> Result<Vec<String>, LogError> {
        let mut projects = Vec::new();
        let Some(rows) = self.options.log.rows() else { return Ok(projects) };
        let mut after = String::new();
        loop {
            let page = rows.named_of(PROJECTS_KIND, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(projects) };
            after.clone_from(last);
            let names = page.into_iter().map(|(name, _)| name);
            projects.extend(names.filter(|name| *name != self.options.project));
        }
    }
}

/// Whether what cannot be reached is tried once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Another,
    Last,
}

/// What became of an open turn.
#[derive(Debug)]
pub(crate) enum Became {
    /// It was gone on with, until it ended or parked.
    Resumed,
    /// It is not this host's to go on with, and why.
    Left(&'static str),
    /// It may be gone on with later, as when its harness comes up.
    Unreached(SessionsError),
    /// It could not be gone on with.
    Refused(SessionsError),
}

const GONE_ON_WITH: &str = "it was gone on with meanwhile";

impl Became {
    /// Logs it, but for a refusal, which [`refuse`] does.
    pub(crate) fn tell(&self, session: &SessionUid) {
        match self {
            Self::Resumed => {
                tracing::info!(session = %session, "an interrupted turn was resumed");
            }
            Self::Left(why) => tracing::info!(session = %session, "{why}"),
            Self::Unreached(error) => tracing::info!(
                session = %session, code = error.code(),
                "an interrupted turn cannot be reached yet; it is tried again"
            ),
            Self::Refused(_) => {}
        }
    }
}

/// Logs that a turn is not tried again.
pub(crate) fn refuse(session: &SessionUid, error: &SessionsError) {
    report(session, error, "an interrupted turn was not finished");
}

/// Why an open turn is not gone on with.
enum Left {
    Because(&'static str),
    Failed(SessionsError),
}
