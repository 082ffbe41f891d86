//! Runs one case.

use std::time::Duration;

/// No case takes longer; a backend that hangs fails instead.
const CASE_MAX: Duration = Duration::from_secs(120);

/// Opens a subject and runs `case` on it, with an async runtime of its own.
///
/// # Panics
/// When the case fails, or does not end within two minutes.
pub fn run<S, O, C>(open: impl FnOnce() -> O, case: impl FnOnce(S) -> C)
where
    O: Future<Output = S>,
    C: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system has threads for a test");
    runtime.block_on(async {
        let subject = open().await;
        tokio::time::timeout(CASE_MAX, case(subject)).await.expect("a case ends within its time");
    });
    // A task of a failed case may never end.
    runtime.shutdown_background();
}
