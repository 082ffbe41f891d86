//! Calls, scripts, and whether a process lives.

use std::path::Path;
use std::time::Duration;

use mainspring_api::{
    Json, JsonObject, Mediation, Outcome, SessionUid, ToolCall, ToolError, ToolExecutor as _,
    ToolResult, ToolScope,
};
use mainspring_tools_exec::{ToolEntry, Tools, ToolsOptions};

pub(crate) const SESSION: &str = "sess-000000000000000000000001";
pub(crate) const KEY: &str = "00000000000000aa-1";

pub(crate) fn scope() -> ToolScope {
    ToolScope { session: SessionUid::new(SESSION).unwrap() }
}

pub(crate) fn call(tool: &str, args: Option<JsonObject>) -> ToolCall {
    ToolCall {
        id: "call-1".to_owned(),
        tool: tool.to_owned(),
        args,
        mediation: Mediation::ControllerMediated,
        idempotency_key: KEY.to_owned(),
    }
}

pub(crate) fn object<const N: usize>(members: [(&str, Json); N]) -> JsonObject {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The tool `t`, a script of `sh`; `$0` in it is `arg`.
pub(crate) fn script(text: &str, arg: &Path, options: ToolsOptions) -> Tools {
    let args = ["-c", text, arg.to_str().unwrap()];
    let entry = ToolEntry::exec("t", "sh", args).unwrap();
    Tools::builder().tool(entry).options(options).build().unwrap()
}

pub(crate) fn sh(text: &str) -> Tools {
    script(text, Path::new("sh"), ToolsOptions::default())
}

pub(crate) async fn run(tools: &Tools) -> Result<ToolResult, ToolError> {
    tools.execute(&scope(), &call("t", None)).await
}

#[track_caller]
pub(crate) fn assert_error(error: &ToolError, outcome: Outcome, words: &str) {
    assert_eq!(error.outcome, outcome, "{error}");
    assert!(error.message.contains(words), "{error}");
}

/// Bounds with a call that takes `ms`.
pub(crate) fn within_ms(ms: u64) -> ToolsOptions {
    let mut options = ToolsOptions::default();
    options.call_within = Duration::from_millis(ms);
    options
}

/// Whether a process lives; one that waits to be reaped does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Waits until `done`, at most a minute.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    for _ in 0..12_000 {
        if done() {
            return;
        }
        tick.tick().await;
    }
    panic!("not within a minute: {what}");
}
