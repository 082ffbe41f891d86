//! A host whose time and randomness are fixed.

use std::sync::Arc;

use mainspring_api::{AppendId, ApprovalRef, Event, SessionUid, Timestamp};
use mainspring_controller::{
    Approval, Controller, ControllerError, Executed, Options, Resumed, approve,
};
use mainspring_eventlog::export::{head_line, record_line};
use mainspring_eventlog::{
    Batch, EventLog, KvOptions, KvStore, MemoryEngine, NewRecord, NewSession,
};
use mainspring_testkit::{ManualClock, SeededEntropy, sample};

use super::harnesses;
use crate::support::{Fixture, Placed, turn};

/// A session in a store of its own, and who drives it.
pub(super) struct Host {
    pub(super) session: Fixture,
    pub(super) placed: Placed,
    pub(super) entropy: Arc<SeededEntropy>,
    pub(super) clock: Arc<ManualClock>,
    /// What every controller here is changed by.
    pub(super) change: fn(Options) -> Options,
}

/// When the sessions were made.
pub(super) const MADE: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 123_000_000 };

impl Host {
    /// A host without a session yet.
    pub(super) async fn bare(cell: &Fixture, family: &str) -> Self {
        let entropy = Arc::new(SeededEntropy::new(1));
        let clock = Arc::new(ManualClock::at_unix(MADE.seconds));
        clock.set(MADE);
        let options = KvOptions {
            clock: Arc::clone(&clock) as Arc<_>,
            entropy: Arc::clone(&entropy) as Arc<_>,
            ..KvOptions::default()
        };
        let log: Arc<dyn EventLog> =
            Arc::new(KvStore::open(MemoryEngine::default(), options).unwrap());
        let session = cell.through(log).session(&sample::session(family)).with_tools();
        let placed = session.place(harnesses::scripted()).await;
        Self { session, placed, entropy, clock, change: |options| options }
    }

    /// A host with an empty session.
    pub(super) async fn new(cell: &Fixture, family: &str) -> Self {
        let host = Self::bare(cell, family).await;
        let new = NewSession::bare(host.session.uid.clone(), "default");
        host.session.log.create(host.id(), new).await.unwrap();
        host
    }

    pub(super) fn id(&self) -> AppendId {
        AppendId::random(&*self.entropy)
    }

    pub(super) async fn controller(&self) -> Controller {
        let options = Options {
            entropy: Arc::clone(&self.entropy) as Arc<_>,
            clock: Arc::clone(&self.clock) as Arc<_>,
            ..self.session.options()
        };
        Controller::new(self.session.journal(), (self.change)(options)).await.unwrap()
    }

    /// A turn that does as `script` says, a second after the last one.
    pub(super) async fn exec(&self, script: &str) -> Result<Executed, ControllerError> {
        self.clock.advance(std::time::Duration::from_secs(1));
        self.controller().await.exec(&self.placed.harness, turn(&[script])).await
    }

    pub(super) async fn resume(&self) -> Resumed {
        self.clock.advance(std::time::Duration::from_secs(1));
        self.controller().await.resume(&self.placed.harness, None).await
    }

    pub(super) async fn decide(&self, approval: &ApprovalRef, approved: bool) {
        let request = Approval {
            clock: Arc::clone(&self.clock) as Arc<_>,
            entropy: Arc::clone(&self.entropy) as Arc<_>,
            ..self.session.decision(approval, approved, "looked at it")
        };
        approve(&self.session.journal(), request).await.unwrap();
    }

    /// Appends as a writer that is no controller.
    pub(super) async fn append(&self, events: Vec<Event>) {
        let row = self.session.row().await;
        let records = events.into_iter().map(NewRecord::from).collect();
        let batch = Batch::link(row.view.head, records).unwrap();
        let (log, uid) = (&self.session.log, &self.session.uid);
        log.append(uid, self.id(), row.fence.fence, &batch).await.unwrap();
    }

    /// The same host at another session of its store.
    pub(super) fn at(self, uid: &SessionUid) -> Self {
        Self { session: self.session.session(uid), ..self }
    }

    /// The journal as an export writes it.
    pub(super) async fn export(&self) -> Vec<u8> {
        let mut lines: Vec<_> = self.session.records().await.iter().map(record_line).collect();
        lines.push(head_line(&self.session.row().await));
        lines.concat()
    }

    /// What a replay puts out.
    pub(super) async fn replayed(&self) -> Vec<String> {
        self.session.replay(&self.placed).await.unwrap().outputs
    }
}
