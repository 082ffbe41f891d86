//! Random faults and power cuts: what was acknowledged stays, once.

use std::time::Duration;

use mainspring_api::{AppendId, Fence, Head, SessionUid};
use mainspring_eventlog::{Batch, EventLog, LogError};
use mainspring_store_redb::RedbStore;
use mainspring_testkit::{
    DiskFault, FaultyDisk, SeededRng, create, fold_all, read_all, sample, verify_all,
};

use crate::support::{open_on, text_batch};

const SESSIONS: usize = 3;
/// Short: a store that stays closed is opened again by the next write.
const REOPEN_MAX: Duration = Duration::from_millis(15);

/// What a writer knows of one session.
struct Writer {
    uid: SessionUid,
    at: Head,
    /// Hashes of what was acknowledged, in order.
    acknowledged: Vec<mainspring_api::Hash>,
    /// An append whose outcome is not settled.
    open: Option<(AppendId, Batch)>,
    number: u64,
}

impl Writer {
    /// Sends its open append again, or a new one.
    async fn step(&mut self, log: &RedbStore) {
        let (id, batch) = self.open.take().unwrap_or_else(|| {
            self.number += 1;
            let text = format!("{} {}", self.uid, self.number);
            (sample::fresh_id(), text_batch(self.at, &text))
        });
        match log.append(&self.uid, id, Fence::NONE, &batch).await {
            Ok(after) => {
                assert_eq!(after, batch.head());
                self.acknowledged.extend(batch.stored().map(|record| record.hash));
                self.at = after;
            }
            Err(LogError::Unavailable { .. }) => self.open = Some((id, batch)),
            Err(error) => panic!("{}: {error}", self.uid),
        }
    }

    /// Everything acknowledged is there, once and in order; at most the open
    /// append follows it.
    async fn check(&self, log: &RedbStore) {
        let found: Vec<_> =
            read_all(log, &self.uid).await.unwrap().iter().map(|record| record.hash).collect();
        let sent = self.open.iter().flat_map(|(_, batch)| batch.stored()).map(|record| record.hash);
        let with_open: Vec<_> = self.acknowledged.iter().copied().chain(sent).collect();
        assert!(found == self.acknowledged || found == with_open, "{}", self.uid);
        let head = verify_all(log, &self.uid).await.unwrap();
        assert_eq!(fold_all(log, &self.uid).await.unwrap().head, head);
        let row = log.get(&self.uid, Default::default()).await.unwrap();
        assert_eq!(row.view.head, head);
    }
}

/// Opens until the disk lets it.
fn open_somehow(disk: &FaultyDisk) -> RedbStore {
    for _ in 0..50 {
        if let Ok(log) = open_on(disk, REOPEN_MAX) {
            return log;
        }
    }
    disk.set_fault(DiskFault::None);
    open_on(disk, REOPEN_MAX).expect("a disk without faults opens")
}

async fn run(seed: u64) -> u64 {
    let disk = FaultyDisk::new(seed);
    let mut rng = SeededRng::new(seed ^ 0xfa17);
    let mut log = open_on(&disk, REOPEN_MAX).unwrap();
    let mut writers = Vec::new();
    for number in 0..SESSIONS {
        let uid = sample::session(&number.to_string());
        create(&log, &uid).await.unwrap();
        let (acknowledged, open) = (Vec::new(), None);
        writers.push(Writer { uid, at: Head::EMPTY, acknowledged, open, number: 0 });
    }
    for life in 0..3 {
        disk.set_fault(DiskFault::Random(5));
        for _ in 0..12 {
            let writer = rng.below(SESSIONS);
            writers[writer].step(&log).await;
        }
        if (seed + life).is_multiple_of(3) {
            disk.kill();
        } else {
            disk.power_cut();
        }
        drop(log);
        log = open_somehow(&disk);
        disk.set_fault(DiskFault::None);
        for writer in &mut writers {
            if writer.open.is_none() {
                writer.check(&log).await;
            }
            while writer.open.is_some() {
                writer.step(&log).await;
            }
            writer.check(&log).await;
        }
    }
    disk.failures()
}

async fn run_all(seeds: std::ops::Range<u64>) {
    let mut failures = 0;
    for seed in seeds {
        failures += run(seed).await;
    }
    assert!(failures > 50, "only {failures} calls failed");
}

/// 200 seeds, each write and sync failing with p = 0.05, in three lives that
/// end with a kill or a power cut. In four parts, which run side by side.
#[tokio::test]
async fn acknowledged_records_survive_faults_and_power_cuts_1() {
    run_all(0..50).await;
}

/// See the first.
#[tokio::test]
async fn acknowledged_records_survive_faults_and_power_cuts_2() {
    run_all(50..100).await;
}

/// See the first.
#[tokio::test]
async fn acknowledged_records_survive_faults_and_power_cuts_3() {
    run_all(100..150).await;
}

/// See the first.
#[tokio::test]
async fn acknowledged_records_survive_faults_and_power_cuts_4() {
    run_all(150..200).await;
}
