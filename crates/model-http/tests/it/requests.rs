//! W04: what is sent.

use std::collections::BTreeMap;

use mainspring_api::{
    DataPart, FilePart, Json, JsonObject, Message, ModelError, ModelProvider, ModelRequest, Part,
    ReasoningPart, Secret, ToolCall, ToolChoice, ToolChoiceMode, ToolDefinition, ToolResult,
};
use mainspring_model_http::{HttpModel, HttpModelConfigError, HttpModelOptions};
use serde_json::{Value, json};

use crate::server::{Answer, HELLO, KEY, Server, ask};

async fn sent(request: ModelRequest) -> Value {
    let server = Server::start(Answer::json(200, HELLO)).await;
    server.model().complete(&request).await.unwrap();
    server.asked()[0].body.clone()
}

async fn refused(request: ModelRequest) -> ModelError {
    let server = Server::start(Answer::json(200, HELLO)).await;
    let model = server.model();
    let error = model.complete(&request).await.unwrap_err();
    let mut ignore = |_: &str| {};
    model.streaming().unwrap().stream(&request, &mut ignore).await.unwrap_err();
    assert!(server.asked().is_empty(), "refused before any request");
    error
}

fn message(role: &str, parts: impl IntoIterator<Item = Part>) -> Message {
    Message { role: role.to_owned(), parts: parts.into_iter().collect() }
}

fn members(pairs: impl IntoIterator<Item = (&'static str, Json)>) -> JsonObject {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[tokio::test]
async fn w04_the_default_model_stands_in_for_none_and_for_echo() {
    for (asked, sent_as) in [("", "gpt-test"), ("echo", "gpt-test"), ("gpt-other", "gpt-other")] {
        let request = ModelRequest { model: asked.to_owned(), ..ask("hi") };
        let body = sent(request).await;
        let expected = json!({"model": sent_as, "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn w04_the_path_is_joined_and_the_key_goes_into_its_header() {
    let server = Server::start(Answer::json(200, HELLO)).await;
    server.model().complete(&ask("hi")).await.unwrap();

    let mut options = server.options();
    options.path = "deployments/x/chat?api-version=1".to_owned();
    options.auth_header = "api-key".to_owned();
    options.extra_headers = vec![("x-org".to_owned(), Secret::new("org-1".to_owned()))];
    let model = HttpModel::new(options).unwrap();
    model.complete(&ask("hi")).await.unwrap();

    let mut options = server.options();
    options.api_key = None;
    HttpModel::new(options).unwrap().complete(&ask("hi")).await.unwrap();

    let asked = server.asked();
    assert_eq!(asked[0].target, "/v1/chat/completions");
    assert_eq!(asked[0].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(asked[0].headers["content-type"], "application/json");
    assert_eq!(asked[1].target, "/v1/deployments/x/chat?api-version=1");
    assert_eq!(asked[1].headers["api-key"], KEY);
    assert_eq!(asked[1].headers["x-org"], "org-1");
    assert!(!asked[1].headers.contains_key("authorization"));
    assert!(!asked[2].headers.contains_key("authorization"));
    assert!(!format!("{model:?}").contains(KEY));
}

#[tokio::test]
async fn w04_file_and_data_parts_are_refused_before_any_request() {
    let in_result =
        |part| Part::ToolResult(ToolResult { content: vec![part], ..ToolResult::default() });
    for (part, named) in [
        (Part::File(FilePart::default()), "file"),
        (Part::Data(DataPart::default()), "data"),
        (in_result(Part::File(FilePart::default())), "file"),
        (in_result(Part::Data(DataPart::default())), "data"),
        (Part::ToolCall(ToolCall::default()), "tool_call (outside an assistant message)"),
    ] {
        let request =
            ModelRequest { messages: vec![message("user", [part])], ..ModelRequest::default() };
        let error = refused(request).await;
        assert!(matches!(error, ModelError::UnsupportedPart { part } if part == named), "{error}");
    }
}

#[tokio::test]
async fn w04_reasoning_is_never_sent_and_text_parts_are_joined() {
    let reasoning = Part::Reasoning(ReasoningPart {
        summary: vec![Part::Text("secret thoughts".into())],
        ..ReasoningPart::default()
    });
    let text = |text: &str| Part::Text(text.to_owned());
    let request = ModelRequest {
        messages: vec![
            message("system", [text("a"), Part::Empty, text("b")]),
            message("assistant", [reasoning, text("c")]),
            message("user", []),
        ],
        ..ModelRequest::default()
    };
    let body = sent(request).await;
    let expected = json!([
        {"role": "system", "content": "ab"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": ""},
    ]);
    assert_eq!(body["messages"], expected);
}

#[tokio::test]
async fn w04_tools_calls_and_results_are_mapped_with_their_ids() {
    let args = members([("n", Json::Number(2.0)), ("x", Json::Number(0.5)), ("q", "é".into())]);
    let call = |id: &str, args| {
        Part::ToolCall(ToolCall {
            id: id.into(),
            tool: "search".into(),
            args,
            ..ToolCall::default()
        })
    };
    let result =
        |id: &str, result: ToolResult| Part::ToolResult(ToolResult { id: id.into(), ..result });
    let failed =
        ToolResult { is_error: true, error: "no such page".into(), ..ToolResult::default() };
    let output =
        ToolResult { output: Some(members([("ok", Json::Bool(true))])), ..ToolResult::default() };
    let content = ToolResult { content: vec![Part::Text("found".into())], ..output.clone() };
    let schema = members([("type", "object".into())]);
    let request = ModelRequest {
        messages: vec![
            message("assistant", [call("c1", Some(args)), call("c2", None)]),
            message("tool", [result("c1", output), result("c2", failed)]),
            message("tool", [result("c3", content)]),
        ],
        tools: vec![
            ToolDefinition {
                name: "search".into(),
                description: "finds".into(),
                input_schema: Some(schema),
            },
            ToolDefinition { name: "bare".into(), ..ToolDefinition::default() },
        ],
        ..ModelRequest::default()
    };
    let body = sent(request).await;
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages[0]["content"], Value::Null);
    let function = &messages[0]["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"n": 2, "x": 0.5, "q": "é"}));
    assert_eq!(messages[0]["tool_calls"][0]["id"], "c1");
    assert_eq!(messages[0]["tool_calls"][1]["function"]["arguments"], "{}");
    let results = json!([
        {"role": "tool", "tool_call_id": "c1", "content": "{\"ok\":true}"},
        {"role": "tool", "tool_call_id": "c2", "content": "no such page"},
        {"role": "tool", "tool_call_id": "c3", "content": "found"},
    ]);
    assert_eq!(Value::from(messages[1..].to_vec()), results);
    let tools = json!([
        {"type": "function", "function": {"name": "search", "description": "finds", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "bare"}},
    ]);
    assert_eq!(body["tools"], tools);
}

#[tokio::test]
async fn w04_tool_choice_is_mapped() {
    let choice = |mode, name: &str| ModelRequest {
        tool_choice: Some(ToolChoice { mode, name: name.to_owned() }),
        ..ask("hi")
    };
    for (mode, name, expected) in [
        (ToolChoiceMode::Unspecified, "", Value::Null),
        (ToolChoiceMode::Auto, "", "auto".into()),
        (ToolChoiceMode::None, "", "none".into()),
        (ToolChoiceMode::Required, "", "required".into()),
        (ToolChoiceMode::Required, "f", json!({"type": "function", "function": {"name": "f"}})),
    ] {
        assert_eq!(sent(choice(mode, name)).await["tool_choice"], expected);
    }
    let error = refused(choice(ToolChoiceMode::Auto, "f")).await;
    assert!(matches!(error, ModelError::Refused { status: 0, .. }), "{error}");
}

#[tokio::test]
async fn w04_params_pass_as_scalars_and_cannot_override_the_request() {
    let with = |pairs: &[(&str, &str)]| ModelRequest {
        params: pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        ..ask("hi")
    };
    let body = sent(with(&[
        ("temperature", "0.5"),
        ("max_tokens", "7"),
        ("store", "false"),
        ("user", "plain words"),
        ("quoted", "\"7\""),
        ("stop", "[1]"),
        ("big", "1e999"),
    ]))
    .await;
    let expected = [
        ("temperature", json!(0.5)),
        ("max_tokens", json!(7)),
        ("store", json!(false)),
        ("user", json!("plain words")),
        ("quoted", json!("7")),
        ("stop", json!("[1]")),
        ("big", json!("1e999")),
    ];
    for (name, value) in expected {
        assert_eq!(body[name], value, "{name}");
    }
    for name in
        ["model", "messages", "stream", "stream_options", "tools", "tool_choice", "functions", "n"]
    {
        let error = refused(with(&[(name, "x")])).await;
        assert!(
            matches!(&error, ModelError::Refused { status: 0, message } if message.contains(name)),
            "{error}"
        );
    }
}

#[test]
fn w04_options_are_checked_when_it_is_built() {
    let build = |adjust: &dyn Fn(&mut HttpModelOptions)| {
        let mut options = HttpModelOptions::new("m");
        options.api_key = Some(Secret::new(KEY.to_owned()));
        options.base_url = "http://127.0.0.1:1".to_owned();
        adjust(&mut options);
        let error = HttpModel::new(options).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(KEY));
        error
    };
    assert_eq!(build(&|o| o.model.clear()), HttpModelConfigError::NoModel);
    assert!(matches!(build(&|o| o.base_url = "nowhere".into()), HttpModelConfigError::Url { .. }));
    for name in ["", "a b", "Content-Type", "host"] {
        let error = build(&|o| o.auth_header = name.to_owned());
        assert!(matches!(error, HttpModelConfigError::Header { .. }), "{name}");
    }
    let error = build(&|o| o.api_key = Some(Secret::new(format!("{KEY}\n"))));
    assert!(matches!(error, HttpModelConfigError::Header { .. }));
}
