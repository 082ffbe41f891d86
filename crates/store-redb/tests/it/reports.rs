//! Reports about other systems, as experiments on one file.

use futures_util::{StreamExt as _, stream};
use mainspring_api::{Classify as _, Fence, Outcome, Seq};
use mainspring_eventlog::export::{Line, head_line, parse_line, record_line};
use mainspring_eventlog::{
    Batch, EventLog, ImportRecord, ImportRow, Level, LogError, NewSession, ReadLimit,
};
use mainspring_testkit::{DiskFault, DiskOp, FaultyDisk, append, read_all, sample, verify_all};

use crate::support::{filled, open, open_on, text_batch};

/// The storage stops at some write of an append, and the process dies. After
/// that the record is there or it is not, and the next one follows it.
#[tokio::test]
async fn b2_after_a_cut_write_both_or_neither_record_exists() {
    let mut ways = [0, 0];
    for seed in 0..40 {
        for op in [DiskOp::Write, DiskOp::Sync] {
            let disk = FaultyDisk::new(seed);
            let log = open_on(&disk, std::time::Duration::ZERO).unwrap();
            let (uid, at) = filled(&log, "s", 3).await;
            disk.set_fault(DiskFault::From(op, 1 + seed % 7));
            let (id, cut) = (sample::fresh_id(), text_batch(at, &"cut ".repeat(3_000)));
            let answer = log.append(&uid, id, Fence::NONE, &cut).await;
            if seed % 2 == 0 {
                disk.kill()
            } else {
                disk.power_cut()
            }
            disk.set_fault(DiskFault::None);
            drop(log);

            let log = open_on(&disk, std::time::Duration::ZERO).unwrap();
            let head = log.head(&uid, Level::Strict).await.unwrap();
            let there = head == cut.head();
            assert!(there || head == at, "seed {seed}, {op:?}: {head:?}");
            match answer {
                Ok(_) => assert!(there, "seed {seed}, {op:?}: it was acknowledged"),
                Err(error) if error.outcome() == Outcome::NotApplied => {
                    assert!(!there, "seed {seed}, {op:?}: {error}");
                }
                Err(error) => assert!(matches!(error, LogError::Unavailable { .. }), "{error}"),
            }
            ways[usize::from(there)] += 1;
            let next = text_batch(head, "next");
            let next = log.append(&uid, sample::fresh_id(), Fence::NONE, &next).await.unwrap();
            assert_eq!(verify_all(&log, &uid).await.unwrap(), next);
            let seqs: Vec<u64> =
                read_all(&log, &uid).await.unwrap().iter().map(|record| record.seq.get()).collect();
            assert_eq!(seqs, (1..=next.seq.get()).collect::<Vec<_>>());
        }
    }
    assert!(ways[0] > 0 && ways[1] > 0, "absent, there: {ways:?}");
}

/// A uid that is taken stays with whom it is, also over a crash; the same
/// create again is the same success.
#[tokio::test]
async fn b36_a_create_with_a_used_uid_leaves_the_first_session_alone() {
    let disk = FaultyDisk::new(36);
    let log = open_on(&disk, std::time::Duration::ZERO).unwrap();
    let uid = sample::session("taken");
    let (id, first) = (sample::fresh_id(), NewSession::bare(uid.clone(), "default"));
    log.create(id, first.clone()).await.unwrap();
    let turn = sample::turn(&sample::execution(1), "hello");
    append(&log, &uid, sample::records(turn)).await.unwrap();
    let row = log.get(&uid, Level::Strict).await.unwrap();

    let mut other = first.clone();
    other.project = "other".to_owned();
    other.harness = "other".to_owned();
    for taken in [other, first.clone()] {
        let error = log.create(sample::fresh_id(), taken).await.unwrap_err();
        assert!(matches!(error, LogError::AlreadyExists(_)), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    assert_eq!(log.create(id, first).await.unwrap(), row, "the same call, answered again");
    disk.power_cut();
    drop(log);
    let log = open_on(&disk, std::time::Duration::ZERO).unwrap();
    assert_eq!(log.get(&uid, Level::Strict).await.unwrap(), row);
    assert_eq!(verify_all(&log, &uid).await.unwrap(), row.view.head);
    append(&log, &uid, sample::records([sample::input("more")])).await.unwrap();
}

/// One event just below the bound stands in nobody's way; one above it is
/// refused by name, with nothing written.
#[tokio::test]
async fn b54_one_large_event_is_paged_verified_exported_and_imported() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("s.redb")).unwrap();
    let (uid, _) = filled(&log, "large", 20).await;
    let bytes = 15 << 20;
    append(&log, &uid, sample::records([sample::input(&"x".repeat(bytes))])).await.unwrap();
    let mut at = log.head(&uid, Level::Strict).await.unwrap();
    for number in 0..20 {
        let batch = text_batch(at, &number.to_string());
        at = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    for records in [1, 7, 1_000] {
        let mut next = Seq::new(1);
        while next <= at.seq {
            let limit = ReadLimit { records, ..ReadLimit::default() };
            let page = log.read(&uid, next, limit, Level::Strict).await.unwrap();
            assert_eq!(page[0].seq, next, "pages of {records}");
            next = page.last().unwrap().seq.next();
        }
        assert_eq!(next, at.seq.next());
    }
    assert_eq!(verify_all(&log, &uid).await.unwrap(), at);

    let row = log.get(&uid, Level::Strict).await.unwrap();
    let records = read_all(&log, &uid).await.unwrap();
    let lines = records.iter().map(record_line).chain([head_line(&row)]);
    let parsed: Vec<_> = lines
        .enumerate()
        .map(|(number, line)| match parse_line(number as u64 + 1, &line).unwrap() {
            Line::Record(record) => Ok(ImportRecord::Record(record)),
            Line::Head(head, row) => Ok(ImportRecord::Head(head, row)),
        })
        .collect();
    let copy = open(&dir.path().join("copy.redb")).unwrap();
    let session = NewSession::bare(sample::session("unnamed"), "default");
    let unnamed = ImportRow { session, create_time: None, parent: None };
    copy.import(sample::fresh_id(), unnamed, stream::iter(parsed).boxed()).await.unwrap();
    assert_eq!(read_all(&copy, &uid).await.unwrap(), records);
    assert_eq!(verify_all(&copy, &uid).await.unwrap(), at);

    let above = sample::input(&"x".repeat(log.limits().event_bytes_max));
    let batch = Batch::link(at, sample::records([above])).unwrap();
    let error = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap_err();
    assert!(matches!(error, LogError::TooLarge { what: "event", .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(log.get(&uid, Level::Strict).await.unwrap(), row, "nothing was written");
}
