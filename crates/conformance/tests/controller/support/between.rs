//! A log that lets somebody else go first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_api::BoxFuture;
use mainspring_eventlog::{EventLog, LogError};
use mainspring_testkit::{HookedLog, LogCall, LogHook};

/// Before what somebody goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// The fence.
    Mint,
    /// The record.
    Append,
}

type Other = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// Lets the other go once, before the first operation of a kind.
pub(crate) struct Between {
    before: Before,
    other: Box<Other>,
    done: AtomicBool,
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Between {
    pub(crate) fn over<F: Future<Output = ()> + Send + 'static>(
        inner: Arc<dyn EventLog>,
        before: Before,
        other: impl Fn() -> F + Send + Sync + 'static,
    ) -> Arc<dyn EventLog> {
        let other = Box::new(move || Box::pin(other()) as BoxFuture<'static, ()>);
        Arc::new(HookedLog::with_hook(inner, Self { before, other, done: AtomicBool::new(false) }))
    }
}

impl LogHook for Between {
    async fn around<T: Send>(
        &self,
        call: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        let is_its_turn = match self.before {
            Before::Mint => call == LogCall::Mint,
            Before::Append => matches!(call, LogCall::Append(_)),
        };
        if is_its_turn && !self.done.swap(true, Ordering::SeqCst) {
            (self.other)().await;
        }
        run.await
    }
}
