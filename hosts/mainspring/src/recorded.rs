//! What a session's records say of its turns and tool calls, read from the end.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use mainspring::api::{
    ApprovalRef, Condition, EventBody, ExecutionId, Json, LogRecord, ReplayRequest, Seq,
    SessionUid, ToolCall, method,
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
    let row = context.sessions.get(&caller(method::GET_SESSION), session).await?;
    let last = last_before(context, session, row.last_seq.as_i64(), |record| {
        record.event.execution_id.clone()
    });
    last.await?.ok_or_else(|| CliError {
        session: Some(session.to_string()),
        ..CliError::of(Condition::FailedPrecondition, format!("session {session} has no turn"))
    })
}

/// The last tool call of the latest turn that has no receipt.
pub(crate) async fn unanswered(
    context: &Context,
    session: &SessionUid,
) -> Result<Option<ToolCall>, CliError> {
    let row = context.sessions.get(&caller(method::GET_SESSION), session).await?;
    let mut open = Open::default();
    last_before(context, session, row.last_seq.as_i64(), |record| open.see(record)).await?;
    Ok(open.last())
}

/// The calls and receipts of the latest turn, from pages that come last page
/// first, each from its start.
#[derive(Debug, Default)]
struct Open {
    calls: Vec<(Seq, ToolCall)>,
    answered: HashMap<String, Seq>,
}

impl Open {
    /// Whether the turn's start is seen, and so every record of it.
    fn see(&mut self, record: &LogRecord) -> Option<()> {
        match &record.event.body {
            EventBody::ExecutionStart(_) => {
                // What this page told before is of the turn before; later pages are of this one.
                self.calls.retain(|(seq, _)| *seq > record.seq);
                self.answered.retain(|_, seq| *seq > record.seq);
                return Some(());
            }
            EventBody::ToolCall(Some(call)) => self.calls.push((record.seq, call.clone())),
            EventBody::ToolResult(Some(result)) => {
                self.answered.insert(result.id.clone(), record.seq);
            }
            _ => {}
        }
        None
    }

    fn last(self) -> Option<ToolCall> {
        let Self { calls, answered } = self;
        let open = calls.into_iter().filter(|(_, call)| !answered.contains_key(&call.id));
        open.max_by_key(|(seq, _)| *seq).map(|(_, call)| call)
    }
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
        let mut records = context.sessions.replay(&caller(method::REPLAY), request).await?;
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

#[cfg(test)]
mod tests {
    use mainspring::api::{Event, Fence, Hash, Notes, ToolResult};

    use super::*;

    fn record(seq: u64, body: EventBody) -> LogRecord {
        LogRecord {
            seq: Seq::new(seq),
            prev_hash: None,
            hash: Hash::new([0; 32]),
            fence: Fence::default(),
            event: Event::of(body),
            notes: Notes::default(),
        }
    }

    fn call(seq: u64, id: &str) -> LogRecord {
        let call = ToolCall { id: id.to_owned(), ..ToolCall::default() };
        record(seq, EventBody::ToolCall(Some(call)))
    }

    fn result(seq: u64, id: &str) -> LogRecord {
        let result = ToolResult { id: id.to_owned(), ..ToolResult::default() };
        record(seq, EventBody::ToolResult(Some(result)))
    }

    fn start(seq: u64) -> LogRecord {
        record(seq, EventBody::ExecutionStart(Default::default()))
    }

    fn last_of<const N: usize>(pages: [&[LogRecord]; N]) -> Option<String> {
        let mut open = Open::default();
        for record in pages.into_iter().flatten() {
            open.see(record);
        }
        open.last().map(|call| call.id)
    }

    #[test]
    fn a_turn_of_many_pages_is_read_whole() {
        let newer = [result(5, "a"), call(6, "c")];
        let older = [call(1, "old"), start(2), call(3, "a"), call(4, "b")];
        assert_eq!(
            last_of([&newer, &older]).as_deref(),
            Some("c"),
            "the last one, not the oldest page's"
        );
        let newer = [result(5, "a"), call(6, "c"), result(7, "c")];
        assert_eq!(last_of([&newer, &older]).as_deref(), Some("b"));
        let newer = [result(5, "a"), result(6, "b")];
        assert_eq!(last_of([&newer, &older]), None, "the turn before is not its concern");
    }

    #[test]
    fn an_id_may_be_used_again_by_the_next_turn() {
        let page = [start(1), call(2, "a"), result(3, "a"), start(4), call(5, "a")];
        assert_eq!(last_of([&page]).as_deref(), Some("a"));
    }
}
