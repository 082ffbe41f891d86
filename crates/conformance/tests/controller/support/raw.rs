//! Events as raw appends and imports write them, and journals in short.

use mainspring_api::{
    ApprovalRequest, ApprovalResult, EndState, Event, EventBody, ExecutionId, ExecutionStart, Head,
    Lifecycle, LifecycleKind, Message, ModelCall, RecordedError, ResultCode, Seq, ToolCall,
    ToolResult, Usage,
};
use mainspring_eventlog::export::{Line, parse_line, vector_lines};
use mainspring_eventlog::{StoredRecord, input_hash};
use mainspring_testkit::sample;

use super::probe::request;

/// The short name of an event's kind, as the specification writes it.
pub(crate) fn kind(event: &Event) -> String {
    let short = match &event.body {
        EventBody::ExecutionStart(_) => "ES",
        EventBody::Input(_) => "IN",
        EventBody::ModelCall(_) => "MC",
        EventBody::Output(_) => "OUT",
        EventBody::ToolCall(_) => "TC",
        EventBody::ToolResult(_) => "TR",
        EventBody::ApprovalRequest(_) => "AQ",
        EventBody::ApprovalResult(_) => "AR",
        EventBody::Usage(_) => "US",
        EventBody::End(_) => "END",
        EventBody::Error(_) => "ERR",
        EventBody::Lifecycle(Some(body)) => match body.kind {
            LifecycleKind::Suspend => "LC:SUSPEND",
            LifecycleKind::Resume => "LC:RESUME",
            LifecycleKind::Fork => "LC:FORK",
            _ => "LC",
        },
        other => other.kind().name(),
    };
    short.to_owned()
}

/// The kinds of a journal.
pub(crate) fn kinds<'a>(events: impl IntoIterator<Item = &'a Event>) -> String {
    events.into_iter().map(kind).collect::<Vec<_>>().join(" ")
}

/// An execution of the cases.
pub(crate) fn execution(number: u64) -> ExecutionId {
    sample::execution(number)
}

/// A start that declares `inputs` and names no harness.
pub(crate) fn start(id: &ExecutionId, inputs: Option<i64>) -> Event {
    let body = ExecutionStart { input_count: inputs, ..ExecutionStart::default() };
    Event::in_execution(id, EventBody::ExecutionStart(Some(body)))
}

pub(crate) fn input(id: &ExecutionId, text: &str) -> Event {
    Event::in_execution(id, EventBody::Input(Some(Message::user(text))))
}

/// The intent of asking the model `echo` for `text`.
pub(crate) fn model_call(id: &ExecutionId, text: &str) -> Event {
    let request = request(text);
    let call = ModelCall {
        input_hash: input_hash(&request).unwrap().to_string(),
        model: request.model,
        id: "00000000000000ca".to_owned(),
        ..ModelCall::default()
    };
    Event::in_execution(id, EventBody::ModelCall(Some(call)))
}

pub(crate) fn output(id: &ExecutionId, text: &str) -> Event {
    Event::in_execution(id, EventBody::Output(Some(Message::assistant(text))))
}

pub(crate) fn usage(id: &ExecutionId, usage: Usage) -> Event {
    Event::in_execution(id, EventBody::Usage(Some(usage)))
}

pub(crate) fn tool_call(id: &ExecutionId, call: ToolCall) -> Event {
    Event::in_execution(id, EventBody::ToolCall(Some(call)))
}

pub(crate) fn tool_result(id: &ExecutionId, result: ToolResult) -> Event {
    Event::in_execution(id, EventBody::ToolResult(Some(result)))
}

pub(crate) fn approval_request(id: &ExecutionId, call: &str) -> Event {
    let body = ApprovalRequest { tool_call_id: call.to_owned(), reason: String::new() };
    Event::in_execution(id, EventBody::ApprovalRequest(Some(body)))
}

pub(crate) fn approval_result(id: &ExecutionId, call: &str, approved: bool, request: i64) -> Event {
    let body = ApprovalResult {
        tool_call_id: call.to_owned(),
        approved,
        reason: "because".to_owned(),
        request_seq: request,
    };
    Event::in_execution(id, EventBody::ApprovalResult(Some(body)))
}

/// The receipt of a gate, as a host writes it.
pub(crate) fn receipt(
    id: &ExecutionId,
    call: &str,
    (code, is_error): (ResultCode, bool),
    (request, decision): (i64, i64),
) -> Event {
    let result = ToolResult {
        id: call.to_owned(),
        is_error,
        code,
        approval_request_seq: request,
        approval_decision_seq: decision,
        ..ToolResult::default()
    };
    tool_result(id, result)
}

pub(crate) fn error(id: &ExecutionId, description: &str) -> Event {
    let body = RecordedError { code: 0, description: description.to_owned() };
    Event::in_execution(id, EventBody::Error(Some(body)))
}

pub(crate) fn end(id: &ExecutionId) -> Event {
    sample::end(id, EndState::Completed)
}

/// A whole turn of the harness echo, without a name in its start.
pub(crate) fn echo_turn(id: &ExecutionId, text: &str) -> Vec<Event> {
    vec![
        start(id, Some(1)),
        input(id, text),
        model_call(id, text),
        output(id, &format!("echo:{text}")),
        end(id),
    ]
}

/// The same event without its execution, as old journals hold it.
pub(crate) fn idless(mut event: Event) -> Event {
    event.execution_id = None;
    event
}

pub(crate) fn lifecycle(kind: LifecycleKind) -> Lifecycle {
    Lifecycle { kind, ..Lifecycle::default() }
}

/// A result that a harness reports.
pub(crate) fn reported(id: &str) -> ToolResult {
    ToolResult {
        id: id.to_owned(),
        output: Some([("found".to_owned(), 2.0.into())].into()),
        ..ToolResult::default()
    }
}

/// Token counts that add up to something.
pub(crate) fn some_usage() -> Usage {
    Usage { model: "echo".to_owned(), input_tokens: 7, output_tokens: 3, reasoning_tokens: 1 }
}

/// The head after the record at `seq`.
pub(crate) fn head_at(records: &[StoredRecord], seq: u64) -> Head {
    records
        .iter()
        .find(|record| record.seq == Seq::new(seq))
        .map_or(Head::EMPTY, StoredRecord::head)
}

/// The message of an error record.
pub(crate) fn description(event: &Event) -> &str {
    match &event.body {
        EventBody::Error(Some(error)) => &error.description,
        other => panic!("not an error record: {other:?}"),
    }
}

/// The records of a recorded journal of the reference.
pub(crate) fn vector(name: &str) -> Vec<StoredRecord> {
    let path =
        format!("{}/../../testdata/vectors/journals/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = vector_lines(&file).unwrap().expect("it is a vector of a journal");
    (1..)
        .zip(&lines)
        .map(|(number, line)| match parse_line(number, line).unwrap() {
            Line::Record(record) => record,
            Line::Head(..) => panic!("vectors have no head line"),
        })
        .collect()
}
