//! After an injected commit error the store opens again and answers from what is there.

use std::time::Duration;

use mainspring_api::{Classify as _, Fence, Head, Outcome, SessionUid};
use mainspring_eventlog::{EventLog, Level, LogError};
use mainspring_store_redb::{RedbEngine, RedbStore};
use mainspring_testkit::{DiskFault, DiskOp, FaultyDisk, create, read_all, sample, verify_all};

use crate::support::{filled, open_on, text_batch};

const REOPEN_MAX: Duration = Duration::from_millis(200);

/// Sends one append, again under its id while its outcome is unknown or it was
/// not applied, and returns what each try answered.
async fn settle(log: &RedbStore, uid: &SessionUid, at: Head, text: &str) -> (Head, Vec<LogError>) {
    let (id, batch) = (sample::fresh_id(), text_batch(at, text));
    let mut errors = Vec::new();
    for _ in 0..20 {
        match log.append(uid, id, Fence::NONE, &batch).await {
            Ok(after) => return (after, errors),
            Err(error) => errors.push(error),
        }
    }
    panic!("never settled: {errors:?}");
}

/// Fails the nth call of one kind during a commit, whichever that is, and
/// checks that nothing acknowledged is lost and nothing is there twice.
async fn check(op: DiskOp, nth: u64) -> bool {
    let disk = FaultyDisk::new(nth);
    let log = open_on(&disk, REOPEN_MAX).unwrap();
    let (uid, at) = filled(&log, "s", 3).await;
    let before = disk.failures();
    disk.set_fault(DiskFault::Nth(op, nth));
    let (after, errors) = settle(&log, &uid, at, "under fault").await;
    disk.set_fault(DiskFault::None);
    for error in errors {
        assert!(matches!(error, LogError::Unavailable { .. }), "{op:?} {nth}: {error}");
    }
    let (last, errors) = settle(&log, &uid, after, "afterwards").await;
    assert!(errors.is_empty());
    assert_eq!(read_all(&log, &uid).await.unwrap().len(), 5, "{op:?} {nth}");
    assert_eq!(verify_all(&log, &uid).await.unwrap(), last);

    disk.power_cut();
    drop(log);
    let log = open_on(&disk, REOPEN_MAX).unwrap();
    assert_eq!(log.head(&uid, Level::Strict).await.unwrap(), last, "{op:?} {nth}");
    assert_eq!(verify_all(&log, &uid).await.unwrap(), last);
    disk.failures() > before
}

#[tokio::test]
async fn each_failing_call_of_a_commit_is_survived() {
    let mut injected = Vec::new();
    for op in [DiskOp::Write, DiskOp::Sync, DiskOp::SetLen, DiskOp::Read] {
        for nth in 1..=8 {
            if check(op, nth).await {
                injected.push((op, nth));
            }
        }
    }
    assert!(injected.contains(&(DiskOp::Sync, 1)), "{injected:?}");
    assert!(injected.contains(&(DiskOp::Write, 1)), "{injected:?}");
    assert!(injected.contains(&(DiskOp::Write, 3)), "{injected:?}");
}

/// While the disk stays broken, answers say so, reads are refused rather than
/// taken from the handle that failed, and the store comes back with the disk.
#[tokio::test]
async fn a_disk_that_stays_broken_is_unknown_and_refuses_reads() {
    let disk = FaultyDisk::new(1);
    let log = open_on(&disk, Duration::from_millis(20)).unwrap();
    let (uid, at) = filled(&log, "s", 2).await;
    disk.set_fault(DiskFault::Every(DiskOp::Sync));
    let (id, batch) = (sample::fresh_id(), text_batch(at, "lost reply"));
    let error = log.append(&uid, id, Fence::NONE, &batch).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    for error in [
        log.get(&uid, Level::Strict).await.unwrap_err(),
        log.head(&uid, Level::Committed).await.unwrap_err(),
        read_all(&log, &uid).await.unwrap_err(),
    ] {
        assert!(matches!(error, LogError::Unavailable { outcome: Outcome::NotApplied, .. }));
    }
    let other = create(&log, &sample::session("other")).await.unwrap_err();
    assert_eq!(other.outcome(), Outcome::NotApplied, "nothing was tried: {other}");

    disk.set_fault(DiskFault::None);
    let after = log.append(&uid, id, Fence::NONE, &batch).await.unwrap();
    assert_eq!(after, batch.head());
    assert_eq!(read_all(&log, &uid).await.unwrap().len(), 3);
    create(&log, &sample::session("other")).await.unwrap();
}

/// Many callers share the commit that fails: each is answered for itself, and
/// each settles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_caller_of_a_failed_round_is_answered_for_itself() {
    for seed in 0..10 {
        let disk = FaultyDisk::new(seed);
        let log = std::sync::Arc::new(open_on(&disk, REOPEN_MAX).unwrap());
        for writer in 0..12 {
            create(&*log, &sample::session(&writer.to_string())).await.unwrap();
        }
        disk.set_fault(DiskFault::Nth(DiskOp::Sync, 2));
        let writers = (0..12).map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                let uid = sample::session(&writer.to_string());
                let mut at = Head::EMPTY;
                for number in 0..4 {
                    at = settle(&log, &uid, at, &number.to_string()).await.0;
                }
                (uid, at)
            })
        });
        let writers: Vec<_> = writers.collect();
        for writer in writers {
            let (uid, at) = writer.await.unwrap();
            assert_eq!(at.seq.get(), 4);
            assert_eq!(verify_all(&*log, &uid).await.unwrap(), at);
        }
        assert_eq!(disk.failures(), 1);
    }
}

/// The reason for dropping cached pages: without it, what a failed sync lost is
/// read as if it were there, acknowledged, and gone after the power was.
#[tokio::test]
async fn cached_pages_of_a_failed_sync_would_lie() {
    let mut lied = 0;
    for seed in 0..40 {
        let disk = FaultyDisk::new(seed);
        let shared = disk.clone();
        let engine = RedbEngine::with_backends(1 << 20, move || Ok(shared.backend()));
        let log = RedbStore::open(engine.unwrap(), Default::default()).unwrap();
        let (uid, at) = filled(&log, "s", 3).await;
        disk.set_fault(DiskFault::Nth(DiskOp::Sync, 1));
        let (after, _) = settle(&log, &uid, at, "under fault").await;
        disk.power_cut();
        drop(log);
        let kept = match open_on(&disk, REOPEN_MAX) {
            Ok(log) => log.head(&uid, Level::Strict).await.ok() == Some(after),
            Err(_) => false,
        };
        lied += u32::from(!kept);
    }
    assert!(lied > 0, "the double does not show what it is for");
}

/// One failed read is one failed answer: the next ones work, though redb's
/// handle would refuse them all.
#[tokio::test]
async fn a_failed_read_does_not_close_the_store() {
    let disk = FaultyDisk::new(1);
    let (uid, at) = filled(&open_on(&disk, REOPEN_MAX).unwrap(), "s", 50).await;
    let mut refused = 0;
    for nth in 1..=6 {
        // Without a cache each read goes to the disk.
        let shared = disk.clone();
        let engine = RedbEngine::with_backends(0, move || Ok(shared.backend())).unwrap();
        let log = RedbStore::open(engine, Default::default()).unwrap();
        disk.set_fault(DiskFault::Nth(DiskOp::Read, nth));
        let first = read_all(&log, &uid).await;
        if let Err(error) = first {
            assert!(matches!(error, LogError::Unavailable { .. }), "{error}");
            refused += 1;
        }
        assert_eq!(read_all(&log, &uid).await.unwrap().len(), 50);
        assert_eq!(verify_all(&log, &uid).await.unwrap(), at);
        disk.set_fault(DiskFault::None);
    }
    assert!(refused > 0, "no read failed");
}
