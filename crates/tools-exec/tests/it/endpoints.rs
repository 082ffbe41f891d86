//! What an endpoint is sent, and what comes of what it answers.

use std::time::Duration;

use mainspring_api::{
    Json, Outcome, Part, SessionUid, ToolExecutor as _, ToolResult, ToolScope, report,
};
use mainspring_tools_exec::{ToolEntry, Tools, ToolsOptions};
use tokio::net::TcpListener;

use crate::server::{Answer, Server, Then};
use crate::support::{KEY, SESSION, assert_error, call, object, run, scope, until, within_ms};

fn at(url: &str, options: ToolsOptions) -> Tools {
    let entry = ToolEntry::http("t", url).unwrap();
    Tools::builder().tool(entry).options(options).build().unwrap()
}

fn of(server: &Server) -> Tools {
    at(&server.url(), ToolsOptions::default())
}

#[tokio::test]
async fn an_endpoint_gets_arguments_key_session_tool_and_id() {
    let server = Server::start(Answer::new(200, "")).await;
    let url = format!("http://user:pass@{}/tool?token=s3cret", server.address);
    let tools = at(&url, ToolsOptions::default());
    let args = object([("b", Json::Number(5.0)), ("a", Json::from("é"))]);
    for (args, body) in [(None, "null"), (Some(args), r#"{"a":"é","b":5}"#)] {
        let result = tools.execute(&scope(), &call("t", args)).await.unwrap();
        assert_eq!(result, ToolResult { id: "call-1".to_owned(), ..ToolResult::default() });
        let asked = server.asked().pop().unwrap();
        assert_eq!((asked.method.as_str(), asked.body.as_str()), ("POST", body));
        assert_eq!(asked.target, "/tool?token=s3cret");
        for (name, value) in [
            ("content-type", "application/json"),
            ("idempotency-key", KEY),
            ("x-mainspring-session", SESSION),
            ("x-mainspring-tool", "t"),
            ("x-mainspring-tool-call-id", "call-1"),
            ("authorization", "Basic dXNlcjpwYXNz"),
        ] {
            assert_eq!(asked.headers[name], value, "{name}");
        }
    }
}

#[tokio::test]
async fn an_answer_of_2xx_is_a_result_by_what_it_holds() {
    let output = object([("a", Json::Number(1.0))]);
    for (status, body, expected) in [
        (200, "{\"a\":1}", ToolResult { output: Some(output), ..ToolResult::default() }),
        (
            201,
            "made\n",
            ToolResult { content: vec![Part::Text("made".into())], ..ToolResult::default() },
        ),
        (204, "", ToolResult::default()),
        (
            200,
            "{\"a\":1,\"a\":1}",
            ToolResult {
                is_error: true,
                error: "result cannot be recorded as json: duplicate key in a json object".into(),
                content: vec![Part::Text("{\"a\":1,\"a\":1}".into())],
                ..ToolResult::default()
            },
        ),
    ] {
        let server = Server::start(Answer::new(status, body)).await;
        let result = run(&of(&server)).await.unwrap();
        assert_eq!(result, ToolResult { id: "call-1".to_owned(), ..expected }, "{body}");
    }
}

#[tokio::test]
async fn a_refusal_is_a_result_with_its_status_and_the_start_of_its_words() {
    for (answer, error) in [
        (Answer::new(404, "no such order\n"), "answered status 404: no such order"),
        (Answer::new(409, ""), "answered status 409"),
        (Answer::new(422, "cut").then(Then::Break), "answered status 422: cut"),
        (Answer::new(400, "éééééééééé"), "answered status 400: éééé"),
    ] {
        let server = Server::start(answer).await;
        let mut options = ToolsOptions::default();
        options.error_bytes_max = if error.contains('é') { 9 } else { 4096 };
        let result = run(&at(&server.url(), options)).await.unwrap();
        assert!(result.is_error && result.content.is_empty() && result.output.is_none());
        assert_eq!(result.error, error);
    }
    let server = Server::start(Answer::new(429, "later").then(Then::Hang)).await;
    let result = run(&at(&server.url(), within_ms(300))).await.unwrap();
    assert_eq!(result.error, "answered status 429: later", "a status is an answer");
}

#[tokio::test]
async fn anything_else_leaves_the_outcome_unknown_and_is_sent_once() {
    for (answer, words) in [
        (Answer::new(500, "oops"), "answered status 500"),
        (Answer::new(503, ""), "answered status 503"),
        (Answer::new(303, ""), "answered status 303"),
        (Answer::new(200, "half").then(Then::Break), "the connection broke"),
        (
            Answer::new(200, "half").then(Then::Hang),
            "no result within 300ms, the bound call_within",
        ),
    ] {
        let server = Server::start(answer).await;
        let error = run(&at(&server.url(), within_ms(300))).await.unwrap_err();
        assert_error(&error, Outcome::Unknown, words);
        assert_eq!(server.asked().len(), 1, "{words}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_on_a_request_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let accepted = tokio::spawn(async move {
        drop(listener.accept().await.unwrap());
        let again = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
        assert!(again.is_err(), "it is sent once");
    });
    let error = run(&at(&url, ToolsOptions::default())).await.unwrap_err();
    assert_error(&error, Outcome::Unknown, "the connection broke");
    accepted.await.unwrap();
}

#[tokio::test]
async fn without_a_connection_nothing_was_done() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://user:s3cret@{closed}/tool?token=s3cret");
    let error = run(&at(&url, ToolsOptions::default())).await.unwrap_err();
    assert_error(&error, Outcome::NotApplied, "tool \"t\": no connection");
    let told = format!("{} {error:?}", report(&error));
    assert!(!told.contains("s3cret") && !told.contains(KEY), "{told}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(Answer::new(200, "")).await;
    for status in [301, 302, 307, 308] {
        let mut answer = Answer::new(status, "moved");
        answer.location = Some(elsewhere.url());
        let error = run(&of(&Server::start(answer).await)).await.unwrap_err();
        assert_error(&error, Outcome::Unknown, &format!("answered status {status}"));
    }
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn secrets_and_keys_are_in_no_words_even_if_the_endpoint_quotes_them() {
    let quoted = format!("{}{KEY} token=s3cret s3cret p4ssword", "x".repeat(30));
    let server = Server::start(Answer::new(403, quoted)).await;
    let url = format!("http://user:p4ssword@{}/tool?token=s3cret", server.address);
    let told = run(&at(&url, ToolsOptions::default())).await.unwrap().error;
    for secret in [KEY, "s3cret", "p4ssword"] {
        assert!(!told.contains(secret), "{told}");
    }
    // Cut in the middle of the key: half a key is a key, too.
    let mut options = ToolsOptions::default();
    options.error_bytes_max = 40;
    let told = run(&at(&url, options)).await.unwrap().error;
    assert!(!told.contains(&KEY[..4]), "{told}");
}

#[tokio::test]
async fn an_answer_ends_at_its_bound() {
    let server = Server::start(Answer::new(200, "0123456789")).await;
    let mut options = ToolsOptions::default();
    options.output_bytes_max = 10;
    let result = run(&at(&server.url(), options.clone())).await.unwrap();
    assert_eq!(result.content, [Part::Text("0123456789".to_owned())]);
    options.output_bytes_max = 9;
    let error = run(&at(&server.url(), options)).await.unwrap_err();
    assert_error(&error, Outcome::Unknown, "larger than 9 bytes, the bound output_bytes_max");
}

#[tokio::test]
async fn what_no_header_carries_as_it_is_is_refused_before_it_is_sent() {
    let server = Server::start(Answer::new(200, "")).await;
    let tools = of(&server);
    for key in ["é", "a\nb", " a", "a ", "\u{a0}a"] {
        let mut odd = call("t", None);
        odd.idempotency_key = key.to_owned();
        let error = tools.execute(&scope(), &odd).await.unwrap_err();
        assert_error(&error, Outcome::NotApplied, "idempotency key cannot travel in a header");
        odd.idempotency_key = KEY.to_owned();
        odd.id = key.to_owned();
        let error = tools.execute(&scope(), &odd).await.unwrap_err();
        assert_error(&error, Outcome::NotApplied, "tool call id cannot travel in a header");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn the_same_key_twice_is_two_calls_under_one_key() {
    let server = Server::start(Answer::new(200, "paid")).await;
    let entry = ToolEntry::parse(&format!("t=http:{},durable", server.url())).unwrap();
    let tools = Tools::builder().tool(entry).build().unwrap();
    let fork = ToolScope { session: SessionUid::new("sess-000000000000000000000002").unwrap() };
    for scope in [&scope(), &scope(), &fork] {
        tools.execute(scope, &call("t", None)).await.unwrap();
    }
    let asked = server.asked();
    let seen: Vec<_> = asked
        .iter()
        .map(|asked| ["x-mainspring-session", "idempotency-key"].map(|name| &asked.headers[name]))
        .map(|[session, key]| (session.to_str().unwrap(), key.to_str().unwrap()))
        .collect();
    let fork = fork.session.as_str();
    assert_eq!(seen, [(SESSION, KEY), (SESSION, KEY), (fork, KEY)]);
}

#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let server = Server::start(Answer::new(200, "half").then(Then::Hang)).await;
    let tools = of(&server);
    let calling = tokio::spawn(async move { run(&tools).await });
    until("the call was sent", || !server.asked().is_empty()).await;
    calling.abort();
    let left = tokio::time::timeout(Duration::from_secs(10), server.client_left()).await;
    left.expect("the server sees the client leave");
}
