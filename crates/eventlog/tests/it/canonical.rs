//! The canonical writer against a general implementation of RFC 8785.

use mainspring_api::{
    DataPart, Event, EventBody, ExecutionId, FilePart, FileSource, Json, JsonObject, Message, Part,
    Timestamp, ToolCall, ToolResult,
};
use mainspring_eventlog::canonical::{CanonicalError, event_bytes, json_text, rfc3339};
use mainspring_eventlog::reader::{ReadError, event_from_bytes};
use proptest::prelude::*;

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Json::Number),
        any::<String>().prop_map(Json::String),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..6).prop_map(Json::Object),
        ]
    })
}

fn to_serde(json: &Json) -> serde_json::Value {
    match json {
        Json::Null => serde_json::Value::Null,
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => (*number).into(),
        Json::String(text) => text.clone().into(),
        Json::Array(items) => items.iter().map(to_serde).collect(),
        Json::Object(members) => serde_json::Value::Object(
            members.iter().map(|(key, value)| (key.clone(), to_serde(value))).collect(),
        ),
    }
}

fn object() -> impl Strategy<Value = JsonObject> {
    prop::collection::btree_map(any::<String>(), json(), 0..5)
}

fn event() -> impl Strategy<Value = Event> {
    let part = prop_oneof![
        Just(Part::Empty),
        any::<String>().prop_map(Part::Text),
        prop::option::of(object()).prop_map(|data| Part::Data(DataPart { data })),
        (any::<String>(), any::<Vec<u8>>()).prop_map(|(mime, bytes)| Part::File(FilePart {
            mime,
            source: Some(FileSource::Bytes(bytes.into())),
            ..FilePart::default()
        })),
        (any::<String>(), prop::option::of(object()))
            .prop_map(|(id, args)| Part::ToolCall(ToolCall { id, args, ..ToolCall::default() })),
        (any::<String>(), any::<i64>()).prop_map(|(text, seq)| Part::ToolResult(ToolResult {
            content: vec![Part::Text(text)],
            approval_request_seq: seq,
            ..ToolResult::default()
        })),
    ];
    let message = (any::<String>(), prop::collection::vec(part, 0..4))
        .prop_map(|(role, parts)| Message { role, parts });
    (message, "[a-z0-9]{0,16}", any::<i32>(), prop::option::of(any::<i32>())).prop_map(
        |(message, id, schema_version, seconds)| Event {
            execution_id: ExecutionId::new(&id).ok(),
            ts: seconds
                .map(|s| Timestamp { seconds: s.into(), nanos: s.unsigned_abs() % 1_000_000_000 }),
            schema_version,
            actor: None,
            body: EventBody::Output(Some(message)),
        },
    )
}

proptest! {
    #[test]
    fn json_agrees_with_a_general_implementation(value in json()) {
        let general = serde_json_canonicalizer::to_string(&to_serde(&value)).unwrap();
        prop_assert_eq!(json_text(&value).unwrap(), general);
    }

    #[test]
    fn events_agree_with_a_general_implementation_and_read_back(event in event()) {
        let bytes = event_bytes(&event).unwrap();
        let general: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(&serde_json_canonicalizer::to_vec(&general).unwrap(), &bytes);
        let back = event_from_bytes(&bytes).unwrap();
        prop_assert_eq!(event_bytes(&back).unwrap(), bytes);
    }

    #[test]
    fn times_read_back(seconds in Timestamp::SECONDS_MIN..=Timestamp::SECONDS_MAX, nanos in 0u32..1_000_000_000) {
        let mut event = Event::of(EventBody::Unspecified);
        event.ts = Some(Timestamp { seconds, nanos });
        let bytes = event_bytes(&event).unwrap();
        prop_assert_eq!(event_from_bytes(&bytes).unwrap(), event);
    }

    #[test]
    fn the_reader_never_panics(bytes in any::<Vec<u8>>()) {
        let _ = event_from_bytes(&bytes);
    }
}

#[test]
fn known_times() {
    let at = |seconds| rfc3339(Timestamp { seconds, nanos: 0 });
    assert_eq!(at(0), "1970-01-01T00:00:00Z");
    assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(at(Timestamp::SECONDS_MIN), "0001-01-01T00:00:00Z");
    assert_eq!(at(Timestamp::SECONDS_MAX), "9999-12-31T23:59:59Z");
}

#[test]
fn what_is_not_known_is_unsupported_and_what_is_wrong_is_malformed() {
    let unsupported = [
        r#"{"kind":"EVENT_NEW"}"#,
        r#"{"kind":"EVENT_INPUT","new":1}"#,
        r#"{"kind":"EVENT_INPUT","message":{"new":{}}}"#,
        r#"{"kind":"EVENT_TOOL_CALL","tool":{"mediation":7}}"#,
        r#"{"kind":"EVENT_INPUT","message":{"parts":[{"video":{}}]}}"#,
        // A body of another kind than the event's.
        r#"{"kind":"EVENT_INPUT","usage":{}}"#,
    ];
    for text in unsupported {
        let read = event_from_bytes(text.as_bytes());
        assert!(matches!(read, Err(ReadError::Unsupported { .. })), "{text}: {read:?}");
    }
    let malformed = [
        r#"[]"#,
        r#"{"kind":"EVENT_INPUT","message":[]}"#,
        r#"{"kind":"EVENT_USAGE","usage":{"input_tokens":7}}"#,
        r#"{"kind":"EVENT_USAGE","usage":{"input_tokens":"07"}}"#,
        r#"{"schema_version":1.5}"#,
        r#"{"schema_version":2147483648}"#,
        r#"{"ts":"2023-02-29T00:00:00Z"}"#,
        r#"{"ts":"2023-11-14T22:13:20.10Z"}"#,
        r#"{"kind":"EVENT_EXECUTION_START","execution_start":{"config":"AQI"}}"#,
        r#"{"kind":"EVENT_INPUT","message":{"parts":[{"text":{},"data":{}}]}}"#,
    ];
    for text in malformed {
        let read = event_from_bytes(text.as_bytes());
        assert!(matches!(read, Err(ReadError::Malformed { .. })), "{text}: {read:?}");
    }
}

#[test]
fn what_has_no_canonical_form_is_refused() {
    let with = |json: Json| {
        let args = Some([("a".to_owned(), json)].into());
        event_bytes(&Event::of(EventBody::ToolCall(Some(ToolCall { args, ..ToolCall::default() }))))
    };
    let deep = |n| (0..n).fold(Json::Null, |inner, _| Json::Array(vec![inner]));
    assert!(with(deep(23)).is_ok());
    assert!(matches!(with(deep(24)), Err(CanonicalError::Json(_))));
    assert!(matches!(
        with(Json::Array(vec![Json::Number(f64::NAN)])),
        Err(CanonicalError::Json(_))
    ));
    assert_eq!(event_bytes(&Event::of(EventBody::Parked(None))), Err(CanonicalError::Parked));
}
