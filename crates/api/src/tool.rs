//! Tool calls, their results, and who executes them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Classify, ErrorKind, Outcome};
use crate::event::ApprovalResult;
use crate::id::SessionUid;
use crate::json::JsonObject;
use crate::message::Part;

/// Who performs a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mediation {
    /// Not said.
    #[default]
    Unspecified,
    /// The harness runs it and reports the result.
    InHarnessReported,
    /// The controller runs it.
    ControllerMediated,
    /// The controller runs it once a person has approved.
    RequiresApproval,
}

/// A request to run a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCall {
    /// The harness's id of this call.
    pub id: String,
    /// Tool name.
    pub tool: String,
    /// Arguments; absent and empty are different.
    pub args: Option<JsonObject>,
    /// Who performs it.
    pub mediation: Mediation,
    /// Stable key under which the executor deduplicates, unique within the session.
    pub idempotency_key: String,
}

/// How a result came about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultCode {
    /// Success, or an unclassified failure of an old journal.
    #[default]
    Unspecified,
    /// A person said no; the executor was never called.
    ApprovalDenied,
    /// The executor was called and failed.
    ExecutorError,
}

/// The outcome of a tool call, and its durable receipt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolResult {
    /// Id of the call.
    pub id: String,
    /// Structured output; absent and empty are different.
    pub output: Option<JsonObject>,
    /// Reference to output that is kept elsewhere.
    pub output_uri: String,
    /// Digest of what `output_uri` points to.
    pub output_digest: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// What failed.
    pub error: String,
    /// Content for the model.
    pub content: Vec<Part>,
    /// How the result came about; set by the host alone.
    pub code: ResultCode,
    /// Seq of the approval request, or 0; set by the host alone.
    pub approval_request_seq: i64,
    /// Seq of the approval decision, or 0; set by the host alone.
    pub approval_decision_seq: i64,
    /// The decision, on the copy that the harness gets. Never recorded.
    pub decision: Option<ApprovalResult>,
}

/// A tool that a harness declares to the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSpec {
    /// Tool name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Default mediation.
    pub mediation: Mediation,
}

/// Where a tool call belongs: the namespace of its idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolScope {
    /// The session. A fork has another uid, hence another namespace.
    pub session: SessionUid,
}

/// Runs tools for the controller.
#[async_trait]
pub trait ToolExecutor: fmt::Debug + Send + Sync + 'static {
    /// Runs `call` and returns its result.
    ///
    /// # Guarantees
    /// - The intent is durable before this is called.
    /// - It may be called again with the same scope and key after a crash, for
    ///   tools that were declared durable, read-only or idempotent.
    ///
    /// # Errors
    /// A failure that leaves no receipt. A failure that the model should see is
    /// a result with `is_error` instead.
    async fn execute(&self, scope: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError>;

    /// Whether there is a `tool` to run. A call of another one is not started.
    fn offers(&self, tool: &str) -> bool;

    /// Whether a call of `tool` may be sent again under its key when its first
    /// outcome is unknown: because this executor deduplicates durably by scope
    /// and key, or because repeating the tool is harmless. Must not block.
    fn is_repeatable(&self, tool: &str) -> bool;
}

/// Why a tool could not be run.
#[derive(Debug, Clone, thiserror::Error)]
#[error("tool executor: {message}")]
pub struct ToolError {
    /// What went wrong, without arguments or output.
    pub message: String,
    /// Whether the effect may have happened. [`Outcome::NotApplied`] is a
    /// promise that it did not and will not: the call may then be started again.
    pub outcome: Outcome,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Classify for ToolError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }

    fn code(&self) -> &'static str {
        "tool_failed"
    }

    fn outcome(&self) -> Outcome {
        self.outcome
    }
}
