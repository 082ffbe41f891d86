//! One session in one cell, and all that drives it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use mainspring_api::{
    Address, ApprovalRef, Bytes, Decision, Event, EventBody, Fence, Harness, HarnessConnector as _,
    HarnessError, Head, IdentityRef, Incarnation, Lifecycle, LogRecord, Message, OsEntropy, Seq,
    SessionUid, SinkError, StoreId, SystemClock,
};
use mainspring_controller::{
    Approval, Controller, ControllerError, Executed, Expected, Journal, Options, Replayed, Resumed,
    Turn, approve, fork,
};
use mainspring_eventlog::{
    EventLog, ImportRecord, ImportRow, KvOptions, KvStore, Level, NewRecord, NewSession,
    SessionRow, StoredRecord, mint_any,
};
use mainspring_store_fjall::FjallConfig;
use mainspring_store_redb::RedbConfig;
use mainspring_testkit::{SeededEntropy, SharedMemory, read_all, sample, verify_all};
use mainspring_transport_grpc::{GrpcConnector, Listener, ServeOptions, serve_harness};
use tempfile::TempDir;

use super::cell::open_elsewhere;
use super::{Cell, Kept, Probe, Reach, TestModel, TestTools, Watcher, raw};

/// One session in one cell. Clones are the same session.
#[derive(Debug, Clone)]
pub(crate) struct Fixture {
    pub(crate) cell: Cell,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) uid: SessionUid,
    pub(crate) model: Arc<TestModel>,
    pub(crate) watcher: Arc<Watcher>,
    /// The executor of every controller here; none unless a case asks for one.
    pub(crate) tools: Option<Arc<TestTools>>,
    memory: SharedMemory,
    dir: Arc<TempDir>,
    sockets: Arc<AtomicUsize>,
}

/// A harness as the controller reaches it, and the probe behind it.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) probe: Arc<Probe>,
    /// Descriptions before anything was run.
    agreed: usize,
}

impl Placed {
    pub(crate) fn runs(&self) -> usize {
        self.probe.runs()
    }

    pub(crate) fn describes(&self) -> usize {
        self.probe.describes() - self.agreed
    }
}

/// A folder for the store and the sockets. No case here is about the disk, and
/// a store is made with up to two hundred syncs: where the system has a folder
/// in memory, it lies there.
fn folder(kept: Kept) -> TempDir {
    let in_memory = (kept != Kept::Memory).then(|| tempfile::tempdir_in("/dev/shm").ok());
    in_memory.flatten().unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// The store of a folder, or of an engine in memory.
pub(crate) async fn open_log(
    kept: Kept,
    memory: &SharedMemory,
    dir: &Path,
) -> Option<Arc<dyn EventLog>> {
    let options = KvOptions::default();
    Some(match kept {
        Kept::Memory => Arc::new(KvStore::open(Arc::clone(memory), options).unwrap()),
        Kept::Redb => {
            let config = RedbConfig::at(dir.join("journal.redb"));
            Arc::new(mainspring_store_redb::open_store(&config, options).unwrap())
        }
        Kept::Fjall => {
            let config = FjallConfig::at(dir.join("journal"));
            Arc::new(mainspring_store_fjall::open_store(&config, options).unwrap())
        }
        Kept::Elsewhere => return open_elsewhere(dir.to_owned()).await,
    })
}

impl Fixture {
    /// A session without records in a store of its own.
    pub(crate) async fn open(cell: Cell) -> Self {
        Self::open_if_there(cell).await.expect("this cell is there")
    }

    /// As [`Fixture::open`]; `None` where this machine has not what the cell needs.
    pub(crate) async fn open_if_there(cell: Cell) -> Option<Self> {
        let dir = folder(cell.kept);
        let memory = SharedMemory::default();
        let log = open_log(cell.kept, &memory, dir.path()).await?;
        let fixture = Self {
            cell,
            log,
            uid: sample::session("main"),
            model: Arc::default(),
            watcher: Arc::default(),
            tools: None,
            memory,
            dir: Arc::new(dir),
            sockets: Arc::default(),
        };
        mainspring_testkit::create(&*fixture.log, &fixture.uid).await.unwrap();
        Some(fixture)
    }

    /// The same session, its store closed and opened again. It must be the only
    /// fixture of that store.
    pub(crate) async fn reopen(self) -> Self {
        let Self { cell, log, uid, model, watcher, tools, memory, dir, sockets } = self;
        let old = Arc::downgrade(&log);
        drop(log);
        // A task that was left behind may still be giving its handle up.
        while old.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
        let log = open_log(cell.kept, &memory, dir.path()).await.expect("it was there before");
        Self { cell, log, uid, model, watcher, tools, memory, dir, sockets }
    }

    /// The same session with an executor.
    pub(crate) fn with_tools(self) -> Self {
        Self { tools: Some(Arc::default()), ..self }
    }

    /// The same session without an executor.
    pub(crate) fn without_tools(&self) -> Self {
        Self { tools: None, ..self.clone() }
    }

    /// The executor of a session that has one.
    #[track_caller]
    pub(crate) fn executor(&self) -> &TestTools {
        self.tools.as_deref().expect("the case asked for an executor")
    }

    /// The same store seen through another log.
    pub(crate) fn through(&self, log: Arc<dyn EventLog>) -> Self {
        Self { log, ..self.clone() }
    }

    /// Another session of the same store, with its own model and watcher.
    pub(crate) fn session(&self, uid: &SessionUid) -> Self {
        Self { uid: uid.clone(), model: Arc::default(), watcher: Arc::default(), ..self.clone() }
    }

    /// A session of another store that holds `records`.
    pub(crate) async fn import(cell: Cell, records: &[StoredRecord]) -> Self {
        let empty = Self::open(cell).await;
        let fixture = empty.session(&sample::session("imported"));
        let row = ImportRow {
            session: NewSession::bare(fixture.uid.clone(), "default"),
            create_time: None,
            parent: None,
        };
        let records: Vec<_> =
            records.iter().map(|record| Ok(ImportRecord::Record(record.clone()))).collect();
        let records = Box::pin(stream::iter(records));
        fixture.log.import(sample::fresh_id(), row, records).await.unwrap();
        fixture
    }

    /// Puts the harness where the cell wants it.
    pub(crate) async fn place(&self, probe: Probe) -> Placed {
        let probe = Arc::new(probe);
        let harness = match self.cell.reach {
            Reach::InProcess => Arc::clone(&probe) as Arc<dyn Harness>,
            Reach::Wire => self.serve(&probe).await,
        };
        Placed { harness, probe, agreed: 0 }
    }

    /// The same, described before it is run, as placement does on the
    /// connection of a turn: host and harness have agreed on what they both can.
    pub(crate) async fn place_agreed(&self, probe: Probe) -> Placed {
        let placed = self.place(probe).await;
        placed.harness.describe().await.unwrap();
        Placed { agreed: placed.probe.describes(), ..placed }
    }

    async fn serve(&self, probe: &Arc<Probe>) -> Arc<dyn Harness> {
        let number = self.sockets.fetch_add(1, Ordering::SeqCst);
        let path = self.dir.path().join(format!("{number}.sock"));
        let listener = Listener::bind(&format!("unix://{}", path.display())).await.unwrap();
        let address = listener.address().to_string();
        let probe = Arc::clone(probe);
        tokio::spawn(serve_harness(
            probe,
            listener,
            ServeOptions::default(),
            std::future::pending(),
        ));
        let incarnation = Incarnation {
            address: Address::Grpc { address, call_metadata: Vec::new() },
            worker: String::new(),
            compute_instance: String::new(),
            fence: Fence::NONE,
            live_describer: false,
        };
        GrpcConnector::default().connect(&incarnation).await.unwrap().harness()
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::new(Arc::clone(&self.log), self.uid.clone())
    }

    /// The options of every controller here, before a case changes them.
    pub(crate) fn options(&self) -> Options {
        Options {
            session: Some(self.uid.clone()),
            observer: Arc::clone(&self.watcher) as Arc<_>,
            tools: self.tools.clone().map(|tools| tools as Arc<_>),
            ..Options::new(Arc::clone(&self.model) as Arc<_>)
        }
    }

    /// A fresh controller, which mints one fence.
    pub(crate) async fn controller(&self) -> Controller {
        Controller::new(self.journal(), self.options()).await.unwrap()
    }

    /// Runs a new turn at the head on a fresh controller.
    pub(crate) async fn exec(
        &self,
        placed: &Placed,
        inputs: &[&str],
    ) -> Result<Executed, ControllerError> {
        self.exec_turn(placed, turn(inputs)).await
    }

    pub(crate) async fn exec_turn(
        &self,
        placed: &Placed,
        turn: Turn,
    ) -> Result<Executed, ControllerError> {
        self.controller().await.exec(&placed.harness, turn).await
    }

    /// Resumes on a fresh controller.
    pub(crate) async fn resume(&self, placed: &Placed) -> Resumed {
        self.controller().await.resume(&placed.harness, None).await
    }

    /// Replays on a fresh controller, and checks that it only read.
    pub(crate) async fn replay(&self, placed: &Placed) -> Result<Replayed, ControllerError> {
        let before = self.row().await;
        let calls = self.model.calls();
        let tool_calls = self.tools.as_ref().map(|tools| tools.calls());
        let controller = Controller::reader(self.journal(), self.options());
        let replayed = controller.replay(&placed.harness).await;
        assert_eq!(self.row().await, before, "a replay changes nothing");
        assert_eq!(self.model.calls(), calls, "a replay calls no model");
        assert_eq!(self.tools.as_ref().map(|tools| tools.calls()), tool_calls, "nor a tool");
        assert_eq!((controller.model_invocations(), controller.tool_invocations()), (0, 0));
        replayed
    }

    /// The replay check of the specification: the same outputs, and only reads.
    pub(crate) async fn replay_check(&self, placed: &Placed, turns: u64, outputs: &[&str]) {
        let replayed = self.replay(placed).await.unwrap();
        assert_eq!(replayed.outputs, outputs);
        assert_eq!(replayed.turns, turns);
    }

    /// Decides the pending request as a person does.
    pub(crate) async fn decide(
        &self,
        approval: &ApprovalRef,
        approved: bool,
        reason: &str,
    ) -> Result<LogRecord, ControllerError> {
        approve(&self.journal(), self.decision(approval, approved, reason)).await
    }

    /// The decision of [`Fixture::decide`], to be changed by a case.
    pub(crate) fn decision(
        &self,
        approval: &ApprovalRef,
        approved: bool,
        reason: &str,
    ) -> Approval {
        let identity = IdentityRef { principal: "ada".to_owned(), ..IdentityRef::default() };
        Approval {
            approval: approval.clone(),
            decision: Decision { approved, reason: reason.to_owned(), identity: Some(identity) },
            digest: None,
            holder: sample::holder("approver"),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            observer: Arc::clone(&self.watcher) as Arc<_>,
        }
    }

    pub(crate) async fn row(&self) -> SessionRow {
        self.log.get(&self.uid, Level::Strict).await.unwrap()
    }

    pub(crate) async fn head(&self) -> Head {
        self.row().await.view.head
    }

    pub(crate) async fn fence(&self) -> Fence {
        self.row().await.fence.fence
    }

    /// Every record, once the whole chain was verified.
    pub(crate) async fn records(&self) -> Vec<StoredRecord> {
        let records = read_all(&*self.log, &self.uid).await.unwrap();
        let head = verify_all(&*self.log, &self.uid).await.unwrap();
        assert_eq!(head, records.last().map_or(Head::EMPTY, StoredRecord::head));
        records
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        self.records().await.iter().map(|record| record.event().unwrap()).collect()
    }

    /// The kinds of the whole journal, in the specification's short names.
    pub(crate) async fn kinds(&self) -> String {
        raw::kinds(&self.events().await)
    }

    /// The texts of every recorded output.
    pub(crate) async fn outputs(&self) -> Vec<String> {
        mainspring_controller::outputs(&self.journal()).await.unwrap()
    }

    /// Appends events at the head, as a writer that is no controller.
    pub(crate) async fn append(&self, events: impl IntoIterator<Item = Event>) {
        let records = sample::records(events);
        if !records.is_empty() {
            mainspring_testkit::append(&*self.log, &self.uid, records).await.unwrap();
        }
    }

    pub(crate) async fn append_lifecycle(&self, body: Lifecycle) {
        self.append([Event::of(EventBody::Lifecycle(Some(body)))]).await;
    }

    /// Appends recorded events with the controller's note: a journal that was cut here.
    pub(crate) async fn append_recorded(&self, records: &[StoredRecord]) {
        let records = records
            .iter()
            .map(|record| NewRecord {
                event: record.event().unwrap(),
                notes: record
                    .notes
                    .iter()
                    .filter(|(key, _)| *key == "usage")
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            })
            .collect();
        mainspring_testkit::append(&*self.log, &self.uid, records).await.unwrap();
    }

    /// Mints a fence for somebody else.
    pub(crate) async fn take_over(&self) -> Fence {
        mint_any(&*self.log, &self.uid, sample::fresh_id, sample::holder("other")).await.unwrap()
    }

    /// Forks one child at `at`.
    pub(crate) async fn fork(&self, at: u64, name: &str) -> Result<Self, ControllerError> {
        let child = self.session(&sample::session(name));
        let new = NewSession::bare(child.uid.clone(), "default");
        fork(&self.journal(), Seq::new(at), vec![new], &SeededEntropy::new(at)).await?;
        Ok(child)
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.log.store_id()
    }
}

/// A turn at the head with these texts as inputs.
pub(crate) fn turn(inputs: &[&str]) -> Turn {
    Turn {
        config: Bytes::new(),
        expected: Expected::Head,
        ..Turn::new(inputs.iter().map(|text| Message::user(*text)).collect())
    }
}

/// The turn was driven to its end.
#[track_caller]
pub(crate) fn driven(resumed: Resumed) {
    assert!(resumed.resumed);
    resumed.result.unwrap();
}

/// Why nothing was driven.
#[track_caller]
pub(crate) fn refused(resumed: Resumed) -> ControllerError {
    assert!(!resumed.resumed);
    resumed.result.unwrap_err()
}

/// The request that a turn parked on.
#[track_caller]
pub(crate) fn parked<T: std::fmt::Debug>(result: Result<T, ControllerError>) -> ApprovalRef {
    match result {
        Err(ControllerError::ApprovalParked(park)) => park,
        other => panic!("not parked: {other:?}"),
    }
}

/// The sink's error that a run failed with.
#[track_caller]
pub(crate) fn sink_error(error: &ControllerError) -> &SinkError {
    match error {
        ControllerError::Run(HarnessError::Sink(error)) => error,
        other => panic!("not an error of the sink: {other:?}"),
    }
}
