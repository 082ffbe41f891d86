//! Family W: the reference harnesses, through the controller.

use std::sync::Arc;

use mainspring_api::{Harness, Message};
use mainspring_controller::{ControllerError, Turn};
use mainspring_harness::{CHAT_CONFIG_INVALID, Chat, Counter};

use crate::support::{Fixture, Probe, turn};

/// A probe that is this very harness, for all its turns.
fn reference(harness: impl Harness) -> Probe {
    let harness: Arc<dyn Harness> = Arc::new(harness);
    let describing = Arc::clone(&harness);
    Probe::new(move |start, sink| {
        let harness = Arc::clone(&harness);
        async move { harness.run(start, sink).await }
    })
    .describing(move || {
        let harness = Arc::clone(&describing);
        async move { harness.describe().await }
    })
}

/// Echo sends the last input alone.
async fn w01_echo_sends_the_last_input(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one", "two"]).await.unwrap();
    session.exec(&echo, &["three"]).await.unwrap();
    assert_eq!(session.model.texts(), ["two", "three"]);
    assert!(session.model.asked().iter().all(|request| request.messages.len() == 1));
    session.replay_check(&echo, 2, &["echo:two", "echo:three"]).await;
}

/// Counter counts in its memory, within one incarnation.
async fn w02_counter_counts(session: Fixture) {
    let counter = session.place(reference(Counter::new())).await;
    for _ in 0..3 {
        session.exec(&counter, &["x"]).await.unwrap();
    }
    assert_eq!(session.outputs().await, ["1", "2", "3"]);
    assert_eq!(session.model.calls(), 0);
}

/// Chat sends system prompt, history and inputs in order; a bad config gets
/// one fixed text that quotes nothing of it.
async fn w03_chat_sends_the_conversation(session: Fixture) {
    let chat = session.place(reference(Chat::new())).await;
    session.exec(&chat, &["one"]).await.unwrap();
    let config = br#"{"system_prompt":"be brief"}"#.as_slice().into();
    session.exec_turn(&chat, Turn { config, ..turn(&["two", "three"]) }).await.unwrap();
    let asked = session.model.asked();
    let expected = [
        Message::text("system", "be brief"),
        Message::user("one"),
        Message::assistant("echo:one"),
        Message::user("two"),
        Message::user("three"),
    ];
    assert_eq!(asked[1].messages, expected);
    session.replay_check(&chat, 2, &["echo:one", "echo:three"]).await;

    let config = br#"{"secret":1}"#.as_slice().into();
    let error = session.exec_turn(&chat, Turn { config, ..turn(&["x"]) }).await.unwrap_err();
    assert!(matches!(&error, ControllerError::Run(_)), "{error:?}");
    assert_eq!(error.to_string(), CHAT_CONFIG_INVALID);
    assert_eq!(session.model.calls(), 2);
}

matrix! {
    run:
    everywhere {
        #[test] fn w01_echo_sends_the_last_input;
        #[test] fn w02_counter_counts;
        #[test] fn w03_chat_sends_the_conversation;
    }
}
