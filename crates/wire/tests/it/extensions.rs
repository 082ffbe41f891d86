//! What is ours beyond the contract: its numbers, its own types, and that none
//! of it can become an event.

use mainspring_api::{
    Event, ExecutionId, Json, JsonObject, Resolution, ResolveRequest, SessionUid, ToolCall,
    ToolResult,
};
use mainspring_wire::{ControllerFrame, Frame, HistoryRequest, StartFrame, operations_v1, v1};
use prost::Message as _;

fn request() -> v1::Event {
    HistoryRequest { from_seq: 3, limit: 5 }.in_execution(&ExecutionId::new("e").unwrap())
}

#[test]
fn field_numbers_are_those_of_the_specification() {
    // Field 1000 with a length is the tag 8002, as a varint c2 3e; with a varint c0 3e.
    let start = v1::Start { history_head: 1, ..Default::default() };
    assert_eq!(start.encode_to_vec(), [0xc0, 0x3e, 1]);
    let page = v1::HistoryPage { from_seq: 3, events: vec![v1::Event::default()], end: true };
    let frame = |frame| v1::ControllerFrame { frame: Some(frame), ..Default::default() };
    let bytes = frame(v1::controller_frame::Frame::HistoryPage(page)).encode_to_vec();
    assert_eq!(bytes, [0xc2, 0x3e, 6, 8, 3, 0x12, 0, 0x18, 1]);
    let failure = v1::CallFailure {
        call_id: "a".to_owned(),
        code: "b".to_owned(),
        description: "c".to_owned(),
    };
    let bytes = frame(v1::controller_frame::Frame::Failure(failure)).encode_to_vec();
    assert_eq!(bytes, [0xca, 0x3e, 9, 0xa, 1, b'a', 0x12, 1, b'b', 0x1a, 1, b'c']);
    // Execution id, kind 1000, body 1000.
    let bytes = [0x12, 1, b'e', 0x38, 0xe8, 7, 0xc2, 0x3e, 4, 8, 3, 0x10, 5];
    assert_eq!(request().encode_to_vec(), bytes);
}

#[test]
fn a_plain_start_has_the_bytes_of_the_contract() {
    let frame = ControllerFrame {
        session: "s".to_owned(),
        execution_id: "e".to_owned(),
        frame: Frame::Start(Box::new(StartFrame { config: "c".into(), ..Default::default() })),
    };
    let bytes = v1::ControllerFrame::try_from(frame).unwrap().encode_to_vec();
    assert_eq!(bytes, [0xa, 1, b's', 0x12, 1, b'e', 0x1a, 3, 0xa, 1, b'c']);
}

#[test]
fn a_history_request_is_read_apart_and_is_no_event() {
    let wire = request();
    let read = HistoryRequest::of(&wire).unwrap();
    assert_eq!(read, Some(HistoryRequest { from_seq: 3, limit: 5 }));
    let error = Event::try_from(wire.clone()).unwrap_err();
    assert_eq!(error.to_string(), "kind: unknown enum number 1000");

    for kind in [v1::EventKind::Unspecified, v1::EventKind::EventUsage] {
        let disguised = v1::Event { kind: kind as i32, ..wire.clone() };
        let error = HistoryRequest::of(&disguised).unwrap_err();
        assert!(error.to_string().contains("EVENT_HISTORY_REQUEST"), "{error}");
        let error = Event::try_from(disguised).unwrap_err();
        assert!(error.to_string().contains("EVENT_HISTORY_REQUEST"), "{error}");
    }
    for body in [None, Some(v1::event::Body::Usage(v1::Usage::default()))] {
        let bare = v1::Event { body, ..wire.clone() };
        HistoryRequest::of(&bare).unwrap_err();
        Event::try_from(bare).unwrap_err();
    }
    assert_eq!(HistoryRequest::of(&v1::Event::default()).unwrap(), None);
    assert_eq!(HistoryRequest::of(&v1::Event { kind: 99, ..Default::default() }).unwrap(), None);
}

/// Every shape of argument, several of them inside each other.
fn shapes() -> Vec<JsonObject> {
    let object = |key: &str, value: Json| JsonObject::from([(key.to_owned(), value)]);
    let leaves = [
        Json::Null,
        Json::Bool(true),
        Json::Bool(false),
        Json::Number(-0.5),
        Json::Number(0.0),
        Json::Number(9_007_199_254_740_991.0),
        Json::from(""),
        Json::from("\u{0}\"\\\u{7f}\u{2028}<&>"),
        Json::from("e\u{301}\u{1d11e}\u{ffff}"),
        Json::Array(Vec::new()),
        Json::Object(JsonObject::new()),
    ];
    let mut shapes = vec![JsonObject::new(), object("all", Json::Array(leaves.to_vec()))];
    for leaf in leaves {
        let list = Json::Array(vec![leaf.clone(), Json::Array(vec![leaf.clone()])]);
        shapes.push(object("", leaf.clone()));
        shapes.push(object("\u{e000}\u{1d11e}", Json::Object(object("inner", list))));
    }
    shapes
}

#[test]
fn t07_tool_args_of_every_shape_are_the_same_through_bytes() {
    let calls = shapes().into_iter().map(Some).chain([None]);
    for args in calls {
        let call = ToolCall { id: "t".to_owned(), args, ..ToolCall::default() };
        let bytes = v1::ToolCall::try_from(call.clone()).unwrap().encode_to_vec();
        let back = v1::ToolCall::decode(bytes.as_slice()).unwrap();
        assert_eq!(ToolCall::try_from(back).unwrap(), call);
    }
}

#[test]
fn t07_tool_args_that_are_not_json_are_refused() {
    let value = |kind| prost_types::Value { kind };
    let args = |value| prost_types::Struct { fields: [("secret".to_owned(), value)].into() };
    let list = prost_types::ListValue { values: vec![value(None)] };
    use prost_types::value::Kind;
    for bad in [
        value(None),
        value(Some(Kind::NumberValue(f64::NAN))),
        value(Some(Kind::NumberValue(f64::NEG_INFINITY))),
        value(Some(Kind::ListValue(list))),
    ] {
        let wire = v1::ToolCall { args: Some(args(bad)), ..Default::default() };
        let error = ToolCall::try_from(wire).unwrap_err();
        assert!(error.path().as_str().starts_with("args.fields"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let nan = JsonObject::from([("secret".to_owned(), Json::Number(f64::NAN))]);
    let call = ToolCall { args: Some(nan), ..ToolCall::default() };
    v1::ToolCall::try_from(call).unwrap_err();
}

fn resolve(resolution: Resolution) -> ResolveRequest {
    ResolveRequest {
        session: SessionUid::new("sess-1").unwrap(),
        execution_id: ExecutionId::new("e").unwrap(),
        tool_call_id: "t".to_owned(),
        resolution,
    }
}

#[test]
fn every_resolution_survives() {
    let result = ToolResult { id: "t".to_owned(), is_error: true, ..Default::default() };
    for resolution in [
        Resolution::Result(Box::new(result)),
        Resolution::Failed("why".to_owned()),
        Resolution::Failed(String::new()),
        Resolution::Retry,
    ] {
        let request = resolve(resolution);
        let wire = operations_v1::ResolveRequest::try_from(request.clone()).unwrap();
        let wire = operations_v1::ResolveRequest::decode(wire.encode_to_vec().as_slice()).unwrap();
        let back = ResolveRequest::try_from(wire).unwrap();
        assert_eq!(format!("{back:?}"), format!("{request:?}"));
    }
}

#[test]
fn a_resolution_says_what_it_is_about() {
    let good = operations_v1::ResolveRequest::try_from(resolve(Resolution::Retry)).unwrap();
    let check = |edit: fn(&mut operations_v1::ResolveRequest), path: &str| {
        let mut bad = good.clone();
        edit(&mut bad);
        let error = ResolveRequest::try_from(bad).unwrap_err();
        assert_eq!(error.path().as_str(), path);
    };
    check(|r| r.session.clear(), "session");
    check(|r| r.execution_id.clear(), "execution_id");
    check(|r| r.tool_call_id.clear(), "tool_call_id");
    check(|r| r.resolution = None, "resolution");
    check(
        |r| {
            let bad = v1::ToolResult { code: 99, ..Default::default() };
            r.resolution = Some(operations_v1::resolve_request::Resolution::Result(bad));
        },
        "result.code",
    );
}
