//! W05: what an error says, and what it must not. W07: time.

use std::time::Duration;

use mainspring_api::{Classify, ErrorKind, ModelError, ModelProvider, report};
use mainspring_model_http::HttpModel;

use crate::server::{Answer, HELLO, KEY, Server, Then, ask};

async fn refusal(answer: Answer) -> (u16, String) {
    let server = Server::start(answer).await;
    let model = server.model();
    let error = model.complete(&ask("hi")).await.unwrap_err();
    let mut ignore = |_: &str| {};
    let streamed = model.streaming().unwrap().stream(&ask("hi"), &mut ignore).await.unwrap_err();
    assert_eq!(error.to_string(), streamed.to_string());
    let ModelError::Refused { status, message } = error else { panic!("{error}") };
    (status, message)
}

#[tokio::test]
async fn w05_an_error_carries_the_providers_words_or_the_start_of_the_body() {
    for (status, body, words) in [
        (401, r#"{"error":{"message":"no such key","type":"x"}}"#, "no such key"),
        (429, r#"{"error":"slow down"}"#, "slow down"),
        (500, r#"{"message":"broken"}"#, "broken"),
        (500, r#"{"error":{"message":""}}"#, r#"{"error":{"message":""}}"#),
        (502, "<html>\nbad\tgateway\n</html>", "<html> bad gateway </html>"),
        (503, "", ""),
        (200, r#"{"error":{"message":"overloaded"}}"#, "overloaded"),
    ] {
        assert_eq!(refusal(Answer::json(status, body)).await, (status, words.to_owned()));
    }
    let (_, words) = refusal(Answer::json(500, "é".repeat(1000))).await;
    assert_eq!(words, "é".repeat(200));
    let (_, words) =
        refusal(Answer::json(500, format!(r#"{{"error":"{}"}}"#, "é".repeat(5000)))).await;
    assert_eq!(words, "é".repeat(2000));
}

#[tokio::test]
async fn w05_the_key_is_in_no_error_even_if_the_provider_quotes_it() {
    let quoted = format!("{}{KEY} is wrong, {KEY}!", "x".repeat(190));
    for body in [format!(r#"{{"error":{{"message":"{quoted}"}}}}"#), quoted] {
        for status in [401, 200] {
            let server = Server::start(Answer::json(status, body.clone())).await;
            let error = server.model().complete(&ask("hi")).await.unwrap_err();
            let told = format!("{} {error:?}", report(&error));
            assert!(!told.contains(&KEY[..8]), "{told}");
        }
    }

    let mut options = Server::start(Answer::json(200, HELLO)).await.options();
    options.base_url = format!("http://127.0.0.1:1/v1?key={KEY}");
    let model = HttpModel::new(options).unwrap();
    let error = model.complete(&ask("hi")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = format!("{} {error:?} {model:?}", report(&error));
    assert!(!told.contains(KEY), "{told}");
}

#[tokio::test]
async fn w05_a_redirect_is_an_error_and_the_key_goes_nowhere_else() {
    let elsewhere = Server::start(Answer::json(200, HELLO)).await;
    for status in [301, 302, 307, 308] {
        let mut answer = Answer::json(status, "moved");
        answer.headers.push(("location", format!("http://{}/v1", elsewhere.address)));
        assert_eq!(refusal(answer).await, (status, "moved".to_owned()));
    }
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn w05_an_error_body_is_read_up_to_its_bound() {
    let endless: Vec<String> = (0..64).map(|_| "x".repeat(64 << 10)).collect();
    let answer =
        Answer { chunks: endless.into_iter().map(Into::into).collect(), ..Answer::json(500, "") };
    let (status, words) = refusal(answer.then(Then::Hang)).await;
    assert_eq!((status, words), (500, "x".repeat(200)));
}

#[tokio::test]
async fn w05_an_answer_above_its_bound_or_broken_off_is_an_error() {
    let server = Server::start(Answer::json(200, HELLO)).await;
    let mut options = server.options();
    options.limits.body_bytes_max = HELLO.len();
    HttpModel::new(options.clone()).unwrap().complete(&ask("hi")).await.unwrap();
    options.limits.body_bytes_max -= 1;
    let error = HttpModel::new(options).unwrap().complete(&ask("hi")).await.unwrap_err();
    assert!(error.to_string().contains("larger than"), "{error}");

    let server = Server::start(Answer::json(200, HELLO).then(Then::Break)).await;
    let error = server.model().complete(&ask("hi")).await.unwrap_err();
    assert!(matches!(error, ModelError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn w07_dropping_the_call_closes_the_connection() {
    for streamed in [false, true] {
        let server =
            Server::start(Answer::sse(["data: {\"choices\":[]}\n\n"]).then(Then::Hang)).await;
        let model = server.model();
        let calling = tokio::spawn(async move {
            let mut ignore = |_: &str| {};
            if streamed {
                model.streaming().unwrap().stream(&ask("hi"), &mut ignore).await
            } else {
                model.complete(&ask("hi")).await
            }
        });
        while server.asked().is_empty() {
            tokio::task::yield_now().await;
        }
        calling.abort();
        let left = tokio::time::timeout(Duration::from_secs(10), server.client_left()).await;
        left.expect("the server sees the client leave");
    }
}

#[tokio::test]
async fn w07_a_call_takes_no_longer_than_its_bound() {
    let server = Server::start(Answer::json(200, "{").then(Then::Hang)).await;
    let mut options = server.options();
    options.limits.call_within = Duration::from_millis(100);
    let model = HttpModel::new(options).unwrap();
    let error = model.complete(&ask("hi")).await.unwrap_err();
    assert!(error.to_string().contains("no complete answer within 100ms"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
