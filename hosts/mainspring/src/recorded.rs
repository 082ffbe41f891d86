//! What a session's records say of its turns and tool calls, read from the end.

use futures_util::StreamExt as _;
use mainspring::api::{
    ApprovalRef, Condition, EventBody, ExecutionId, Json, LogRecord, ReplayRequest, SessionUid,
    ToolCall,
};
use mainspring::eventlog::canonical::json_text;
use mainspring::eventlog::tool_call_digest;
use serde_json::{Value, json};

use crate::context::{Context, caller};
use crate::error::CliError;
use crate::output::shown_line;

/// Records that are read at a time.
const PAGE: i64 = 64;

/// A tool call as it was recorded, and the request for its approval.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    approval: ApprovalRef,
    pub(crate) call: ToolCall,
    pub(crate) digest: String,
}

impl RecordedCall {
    pub(crate) fn json(&self) -> Value {
        let args = self.call.args.as_ref().map_or(Value::Null, |args| {
            let text = json_text(&Json::Object(args.clone())).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or(Value::Null)
        });
        json!({
            "execution_id": self.approval.execution_id,
            "tool_call_id": self.approval.tool_call_id,
            "request_seq": self.approval.request_seq,
            "call": {
                "tool": self.call.tool,
                "args": args,
                "idempotency_key": self.call.idempotency_key,
                "digest": self.digest,
            },
        })
    }

    /// `pending tool=T tool_call=C execution=E request_seq=N digest=D`
    pub(crate) fn line(&self) -> String {
        format!(
            "pending tool={} tool_call={} execution={} request_seq={} digest={}",
            shown_line(&self.call.tool),
            shown_line(&self.approval.tool_call_id),
            shown_line(&self.approval.execution_id),
            self.approval.request_seq,
            self.digest
        )
    }
}

/// The call that a request is about.
pub(crate) async fn call(
    context: &Context,
    session: &SessionUid,
    approval: &ApprovalRef,
) -> Result<RecordedCall, CliError> {
    let found = last_before(context, session, approval.request_seq - 1, |record| {
        let event = &record.event;
        let ours = event.execution_id.as_ref().map(ExecutionId::as_str);
        match &event.body {
            EventBody::ToolCall(Some(call)) if ours == Some(&approval.execution_id) => {
                (call.id == approval.tool_call_id).then(|| call.clone())
            }
            _ => None,
        }
    });
    let Some(call) = found.await? else {
        let message = format!(
            "no tool call {:?} of execution {} is recorded before seq {}",
            approval.tool_call_id, approval.execution_id, approval.request_seq
        );
        return Err(CliError {
            session: Some(session.to_string()),
            ..CliError::of(Condition::InvalidApprovalDecision, message)
        });
    };
    let digest = tool_call_digest(&call)
        .map_err(|error| CliError::internal(format!("the recorded call: {error}")))?;
    Ok(RecordedCall { approval: approval.clone(), call, digest })
}

/// The execution that a command names, else the one that recorded last.
pub(crate) async fn execution(
    context: &Context,
    session: &SessionUid,
    named: Option<&str>,
) -> Result<ExecutionId, CliError> {
    if let Some(named) = named {
        return ExecutionId::new(named).map_err(|error| CliError::usage(error.to_string()));
    }
    let row = context.sessions.get(&caller("mainspring get"), session).await?;
    let last = last_before(context, session, row.last_seq.as_i64(), |record| {
        record.event.execution_id.clone()
    });
    last.await?.ok_or_else(|| CliError {
        session: Some(session.to_string()),
        ..CliError::of(Condition::FailedPrecondition, format!("session {session} has no turn"))
    })
}

/// The last thing that `pick` finds, from `seq` backwards.
async fn last_before<T>(
    context: &Context,
    session: &SessionUid,
    mut seq: i64,
    pick: impl Fn(&LogRecord) -> Option<T>,
) -> Result<Option<T>, CliError> {
    while seq > 0 {
        let from_seq = (seq - PAGE + 1).max(1);
        let request =
            ReplayRequest { session: session.clone(), from_seq, to_seq: seq, verify: false };
        let mut records = context.sessions.replay(&caller("mainspring replay"), request).await?;
        let mut found = None;
        while let Some(record) = records.next().await {
            found = pick(&record?).or(found);
        }
        if found.is_some() {
            return Ok(found);
        }
        seq = from_seq - 1;
    }
    Ok(None)
}
