//! The reference harnesses and the built-in model.

use std::sync::Arc;

use mainspring_api::{
    Classify, Event, EventBody, Harness, HarnessEnd, Message, ModelError, ModelProvider,
    ModelRequest, Resumability, Usage,
};
use mainspring_harness::{
    CHAT_CONFIG_INVALID, Chat, Counter, EchoModel, REFERENCE_KINDS, reference,
};

use crate::support::{Effect, Sink, start};

fn request(model: &str, messages: &[(&str, &str)]) -> ModelRequest {
    ModelRequest {
        model: model.to_owned(),
        messages: messages.iter().map(|(role, text)| Message::text(role, *text)).collect(),
        ..ModelRequest::default()
    }
}

async fn run(harness: &dyn Harness, start: mainspring_api::Start) -> Vec<Effect> {
    let sink = Arc::new(Sink::default());
    harness.run(start, sink.clone()).await.unwrap();
    sink.effects()
}

fn two_turns() -> Vec<Event> {
    let turn = |input: &str, output: &str| {
        [
            EventBody::ExecutionStart(Some(mainspring_api::ExecutionStart::default())),
            EventBody::Input(Some(Message::user(input))),
            EventBody::ModelCall(None),
            EventBody::Output(Some(Message::assistant(output))),
            EventBody::Input(None),
            EventBody::End(Some(HarnessEnd::completed())),
        ]
    };
    turn("q1", "a1").into_iter().chain(turn("q2", "a2")).map(Event::of).collect()
}

#[tokio::test]
async fn w01_echo_sends_only_the_last_input() {
    let echo = reference("echo", "").unwrap();
    let effects = run(&*echo, start(&["one", "two"], two_turns(), b"ignored")).await;
    assert_eq!(effects, [Effect::Model(request("echo", &[("user", "two")]))]);

    let effects = run(&*echo, start(&[], Vec::new(), b"")).await;
    assert_eq!(effects, [Effect::Model(request("echo", &[("user", "")]))]);
}

#[tokio::test]
async fn w02_counter_counts_within_one_incarnation() {
    let counter = Counter::new();
    for turn in 1..=3 {
        let effects = run(&counter, start(&["x"], Vec::new(), b"")).await;
        assert_eq!(effects, [Effect::Output(turn.to_string())]);
    }
    let effects = run(&Counter::new(), start(&["x"], Vec::new(), b"")).await;
    assert_eq!(effects, [Effect::Output("1".to_owned())], "memory is its only truth");

    let said = counter.describe().await.unwrap();
    assert_eq!(said.capabilities.resumability, Resumability::RequiresMemorySnapshot);
    assert!(!said.capabilities.fork_safe);
}

#[tokio::test]
async fn w03_chat_sends_system_history_and_inputs_in_order() {
    let config = br#"{"system_prompt":"be brief"}"#;
    let effects = run(&Chat::with_model("m"), start(&["q3", "q4"], two_turns(), config)).await;
    let whole = [
        ("system", "be brief"),
        ("user", "q1"),
        ("assistant", "a1"),
        ("user", "q2"),
        ("assistant", "a2"),
        ("user", "q3"),
        ("user", "q4"),
    ];
    assert_eq!(effects, [Effect::Model(request("m", &whole))]);

    let mut policy = start(&["q"], Vec::new(), b"");
    policy.model = "policy-default".to_owned();
    let effects = run(&Chat::new(), policy).await;
    assert_eq!(effects, [Effect::Model(request("policy-default", &[("user", "q")]))]);
}

#[tokio::test]
async fn w03_chat_refuses_a_bad_config_without_quoting_it() {
    let sink = Arc::new(Sink::default());
    let bad = start(&["q"], Vec::new(), br#"{"system_prompt":["s3cret"]}"#);
    let error = Chat::new().run(bad, sink.clone()).await.unwrap_err();
    assert_eq!(mainspring_api::report(&error), CHAT_CONFIG_INVALID);
    assert_eq!(sink.effects(), []);
}

#[tokio::test]
async fn every_reference_harness_says_its_kind_and_version() {
    for kind in REFERENCE_KINDS {
        let said = reference(kind, "m").unwrap().describe().await.unwrap();
        assert_eq!((said.id.as_str(), said.version.as_str()), (kind, "1"));
    }
    assert!(reference("other", "").is_none());
}

#[tokio::test]
async fn the_echo_model_answers_the_last_user_message_and_for_no_other_model() {
    for model in ["", "echo"] {
        let asked = request(model, &[("user", "a"), ("user", "b"), ("assistant", "c")]);
        let reply = EchoModel.complete(&asked).await.unwrap();
        assert_eq!(reply.message, Message::assistant("echo:b"));
        assert_eq!(reply.usage, Usage::default());
    }
    let error = EchoModel.complete(&request("gpt", &[])).await.unwrap_err();
    assert!(matches!(&error, ModelError::NotConfigured { model } if model == "gpt"));
    assert_eq!(error.code(), "model_not_configured");
    assert!(EchoModel.streaming().is_none());
}
