//! Random faults of every call to the disk, and power cuts.
//!
//! What was acknowledged stays; what was not is absent or there, and the same
//! operation sent again settles it; nothing that a read showed goes away.

mod model;

use std::time::Duration;

use mainspring_store_redb::{RedbEngine, RedbStore};
use mainspring_testkit::{DiskFault, FaultyDisk, SeededRng};

use self::model::World;

/// Short: a store that stays closed is opened again by the next write.
const REOPEN_MAX: Duration = Duration::from_millis(15);
/// Of a hundred calls to the disk, of any kind.
const PERCENT: u64 = 5;
const LIVES: u64 = 3;
const STEPS: usize = 12;
const SEEDS: u64 = 500;
const PARTS: u64 = 4;

/// Says which seed it was that failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

fn open_on(disk: &FaultyDisk, cache_bytes: usize) -> Option<RedbStore> {
    let shared = disk.clone();
    let engine = RedbEngine::with_backends(cache_bytes, move || {
        shared.drop_caches();
        Ok(shared.backend())
    });
    let options = mainspring_eventlog::KvOptions { reopen_max: REOPEN_MAX, ..Default::default() };
    RedbStore::open(engine.ok()?, options).ok()
}

/// Opens while the disk fails, or without faults when it never lets it.
fn open_somehow(disk: &FaultyDisk, cache_bytes: usize) -> RedbStore {
    let opened = (0..50).find_map(|_| open_on(disk, cache_bytes));
    opened.unwrap_or_else(|| {
        disk.set_fault(DiskFault::None);
        open_on(disk, cache_bytes).expect("a disk without faults opens")
    })
}

async fn run(seed: u64) -> u64 {
    let named = Seed(seed);
    let disk = FaultyDisk::new(seed);
    let mut rng = SeededRng::new(seed ^ 0xfa17);
    // With little memory reads go to the disk, and fail there.
    let cache_bytes = if seed.is_multiple_of(4) { 64 << 10 } else { 1 << 20 };
    let mut log = open_on(&disk, cache_bytes).expect("a disk without faults opens");
    let mut world = World::new(3);
    for life in 0..LIVES {
        disk.set_fault(DiskFault::Random(PERCENT));
        for _ in 0..STEPS {
            world.step(&log, &mut rng).await;
            if rng.percent(40) {
                world.look_at_one(&log, &mut rng).await;
            }
        }
        if (seed + life).is_multiple_of(3) {
            disk.kill();
        } else {
            disk.power_cut();
        }
        drop(log);
        log = open_somehow(&disk, cache_bytes);
        disk.set_fault(DiskFault::None);
        world.check(&log).await;
        if world.settle(&log).await {
            world.check(&log).await;
        }
    }
    world.check_chains(&log).await;
    drop(named);
    disk.failures()
}

async fn run_part(part: u64) {
    let mut failures = 0;
    for seed in (part..SEEDS).step_by(usize::try_from(PARTS).expect("a small number")) {
        failures += run(seed).await;
    }
    assert!(failures > 1_000, "only {failures} calls failed");
}

/// 500 seeds, each call to the disk failing with p = 0.05, in three lives that
/// end with a kill or a power cut. In four parts, which run side by side.
#[tokio::test]
async fn b48_acknowledged_records_survive_faults_and_power_cuts_1() {
    run_part(0).await;
}

/// See the first.
#[tokio::test]
async fn b48_acknowledged_records_survive_faults_and_power_cuts_2() {
    run_part(1).await;
}

/// See the first.
#[tokio::test]
async fn b48_acknowledged_records_survive_faults_and_power_cuts_3() {
    run_part(2).await;
}

/// See the first.
#[tokio::test]
async fn b48_acknowledged_records_survive_faults_and_power_cuts_4() {
    run_part(3).await;
}
