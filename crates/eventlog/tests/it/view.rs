//! The fold, where it must be told apart.

use std::collections::HashMap;

use mainspring_api::{Event, EventBody, ExecutionId, Head, Message, Usage};
use mainspring_eventlog::{Batch, ExecutionView, NewRecord, SessionView};

fn folded(bodies: Vec<EventBody>) -> SessionView {
    let records: Vec<NewRecord> = bodies.into_iter().map(|body| Event::of(body).into()).collect();
    let batch = Batch::link(Head::EMPTY, records).unwrap();
    let mut view = SessionView::default();
    let mut table: HashMap<ExecutionId, ExecutionView> = HashMap::new();
    for (event, stored) in batch.events().zip(batch.stored()) {
        view.apply(event, stored.head(), stored.canonical.len(), &mut table).unwrap();
    }
    view
}

/// An id-less input is pending until an end or an error follows, whatever else does.
#[test]
fn a_failed_id_less_turn_is_not_pending() {
    let input = || EventBody::Input(Some(Message::user("x")));
    let usage = || EventBody::Usage(Some(Usage::default()));
    let pending =
        |bodies| folded(bodies).legacy.unwrap().pending_input().map(mainspring_api::Seq::get);
    assert_eq!(pending(vec![input()]), Some(1));
    assert_eq!(pending(vec![input(), usage()]), Some(1));
    assert_eq!(pending(vec![input(), EventBody::Error(None)]), None);
    assert_eq!(pending(vec![input(), EventBody::Error(None), usage()]), None);
    assert_eq!(pending(vec![input(), EventBody::End(None), input()]), Some(3));
}
