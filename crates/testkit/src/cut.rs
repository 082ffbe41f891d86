//! A log that stops a host at a named point.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainspring_api::{
    AppendId, BoxStream, Event, Fence, Head, Outcome, Seq, SessionUid, StoreId, async_trait,
};
use mainspring_eventlog::{
    Batch, EventLog, Follow, Holder, ImportRecord, ImportRow, Level, Limits, ListQuery, Liveness,
    LogError, NamedRows, NewSession, Page, Purge, ReadLimit, RowPatch, SessionRow, StoredRecord,
    Verified,
};

/// Just before the operation, or once it is durable and not yet answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CutSide {
    /// Nothing of it was done.
    Before,
    /// All of it was done.
    After,
}

macro_rules! cut_ops {
    ($($(#[$doc:meta])* $op:ident = $name:literal),* $(,)?) => {
        /// A writing operation of a log.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CutOp {
            $($(#[$doc])* $op,)*
        }

        impl CutOp {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$op),*];

            /// Its name in a cut point.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$op => $name,)*
                }
            }
        }
    };
}

cut_ops! {
    /// [`EventLog::append`].
    Append = "append",
    /// [`EventLog::create`].
    Create = "create",
    /// [`EventLog::update`].
    Update = "update",
    /// [`EventLog::mint`] and [`EventLog::acquire_if_head`].
    Mint = "mint",
    /// [`EventLog::fork`].
    Fork = "fork",
    /// [`EventLog::import`].
    Import = "import",
    /// [`EventLog::annotate`].
    Annotate = "annotate",
}

/// Where a host stops, written `before-append-3`: before the third append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CutPoint {
    /// Which side of it.
    pub side: CutSide,
    /// Which operation.
    pub op: CutOp,
    /// Which of them, from 1, over all sessions.
    pub nth: u64,
}

impl fmt::Display for CutPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            CutSide::Before => "before",
            CutSide::After => "after",
        };
        write!(f, "{side}-{}-{}", self.op.name(), self.nth)
    }
}

/// A text that names no cut point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidCut(String);

impl fmt::Display for InvalidCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a cut point such as before-append-3", self.0)
    }
}

impl std::error::Error for InvalidCut {}

impl FromStr for CutPoint {
    type Err = InvalidCut;

    fn from_str(text: &str) -> Result<Self, InvalidCut> {
        let read = || {
            let mut parts = text.splitn(3, '-');
            let side = match parts.next()? {
                "before" => CutSide::Before,
                "after" => CutSide::After,
                _ => return None,
            };
            let name = parts.next()?;
            let op = *CutOp::ALL.iter().find(|op| op.name() == name)?;
            let nth = parts.next()?.parse().ok().filter(|nth| *nth > 0)?;
            Some(Self { side, op, nth })
        };
        read().ok_or_else(|| InvalidCut(text.to_owned()))
    }
}

/// What happens at the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutMode {
    /// That one operation fails: before it with nothing applied, after it with
    /// outcome unknown. What follows works.
    Error,
    /// It fails so, and every later operation and read does: the host has lost
    /// its store and can only give up.
    Dead,
    /// It never returns, and neither does any later one.
    Hang,
    /// The process ends on the spot, as by `kill -9`.
    Abort,
}

/// A log in front of another, which stops at one point.
#[derive(Debug)]
pub struct CutStore {
    inner: Arc<dyn EventLog>,
    cut: Option<(CutPoint, CutMode)>,
    seen: [AtomicU64; CutOp::ALL.len()],
    gone: AtomicBool,
}

impl CutStore {
    /// Stops `inner` at `point`.
    #[must_use]
    pub fn new(inner: Arc<dyn EventLog>, point: CutPoint, mode: CutMode) -> Self {
        Self { cut: Some((point, mode)), ..Self::counting(inner) }
    }

    /// Never stops, and counts: a run of it tells which points there are.
    #[must_use]
    pub fn counting(inner: Arc<dyn EventLog>) -> Self {
        Self { inner, cut: None, seen: Default::default(), gone: AtomicBool::new(false) }
    }

    /// Every cut point that was passed so far, in the order of [`CutOp::ALL`].
    #[must_use]
    pub fn points(&self) -> Vec<CutPoint> {
        let mut points = Vec::new();
        for op in CutOp::ALL {
            for nth in 1..=self.seen[*op as usize].load(Ordering::SeqCst) {
                for side in [CutSide::Before, CutSide::After] {
                    points.push(CutPoint { side, op: *op, nth });
                }
            }
        }
        points
    }

    /// Whether the cut was reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Once the store is gone in a mode that lasts, nothing is answered.
    async fn alive(&self) -> Result<(), LogError> {
        match self.cut {
            Some((_, CutMode::Dead)) if self.reached() => {
                Err(LogError::unavailable("the store is gone"))
            }
            Some((_, CutMode::Hang)) if self.reached() => std::future::pending().await,
            _ => Ok(()),
        }
    }

    async fn stop(&self, mode: CutMode, outcome: Outcome) -> LogError {
        self.gone.store(true, Ordering::SeqCst);
        match mode {
            CutMode::Abort => std::process::abort(),
            CutMode::Hang => std::future::pending().await,
            CutMode::Error | CutMode::Dead => {
                LogError::Unavailable { message: "cut".to_owned(), outcome, source: None }
            }
        }
    }

    async fn through<T>(
        &self,
        op: CutOp,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        self.alive().await?;
        let nth = self.seen[op as usize].fetch_add(1, Ordering::SeqCst) + 1;
        let cut = self.cut.filter(|(point, _)| point.op == op && point.nth == nth);
        match cut {
            Some((CutPoint { side: CutSide::Before, .. }, mode)) => {
                Err(self.stop(mode, Outcome::NotApplied).await)
            }
            Some((CutPoint { side: CutSide::After, .. }, mode)) => {
                let applied = run.await;
                // What was refused was not applied; its answer would have been lost all the same.
                drop(applied);
                Err(self.stop(mode, Outcome::Unknown).await)
            }
            None => run.await,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for CutStore {
    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    async fn create(&self, id: AppendId, session: NewSession) -> Result<SessionRow, LogError> {
        self.through(CutOp::Create, self.inner.create(id, session)).await
    }

    async fn get(&self, session: &SessionUid, level: Level) -> Result<SessionRow, LogError> {
        self.alive().await?;
        self.inner.get(session, level).await
    }

    async fn list(&self, query: ListQuery, level: Level) -> Result<Page, LogError> {
        self.alive().await?;
        self.inner.list(query, level).await
    }

    async fn update(
        &self,
        id: AppendId,
        session: &SessionUid,
        version: u64,
        patch: RowPatch,
    ) -> Result<SessionRow, LogError> {
        self.through(CutOp::Update, self.inner.update(id, session, version, patch)).await
    }

    async fn append(
        &self,
        session: &SessionUid,
        id: AppendId,
        fence: Fence,
        batch: &Batch,
    ) -> Result<Head, LogError> {
        self.through(CutOp::Append, self.inner.append(session, id, fence, batch)).await
    }

    async fn mint(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        self.through(CutOp::Mint, self.inner.mint(session, id, current, holder)).await
    }

    async fn acquire_if_head(
        &self,
        session: &SessionUid,
        id: AppendId,
        current: Fence,
        head: Head,
        holder: Holder,
    ) -> Result<Fence, LogError> {
        let run = self.inner.acquire_if_head(session, id, current, head, holder);
        self.through(CutOp::Mint, run).await
    }

    async fn head(&self, session: &SessionUid, level: Level) -> Result<Head, LogError> {
        self.alive().await?;
        self.inner.head(session, level).await
    }

    async fn read(
        &self,
        session: &SessionUid,
        from: Seq,
        limit: ReadLimit,
        level: Level,
    ) -> Result<Vec<StoredRecord>, LogError> {
        self.alive().await?;
        self.inner.read(session, from, limit, level).await
    }

    fn verify(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<Verified, LogError>> {
        match self.cut {
            Some((_, CutMode::Hang)) if self.reached() => Box::pin(futures_util::stream::pending()),
            Some((_, CutMode::Dead)) if self.reached() => {
                let gone = Err(LogError::unavailable("the store is gone"));
                Box::pin(futures_util::stream::iter([gone]))
            }
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
        self.through(CutOp::Fork, self.inner.fork(id, parent, at, children)).await
    }

    fn may_be_child(&self, parent: &SessionUid, uid: &SessionUid) -> bool {
        self.inner.may_be_child(parent, uid)
    }

    async fn import(
        &self,
        id: AppendId,
        row: ImportRow,
        records: BoxStream<'static, Result<ImportRecord, LogError>>,
    ) -> Result<SessionRow, LogError> {
        self.through(CutOp::Import, self.inner.import(id, row, records)).await
    }

    async fn staged(&self, id: AppendId) -> Result<Head, LogError> {
        self.inner.staged(id).await
    }

    fn follow(&self) -> Option<&dyn Follow> {
        self.inner.follow()
    }

    fn rows(&self) -> Option<&dyn NamedRows> {
        self.inner.rows()
    }

    fn purge(&self) -> Option<&dyn Purge> {
        self.inner.purge()
    }

    fn liveness(&self) -> Option<&dyn Liveness> {
        self.inner.liveness()
    }

    async fn annotate(
        &self,
        session: &SessionUid,
        seq: Seq,
        fence: Fence,
        key: &str,
        value: &str,
    ) -> Result<(), LogError> {
        self.through(CutOp::Annotate, self.inner.annotate(session, seq, fence, key, value)).await
    }
}
