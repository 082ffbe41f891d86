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
    run_if_there(async || Some(open().await), case);
}

/// As [`run`], unless `open` finds that this machine has not what the subject
/// needs: then it has said so, and the case does not run.
///
/// # Panics
/// As [`run`].
pub fn run_if_there<S, O, C>(open: impl FnOnce() -> O, case: impl FnOnce(S) -> C)
where
    O: Future<Output = Option<S>>,
    C: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system has threads for a test");
    runtime.block_on(async {
        let Some(subject) = open().await else { return };
        tokio::time::timeout(CASE_MAX, case(subject)).await.expect("a case ends within its time");
    });
    // A task of a failed case may never end.
    runtime.shutdown_background();
}
