//! When an issuer is asked for its keys.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use mainspring_authn::{
    DOCUMENT_BYTES_MAX, JWKS_AGE_MAX, JWKS_KEYS_MAX, JWKS_STALE_MAX, OidcAuthenticator, OidcConfig,
    REFETCH_EVERY,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{
    AUDIENCE, Issuer, Key, assert_refused, assert_unavailable, authenticator, claims, clock, pass,
    present,
};

/// Far more than the machine takes for what lies between.
const A_WHILE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn keys_are_got_once_and_when_they_are_needed() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    assert_eq!(issuer.fetches(), 0);
    for _ in 0..20 {
        present(&authenticator, key.token("k1", &claims(&json!({})))).await.unwrap();
        pass(REFETCH_EVERY).await;
    }
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn a_rotated_key_is_found_after_the_interval() {
    let (old, new) = (Key::ed(), Key::ec());
    let issuer = Issuer::start(&[old.jwk("old")]).await;
    let authenticator = authenticator(&issuer);
    let (old, new_token) =
        (old.token("old", &claims(&json!({}))), new.token("new", &claims(&json!({}))));
    present(&authenticator, old.clone()).await.unwrap();
    issuer.publish(&[new.jwk("new")]);
    assert_refused(present(&authenticator, new_token.clone()).await, "asked a moment ago");
    pass(REFETCH_EVERY).await;
    present(&authenticator, new_token).await.unwrap();
    assert_refused(present(&authenticator, old).await, "it is no longer published");
    assert_eq!(issuer.fetches(), 2);
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_once_an_interval() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    for interval in 1..=3 {
        for number in 0..100 {
            let token = key.token(&format!("unknown-{number}"), &claims(&json!({})));
            assert_refused(present(&authenticator, token).await, "unknown");
        }
        assert_eq!(issuer.fetches(), interval);
        pass(REFETCH_EVERY - A_WHILE).await;
        let token = key.token("unknown", &claims(&json!({})));
        assert_refused(present(&authenticator, token).await, "unknown");
        assert_eq!(issuer.fetches(), interval, "not before the interval is over");
        pass(A_WHILE).await;
    }
}

#[tokio::test]
async fn misses_at_the_same_time_share_one_fetch_and_survive_its_caller() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let go = issuer.hold();
    let authenticator = Arc::new(authenticator(&issuer));
    let token = key.token("k1", &claims(&json!({})));
    let ask = || {
        let (authenticator, token) = (Arc::clone(&authenticator), token.clone());
        async move { present(&authenticator, token).await }
    };
    let first = tokio::spawn(ask());
    issuer.asked.notified().await;
    let mut others = JoinSet::new();
    (0..50).for_each(|_| drop(others.spawn(ask())));
    tokio::task::yield_now().await;
    first.abort();
    go.notify_one();
    while let Some(answer) = others.join_next().await {
        answer.unwrap().unwrap();
    }
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn an_issuer_that_is_down_at_first_is_unavailable_until_it_is_up() {
    let key = Key::ed();
    let issuer = Issuer::start(&[]).await;
    issuer.answer_with(StatusCode::SERVICE_UNAVAILABLE, &[], "");
    let authenticator = authenticator(&issuer);
    let token = key.token("k1", &claims(&json!({})));
    for _ in 0..10 {
        assert_unavailable(present(&authenticator, token.clone()).await);
    }
    assert_eq!(issuer.fetches(), 1, "a failed fetch counts as well");
    issuer.publish(&[key.jwk("k1")]);
    assert_unavailable(present(&authenticator, token.clone()).await);
    pass(REFETCH_EVERY).await;
    present(&authenticator, token).await.unwrap();
    assert_eq!(issuer.fetches(), 2);
}

#[tokio::test]
async fn an_issuer_that_is_down_later_is_missed_only_for_new_keys() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let token = key.token("k1", &claims(&json!({})));
    present(&authenticator, token.clone()).await.unwrap();
    issuer.answer_with(StatusCode::INTERNAL_SERVER_ERROR, &[], "");
    pass(REFETCH_EVERY).await;
    let unknown = key.token("k2", &claims(&json!({})));
    assert_unavailable(present(&authenticator, unknown).await);
    present(&authenticator, token).await.unwrap();
}

#[tokio::test]
async fn old_keys_serve_while_new_ones_are_got() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let token = key.token("k1", &claims(&json!({})));
    present(&authenticator, token.clone()).await.unwrap();
    issuer.asked.notified().await;
    pass(JWKS_AGE_MAX - A_WHILE).await;
    present(&authenticator, token.clone()).await.unwrap();
    assert_eq!(issuer.fetches(), 1);
    pass(A_WHILE).await;
    let go = issuer.hold();
    for _ in 0..5 {
        present(&authenticator, token.clone()).await.unwrap();
    }
    issuer.asked.notified().await;
    assert_eq!(issuer.fetches(), 2, "one, in the background");
    issuer.publish(&[]);
    go.notify_one();
    // Waits for the fetch under way, as whoever names an unknown key does.
    let unknown = key.token("k2", &claims(&json!({})));
    assert_refused(present(&authenticator, unknown).await, "unknown");
    assert_refused(present(&authenticator, token).await, "the key was taken back");
    assert_eq!(issuer.fetches(), 2);
}

/// An issuer that cannot be asked may have withdrawn them.
#[tokio::test]
async fn keys_that_were_not_got_again_for_a_day_are_not_used() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let token = key.token("k1", &claims(&json!({})));
    present(&authenticator, token.clone()).await.unwrap();
    issuer.answer_with(StatusCode::INTERNAL_SERVER_ERROR, &[], "");
    pass(JWKS_STALE_MAX - A_WHILE).await;
    present(&authenticator, token.clone()).await.unwrap();
    pass(A_WHILE).await;
    assert_unavailable(present(&authenticator, token.clone()).await);
    issuer.publish(&[key.jwk("k1")]);
    pass(REFETCH_EVERY).await;
    present(&authenticator, token).await.unwrap();
}

/// What such a token means is the one key that fits it, and that may be new.
#[tokio::test]
async fn a_token_that_names_no_key_asks_for_a_rotated_one() {
    let unnamed = |key: &Key| {
        key.token_of(&json!({"alg": key.algorithm(), "typ": "JWT"}), &claims(&json!({})))
    };
    // A key of the same kind, whose signature differs; and one of another kind.
    for (old, new) in [(Key::ed(), Key::ed()), (Key::ed(), Key::ec())] {
        let issuer = Issuer::start(&[old.jwk("old")]).await;
        let authenticator = authenticator(&issuer);
        present(&authenticator, unnamed(&old)).await.unwrap();
        issuer.publish(&[new.jwk("new")]);
        assert_refused(present(&authenticator, unnamed(&new)).await, "asked a moment ago");
        pass(REFETCH_EVERY).await;
        present(&authenticator, unnamed(&new)).await.unwrap();
        for _ in 0..10 {
            assert_refused(present(&authenticator, unnamed(&old)).await, "withdrawn");
        }
        assert_eq!(issuer.fetches(), 2, "as rarely as for a key that is named");
    }
}

#[tokio::test]
async fn what_is_no_set_of_keys_is_unavailable() {
    let key = Key::ed();
    let many = vec![key.jwk("k1"); JWKS_KEYS_MAX + 1];
    let set = json!({ "keys": [key.jwk("k1")] }).to_string();
    let large = format!("{}{}", set, " ".repeat(DOCUMENT_BYTES_MAX));
    let elsewhere = Issuer::start(&[key.jwk("k1")]).await;
    let location = format!("{}/keys", elsewhere.url);
    let redirect = [("location", location.as_str())];
    type Case<'a> = (StatusCode, &'a [(&'static str, &'a str)], &'a str);
    let cases: [Case<'_>; 6] = [
        (StatusCode::OK, &[], "<html>"),
        (StatusCode::OK, &[], r#"{"keys":7}"#),
        (StatusCode::OK, &[], &json!({ "keys": many }).to_string()),
        (StatusCode::OK, &[], &large),
        (StatusCode::FOUND, &redirect, ""),
        (StatusCode::NOT_FOUND, &[], &set),
    ];
    for (status, headers, body) in cases {
        let issuer = Issuer::start(&[]).await;
        issuer.answer_with(status, headers, body);
        let answer = present(&authenticator(&issuer), key.token("k1", &claims(&json!({})))).await;
        assert_unavailable(answer);
        assert_eq!(issuer.fetches(), 1);
    }
    assert_eq!(elsewhere.fetches(), 0, "a redirect is not followed");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_unavailable() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = OidcConfig::new("https://issuer.example", AUDIENCE);
    config.jwks_url = Some(format!("http://{}/keys", closed.local_addr().unwrap()));
    drop(closed);
    let authenticator = OidcAuthenticator::new(config, clock()).unwrap();
    let token = Key::ed().token("k1", &claims(&json!({})));
    assert_unavailable(present(&authenticator, token).await);
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_given_up() {
    let issuer = Issuer::start(&[]).await;
    let _go = issuer.hold();
    let authenticator = Arc::new(authenticator(&issuer));
    let token = Key::ed().token("k1", &claims(&json!({})));
    let asked = {
        let authenticator = Arc::clone(&authenticator);
        tokio::spawn(async move { present(&authenticator, token).await })
    };
    issuer.asked.notified().await;
    pass(mainspring_authn::FETCH_MAX).await;
    assert_unavailable(asked.await.unwrap());
}

#[tokio::test]
async fn keys_are_found_where_the_issuer_says() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let at = |said: &str| {
        *issuer.discovery.lock().unwrap() = (!said.is_empty()).then(|| said.to_owned());
        let config = OidcConfig::new(issuer.url.clone(), AUDIENCE);
        OidcAuthenticator::new(config, clock()).unwrap()
    };
    let token = key.token("k1", &claims(&json!({"iss": issuer.url})));
    let verified = present(&at(""), token.clone()).await.unwrap();
    assert_eq!(verified.identity.issuer, issuer.url);
    assert_eq!((issuer.documents(), issuer.fetches()), (1, 1));

    let url = &issuer.url;
    for said in [
        json!({"issuer": format!("{url}/"), "jwks_uri": format!("{url}/keys")}),
        json!({"issuer": url, "jwks_uri": "http://issuer.example/keys"}),
        json!({"issuer": url, "jwks_uri": "file:///etc/keys"}),
        json!({"issuer": url}),
        json!("{"),
    ] {
        assert_unavailable(present(&at(&said.to_string()), token.clone()).await);
    }
    assert_eq!(issuer.fetches(), 1);
}
