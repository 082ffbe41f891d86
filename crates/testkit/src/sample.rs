//! Sample ids, events, turns and journals.

use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_api::{
    AppendId, ApprovalRequest, ApprovalResult, EndState, Event, EventBody, ExecutionId,
    ExecutionStart, HarnessEnd, Lifecycle, LifecycleKind, Mediation, Message, ModelCall,
    RecordedError, Seq, SessionUid, SnapshotRef, ToolCall, ToolResult, Usage,
};
use mainspring_eventlog::{Holder, NewRecord};

use crate::random::SeededRng;

/// The session `sess-<name>`.
///
/// # Panics
/// When `name` has characters that a uid cannot have.
#[must_use]
pub fn session(name: &str) -> SessionUid {
    SessionUid::new(&format!("sess-{name}")).expect("a sample name has plain characters")
}

/// An operation id that no other call in this process returns.
#[must_use]
pub fn fresh_id() -> AppendId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&u64::from(std::process::id()).to_be_bytes());
    raw[8..].copy_from_slice(&number.to_be_bytes());
    AppendId::new(raw)
}

/// The operation id of this number.
#[must_use]
pub const fn id(number: u8) -> AppendId {
    let mut raw = [0xa5; 16];
    raw[15] = number;
    AppendId::new(raw)
}

/// The execution of this number.
///
/// # Panics
/// Never.
#[must_use]
pub fn execution(number: u64) -> ExecutionId {
    ExecutionId::chosen(&format!("{number:016x}")).expect("16 hex digits")
}

/// A holder of this name.
#[must_use]
pub fn holder(name: &str) -> Holder {
    Holder { id: format!("incarnation-{name}"), name: format!("{name}/1") }
}

/// A user message as an input of no execution.
#[must_use]
pub fn input(text: &str) -> Event {
    Event::of(EventBody::Input(Some(Message::user(text))))
}

/// A fork marker, as a service writes it.
#[must_use]
pub fn fork_marker(at: Seq) -> Event {
    lifecycle(Lifecycle {
        kind: LifecycleKind::Fork,
        detail: format!("parent@{at}"),
        ..Lifecycle::default()
    })
}

/// A deletion record.
#[must_use]
pub fn deletion() -> Event {
    lifecycle(Lifecycle { kind: LifecycleKind::Delete, ..Lifecycle::default() })
}

fn lifecycle(body: Lifecycle) -> Event {
    Event::of(EventBody::Lifecycle(Some(body)))
}

/// A start that declares `inputs`.
#[must_use]
pub fn start(execution: &ExecutionId, inputs: i64) -> Event {
    let body = ExecutionStart {
        input_count: Some(inputs),
        harness: "echo".to_owned(),
        harness_version: "1".to_owned(),
        ..ExecutionStart::default()
    };
    Event::in_execution(execution, EventBody::ExecutionStart(Some(body)))
}

/// An end of this state.
#[must_use]
pub fn end(execution: &ExecutionId, state: EndState) -> Event {
    let body = HarnessEnd { state: state.name().to_owned(), error: None };
    Event::in_execution(execution, EventBody::End(Some(body)))
}

/// A whole turn: start, input, model call, output, end.
#[must_use]
pub fn turn(execution: &ExecutionId, text: &str) -> Vec<Event> {
    let of = |body| Event::in_execution(execution, body);
    let call = ModelCall {
        model: "echo".to_owned(),
        input_hash: "00".repeat(32),
        id: format!("call-{execution}"),
        ..ModelCall::default()
    };
    vec![
        start(execution, 1),
        of(EventBody::Input(Some(Message::user(text)))),
        of(EventBody::ModelCall(Some(call))),
        of(EventBody::Output(Some(Message::assistant(format!("echo:{text}"))))),
        end(execution, EndState::Completed),
    ]
}

/// Events as they are appended, without notes.
#[must_use]
pub fn records(events: impl IntoIterator<Item = Event>) -> Vec<NewRecord> {
    events.into_iter().map(NewRecord::from).collect()
}

/// Some event: of any kind, of one of a few executions or none, well placed or
/// not. What is well placed is judged by the fold, and must be judged the same
/// by every store.
pub fn random_event(rng: &mut SeededRng) -> Event {
    let execution = execution(rng.next_u64() % 4);
    let of = |body| Event::in_execution(&execution, body);
    let call = |mediation| ToolCall {
        id: "call-1".to_owned(),
        tool: "search".to_owned(),
        mediation,
        ..ToolCall::default()
    };
    match rng.below(17) {
        0..=2 => start(&execution, 1),
        3 | 4 => of(EventBody::Input(Some(Message::user("in")))),
        5 => of(EventBody::Output(Some(Message::assistant("out")))),
        6 => of(EventBody::ToolCall(Some(call(Mediation::RequiresApproval)))),
        7 => of(EventBody::ToolCall(Some(call(Mediation::ControllerMediated)))),
        8 => of(EventBody::ApprovalRequest(Some(ApprovalRequest {
            tool_call_id: "call-1".to_owned(),
            reason: String::new(),
        }))),
        9 => of(EventBody::ApprovalResult(Some(ApprovalResult {
            tool_call_id: "call-1".to_owned(),
            approved: rng.percent(50),
            ..ApprovalResult::default()
        }))),
        10 => of(EventBody::ToolResult(Some(ToolResult {
            id: "call-1".to_owned(),
            ..ToolResult::default()
        }))),
        11 => of(EventBody::Usage(Some(Usage {
            model: "m".to_owned(),
            input_tokens: 7,
            output_tokens: 3,
            reasoning_tokens: 1,
        }))),
        12 => end(&execution, *rng.pick(&[EndState::Completed, EndState::Failed])),
        13 => of(EventBody::Error(Some(RecordedError { code: 13, description: "x".to_owned() }))),
        14 => lifecycle(Lifecycle {
            kind: LifecycleKind::Suspend,
            snapshot: SnapshotRef { local: "c1".to_owned(), ..SnapshotRef::default() },
            ..Lifecycle::default()
        }),
        15 => lifecycle(Lifecycle { kind: LifecycleKind::Resume, ..Lifecycle::default() }),
        _ => input("legacy"),
    }
}
