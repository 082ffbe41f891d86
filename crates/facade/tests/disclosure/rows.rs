//! What each RPC is called with.

use mainspring::api::{ApprovalRef, method};
use mainspring_wire::{operations_v1 as ours, v1};
use prost::Message as _;

use crate::host::Port;

/// One form of a call.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) message: Vec<u8>,
}

/// A call that nothing waits on.
pub(crate) fn no_call() -> ApprovalRef {
    ApprovalRef {
        execution_id: "00000000000000aa".to_owned(),
        tool_call_id: "call-1".to_owned(),
        request_seq: 4,
    }
}

/// One RPC.
pub(crate) struct Row {
    pub(crate) path: &'static str,
    pub(crate) port: Port,
    pub(crate) is_stream: bool,
    /// Whether its request names a session that is there.
    pub(crate) names_session: bool,
    /// Of well-formed requests, about a session and a call that waits.
    pub(crate) shapes: fn(&str, &ApprovalRef) -> Vec<Shape>,
}

fn shape(name: &'static str, message: &impl prost::Message) -> Shape {
    Shape { name, headers: Vec::new(), message: message.encode_to_vec() }
}

impl Shape {
    fn with(mut self, key: &'static str, value: &'static str) -> Self {
        self.headers.push((key, value));
        self
    }
}

fn input() -> Vec<v1::Message> {
    let text = v1::TextPart { text: "hello".to_owned() };
    let part = v1::Part { part: Some(v1::part::Part::Text(text)) };
    vec![v1::Message { role: "user".to_owned(), parts: vec![part] }]
}

const KEY: &str = "x-idempotency-key";

fn exec(uid: &str, _: &ApprovalRef) -> Vec<Shape> {
    let turn = v1::ExecRequest { session: uid.to_owned(), inputs: input(), ..Default::default() };
    let of = |change: fn(&mut v1::ExecRequest)| {
        let mut turn = turn.clone();
        change(&mut turn);
        turn
    };
    vec![
        shape("a turn", &turn),
        shape("no inputs", &of(|turn| turn.inputs = Vec::new())),
        shape("ahead", &of(|turn| turn.expected_last_seq = Some(77))),
        shape("at the start", &of(|turn| turn.expected_last_seq = Some(0))),
        shape("on a harness that is not there", &of(|turn| turn.harness = "nobody".to_owned())),
        shape("on another harness", &of(|turn| turn.harness = "echo".to_owned())),
        shape("too late", &of(|turn| turn.deadline_unix = 1)),
        shape("keyed", &turn).with(KEY, "k"),
        shape("with an id", &turn).with("x-execution-id", "00000000000000aa"),
        shape("cancelled when left", &turn).with("x-on-disconnect", "cancel"),
        shape("with a beating heart", &turn).with("x-heartbeat", "1"),
    ]
}

fn approve(uid: &str, approval: &ApprovalRef) -> Vec<Shape> {
    let request = v1::ApproveRequest {
        session: uid.to_owned(),
        execution_id: approval.execution_id.clone(),
        tool_call_id: approval.tool_call_id.clone(),
        request_seq: approval.request_seq,
        approved: Some(true),
        ..Default::default()
    };
    let other = v1::ApproveRequest { request_seq: 1_000, ..request.clone() };
    vec![
        shape("what waits", &request),
        shape("what does not", &other),
        shape("by digest", &request).with("x-approval-digest", "00"),
    ]
}

fn resolve(uid: &str, approval: &ApprovalRef) -> Vec<Shape> {
    use ours::resolve_request::{Resolution, Retry};
    let of = |resolution| ours::ResolveRequest {
        session: uid.to_owned(),
        execution_id: approval.execution_id.clone(),
        tool_call_id: approval.tool_call_id.clone(),
        resolution: Some(resolution),
    };
    vec![
        shape("retry", &of(Resolution::Retry(Retry {}))),
        shape("failed", &of(Resolution::Failed("no".to_owned()))),
        shape("result", &of(Resolution::Result(v1::ToolResult::default()))),
    ]
}

fn fork(uid: &str, _: &ApprovalRef) -> Vec<Shape> {
    let of = |at_seq, count| v1::ForkRequest {
        session: uid.to_owned(),
        at_seq,
        count,
        ..Default::default()
    };
    vec![shape("at the head", &of(0, 1)), shape("far", &of(1_000, 1)), shape("many", &of(1, 3))]
}

fn find(_: &str, _: &ApprovalRef) -> Vec<Shape> {
    let all = ours::FindRequest::default();
    let states = vec![v1::ExecState::ExecAwaiting.into()];
    vec![
        shape("all", &all),
        shape("some", &ours::FindRequest { states, ..all.clone() }),
        shape("on a harness", &ours::FindRequest { harness: "gate".to_owned(), ..all }),
    ]
}

fn list(_: &str, _: &ApprovalRef) -> Vec<Shape> {
    let all = v1::ListSessionsRequest::default();
    vec![shape("all", &all), shape("one", &v1::ListSessionsRequest { page_size: 1, ..all })]
}

fn import(_: &str, _: &ApprovalRef) -> Vec<Shape> {
    let lines = b"no journal\n".as_slice().into();
    vec![shape("no journal", &ours::ImportRequest { target: Some(Default::default()), lines })]
}

fn register(_: &str, _: &ApprovalRef) -> Vec<Shape> {
    use v1::harness_spec::Placement;
    let placement = v1::RemotePlacement { address: "127.0.0.1:1".to_owned() };
    let spec = v1::HarnessSpec {
        placement: Some(Placement::Remote(placement)),
        capabilities: Some(v1::Capabilities {
            resumability: v1::Resumability::StatelessReplay.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = v1::RegisterHarnessRequest { name: "new".to_owned(), spec: Some(spec) };
    vec![shape("new", &request)]
}

/// A row whose request is nothing but the session in its first field.
macro_rules! plain {
    ($path:ident, $stream:literal, $type:ty, $field:ident) => {
        row(Port::Sessions, method::$path, $stream, true, |uid, _| {
            vec![shape("plain", &<$type>::decode(only_session(uid).as_slice()).unwrap())]
        })
    };
}

fn only_session(uid: &str) -> Vec<u8> {
    v1::GetSessionRequest { uid: uid.to_owned() }.encode_to_vec()
}

const fn row(
    port: Port,
    path: &'static str,
    is_stream: bool,
    names_session: bool,
    shapes: fn(&str, &ApprovalRef) -> Vec<Shape>,
) -> Row {
    Row { path, port, is_stream, names_session, shapes }
}

/// Every RPC of the host.
pub(crate) fn rows() -> Vec<Row> {
    use Port::{Operators, Sessions};
    vec![
        row(Sessions, method::CREATE_SESSION, false, false, |_, _| {
            vec![
                shape("plain", &v1::CreateSessionRequest::default()),
                shape("keyed", &v1::CreateSessionRequest::default()).with(KEY, "c"),
            ]
        }),
        plain!(GET_SESSION, false, v1::GetSessionRequest, uid),
        row(Sessions, method::LIST_SESSIONS, false, false, list),
        plain!(DELETE_SESSION, false, v1::DeleteSessionRequest, uid),
        row(Sessions, method::EXEC, true, true, exec),
        row(Sessions, method::REPLAY, true, true, |uid, _| {
            let all = v1::ReplayRequest { session: uid.to_owned(), from_seq: 0, to_seq: 0 };
            let far = v1::ReplayRequest { from_seq: 1_000, ..all.clone() };
            vec![
                shape("all", &all),
                shape("far", &far),
                shape("verified", &all).with("x-verify", "1"),
                shape("with notes", &all).with("x-notes", "1"),
            ]
        }),
        row(Sessions, method::APPROVE, false, true, approve),
        row(Sessions, method::CANCEL, false, true, |uid, approval| {
            let request = v1::CancelRequest {
                session: uid.to_owned(),
                execution_id: approval.execution_id.clone(),
                reason: String::new(),
            };
            vec![shape("plain", &request)]
        }),
        plain!(SUSPEND, false, v1::SuspendRequest, session),
        plain!(RESUME, false, v1::ResumeRequest, session),
        row(Sessions, method::FORK, false, true, fork),
        row(Operators, method::REGISTER_HARNESS, false, false, register),
        row(Operators, method::GET_HARNESS, false, false, |_, _| {
            let of = |name: &str| v1::GetHarnessRequest { name: name.to_owned(), observe: false };
            vec![shape("there", &of("gate")), shape("not there", &of("nobody"))]
        }),
        row(Operators, method::LIST_HARNESSES, false, false, |_, _| {
            vec![shape("all", &v1::ListHarnessesRequest::default())]
        }),
        row(Operators, method::RETIRE_HARNESS, false, false, |_, _| {
            let of = |name: &str| v1::RetireHarnessRequest {
                name: name.to_owned(),
                ..Default::default()
            };
            vec![shape("there", &of("gate")), shape("not there", &of("nobody"))]
        }),
        plain!(DESCRIBE, false, ours::DescribeRequest, session),
        row(Sessions, method::FOLLOW, true, true, |uid, _| {
            let of = |after_seq| ours::FollowRequest { session: uid.to_owned(), after_seq };
            let near = shape("with a beating heart", &of(0)).with("x-heartbeat", "1");
            vec![shape("from the start", &of(0)), shape("far", &of(1_000)), near]
        }),
        plain!(RESUME_STREAM, true, ours::ResumeRequest, session),
        row(Sessions, method::FIND, false, false, find),
        row(Sessions, method::RESOLVE, false, true, resolve),
        row(Sessions, method::VERIFY, true, true, |uid, _| {
            let head = ours::JournalHead { seq: 1, hash: "00".repeat(32) };
            let of = |expect_head| ours::VerifyRequest { session: uid.to_owned(), expect_head };
            vec![shape("plain", &of(None)), shape("another head", &of(Some(head)))]
        }),
        row(Sessions, method::EXPORT, true, true, |uid, _| {
            let head = ours::JournalHead { seq: 1, hash: "00".repeat(32) };
            let of = |after| ours::ExportRequest { session: uid.to_owned(), after };
            vec![shape("plain", &of(None)), shape("from another head", &of(Some(head)))]
        }),
        row(Sessions, method::IMPORT, false, false, import),
        row(Operators, method::ADOPT, false, true, |uid, _| {
            let request = ours::AdoptRequest {
                session: uid.to_owned(),
                owner_issuer: "i".to_owned(),
                owner_subject: "s".to_owned(),
            };
            vec![shape("plain", &request)]
        }),
    ]
}
