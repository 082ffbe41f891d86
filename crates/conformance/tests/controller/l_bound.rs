//! Case L06: how long a harness may take to describe itself.

use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_api::{Classify as _, HarnessError, Head};
use mainspring_controller::{ControllerError, Turn};
use tokio::time::Instant;

use crate::support::{Fixture, Probe, turn};

/// The bound of the specification.
const BOUND: Duration = Duration::from_secs(10);

/// A harness that never describes itself. Time stands still from its first
/// moment on, so that nothing but timers can pass.
fn silent(since: &Arc<Mutex<Option<Instant>>>) -> Probe {
    let since = Arc::clone(since);
    Probe::echo().describing(move || {
        tokio::time::pause();
        *since.lock().unwrap() = Some(Instant::now());
        std::future::pending()
    })
}

/// How long the harness was waited for, and time goes on.
fn waited(since: &Mutex<Option<Instant>>) -> Duration {
    let began = since.lock().unwrap().take().expect("it was asked");
    let waited = began.elapsed();
    tokio::time::resume();
    waited
}

#[track_caller]
fn out_of_time(error: &ControllerError) {
    assert_eq!(error.code(), "harness_describe_failed");
    let cause = error.source().and_then(|cause| cause.downcast_ref::<HarnessError>());
    assert!(matches!(cause, Some(HarnessError::Deadline { .. })), "{cause:?}");
}

#[track_caller]
fn about(waited: Duration, expected: Duration) {
    // The question itself takes a moment of real time before the clock stands,
    // and timers tick in milliseconds.
    let (early, late) = (Duration::from_secs(1), Duration::from_millis(2));
    assert!(waited < expected + late && waited + early > expected, "{waited:?} of {expected:?}");
}

/// It is waited for 10 s, never longer than the turn's own deadline, and the time-out is the visible cause.
async fn l06_describe_hangs(session: Fixture) {
    let since = Arc::default();
    let probe = session.place(silent(&since)).await;

    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    about(waited(&since), BOUND);
    out_of_time(&error);

    for (deadline, expected) in [(3, 3), (60, 10)] {
        let deadline = Instant::now() + Duration::from_secs(deadline);
        let turn = Turn { deadline: Some(deadline), ..turn(&["hello"]) };
        let error = session.exec_turn(&probe, turn).await.unwrap_err();
        about(waited(&since), Duration::from_secs(expected));
        out_of_time(&error);
    }
    assert_eq!((probe.runs(), session.head().await), (0, Head::EMPTY));

    // The same bound for a resume and for a replay.
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    session.model.fail(1);
    session.exec(&echo, &["two"]).await.unwrap_err();
    let head = session.head().await;
    let resumed = session.resume(&probe).await;
    about(waited(&since), BOUND);
    assert!(!resumed.resumed);
    out_of_time(&resumed.result.unwrap_err());
    let deadline = Some(Instant::now() + Duration::from_secs(3));
    let resumed = session.controller().await.resume(&probe.harness, deadline).await;
    about(waited(&since), Duration::from_secs(3));
    out_of_time(&resumed.result.unwrap_err());
    let controller = session.controller().await;
    let error = controller.replay(&probe.harness).await.unwrap_err();
    about(waited(&since), BOUND);
    out_of_time(&error);
    assert_eq!((probe.runs(), session.head().await), (0, head));
}

matrix! {
    run_on_one_thread:
    everywhere {
        #[test] fn l06_describe_hangs;
    }
}
