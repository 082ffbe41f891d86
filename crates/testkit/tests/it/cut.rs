//! Cutting a host off its store.

use std::process::Command;
use std::sync::Arc;

use futures_util::FutureExt as _;
use mainspring_api::{Classify as _, Fence, Head, Outcome};
use mainspring_eventlog::{Batch, EventLog, KvOptions, KvStore, Level, LogError, MemoryEngine};
use mainspring_testkit::{
    CutMode, CutOp, CutPoint, CutSide, CutStore, create, read_all, sample, verify_all,
};

fn memory() -> Arc<dyn EventLog> {
    Arc::new(KvStore::open(MemoryEngine::default(), KvOptions::default()).unwrap())
}

fn batch(base: Head) -> Batch {
    Batch::link(base, sample::records([sample::input("x")])).unwrap()
}

/// Three appends, as long as they are answered.
async fn host(log: &dyn EventLog) -> Result<Head, LogError> {
    let uid = sample::session("s");
    create(log, &uid).await?;
    let mut at = Head::EMPTY;
    for _ in 0..3 {
        at = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch(at)).await?;
    }
    Ok(at)
}

fn point(text: &str) -> CutPoint {
    text.parse().unwrap()
}

#[test]
fn points_read_as_they_are_written() {
    for op in CutOp::ALL {
        for side in [CutSide::Before, CutSide::After] {
            let cut = CutPoint { side, op: *op, nth: 12 };
            assert_eq!(point(&cut.to_string()), cut);
        }
    }
    for bad in [
        "",
        "append",
        "before-append",
        "before-append-0",
        "before-append-x",
        "on-append-1",
        "before-read-1",
        "before-append--1",
    ] {
        assert!(bad.parse::<CutPoint>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_run_tells_its_points() {
    let log = CutStore::counting(memory());
    host(&log).await.unwrap();
    let points: Vec<String> = log.points().iter().map(ToString::to_string).collect();
    assert_eq!(
        points,
        [
            "before-append-1",
            "after-append-1",
            "before-append-2",
            "after-append-2",
            "before-append-3",
            "after-append-3",
            "before-create-1",
            "after-create-1",
        ]
    );
    assert!(!log.reached());
}

#[tokio::test]
async fn an_error_is_one_answer_that_says_what_was_done() {
    for (cut, outcome, there) in
        [("before-append-2", Outcome::NotApplied, 1), ("after-append-2", Outcome::Unknown, 2)]
    {
        let sound = memory();
        let log = CutStore::new(sound.clone(), point(cut), CutMode::Error);
        let error = host(&log).await.unwrap_err();
        assert_eq!(error.outcome(), outcome, "{cut}");
        assert!(log.reached());
        assert_eq!(read_all(&*sound, &sample::session("s")).await.unwrap().len(), there);
        let at = log.head(&sample::session("s"), Level::Strict).await.unwrap();
        log.append(&sample::session("s"), sample::fresh_id(), Fence::NONE, &batch(at))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_dead_store_answers_nothing_more() {
    let sound = memory();
    let log = CutStore::new(sound.clone(), point("after-append-2"), CutMode::Dead);
    host(&log).await.unwrap_err();
    let uid = sample::session("s");
    assert!(log.get(&uid, Level::Strict).await.is_err());
    assert!(read_all(&log, &uid).await.is_err());
    assert!(verify_all(&log, &uid).await.is_err());
    assert!(create(&log, &sample::session("t")).await.is_err());
    assert_eq!(verify_all(&*sound, &uid).await.unwrap().seq.get(), 2);
}

#[tokio::test]
async fn a_hanging_store_never_returns() {
    let sound = memory();
    let log = CutStore::new(sound.clone(), point("before-append-3"), CutMode::Hang);
    assert!(host(&log).now_or_never().is_none());
    let uid = sample::session("s");
    assert!(log.get(&uid, Level::Strict).now_or_never().is_none());
    assert!(verify_all(&log, &uid).now_or_never().is_none());
    assert_eq!(verify_all(&*sound, &uid).await.unwrap().seq.get(), 2);
}

const CHILD: &str = "MAINSPRING_TEST_ABORT";

/// Not a test of its own: as a child process, it ends at its cut.
#[tokio::test]
async fn child_that_aborts() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let log = CutStore::new(memory(), point("before-append-1"), CutMode::Abort);
    let _ = host(&log).await;
}

#[test]
fn an_abort_ends_the_process() {
    use std::os::unix::process::ExitStatusExt as _;

    const SIGABRT: i32 = 6;
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cut::child_that_aborts"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(ended.status.signal(), Some(SIGABRT));
}
