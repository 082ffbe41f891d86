//! W06: streams.

use mainspring_api::{ModelError, ModelProvider, ModelReply, Part, Usage};
use mainspring_model_http::{HttpModel, HttpModelOptions};

use crate::server::{Answer, HELLO, Server, Then, ask};

const STREAM: &str = concat!(
    r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
    "\n\n",
    ": keep-alive\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"h"}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"m"}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"content":"hel"}}],"usage":null}"#,
    "\r\n\r\n",
    r#"data: {"choices":[{"index":0,"delta":{"content":"lo 🙂"}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"search","arguments":""}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"q\":"}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":"tool_calls"}]}"#,
    "\n\n",
    r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4,"completion_tokens_details":{"reasoning_tokens":2}}}"#,
    "\n\n",
    "data: [DONE]\n\n",
);

async fn stream(answer: Answer) -> (Vec<String>, Result<ModelReply, ModelError>) {
    stream_with(answer, |_| {}).await
}

async fn stream_with(
    answer: Answer,
    adjust: impl FnOnce(&mut HttpModelOptions),
) -> (Vec<String>, Result<ModelReply, ModelError>) {
    let server = Server::start(answer).await;
    let mut options = server.options();
    adjust(&mut options);
    let model = HttpModel::new(options).unwrap();
    let mut chunks = Vec::new();
    let mut keep = |chunk: &str| chunks.push(chunk.to_owned());
    let reply = model.streaming().unwrap().stream(&ask("hi"), &mut keep).await;
    let body = &server.asked()[0].body;
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"]["include_usage"], true);
    (chunks, reply)
}

#[tokio::test]
async fn w06_chunks_concatenate_to_the_final_message() {
    let (chunks, reply) = stream(Answer::sse([STREAM])).await;
    let reply = reply.unwrap();
    assert_eq!(chunks, ["hel", "lo 🙂"]);
    assert_eq!(reply.message.plain_text(), chunks.concat());
    let usage =
        Usage { model: "gpt-test".into(), input_tokens: 5, output_tokens: 4, reasoning_tokens: 2 };
    assert_eq!(reply.usage, usage, "usage comes in the last chunk");
    let [Part::Reasoning(reasoning), Part::Text(_), Part::ToolCall(first), Part::ToolCall(second)] =
        reply.message.parts.as_slice()
    else {
        panic!("{reply:?}");
    };
    assert_eq!(reasoning.summary, [Part::Text("hm".into())]);
    assert_eq!((first.id.as_str(), first.args.as_ref().unwrap().len()), ("c1", 1));
    assert_eq!((second.id.as_str(), second.tool.as_str()), ("c2", "read"));
}

#[tokio::test]
async fn w06_the_reply_is_the_same_however_the_bytes_arrive() {
    let (_, whole) = stream(Answer::sse([STREAM])).await;
    let whole = whole.unwrap();
    for size in [1, 2, 3, 7, 64] {
        let pieces: Vec<_> = STREAM.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
        let (chunks, reply) = stream(Answer::sse(pieces)).await;
        assert_eq!(reply.unwrap(), whole, "in pieces of {size}");
        assert_eq!(chunks.concat(), whole.message.plain_text());
    }
}

#[tokio::test]
async fn w06_a_stream_must_say_that_it_is_complete() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let reply = |parts: &[&str]| {
        stream(Answer::sse(parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>()))
    };
    for complete in [
        &[text, "data: [DONE]"] as &[&str],
        &[text, stop],
        &[text, stop, "data: [DONE]\n\n", "data: {"],
    ] {
        assert_eq!(reply(complete).await.1.unwrap().message.plain_text(), "hi");
    }
    for cut in [&[text] as &[&str], &[], &[text, "data: {\"cho"], &["data: [DONE]\n\n"]] {
        let error = reply(cut).await.1.unwrap_err();
        assert!(matches!(error, ModelError::BadAnswer { .. }), "{cut:?}: {error}");
    }
    let (_, broken) = stream(Answer::sse([text]).then(Then::Break)).await;
    assert!(matches!(broken, Err(ModelError::Unavailable { .. })), "{broken:?}");

    let error = "data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    let (chunks, reply) = stream(Answer::sse([text, error])).await;
    assert_eq!(chunks, ["hi"]);
    assert!(matches!(reply, Err(ModelError::Refused { message, .. }) if message == "overloaded"));
}

#[tokio::test]
async fn w06_lines_and_the_whole_stream_are_bounded() {
    let (_, fits) =
        stream_with(Answer::sse([STREAM]), |o| o.limits.body_bytes_max = STREAM.len()).await;
    fits.unwrap();
    let (_, reply) =
        stream_with(Answer::sse([STREAM]), |o| o.limits.body_bytes_max = STREAM.len() / 2).await;
    assert!(reply.unwrap_err().to_string().contains("larger than"));
    let (_, reply) =
        stream_with(Answer::sse([STREAM]), |o| o.limits.sse_line_bytes_max = 100).await;
    assert!(reply.unwrap_err().to_string().contains("longer than 100 bytes"));
}

#[tokio::test]
async fn w06_a_server_without_streaming_is_understood() {
    let (chunks, reply) = stream(Answer::json(200, HELLO)).await;
    assert_eq!(reply.unwrap().message.plain_text(), "hello");
    assert_eq!(chunks, ["hello"]);
}

#[tokio::test]
async fn w06_calls_without_an_index_are_told_apart_by_their_ids() {
    let call = |id: &str, name: &str, arguments: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"id\":\"{id}\",\"function\":{{\"name\":\"{name}\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
        )
    };
    let events = [
        call("a", "f", "{"),
        call("", "", "}"),
        call("b", "g", "{"),
        call("b", "g", "}"),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (_, reply) = stream(Answer::sse(events)).await;
    let parts = reply.unwrap().message.parts;
    let ids: Vec<_> = parts
        .iter()
        .map(|part| match part {
            Part::ToolCall(call) => call.id.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, ["a", "b"]);

    let changed = [
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\"}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"b\"}]}}]}\n\n",
    ];
    let (_, reply) = stream(Answer::sse(changed)).await;
    assert!(reply.unwrap_err().to_string().contains("changes"));
}
