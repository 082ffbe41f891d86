//! One cell of the matrix, and how a case runs in it.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use mainspring_eventlog::EventLog;
use tokio::runtime::Builder;

use super::Fixture;

/// How the harness is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    InProcess,
    /// Behind a unix socket.
    Wire,
}

/// Where the journal lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Memory,
    /// In a file of its own.
    Redb,
    /// In a folder of its own.
    Fjall,
    /// Wherever the tests that include these cases keep it.
    #[allow(dead_code, reason = "for tests of other stores, which include these cases")]
    Elsewhere,
}

/// Opens the store of a folder's name: the same one for the same name. `None`
/// where this machine has not what it needs, which was then said.
pub(crate) type Opener = fn(PathBuf) -> Opening;

/// How [`Kept::Elsewhere`] is opened.
pub(crate) static ELSEWHERE: OnceLock<Opener> = OnceLock::new();

pub(super) async fn open_elsewhere(name: PathBuf) -> Option<Arc<dyn EventLog>> {
    let open = ELSEWHERE.get().expect("the tests that have such cells say how to open them");
    open(name).await
}

/// A store that is being opened.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Option<Arc<dyn EventLog>>> + Send>>;

/// One cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) reach: Reach,
    pub(crate) kept: Kept,
}

impl Cell {
    pub(crate) const ALL: [Self; 5] = [
        Self { reach: Reach::InProcess, kept: Kept::Memory },
        Self { reach: Reach::InProcess, kept: Kept::Redb },
        Self { reach: Reach::InProcess, kept: Kept::Fjall },
        Self { reach: Reach::Wire, kept: Kept::Memory },
        Self { reach: Reach::Wire, kept: Kept::Redb },
    ];
}

/// No case takes longer; a controller that hangs fails instead.
const CASE_MAX: Duration = Duration::from_secs(120);

/// Runs a case as a host runs a turn: in a task, on threads, so that what may race does.
pub(crate) fn run<C>(cell: Cell, case: impl FnOnce(Fixture) -> C + Send + 'static)
where
    C: Future<Output = ()> + Send + 'static,
{
    run_on(Builder::new_multi_thread().worker_threads(2), async move {
        let task = tokio::spawn(run_case(cell, case));
        if let Err(failed) = task.await {
            resume_unwind(failed.into_panic());
        }
    });
}

/// Runs a case on one thread, where its time can be paused.
pub(crate) fn run_on_one_thread<C>(cell: Cell, case: impl FnOnce(Fixture) -> C + Send + 'static)
where
    C: Future<Output = ()> + Send + 'static,
{
    run_on(&mut Builder::new_current_thread(), run_case(cell, case));
}

async fn run_case<C: Future<Output = ()>>(cell: Cell, case: impl FnOnce(Fixture) -> C) {
    let Some(fixture) = Fixture::open_if_there(cell).await else { return };
    // The files outlive the case's own handles.
    let kept = fixture.clone();
    case(fixture).await;
    drop(kept);
}

/// The time of a case is watched from outside of its runtime, whose own may be paused.
fn run_on(builder: &mut Builder, case: impl Future<Output = ()> + Send + 'static) {
    let runtime = builder.enable_all().build().unwrap();
    let (ended, end) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        // Dropped at the end of the case, also when it fails.
        let _ended = ended;
        runtime.block_on(case);
        // A task that a case left behind may never end.
        runtime.shutdown_background();
    });
    if let Err(RecvTimeoutError::Timeout) = end.recv_timeout(CASE_MAX) {
        panic!("the case did not end within {CASE_MAX:?}");
    }
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}
