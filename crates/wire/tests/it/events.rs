//! Events, records and messages survive the trip through bytes.

use std::collections::BTreeMap;

use mainspring_api::{Event, EventBody, EventKind, Fence, Hash, LogRecord, Message, Seq};
use mainspring_wire::{NotesField, record_to_wire, v1};
use proptest::prelude::*;
use prost::Message as _;

use crate::strategy;

fn through_bytes(event: &Event) -> Event {
    let bytes = v1::Event::try_from(event.clone()).unwrap().encode_to_vec();
    let wire = v1::Event::decode(bytes.as_slice()).unwrap();
    Event::try_from(wire).unwrap()
}

proptest! {
    #[test]
    fn any_event_survives(event in strategy::event()) {
        prop_assert_eq!(through_bytes(&event), event);
    }

    #[test]
    fn any_message_survives(message in strategy::message()) {
        let bytes = v1::Message::try_from(message.clone()).unwrap().encode_to_vec();
        let wire = v1::Message::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(Message::try_from(wire).unwrap(), message);
    }

    #[test]
    fn no_bytes_make_the_conversion_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(wire) = v1::Event::decode(bytes.as_slice()) {
            let _ = Event::try_from(wire);
        }
        if let Ok(wire) = v1::ControllerFrame::decode(bytes.as_slice()) {
            let _ = mainspring_wire::ControllerFrame::try_from(wire);
        }
    }
}

#[test]
fn a_kind_without_its_body_is_legal_both_ways() {
    let bodies = [
        EventBody::Unspecified,
        EventBody::Input(None),
        EventBody::ModelCall(None),
        EventBody::Output(None),
        EventBody::ToolCall(None),
        EventBody::ToolResult(None),
        EventBody::ApprovalRequest(None),
        EventBody::ApprovalResult(None),
        EventBody::Usage(None),
        EventBody::Lifecycle(None),
        EventBody::End(None),
        EventBody::Error(None),
        EventBody::ExecutionStart(None),
        EventBody::Parked(None),
    ];
    assert_eq!(bodies.len(), EventKind::ALL.len());
    for body in bodies {
        let event = Event::of(body);
        let wire = v1::Event::try_from(event.clone()).unwrap();
        assert_eq!(wire.kind().as_str_name(), event.kind().name());
        assert!(wire.body.is_none());
        assert_eq!(Event::try_from(wire).unwrap(), event);
    }
}

#[test]
fn notes_travel_only_when_asked_for() {
    let record = LogRecord {
        seq: Seq::new(7),
        prev_hash: Some(Hash::new([1; 32])),
        hash: Hash::new([2; 32]),
        fence: Fence::new(3),
        event: Event::of(EventBody::Input(Some(Message::user("x")))),
        notes: BTreeMap::from([("commit_time".to_owned(), "t".to_owned())]),
    };
    let plain = record_to_wire(record.clone(), NotesField::Omit).unwrap();
    assert!(plain.notes.is_empty());
    let full = record_to_wire(record.clone(), NotesField::Send).unwrap();
    let full = v1::LogRecord::decode(full.encode_to_vec().as_slice()).unwrap();
    assert_eq!(LogRecord::try_from(full).unwrap(), record);
}

#[test]
fn the_descriptor_set_names_every_service() {
    let set = mainspring_wire::FILE_DESCRIPTOR_SET;
    let text = String::from_utf8_lossy(set);
    for name in ["Sessions", "Harness", "HarnessRegistry", "LogRecord"] {
        assert!(text.contains(name), "{name}");
    }
}
