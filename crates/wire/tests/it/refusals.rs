//! What the domain cannot hold is refused, by field.

use mainspring_api::{
    ApproveRequest, CancelReason, CancelRequest, DataPart, Event, EventBody, JSON_DEPTH_MAX, Json,
    JsonObject, LogRecord, Message, Part, ReasoningPart, Session, Timestamp,
};
use mainspring_wire::{PART_DEPTH_MAX, WireError, v1};
use prost::Message as _;

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, WireError>, path: &str) -> WireError {
    let error = result.expect_err("must be refused");
    assert_eq!(error.path().as_str(), path, "{error}");
    assert!(error.to_string().starts_with(path), "{error}");
    error
}

fn event(kind: v1::EventKind, body: v1::event::Body) -> v1::Event {
    v1::Event { kind: kind as i32, body: Some(body), ..Default::default() }
}

fn nested(levels: usize) -> Json {
    (0..levels)
        .fold(Json::Null, |inner, _| Json::Object(JsonObject::from([("k".to_owned(), inner)])))
}

fn data(levels: usize) -> Part {
    let Json::Object(data) = nested(levels) else {
        panic!("at least one level");
    };
    Part::Data(DataPart { data: Some(data) })
}

fn summaries(levels: usize, innermost: Part) -> Part {
    (0..levels).fold(innermost, |inner, _| {
        Part::Reasoning(ReasoningPart { summary: vec![inner], ..Default::default() })
    })
}

fn message(part: Part) -> Event {
    Event::of(EventBody::Input(Some(Message { role: "user".to_owned(), parts: vec![part] })))
}

#[test]
fn enum_numbers() {
    let unknown = v1::Event { kind: 99, ..Default::default() };
    let error = refused(Event::try_from(unknown), "kind");
    assert!(matches!(error, WireError::UnknownEnum { number: 99, .. }));

    let call = v1::ToolCall { mediation: -1, ..Default::default() };
    let wire = event(v1::EventKind::EventToolCall, v1::event::Body::Tool(call));
    refused(Event::try_from(wire), "tool.mediation");

    let choice = v1::ModelCall {
        tool_choice: Some(v1::ToolChoice { mode: 4, name: String::new() }),
        ..Default::default()
    };
    let wire = event(v1::EventKind::EventModelCall, v1::event::Body::Model(choice));
    refused(Event::try_from(wire), "model.tool_choice.mode");

    let result = v1::ToolResult { code: 3, ..Default::default() };
    let wire = event(v1::EventKind::EventToolResult, v1::event::Body::Result(result));
    refused(Event::try_from(wire), "result.code");

    let lifecycle = v1::Lifecycle { kind: 7, ..Default::default() };
    let wire = event(v1::EventKind::EventLifecycle, v1::event::Body::Lifecycle(lifecycle));
    refused(Event::try_from(wire), "lifecycle.kind");
}

#[test]
fn a_body_of_another_kind() {
    for kind in [v1::EventKind::Unspecified, v1::EventKind::EventInput] {
        let wire = event(kind, v1::event::Body::Usage(v1::Usage::default()));
        let error = refused(Event::try_from(wire), "body");
        assert!(matches!(error, WireError::BodyMismatch { body: "EVENT_USAGE", .. }));
    }
}

#[test]
fn positions_hashes_and_times() {
    let good = v1::LogRecord {
        seq: 1,
        content_hash: "a".repeat(64),
        event: Some(v1::Event::default()),
        ..Default::default()
    };
    assert!(LogRecord::try_from(good.clone()).is_ok());
    let check = |edit: fn(&mut v1::LogRecord), path: &str| {
        let mut bad = good.clone();
        edit(&mut bad);
        refused(LogRecord::try_from(bad), path);
    };
    check(|r| r.seq = -1, "seq");
    check(|r| r.fence = -1, "fence");
    check(|r| r.content_hash = "A".repeat(64), "content_hash");
    check(|r| r.content_hash.clear(), "content_hash");
    check(|r| r.prev_hash = "a".to_owned(), "prev_hash");
    check(|r| r.event = None, "event");
    check(
        |r| r.event.as_mut().unwrap().ts = Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
        "event.ts",
    );
    check(
        |r| {
            r.event.as_mut().unwrap().ts =
                Some(prost_types::Timestamp { seconds: Timestamp::SECONDS_MAX + 1, nanos: 0 });
        },
        "event.ts",
    );
}

#[test]
fn numbers_that_are_not_finite() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let object = JsonObject::from([("n".to_owned(), Json::Number(number))]);
        let out = message(Part::Data(DataPart { data: Some(object) }));
        let error = refused(v1::Event::try_from(out), "message.parts[0].data.data");
        assert!(matches!(error, WireError::NotFinite { .. }));

        let value =
            prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(number)) };
        let args = prost_types::Struct { fields: [("n".to_owned(), value)].into() };
        let call = v1::ToolCall { args: Some(args), ..Default::default() };
        let wire = event(v1::EventKind::EventToolCall, v1::event::Body::Tool(call));
        refused(Event::try_from(wire), "tool.args.fields");
    }
}

#[test]
fn the_deepest_legal_event_survives_the_deepest_message() {
    let deepest = message(summaries(PART_DEPTH_MAX - 1, data(JSON_DEPTH_MAX)));
    let wire = v1::ExecUpdate {
        update: Some(v1::exec_update::Update::Record(v1::LogRecord {
            event: Some(deepest.clone().try_into().unwrap()),
            ..Default::default()
        })),
    };
    assert!(v1::ExecUpdate::decode(wire.encode_to_vec().as_slice()).is_ok());
    let frame = v1::ControllerFrame {
        frame: Some(v1::controller_frame::Frame::Start(v1::Start {
            history: vec![deepest.try_into().unwrap()],
            ..Default::default()
        })),
        ..Default::default()
    };
    assert!(v1::ControllerFrame::decode(frame.encode_to_vec().as_slice()).is_ok());

    let error = v1::Event::try_from(message(data(JSON_DEPTH_MAX + 1))).unwrap_err();
    assert!(matches!(error, WireError::TooDeep { depth_max: JSON_DEPTH_MAX, .. }));
    let error = v1::Event::try_from(message(summaries(PART_DEPTH_MAX, Part::Empty))).unwrap_err();
    assert!(matches!(error, WireError::TooDeep { depth_max: PART_DEPTH_MAX, .. }));
}

#[test]
fn members_that_must_be_there() {
    refused(mainspring_api::ExecUpdate::try_from(v1::ExecUpdate::default()), "update");
    refused(mainspring_wire::ControllerFrame::try_from(v1::ControllerFrame::default()), "frame");
    refused(Session::try_from(v1::Session::default()), "metadata");
    refused(mainspring_wire::ModelResult::try_from(v1::ModelResult::default()), "message");
}

#[test]
fn ids_and_names() {
    let session = v1::Session {
        metadata: Some(v1::ResourceMetadata { uid: "a/b".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    refused(Session::try_from(session), "metadata.uid");
    let cancel = v1::CancelRequest {
        session: "s".to_owned(),
        execution_id: String::new(),
        reason: String::new(),
    };
    refused(CancelRequest::try_from(cancel.clone()), "execution_id");
    let cancel = v1::CancelRequest { execution_id: "e".to_owned(), ..cancel };
    assert_eq!(CancelRequest::try_from(cancel.clone()).unwrap().reason, CancelReason::User);
    let cancel = v1::CancelRequest { reason: "WHIM".to_owned(), ..cancel };
    refused(CancelRequest::try_from(cancel), "reason");
}

#[test]
fn an_approval_says_what_it_is_about() {
    let good = v1::ApproveRequest {
        session: "s".to_owned(),
        execution_id: "e".to_owned(),
        tool_call_id: "t".to_owned(),
        request_seq: 1,
        approved: Some(false),
        ..Default::default()
    };
    assert!(ApproveRequest::try_from(good.clone()).is_ok());
    let check = |edit: fn(&mut v1::ApproveRequest), path: &str| {
        let mut bad = good.clone();
        edit(&mut bad);
        refused(ApproveRequest::try_from(bad), path);
    };
    check(|r| r.session.clear(), "session");
    check(|r| r.execution_id.clear(), "execution_id");
    check(|r| r.tool_call_id.clear(), "tool_call_id");
    check(|r| r.request_seq = 0, "request_seq");
    check(|r| r.approved = None, "approved");
}
