//! The harness that calls tools and waits for approvals.

use std::sync::Arc;

use mainspring_api::{
    Harness, HarnessError, Json, JsonObject, Mediation, Message, ModelRequest, Resumability,
    SinkError, ToolCall, ToolResult, Usage, report,
};
use mainspring_harness::{GATE_CONFIG_INVALID, Gate};

use crate::support::{Effect, Sink, start};

async fn run(inputs: &[&str], config: &str) -> (Vec<Effect>, Result<(), HarnessError>) {
    let sink = Arc::new(Sink::default());
    let ended = Gate::new().run(start(inputs, Vec::new(), config.as_bytes()), sink.clone()).await;
    (sink.effects(), ended)
}

fn asks(model: &str, text: &str) -> Effect {
    let messages = vec![Message::user(text)];
    Effect::Model(ModelRequest { model: model.to_owned(), messages, ..ModelRequest::default() })
}

fn one(name: &str, value: Json) -> Option<JsonObject> {
    Some(JsonObject::from([(name.to_owned(), value)]))
}

fn calls(n: u64, tool: &str, args: Option<JsonObject>, mediation: Mediation) -> Effect {
    Effect::Tool(ToolCall {
        id: format!("call-{n}"),
        tool: tool.to_owned(),
        args,
        mediation,
        idempotency_key: format!("00000000000000aa-{n}"),
    })
}

fn says(text: &str) -> Effect {
    Effect::Output(text.to_owned())
}

const UNGATED: Mediation = Mediation::ControllerMediated;
const GATED: Mediation = Mediation::RequiresApproval;

#[tokio::test]
async fn a_script_runs_in_order_with_the_same_keys_on_every_run() {
    let script = r#"{"steps":[
        {"say":"one"}, {"model":"hi"}, {"usage":true},
        {"tool":"a","args":{"n":1}}, {"gate":"b","key":"own"}, {"tool":"a"},
        {"report":"local","output":{"n":2}}, {"report":"local"}, {"say":"end"}]}"#;
    let (effects, ended) = run(&["ignored"], script).await;
    ended.unwrap();
    let Effect::Tool(gated) = calls(2, "b", None, GATED) else { unreachable!() };
    let reports = |output| {
        Effect::Report(ToolResult { id: "local".to_owned(), output, ..ToolResult::default() })
    };
    let expected = [
        says("one"),
        asks("", "hi"),
        Effect::Usage(Usage::default()),
        calls(1, "a", one("n", Json::Number(1.0)), UNGATED),
        says("a: done"),
        Effect::Tool(ToolCall { idempotency_key: "own".to_owned(), ..gated }),
        says("b: done"),
        calls(3, "a", None, UNGATED),
        says("a: done"),
        reports(one("n", Json::Number(2.0))),
        reports(None),
        says("end"),
    ];
    assert_eq!(effects, expected);
    assert_eq!(run(&["ignored"], script).await.0, effects);
}

#[tokio::test]
async fn by_hand_the_last_input_says_what_is_done() {
    for (inputs, expected) in [
        (
            &["no", "refund 5"][..],
            [calls(1, "refund", one("amount", Json::Number(5.0)), GATED), says("refund: done")],
        ),
        (
            &["tool search tea"],
            [calls(1, "search", one("input", "tea".into()), UNGATED), says("search: done")],
        ),
    ] {
        for config in ["", "{}"] {
            let (effects, ended) = run(inputs, config).await;
            ended.unwrap();
            assert_eq!(effects, expected);
        }
    }
    assert_eq!(run(&["hello"], "").await.0, [asks("", "hello")]);
    assert_eq!(run(&[], "").await.0, [asks("", "")]);
    assert_eq!(run(&["refund 5"], r#"{"steps":[]}"#).await.0, []);
}

#[tokio::test]
async fn the_model_is_its_own_or_the_policys() {
    for (own, policy, asked) in [("m", "p", "m"), ("", "p", "p"), ("", "", "")] {
        let sink = Arc::new(Sink::default());
        let gate = Gate::with_model(own);
        let mut start = start(&["hi"], Vec::new(), b"");
        start.model = policy.to_owned();
        gate.run(start, sink.clone()).await.unwrap();
        assert_eq!(sink.effects(), [asks(asked, "hi")]);
        let models: Vec<&str> = Some(own).filter(|own| !own.is_empty()).into_iter().collect();
        let said = gate.describe().await.unwrap();
        assert_eq!(said.models, models);
        assert_eq!(said.capabilities.resumability, Resumability::StatelessReplay);
    }
}

#[tokio::test]
async fn one_line_says_what_came_of_a_call() {
    for (step, line) in [
        (r#"{"tool":"a"}"#, "a: done"),
        (r#"{"gate":"denied","args":{"too much":1}}"#, "denied: denied: [\"too much\"]"),
        (r#"{"gate":"denied"}"#, "denied: denied"),
        (r#"{"gate":"failing"}"#, "failing: failed: exit status 1: no such order"),
        (r#"{"tool":"failing","optional":true}"#, "failing: failed: exit status 1: no such order"),
    ] {
        let (effects, ended) =
            run(&[], &format!("{{\"steps\":[{step},{{\"say\":\"end\"}}]}}")).await;
        ended.unwrap();
        assert_eq!(effects[1..], [says(line), says("end")], "{step}");
    }
}

#[tokio::test]
async fn a_failing_step_ends_the_run_unless_it_is_optional() {
    let (effects, ended) = run(&[], r#"{"steps":[{"tool":"missing"},{"say":"end"}]}"#).await;
    let error = ended.unwrap_err();
    assert!(matches!(error, HarnessError::Sink(SinkError::MissingToolExecutor)), "{error}");
    assert_eq!(effects, [calls(1, "missing", None, UNGATED)]);

    let optional = r#"{"steps":[{"tool":"missing","optional":true},{"tool":"a"}]}"#;
    let (effects, ended) = run(&[], optional).await;
    ended.unwrap();
    let expected =
        [calls(1, "missing", None, UNGATED), calls(2, "a", None, UNGATED), says("a: done")];
    assert_eq!(effects, expected);
}

#[tokio::test]
async fn a_park_is_returned_at_once_even_from_an_optional_step() {
    for optional in ["true", "false"] {
        let script =
            format!(r#"{{"steps":[{{"gate":"parks","optional":{optional}}},{{"say":"end"}}]}}"#);
        let (effects, ended) = run(&[], &script).await;
        let error = ended.unwrap_err();
        let HarnessError::Sink(SinkError::Parked(park)) = &error else { panic!("{error}") };
        assert_eq!(park.tool_call_id, "call-1");
        assert_eq!(effects, [calls(1, "parks", None, GATED)]);
    }
}

#[tokio::test]
async fn a_bad_config_is_refused_before_any_effect_and_not_quoted() {
    let (effects, ended) = run(&["hi"], r#"{"steps":[{"say":"a"},{"s3cret":1}]}"#).await;
    assert_eq!(report(&ended.unwrap_err()), GATE_CONFIG_INVALID);
    assert_eq!(effects, []);
}
