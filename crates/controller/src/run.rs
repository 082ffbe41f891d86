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

/// How long a harness may take to describe itself.
pub(crate) const DESCRIBE_MAX: Duration = Duration::from_secs(10);

/// How long a harness may take to leave once its turn was cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) result: Result<(), HarnessError>,
    pub(crate) closing: Closing,
    pub(crate) writer: Option<Writer>,
    /// Whether the turn's own deadline cut it.
    pub(crate) out_of_time: bool,
}

/// Runs the harness to its end, its panic, or the deadline, and closes the sink.
pub(crate) async fn run(
    harness: &Arc<dyn Harness>,
    start: Start,
    sink: RunSink,
    deadline: Option<Instant>,
    cancel: &Signal<CancelReason>,
) -> Ran {
    let call = AssertUnwindSafe(harness.run(start, Arc::new(sink.clone()))).catch_unwind();
    let mut call = std::pin::pin!(call);
    let ended = match deadline {
        None => Some(call.as_mut().await),
        Some(at) => tokio::time::timeout_at(at, call.as_mut()).await.ok(),
    };
    let out_of_time = ended.is_none();
    if out_of_time {
        cancel.set(CancelReason::Timeout);
        sink.abandon();
    }
    let (closing, writer) = sink.close().await;
    if out_of_time {
        // It was told; what it does while it leaves is refused.
        let _ = tokio::time::timeout(CANCEL_GRACE, call).await;
    }
    let result = match ended {
        Some(Ok(result)) => result,
        Some(Err(_panic)) => Err(HarnessError::failed("harness panicked")),
        None => Err(HarnessError::Deadline { message: "the turn's deadline passed".to_owned() }),
    };
    Ran { result, closing, writer, out_of_time }
}

/// Asks the harness what it is, within its bound and the turn's deadline.
pub(crate) async fn describe(
    harness: &Arc<dyn Harness>,
    deadline: Option<Instant>,
) -> Result<Descriptor, ControllerError> {
    let bound = Instant::now() + DESCRIBE_MAX;
    let at = deadline.map_or(bound, |deadline| deadline.min(bound));
    let described = tokio::time::timeout_at(at, harness.describe()).await.unwrap_or_else(|_| {
        Err(HarnessError::Deadline { message: "it did not describe itself".to_owned() })
    });
    described.map_err(ControllerError::HarnessDescribeFailed)
}
