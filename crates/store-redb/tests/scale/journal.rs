//! Stores that count their commits, and journals that are filled, paged, exported and imported.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mainspring_api::{Head, Seq, SessionUid, SystemClock};
use mainspring_eventlog::export::{Line, head_line, parse_line, record_line};
use mainspring_eventlog::{
    ChainVerifier, Engine, EngineError, EngineUsage, EventLog, ImportRecord, ImportRow, Keep,
    KvRead, KvStore, KvWrite, Level, NewSession, ReadLimit, SessionRow, Verified,
};
use mainspring_store_redb::{RedbConfig, RedbEngine};
use mainspring_testkit::sample;

/// An engine that counts what it committed.
#[derive(Debug)]
pub(crate) struct Counted(RedbEngine, AtomicU64);

impl Counted {
    pub(crate) fn commits(&self) -> u64 {
        self.1.load(Ordering::SeqCst)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Engine for Counted {
    fn read(
        &self,
        f: &mut dyn FnMut(&dyn KvRead) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.0.read(f)
    }

    fn write(
        &self,
        f: &mut dyn FnMut(&mut dyn KvWrite) -> Result<Keep, EngineError>,
    ) -> Result<(), EngineError> {
        let mut kept = false;
        let written = self.0.write(&mut |kv| {
            let keep = f(kv)?;
            kept = keep == Keep::Yes;
            Ok(keep)
        });
        self.1.fetch_add(u64::from(kept), Ordering::SeqCst);
        written
    }

    fn reopen(&self) -> Result<(), EngineError> {
        self.0.reopen()
    }

    fn is_durable(&self) -> bool {
        self.0.is_durable()
    }

    fn backup(&self, label: &str) -> Result<Option<PathBuf>, EngineError> {
        self.0.backup(label)
    }

    fn usage(&self) -> Result<EngineUsage, EngineError> {
        self.0.usage()
    }
}

pub(crate) type Log = Arc<KvStore<Counted>>;

/// A store with a cache that leaves the bound to the store itself.
pub(crate) fn open(path: &Path) -> Log {
    let mut config = RedbConfig::at(path);
    config.cache_bytes = 16 << 20;
    let engine = RedbEngine::open(&config, &SystemClock).unwrap();
    Arc::new(KvStore::open(Counted(engine, AtomicU64::new(0)), Default::default()).unwrap())
}

/// Appends `turns` turns of five records after `at`, a few hundred at a time.
pub(crate) async fn append_turns(
    log: &Log,
    uid: &SessionUid,
    at: Head,
    turns: std::ops::Range<u64>,
    at_a_time: u64,
) -> Head {
    let turn = |turn| sample::turn(&sample::execution(turn), &format!("turn {turn}"));
    mainspring_testkit::append_turns(&**log, uid, at, turns, at_a_time, turn).await.unwrap()
}

/// Reads `from..=to` by pages of `size` records, waiting for those that are
/// still to come, and returns the head that the chain of what came ends at.
pub(crate) async fn page(log: &Log, uid: &SessionUid, from: Head, to: Seq, size: usize) -> Head {
    let mut chain = ChainVerifier::after(from);
    let limit = ReadLimit { records: size, bytes: 8 << 20 };
    while chain.head().seq < to {
        let from = chain.head().seq.next();
        let page = log.read(uid, from, limit, Level::Committed).await.unwrap();
        assert!(page.len() <= size, "a page of {} for {size}", page.len());
        if page.is_empty() {
            tokio::task::yield_now().await;
        }
        for record in page.iter().take_while(|record| record.seq <= to) {
            // In order, none twice, none left out: each must follow the last.
            chain.check(record).unwrap();
        }
    }
    chain.head()
}

pub(crate) async fn verify(log: &Log, uid: &SessionUid) -> Head {
    let last = log.verify(uid, Head::EMPTY).try_fold(None, |_, step| async move { Ok(Some(step)) });
    match last.await.unwrap() {
        Some(Verified::Done(head)) => head,
        other => panic!("{uid}: {other:?}"),
    }
}

/// Writes a journal as lines, with a head line.
pub(crate) async fn export(log: &Log, uid: &SessionUid, path: &Path) -> SessionRow {
    let row = log.get(uid, Level::Strict).await.unwrap();
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut next = Seq::new(1);
    while next <= row.view.head.seq {
        let page = log.read(uid, next, ReadLimit::default(), Level::Strict).await.unwrap();
        for record in &page {
            file.write_all(&record_line(record)).unwrap();
        }
        next = page.last().expect("the head is further on").seq.next();
    }
    file.write_all(&head_line(&row)).unwrap();
    file.flush().unwrap();
    row
}

/// Reads exported lines into a store.
pub(crate) async fn import(log: &Log, path: &Path) -> SessionRow {
    let lines = BufReader::new(File::open(path).unwrap()).lines();
    let records = lines.enumerate().map(|(number, line)| {
        let line = parse_line(number as u64 + 1, line.expect("it can be read").as_bytes())?;
        Ok(match line {
            Line::Record(record) => ImportRecord::Record(record),
            Line::Head(head, row) => ImportRecord::Head(head, row),
        })
    });
    let session = NewSession::bare(sample::session("unnamed"), "default");
    let row = ImportRow { session, create_time: None, parent: None };
    log.import(sample::fresh_id(), row, stream::iter(records).boxed()).await.unwrap()
}

/// The bytes of a file, without reading it into memory at once.
pub(crate) fn same_bytes(one: &Path, other: &Path) -> bool {
    let read = |path: &Path| BufReader::new(File::open(path).unwrap());
    let (mut one, mut other) = (read(one), read(other));
    loop {
        let (a, b) = (one.fill_buf().unwrap(), other.fill_buf().unwrap());
        let len = a.len().min(b.len());
        if a[..len] != b[..len] {
            return false;
        }
        if len == 0 {
            return a.len() == b.len();
        }
        one.consume(len);
        other.consume(len);
    }
}
