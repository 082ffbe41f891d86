//! An executor that a case scripts, with a ledger of what it did.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_api::{
    BoxFuture, Outcome, SessionUid, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope,
    async_trait,
};
use tokio::sync::Notify;

type Answer = Result<ToolResult, ToolError>;
type Respond = dyn Fn(ToolCall) -> BoxFuture<'static, Answer> + Send + Sync;

/// Runs tools as a case says. Clones of its `Arc` share everything.
#[derive(Default)]
pub(crate) struct TestTools {
    /// Every attempt, in order.
    attempts: Mutex<Vec<(SessionUid, ToolCall)>>,
    /// Keys whose effect happened: a declared tool's happens once.
    ledger: Mutex<Vec<(SessionUid, String)>>,
    repeatable: Mutex<BTreeSet<String>>,
    /// Names of tools that it does not have.
    missing: Mutex<BTreeSet<String>>,
    /// Names that the declaration was asked for.
    consulted: Mutex<Vec<String>>,
    failures_left: Mutex<usize>,
    respond: Mutex<Option<Arc<Respond>>>,
}

impl fmt::Debug for TestTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestTools")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestTools {
    /// Declares a tool repeatable.
    pub(crate) fn declare(&self, tool: &str) {
        lock(&self.repeatable).insert(tool.to_owned());
    }

    /// It does not have this tool; or has it again.
    pub(crate) fn lack(&self, tool: &str, lacks: bool) {
        let mut missing = lock(&self.missing);
        match lacks {
            true => missing.insert(tool.to_owned()),
            false => missing.remove(tool),
        };
    }

    /// The next `count` calls fail, before their effect.
    pub(crate) fn fail(&self, count: usize) {
        *lock(&self.failures_left) = count;
    }

    /// Answers with `respond` from now on.
    pub(crate) fn respond<F>(&self, respond: impl Fn(ToolCall) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        *lock(&self.respond) = Some(Arc::new(move |call| Box::pin(respond(call))));
    }

    /// Answers as at first from now on.
    pub(crate) fn recover(&self) {
        *lock(&self.respond) = None;
    }

    /// Answers nothing from now on. Each call that hangs is notified of.
    pub(crate) fn hang(&self) -> Arc<Notify> {
        let called = Arc::new(Notify::new());
        let hung = Arc::clone(&called);
        self.respond(move |_| {
            hung.notify_one();
            std::future::pending()
        });
        called
    }

    /// How often it was called.
    pub(crate) fn calls(&self) -> usize {
        lock(&self.attempts).len()
    }

    /// Every call, with the scope that it was made in.
    pub(crate) fn attempts(&self) -> Vec<(SessionUid, ToolCall)> {
        lock(&self.attempts).clone()
    }

    /// The keys under which something happened, in order.
    pub(crate) fn ledger(&self) -> Vec<String> {
        lock(&self.ledger).iter().map(|(_, key)| key.clone()).collect()
    }

    /// The names that the declaration was asked for.
    pub(crate) fn consulted(&self) -> Vec<String> {
        lock(&self.consulted).clone()
    }

    /// What it answers when nothing else was asked of it: under another id, as
    /// an executor that knows nothing of ids does.
    pub(crate) fn answer(call: &ToolCall) -> ToolResult {
        ToolResult {
            id: "another".to_owned(),
            output: Some([("ran".to_owned(), call.tool.as_str().into())].into()),
            ..ToolResult::default()
        }
    }

    /// The failure that [`TestTools::fail`] asks for.
    pub(crate) fn failure() -> ToolError {
        ToolError { message: "out of order".to_owned(), outcome: Outcome::NotApplied, source: None }
    }
}

#[async_trait]
impl ToolExecutor for TestTools {
    async fn execute(&self, scope: &ToolScope, call: &ToolCall) -> Answer {
        lock(&self.attempts).push((scope.session.clone(), call.clone()));
        {
            let mut left = lock(&self.failures_left);
            if *left > 0 {
                *left -= 1;
                return Err(Self::failure());
            }
        }
        {
            let mut ledger = lock(&self.ledger);
            let entry = (scope.session.clone(), call.idempotency_key.clone());
            let repeated = ledger.contains(&entry);
            if !(repeated && lock(&self.repeatable).contains(&call.tool)) {
                ledger.push(entry);
            }
        }
        let respond = lock(&self.respond).clone();
        match respond {
            Some(respond) => respond(call.clone()).await,
            None => Ok(Self::answer(call)),
        }
    }

    fn is_repeatable(&self, tool: &str) -> bool {
        lock(&self.consulted).push(tool.to_owned());
        lock(&self.repeatable).contains(tool)
    }

    fn offers(&self, tool: &str) -> bool {
        !lock(&self.missing).contains(tool)
    }
}
