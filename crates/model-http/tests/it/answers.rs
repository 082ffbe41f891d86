//! W04: what comes back.

use mainspring_api::{Json, ModelError, ModelProvider, Part, ReasoningPart, ToolCall, Usage};

use crate::server::{Answer, HELLO, Server, ask};

async fn answer(body: &str) -> Result<mainspring_api::ModelReply, ModelError> {
    let server = Server::start(Answer::json(200, body)).await;
    server.model().complete(&ask("hi")).await
}

fn choice(message: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}"#)
}

#[tokio::test]
async fn w04_reasoning_comes_before_the_text_and_usage_is_mapped() {
    let body = r#"{"choices":[{"message":{"role":"assistant","reasoning_content":"hm","content":"hello"}}],
        "usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,
        "completion_tokens_details":{"reasoning_tokens":3}}}"#;
    let reply = answer(body).await.unwrap();
    assert_eq!(reply.message.role, "assistant");
    let reasoning = ReasoningPart {
        provider: "openai".to_owned(),
        model_id: "gpt-test".to_owned(),
        summary: vec![Part::Text("hm".into())],
        ..ReasoningPart::default()
    };
    assert_eq!(reply.message.parts, [Part::Reasoning(reasoning), Part::Text("hello".into())]);
    let usage = Usage {
        model: "gpt-test".to_owned(),
        input_tokens: 11,
        output_tokens: 7,
        reasoning_tokens: 3,
    };
    assert_eq!(reply.usage, usage);

    let reply = answer(HELLO).await.unwrap();
    assert_eq!(reply.message.parts, [Part::Text("hello".into())], "no reasoning is invented");
    assert_eq!(reply.usage, Usage::default(), "nor any usage");
}

#[tokio::test]
async fn w04_tool_calls_become_parts_after_the_text() {
    let body = choice(
        r#"{"content":"let me see","tool_calls":[
        {"id":"c1","type":"function","function":{"name":"search","arguments":"{\"q\":\"x\",\"n\":[1,null]}"}},
        {"id":"c2","type":"function","function":{"name":"read","arguments":" {} "}}]}"#,
    );
    let parts = answer(&body).await.unwrap().message.parts;
    let args = [
        ("n".to_owned(), Json::Array(vec![Json::Number(1.0), Json::Null])),
        ("q".to_owned(), "x".into()),
    ];
    let call = |id: &str, tool: &str, args| {
        Part::ToolCall(ToolCall {
            id: id.into(),
            tool: tool.into(),
            args: Some(args),
            ..ToolCall::default()
        })
    };
    let expected = [
        Part::Text("let me see".into()),
        call("c1", "search", args.into()),
        call("c2", "read", std::collections::BTreeMap::new()),
    ];
    assert_eq!(parts, expected);

    let body = choice(
        r#"{"content":null,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}}]}"#,
    );
    assert_eq!(answer(&body).await.unwrap().message.parts.len(), 1, "no empty text beside a call");
}

#[tokio::test]
async fn w04_what_a_model_may_leave_out() {
    for message in
        [r#"{"content":""}"#, r#"{"content":null}"#, "{}", r#"{"content":null,"tool_calls":[]}"#]
    {
        let reply = answer(&choice(message)).await.unwrap();
        assert_eq!(reply.message.parts, [Part::Text(String::new())], "{message}");
    }
    let reply = answer(&choice(r#"{"content":null,"refusal":"I will not"}"#)).await.unwrap();
    assert_eq!(reply.message.plain_text(), "I will not");
}

#[tokio::test]
async fn w04_arguments_are_one_strict_json_object() {
    let deep = |levels: usize| format!(r#"{{\"a\":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let call = |arguments: &str| {
        choice(&format!(
            r#"{{"tool_calls":[{{"id":"c","function":{{"name":"f","arguments":"{arguments}"}}}}]}}"#
        ))
    };
    answer(&call(&deep(23))).await.unwrap();
    for bad in [
        "",
        "[]",
        "null",
        "{",
        r#"{\"a\":1,\"a\":2}"#,
        r#"{\"a\":NaN}"#,
        r#"{\"a\":1e999}"#,
        r#"{\"a\":\"\\ud800\"}"#,
        "{} {}",
        &deep(24),
        &deep(200),
    ] {
        let error = answer(&call(bad)).await.unwrap_err();
        assert!(matches!(error, ModelError::BadAnswer { .. }), "{bad}: {error}");
    }
}

#[tokio::test]
async fn w04_answers_that_cannot_be_used_are_errors_that_quote_nothing() {
    let call = |call: &str| choice(&format!(r#"{{"tool_calls":[{call}]}}"#));
    for bad in [
        "s3cret".to_owned(),
        "{}".to_owned(),
        r#"{"choices":[]}"#.to_owned(),
        r#"{"choices":"s3cret"}"#.to_owned(),
        choice(r#"{"content":["s3cret"]}"#),
        choice(r#"{"content":"a","content":"s3cret"}"#),
        call(r#"{"id":"","function":{"name":"f","arguments":"{}"}}"#),
        call(r#"{"id":"c","function":{"arguments":"{}"}}"#),
        call(r#"{"id":"c","type":"s3cret","function":{"name":"f","arguments":"{}"}}"#),
        call(r#"{"id":"c","function":{"name":"f","arguments":"{\"s3cret\":"}}"#),
        r#"{"choices":[{"message":{}}],"usage":{"prompt_tokens":-1}}"#.to_owned(),
    ] {
        let error = answer(&bad).await.unwrap_err();
        assert!(matches!(error, ModelError::BadAnswer { .. }), "{bad}: {error}");
        assert!(!mainspring_api::report(&error).contains("s3cret"), "{error}");
    }
}
