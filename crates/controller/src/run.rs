//! Driving one run of a harness, whatever it does.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use mainspring_api::{CancelReason, Descriptor, Harness, HarnessError, Signal, Start};
use tokio::time::Instant;

use crate::error::ControllerError;
use crate::machine::Closing;
use crate::sink::RunSink;
use crate::writer::Writer;

/// How long a harness may take to describe itself, or to look at a start.
pub(crate) const DESCRIBE_MAX: Duration = Duration::from_secs(10);

/// How long a harness may take to leave once its turn was stopped.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// How long an effect in flight may go on once its turn was stopped. After
/// that it is abandoned, and its intent stays without a result.
pub const EFFECT_GRACE: Duration = Duration::from_secs(5);

/// The host's word that a running turn is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnStop {
    /// It is over: its end is recorded as canceled.
    Cancel(CancelReason),
    /// The host is going down: nothing more is recorded, and whoever resumes it goes on.
    Interrupt,
}

impl TurnStop {
    /// What the harness is told.
    const fn reason(self) -> CancelReason {
        match self {
            Self::Cancel(reason) => reason,
            Self::Interrupt => CancelReason::Internal,
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) result: Result<(), HarnessError>,
    pub(crate) closing: Closing,
    pub(crate) writer: Option<Writer>,
    /// Whether the turn's own deadline cut it.
    pub(crate) out_of_time: bool,
}

/// What may end a run before its harness does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) deadline: Option<Instant>,
    pub(crate) stop: Signal<TurnStop>,
    /// Tells the harness.
    pub(crate) cancel: Signal<CancelReason>,
}

/// Runs the harness to its end, its panic, the deadline, or the host's word,
/// and closes the sink.
pub(crate) async fn run(
    harness: &Arc<dyn Harness>,
    start: Start,
    sink: RunSink,
    bounds: &Bounds,
) -> Ran {
    let call = AssertUnwindSafe(harness.run(start, Arc::new(sink.clone()))).catch_unwind();
    let mut call = std::pin::pin!(call);
    let until_deadline = || async {
        match bounds.deadline {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    let mut out_of_time = false;
    let ended = tokio::select! {
        biased;
        ended = call.as_mut() => Some(ended),
        stop = bounds.stop.wait() => {
            bounds.cancel.set(stop.reason());
            leave(call.as_mut(), &sink).await
        }
        () = until_deadline() => {
            out_of_time = true;
            bounds.cancel.set(CancelReason::Timeout);
            sink.abandon();
            None
        }
    };
    // A harness may return while a call that it gave up on is still in flight:
    // what bounds the turn bounds that call too.
    let mut closing = std::pin::pin!(sink.close());
    let (closing, writer) = tokio::select! {
        biased;
        closed = closing.as_mut() => closed,
        _ = bounds.stop.wait() => {
            match tokio::time::timeout(EFFECT_GRACE, closing.as_mut()).await {
                Ok(closed) => closed,
                Err(_) => {
                    sink.abandon();
                    closing.await
                }
            }
        }
        () = until_deadline() => {
            out_of_time = true;
            sink.abandon();
            closing.await
        }
    };
    if ended.is_none() {
        // It was told; what it does while it leaves is refused.
        let _ = tokio::time::timeout(CANCEL_GRACE, call).await;
    }
    let result = match ended {
        _ if out_of_time => {
            Err(HarnessError::Deadline { message: "the turn's deadline passed".to_owned() })
        }
        Some(Ok(result)) => result,
        Some(Err(_panic)) => Err(HarnessError::failed("harness panicked")),
        None => Err(HarnessError::failed("harness did not leave its stopped turn")),
    };
    Ran { result, closing, writer, out_of_time }
}

/// Lets a stopped run end by itself: the effect in flight has its grace, and
/// then the harness has one to return.
async fn leave<T>(
    mut call: std::pin::Pin<&mut impl Future<Output = T>>,
    sink: &RunSink,
) -> Option<T> {
    let quiet = async {
        if tokio::time::timeout(EFFECT_GRACE, sink.quiet()).await.is_err() {
            sink.abandon();
            sink.quiet().await;
        }
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        biased;
        ended = call.as_mut() => Some(ended),
        () = quiet => None,
    }
}

/// Asks the harness what it is, within its bound and the turn's deadline.
pub(crate) async fn ask(
    harness: &Arc<dyn Harness>,
    deadline: Option<Instant>,
) -> Result<Descriptor, HarnessError> {
    tokio::time::timeout_at(within(deadline), harness.describe()).await.unwrap_or_else(|_| {
        Err(HarnessError::Deadline { message: "it did not describe itself".to_owned() })
    })
}

/// Asks the harness whether it can take a start, within the same bounds.
pub(crate) async fn check_start(
    harness: &Arc<dyn Harness>,
    start: &Start,
    deadline: Option<Instant>,
) -> Result<(), ControllerError> {
    let checked = tokio::time::timeout_at(within(deadline), harness.check_start(start)).await;
    checked
        .unwrap_or_else(|_| {
            let message = "it did not say whether it can take the start".to_owned();
            Err(HarnessError::Deadline { message })
        })
        .map_err(ControllerError::Run)
}

fn within(deadline: Option<Instant>) -> Instant {
    let bound = Instant::now() + DESCRIBE_MAX;
    deadline.map_or(bound, |deadline| deadline.min(bound))
}

/// As [`ask`], for the controller's own answer.
pub(crate) async fn describe(
    harness: &Arc<dyn Harness>,
    deadline: Option<Instant>,
) -> Result<Descriptor, ControllerError> {
    ask(harness, deadline).await.map_err(ControllerError::HarnessDescribeFailed)
}
