//! What a session's records say of its turns and tool calls, read from the end.

use std::collections::HashSet;

use futures_util::StreamExt as _;
use mainspring::api::{
    ApprovalRef, Condition, EventBody, ExecutionId, Json, LogRecord, ReplayRequest, SessionUid,
    ToolCall,
};
use mainspring::controller::EXPIRES_NOTE;
use mainspring::eventlog::canonical::json_text;
use mainspring::eventlog::tool_call_digest;
use serde_json::{Value, json};

use crate::context::{Context, caller};
use crate::error::CliError;
use crate::output::{shown_json, shown_line};

/// Records that are read at a time.
const PAGE: i64 = 64;

/// A tool call as it was recorded, and the request for its approval.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    approval: ApprovalRef,
    pub(crate) call: ToolCall,
    pub(crate) digest: String,
    /// When the request expires, if it does.
    expires: Option<String>,
}

impl RecordedCall {
    pub(crate) fn json(&self) -> Value {
        let args = self.call.args.as_ref().map_or(Value::Null, |args| {
            let text = json_text(&Json::Object(args.clone())).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or(Value::Null)
        });
        let mut value = json!({
            "execution_id": self.approval.execution_id,
            "tool_call_id": self.approval.tool_call_id,
            "request_seq": self.approval.request_seq,
            "call": {
                "tool": self.call.tool,
                "args": args,
                "idempotency_key": self.call.idempotency_key,
                "digest": self.digest,
            },
        });
        if let Some(expires) = &self.expires {
            value["expires"] = json!(expires);
        }
        value
    }

    /// `pending tool=T tool_call=C execution=E request_seq=N digest=D`, then
    /// `expires=TIME` if it does, and on a line of its own `args JSON`.
    pub(crate) fn line(&self) -> String {
        let expires = self
            .expires
            .as_deref()
            .map_or(String::new(), |at| format!(" expires={}", shown_line(at)));
        let args = match &self.call.args {
            Some(args) => json_text(&Json::Object(args.clone())).unwrap_or_default(),
            None => "null".to_owned(),
        };
        format!(
            "pending tool={} tool_call={} execution={} request_seq={} digest={}{expires}\nargs {}",
            shown_line(&self.call.tool),
            shown_line(&self.approval.tool_call_id),
            shown_line(&self.approval.execution_id),
            self.approval.request_seq,
            self.digest,
            shown_json(&args)
        )
    }
}

/// The call that a request is about.
pub(crate) async fn call(
    context: &Context,
    session: &SessionUid,
    approval: &ApprovalRef,
) -> Result<RecordedCall, CliError> {
    let mut expires = None;
    let found = last_before(context, session, approval.request_seq, |record| {
        let event = &record.event;
        if record.seq.as_i64() == approval.request_seq {
            expires = record.notes.get(EXPIRES_NOTE).cloned();
            return None;
        }
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
    Ok(RecordedCall { approval: approval.clone(), call, digest, expires })
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

/// The tool call of the latest turn that has no receipt.
pub(crate) async fn unanswered(
    context: &Context,
    session: &SessionUid,
) -> Result<Option<ToolCall>, CliError> {
    let row = context.sessions.get(&caller("mainspring get"), session).await?;
    let mut calls: Vec<ToolCall> = Vec::new();
    let mut answered = HashSet::new();
    // Pages are read from the end, and each from its start.
    let begun = last_before(context, session, row.last_seq.as_i64(), |record| {
        match &record.event.body {
            EventBody::ExecutionStart(_) => {
                calls.clear();
                answered.clear();
                return Some(());
            }
            EventBody::ToolCall(Some(call)) if !answered.contains(&call.id) => {
                calls.push(call.clone());
            }
            EventBody::ToolResult(Some(result)) => {
                calls.retain(|call| call.id != result.id);
                answered.insert(result.id.clone());
            }
            _ => {}
        }
        None
    });
    begun.await?;
    Ok(calls.pop())
}

/// The last thing that `pick` finds, from `seq` backwards.
async fn last_before<T>(
    context: &Context,
    session: &SessionUid,
    mut seq: i64,
    mut pick: impl FnMut(&LogRecord) -> Option<T>,
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
