//! The helpers for authors.

use mainspring_api::{
    Event, EventBody, HarnessError, Mediation, Message, Part, SinkError, ToolCall,
};
use mainspring_harness::{
    HISTORY_PAGE_EVENTS, HistoryPages, Keys, call_tools, conversation, tool_calls, tool_message,
};

use crate::support::{Effect, ShortPages, Sink, start};

fn said(n: usize) -> Vec<Event> {
    (0..n).map(|i| Event::of(EventBody::Input(Some(Message::user(i.to_string()))))).collect()
}

#[tokio::test]
async fn all_of_history_is_read_however_short_its_pages() {
    for (events, page) in [(0, 1), (1, 1), (7, 2), (600, 1000), (600, 100)] {
        let history = ShortPages { events: said(events), page, missing: 0 };
        let messages = conversation(&history).await.unwrap();
        let texts: Vec<_> = messages.iter().map(Message::plain_text).collect();
        let expected: Vec<_> = (0..events).map(|i| i.to_string()).collect();
        assert_eq!(texts, expected, "{events} events by {page}");
    }
    let history = ShortPages { events: said(600), page: 1000, missing: 0 };
    let page = HistoryPages::new(&history).next_page().await.unwrap().unwrap();
    assert_eq!(page.len(), HISTORY_PAGE_EVENTS);
}

#[tokio::test]
async fn history_that_ends_early_is_an_error() {
    let history = ShortPages { events: said(3), page: 10, missing: 1 };
    let error = conversation(&history).await.unwrap_err();
    assert!(matches!(error, HarnessError::Protocol { .. }), "{error}");
}

#[test]
fn keys_are_the_same_on_every_run_and_never_twice() {
    let take = || {
        let mut keys = Keys::of(&start(&[], Vec::new(), b""));
        [keys.next_key(), keys.next_key()]
    };
    assert_eq!(take(), ["00000000000000aa-1", "00000000000000aa-2"]);
    assert_eq!(take(), take());
}

#[tokio::test]
async fn tool_calls_become_effects_and_their_results_a_message() {
    let call = |id: &str, tool: &str| {
        Part::ToolCall(ToolCall { id: id.into(), tool: tool.into(), ..ToolCall::default() })
    };
    let message = Message {
        role: "assistant".to_owned(),
        parts: vec![Part::Text("let me see".into()), call("c1", "search"), call("c2", "read")],
    };
    let before = message.clone();
    let sink = Sink::default();
    let mut keys = Keys::of(&start(&[], Vec::new(), b""));
    let results = call_tools(&sink, &message, &mut keys).await.unwrap();
    assert_eq!(message, before, "a returned message stays untouched");

    let effects = sink.effects();
    let expected = [("c1", "00000000000000aa-1"), ("c2", "00000000000000aa-2")];
    for (effect, (id, key)) in effects.iter().zip(expected) {
        let Effect::Tool(call) = effect else { panic!("{effect:?}") };
        assert_eq!((call.id.as_str(), call.idempotency_key.as_str()), (id, key));
        assert_eq!(call.mediation, Mediation::ControllerMediated);
    }
    let fed_back = tool_message(results);
    assert_eq!(fed_back.role, "tool");
    assert_eq!(fed_back.parts.len(), 2);
    assert_eq!(tool_calls(&fed_back).count(), 0);

    let failing = Message { role: "assistant".into(), parts: vec![call("c3", "missing")] };
    let error = call_tools(&sink, &failing, &mut keys).await.unwrap_err();
    assert!(matches!(error, SinkError::MissingToolExecutor));
}
