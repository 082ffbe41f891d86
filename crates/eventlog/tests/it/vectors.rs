//! Every recorded and derived value.

use mainspring_api::{Capabilities, HarnessSpec, Json, JsonObject, ModelRequest, Placement, Seq};
use mainspring_eventlog::export::{LineVerifier, vector_lines};
use mainspring_eventlog::page_token;
use mainspring_eventlog::{
    canonical, input_hash, json, normalise_args, reader, record_bytes, record_hash, spec_bytes,
    spec_digest,
};

fn object(json: Json) -> JsonObject {
    match json {
        Json::Object(members) => members,
        other => panic!("not an object: {other:?}"),
    }
}

fn text(members: &JsonObject, key: &str) -> String {
    match members.get(key) {
        Some(Json::String(text)) => text.clone(),
        other => panic!("{key}: {other:?}"),
    }
}

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/../../testdata/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn cases(name: &str) -> Vec<JsonObject> {
    let mut doc = object(json::parse_within(&file(name), 90).unwrap());
    match doc.remove("cases") {
        Some(Json::Array(cases)) => cases.into_iter().map(object).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

const JOURNALS: [&str; 6] = [
    "completed",
    "crashed-input",
    "crashed-model",
    "mixed-completed",
    "multi-turn",
    "upgraded-resume",
];

#[test]
fn journals_verify_and_any_change_is_named() {
    let verify = |lines: &[bytes::Bytes]| {
        let mut verifier = LineVerifier::default();
        lines.iter().try_for_each(|line| verifier.push(line)).and_then(|()| verifier.finish())
    };
    for name in JOURNALS {
        let lines = vector_lines(&file(&format!("journals/{name}.json"))).unwrap().unwrap();
        let (head, attested) = verify(&lines).unwrap();
        assert_eq!((head.seq.get(), attested), (lines.len() as u64, false), "{name}");
        for at in 0..lines.len() {
            let bad = |lines: &[bytes::Bytes]| match verify(lines) {
                Err(mainspring_eventlog::LogError::Tampered { seq, .. }) => seq.get(),
                other => panic!("{name} at {at}: {other:?}"),
            };
            let mut edited = lines.clone();
            let line = String::from_utf8(edited[at].to_vec()).unwrap();
            edited[at] = line.replacen("\"event\":{", "\"event\":{\"schema_version\":9,", 1).into();
            assert_eq!(bad(&edited), at as u64 + 1, "{name}: edited");
            if at + 1 < lines.len() {
                let mut dropped = lines.clone();
                dropped.remove(at);
                assert_eq!(bad(&dropped), at as u64 + 1, "{name}: dropped");
                let mut swapped = lines.clone();
                swapped.swap(at, at + 1);
                assert_eq!(bad(&swapped), at as u64 + 1, "{name}: swapped");
            }
        }
    }
}

#[test]
fn canonical_records_have_their_bytes_and_hashes() {
    for name in ["canonical_record/recorded.json", "canonical_record/derived.json"] {
        for case in cases(name) {
            let label = text(&case, "name");
            let event = reader::event_from_json(case["event"].clone()).unwrap();
            let bytes = canonical::event_bytes(&event).unwrap();
            assert_eq!(canonical::json_text(&case["event"]).unwrap().as_bytes(), bytes, "{label}");
            if let Some(Json::String(expected)) = case.get("canonical") {
                let record = record_bytes(&bytes, None, Seq::new(1));
                assert_eq!(String::from_utf8(record).unwrap(), *expected, "{label}");
            }
            if let Some(Json::String(expected)) = case.get("content_hash") {
                let hash = record_hash(&bytes, None, Seq::new(1));
                assert_eq!(hash.to_string(), *expected, "{label}");
            }
        }
    }
}

#[test]
fn canonical_events_have_their_bytes() {
    for case in cases("canonical_event/receipts.json") {
        let event = reader::event_from_json(case["event"].clone()).unwrap();
        let bytes = canonical::event_bytes(&event).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), text(&case, "canonical"));
    }
}

#[test]
fn numbers_have_their_text() {
    for case in cases("number/es6.json") {
        let double: f64 = text(&case, "double").parse().unwrap();
        assert_eq!(canonical::number_text(double), text(&case, "canonical"));
    }
    assert_eq!(canonical::number_text(-0.0), "0");
}

#[test]
fn model_requests_have_their_hashes() {
    for name in ["model_input_hash/recorded.json", "model_input_hash/derived.json"] {
        for case in cases(name) {
            let mut event = JsonObject::new();
            event.insert("kind".to_owned(), "EVENT_MODEL_CALL".into());
            event.insert("model".to_owned(), case["model_call"].clone());
            let event = reader::event_from_json(Json::Object(event)).unwrap();
            let mainspring_api::EventBody::ModelCall(Some(call)) = event.body else {
                panic!("not a model call")
            };
            let request = ModelRequest {
                model: call.model,
                messages: call.messages,
                params: call.params,
                tools: call.tools,
                tool_choice: call.tool_choice,
            };
            let hash = input_hash(&request).unwrap().to_string();
            assert_eq!(hash, text(&case, "input_hash"), "{}", text(&case, "name"));
        }
    }
}

#[test]
fn tool_arguments_are_accepted_or_refused() {
    for case in cases("tool_args/recorded.json") {
        let args = object(case["args"].clone());
        let valid = case["valid"] == Json::Bool(true);
        assert_eq!(normalise_args(Some(&args)).is_ok(), valid, "{}", text(&case, "name"));
    }
    assert_eq!(normalise_args(None), Ok(None));
}

#[test]
fn specs_have_their_bytes_and_digests() {
    for case in cases("canonical_message/spec-digest.json") {
        assert_eq!(text(&case, "type"), "HarnessSpec");
        let message = object(case["message"].clone());
        let remote = object(message["remote"].clone());
        let spec = HarnessSpec {
            placement: Some(Placement::Remote { address: text(&remote, "address") }),
            capabilities: Some(Capabilities::default()),
            descriptor_id: text(&message, "descriptor_id"),
        };
        assert_eq!(String::from_utf8(spec_bytes(&spec)).unwrap(), text(&case, "canonical"));
        assert_eq!(spec_digest(&spec), text(&case, "digest"));
    }
}

#[test]
fn page_tokens_have_their_text() {
    for case in cases("page_token/sessions.json") {
        let token = text(&case, "token");
        let key = page_token::decode(&token).unwrap();
        assert_eq!(key.uid.as_str(), text(&case, "uid"));
        assert_eq!(key.create_time.unix_nanos(), 1_700_000_000_123_456_789);
        assert_eq!(page_token::encode(&key), token);
    }
    for bad in ["", "x", "MTcw", "!!", "MABzZXNzLSA"] {
        assert_eq!(page_token::decode(bad), None, "{bad}");
    }
}
