//! A sound store with a fault in front of it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use futures_util::stream;
use mainspring_api::{
    AppendId, BoxStream, Event, ExecutionId, Fence, Head, Seq, SessionUid, StoreId, async_trait,
};
use mainspring_eventlog::{
    Batch, Durability, EventLog, ExecutionView, Follow, Holder, ImportRecord, ImportRow, Level,
    Limits, ListQuery, Liveness, LogError, Mark, NamedRows, NewSession, Page, Purge, ReadLimit,
    RowPatch, SessionRow, StoredRecord, Verified, Warmth,
};
use mainspring_testkit::{read_all, sample};

use crate::fault::Fault;

#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) inner: Arc<dyn EventLog>,
    pub(crate) fault: Fault,
    pub(crate) projects: Mutex<HashSet<String>>,
    pub(crate) lost: Mutex<HashSet<AppendId>>,
    pub(crate) children: Mutex<HashMap<SessionUid, Vec<SessionUid>>>,
    pub(crate) alive: Mutex<Vec<Holder>>,
    /// Where clients reach this host.
    pub(crate) address: Mutex<String>,
    /// What was marked once.
    pub(crate) marked: Mutex<HashMap<Mark, Vec<SessionRow>>>,
    /// What was open once.
    pub(crate) open: Mutex<Vec<SessionRow>>,
}

impl Broken {
    pub(crate) fn new(inner: Arc<dyn EventLog>, fault: Fault) -> Self {
        let (projects, lost, children, alive, address, marked, open) = Default::default();
        Self { inner, fault, projects, lost, children, alive, address, marked, open }
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    pub(crate) fn id(&self, id: AppendId) -> AppendId {
        if self.is(Fault::ForgetsIds) { sample::fresh_id() } else { id }
    }

    fn uid(&self, uid: &SessionUid) -> SessionUid {
        if self.is(Fault::CutsUids) {
            return SessionUid::new(uid.as_str().trim_end_matches('.')).unwrap();
        }
        uid.clone()
    }

    fn row(&self, mut row: SessionRow) -> SessionRow {
        match self.fault {
            Fault::FoldLosesBytes => row.view.bytes = 0,
            Fault::FenceLosesHolder => row.fence.holder = None,
            Fault::ForkLosesParent => row.parent = None,
            _ => {}
        }
        row
    }

    pub(crate) async fn found(&self, uid: &SessionUid) -> Result<SessionRow, LogError> {
        self.inner.get(uid, Level::Strict).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for Broken {
    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        let mut session = NewSession { uid: self.uid(&session.uid), ..session };
        self.projects.lock().unwrap().insert(session.project.clone());
        if self.is(Fault::CreateLosesLabels) {
            session.labels.clear();
        }
        let uid = session.uid.clone();
        match self.inner.create(self.id(id), session).await {
            Err(LogError::AlreadyExists(_)) if self.is(Fault::CreateAnswersWhatIsThere) => {
                self.found(&uid).await
            }
            answer => answer.map(|row| self.row(row)),
        }
    }

    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError> {
        self.inner.get(&self.uid(session), level).await.map(|row| self.row(row))
    }

    async fn list(&self, mut query: ListQuery, level: Level) -> Result<Page, LogError> {
        match self.fault {
            Fault::ListIgnoresOwner => query.owner = None,
            Fault::ListIgnoresStates => query.states.clear(),
            Fault::ListIgnoresHarness => query.harness.clear(),
            Fault::ListsByOneLabel => query.labels = query.labels.into_iter().take(1).collect(),
            _ => {}
        }
        let mut page = self.inner.list(query.clone(), level).await?;
        if self.is(Fault::ListsByProjectPrefix) {
            let projects = self.projects.lock().unwrap().clone();
            for project in projects {
                if project != query.project && project.starts_with(&query.project) {
                    let more = ListQuery { project, ..query.clone() };
                    page.rows.extend(self.inner.list(more, level).await?.rows);
                }
            }
        }
        match self.fault {
            Fault::ListsByUid => {
                page.rows.sort_by(|a, b| a.session.uid.cmp(&b.session.uid));
            }
            Fault::SkipsARowBetweenPages if query.after.is_some() => {
                page.rows.drain(..page.rows.len().min(1));
            }
            Fault::ListsWithoutFold => {
                page.rows.iter_mut().for_each(|row| row.view = Default::default());
            }
            Fault::ListForgetsAdopted if query.owner.is_some() => {
                page.rows.retain(|row| row.version == 1);
            }
            Fault::ListForgetsInherited if !query.states.is_empty() => {
                page.rows.retain(|row| row.parent.is_none());
            }
            Fault::ListKeepsOpen if !query.states.is_empty() && query.after.is_none() => {
                let mut open = self.open.lock().unwrap();
                let is_known = |row: &SessionRow, known: &[SessionRow]| {
                    known.iter().any(|known| known.session.uid == row.session.uid)
                };
                page.rows.iter().for_each(|row| {
                    if !is_known(row, &open) {
                        open.push(row.clone());
                    }
                });
                let kept = open.iter().filter(|row| !is_known(row, &page.rows)).cloned();
                let kept: Vec<_> = kept.collect();
                page.rows.extend(kept);
            }
            Fault::ListsWellFormedAlone => {
                page.rows.retain(|row| row.view.evidence_fault.is_none());
            }
            _ => {}
        }
        page.rows = page.rows.into_iter().map(|row| self.row(row)).collect();
        Ok(page)
    }

    async fn marked(
        &self,
        mark: Mark,
        after: Option<&SessionUid>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, LogError> {
        let marked = self.inner.marked(mark, after, limit).await?;
        if !self.is(Fault::MarksNeverGo) || after.is_some() {
            return Ok(marked);
        }
        let mut known = self.marked.lock().unwrap();
        let rows = known.entry(mark).or_default();
        rows.extend(marked.into_iter().skip(rows.len()));
        Ok(rows.iter().take(limit).cloned().collect())
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        mut patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        let mut version = version;
        match self.fault {
            Fault::UpdateClears => {
                patch.annotations.get_or_insert_default();
                patch.labels.get_or_insert_default();
            }
            Fault::UpdateIgnoresVersion => version = self.found(session).await?.version,
            _ => {}
        }
        match self.inner.update(self.id(id), session, version, patch).await {
            Err(_) if self.is(Fault::UpdateAnswersTheRow) => self.found(session).await,
            answer => answer.map(|row| self.row(row)),
        }
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        let (uid, id) = (self.uid(session), self.id(id));
        let appended = match self.append_broken(&uid, id, fence, batch).await {
            Err(error) => self.refused_append(&uid, id, batch, error).await,
            appended => appended,
        };
        if self.is(Fault::ForkSharesAppends) && appended.is_ok() {
            let children = self.children.lock().unwrap().get(&uid).cloned();
            for child in children.into_iter().flatten() {
                let events = sample::records(batch.events().cloned());
                mainspring_testkit::append(&*self.inner, &child, events).await?;
            }
        }
        appended
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let mut current = current;
        if self.is(Fault::MintIgnoresCurrent) {
            current = self.found(session).await?.fence.fence;
        }
        self.inner.mint(session, self.id(id), current, holder).await
    }

    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        match self.fault {
            Fault::AcquireIgnoresHead | Fault::MintIgnoresCurrent => {
                self.mint(session, id, current, holder).await
            }
            _ => self.inner.acquire_if_head(session, self.id(id), current, head, holder).await,
        }
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        if self.is(Fault::HeadLags) {
            return Ok(Head::EMPTY);
        }
        self.inner.head(&self.uid(session), level).await
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        let session = self.uid(session);
        let row = self.inner.get(&session, level).await?;
        let end = row.view.head.seq;
        let mut from = from;
        match self.fault {
            Fault::ReadFromZeroIsEmpty if from == Seq::ZERO => return Ok(Vec::new()),
            Fault::ReadRefusesLargeRecords if limit.bytes < 100 => return Ok(Vec::new()),
            Fault::ReadClamps => from = from.min(end),
            Fault::ReadRepeatsARecord if from > Seq::new(1) && from <= end => {
                from = Seq::new(from.get() - 1);
            }
            _ => {}
        }
        let mut records = self.inner.read(&session, from, limit, level).await?;
        match (self.fault, row.parent) {
            (Fault::ReadLags, _) => drop(records.pop()),
            (Fault::ForkSharesFences, Some((parent, at))) => {
                let parents = read_all(&*self.inner, &parent).await?;
                for record in records.iter_mut().filter(|record| record.seq <= at) {
                    record.fence = parents[record.seq.get() as usize - 1].fence;
                }
            }
            _ => {}
        }
        for record in &mut records {
            match self.fault {
                Fault::ReadLosesFences => record.fence = Fence::NONE,
                Fault::ReadLosesNotes => record.notes.clear(),
                Fault::ReadRecodes => {
                    let text = String::from_utf8(record.canonical.to_vec()).unwrap();
                    record.canonical = text.replace("\":", "\": ").into();
                }
                _ => {}
            }
        }
        Ok(records)
    }

    async fn execution(
        &self,
        session: &SessionUid,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionView>, LogError> {
        self.inner.execution(&self.uid(session), id).await
    }

    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        match self.fault {
            Fault::VerifiesNothing => Box::pin(stream::iter([Ok(Verified::Done(after))])),
            Fault::VerifyIgnoresWhatIsKnown => self.inner.verify(session, Head::EMPTY),
            _ => self.inner.verify(session, after),
        }
    }

    async fn fork(
        &self,
        id: AppendId,
        parent: &SessionUid,
        at: Head,
        children: Vec<(NewSession, Event)>,
    ) -> Result<Vec<SessionRow>, LogError> {
        let mut at = at;
        let row = self.found(parent).await?;
        match self.fault {
            Fault::ForkMintsParent => {
                let (current, holder) = (row.fence.fence, sample::holder("fork"));
                self.inner.mint(parent, sample::fresh_id(), current, holder).await?;
            }
            Fault::ForkNeedsAPrefix if at == Head::EMPTY => {
                return Err(LogError::Invalid("nothing to fork"));
            }
            Fault::ForkOfForkFails if row.parent.is_some() => {
                return Err(LogError::Unsupported("forks of forks"));
            }
            Fault::ForkClamps if at.seq > row.view.head.seq => at = row.view.head,
            Fault::ForkIgnoresHash if at.seq > Seq::ZERO => {
                let records = read_all(&*self.inner, parent).await?;
                at = records[at.seq.get() as usize - 1].head();
            }
            _ => {}
        }
        let uids: Vec<_> = children.iter().map(|(child, _)| child.uid.clone()).collect();
        self.children.lock().unwrap().entry(parent.clone()).or_default().extend(uids);
        if self.is(Fault::ForksOneByOne) {
            let mut rows = Vec::new();
            for child in children {
                rows.extend(self.inner.fork(id, parent, at, vec![child]).await?);
            }
            return Ok(rows);
        }
        let first = children.first().map(|(child, _)| child.clone());
        match self.inner.fork(self.id(id), parent, at, children).await {
            Err(LogError::Deleted(_)) if self.is(Fault::ForksDeleted) => {
                let child = first.expect("a child");
                Ok(vec![self.inner.create(id, child).await?])
            }
            rows => Ok(rows?.into_iter().map(|row| self.row(row)).collect()),
        }
    }

    fn may_be_child(&self, parent: &SessionUid, uid: &SessionUid) -> bool {
        self.inner.may_be_child(parent, uid)
    }

    async fn import(
        &self,
        id: AppendId,
        mut row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError> {
        if self.is(Fault::ImportLosesTime) {
            row.create_time = None;
        }
        let uid = row.session.uid.clone();
        let items = self.imported(records).await?;
        let again = (row.clone(), items.clone());
        match self.inner.import(self.id(id), row, Box::pin(stream::iter(items))).await {
            Err(LogError::AlreadyExists(_)) if self.is(Fault::ImportAnswersWhatIsThere) => {
                self.found(&uid).await
            }
            Err(LogError::Invalid(_)) if self.is(Fault::ImportTakesAnother) => {
                let (row, items) = again;
                self.inner.import(sample::fresh_id(), row, Box::pin(stream::iter(items))).await
            }
            Err(error @ LogError::Tampered { .. }) => {
                self.lost.lock().unwrap().insert(id);
                Err(error)
            }
            answer => answer.map(|row| self.row(row)),
        }
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        if self.is(Fault::ImportKeepsRefused) && self.lost.lock().unwrap().contains(&id) {
            let known = mainspring_eventlog::record_hash(b"{}", None, Seq::new(1));
            return Ok(Head::at(Seq::new(1), known));
        }
        self.inner.staged(self.id(id)).await
    }

    fn follow(&self) -> Option<&dyn Follow> {
        Some(self)
    }

    fn rows(&self) -> Option<&dyn NamedRows> {
        Some(self)
    }

    fn purge(&self) -> Option<&dyn Purge> {
        Some(self)
    }

    fn liveness(&self) -> Option<&dyn Liveness> {
        Some(self)
    }

    fn warmth(&self) -> Option<&dyn Warmth> {
        Some(self)
    }

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        let mut fence = fence;
        if self.is(Fault::IgnoresFence) {
            fence = fence.max(self.found(session).await?.fence.fence);
        }
        match self.inner.annotate(session, seq, fence, key, value).await {
            Err(LogError::Moved { .. }) if self.is(Fault::AnnotatesOver) => Ok(()),
            Err(LogError::Invalid(_)) if self.is(Fault::AnnotatesNothing) => Ok(()),
            answer => answer,
        }
    }
}
