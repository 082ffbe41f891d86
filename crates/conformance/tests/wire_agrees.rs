//! The journal's canonical form and the protobuf form say the same.
//!
//! `eventlog` and `wire` do not know each other; here every recorded event, and
//! many made-up ones, go through the binary form and back, and are rendered by
//! a general proto3-JSON implementation from the schema alone.

use mainspring_api::{Event, Json};
use mainspring_eventlog::{canonical, json, reader};
use mainspring_testkit::{SeededRng, sample};
use mainspring_wire::{FILE_DESCRIPTOR_SET, v1};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

/// The canonical bytes by the schema: proto3-JSON, then RFC 8785.
fn by_schema(pool: &DescriptorPool, wire: &[u8]) -> Vec<u8> {
    let descriptor = pool.get_message_by_name("agentsessions.v1.Event").unwrap();
    let message = DynamicMessage::decode(descriptor, wire).unwrap();
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(true);
    let mut out = serde_json::Serializer::new(Vec::new());
    message.serialize_with_options(&mut out, &options).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.into_inner()).unwrap();
    serde_json_canonicalizer::to_vec(&value).unwrap()
}

#[track_caller]
fn agrees(pool: &DescriptorPool, event: &Event) {
    let bytes = canonical::event_bytes(event).unwrap();
    let wire = v1::Event::try_from(event.clone()).unwrap().encode_to_vec();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text(&by_schema(pool, &wire)), text(&bytes));
    let back = Event::try_from(v1::Event::decode(wire.as_slice()).unwrap()).unwrap();
    assert_eq!(text(&canonical::event_bytes(&back).unwrap()), text(&bytes));
    assert_eq!(
        text(&canonical::event_bytes(&reader::event_from_bytes(&bytes).unwrap()).unwrap()),
        text(&bytes)
    );
}

/// Every `event` member in the vectors of a folder.
fn vector_events(folder: &str) -> Vec<Json> {
    let folder = format!("{}/../../testdata/vectors/{folder}", env!("CARGO_MANIFEST_DIR"));
    let mut events = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        collect(json::parse_within(&bytes, 90).unwrap(), &mut events);
    }
    assert!(!events.is_empty(), "{folder}");
    events
}

fn collect(json: Json, events: &mut Vec<Json>) {
    match json {
        Json::Array(items) => items.into_iter().for_each(|item| collect(item, events)),
        Json::Object(members) => {
            for (key, value) in members {
                if key == "event" {
                    events.push(value);
                } else {
                    collect(value, events);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_recorded_event_is_the_same_in_both_forms() {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    for folder in ["journals", "canonical_record", "canonical_event"] {
        for event in vector_events(folder) {
            agrees(&pool, &reader::event_from_json(event).unwrap());
        }
    }
}

#[test]
fn made_up_events_are_the_same_in_both_forms() {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut rng = SeededRng::new(1);
    for _ in 0..500 {
        agrees(&pool, &sample::random_event(&mut rng));
    }
    for turn in 0..20 {
        for event in sample::turn(&sample::execution(turn), &format!("<&>\u{2028}😀{turn}")) {
            agrees(&pool, &event);
        }
    }
}
