//! Keys, tokens, and an issuer on a socket of this machine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainspring_api::{Authenticator as _, AuthnError, Credentials, Secret, Verified};
use mainspring_authn::{OidcAuthenticator, OidcConfig};
use mainspring_testkit::ManualClock;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const AUDIENCE: &str = "mainspring";

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A private key of an issuer.
pub(crate) enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Key {
    /// Signs nothing outside of these tests; ring makes no RSA keys.
    pub(crate) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(include_bytes!("data/test-only-rsa.pk8")).unwrap())
    }

    pub(crate) fn ec() -> Self {
        let (rng, how) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &rng).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &rng).unwrap())
    }

    pub(crate) fn ed() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(_) => "ES256",
            Self::Ed(_) => "EdDSA",
        }
    }

    /// The public key as the issuer publishes it.
    pub(crate) fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                let (n, e) = (public.n, public.e);
                json!({"kty": "RSA", "kid": kid, "use": "sig", "n": b64(n), "e": b64(e)})
            }
            Self::Ec(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = (b64(&point[1..33]), b64(&point[33..]));
                json!({"kty": "EC", "kid": kid, "crv": "P-256", "x": x, "y": y})
            }
            Self::Ed(key) => {
                let x = b64(key.public_key());
                json!({"kty": "OKP", "kid": kid, "alg": "EdDSA", "crv": "Ed25519", "x": x})
            }
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let rng = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(key) => key.sign(&rng, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// A token of this key.
    pub(crate) fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_of(&json!({"alg": self.algorithm(), "typ": "JWT", "kid": kid}), claims)
    }

    pub(crate) fn token_of(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, &claims.to_string());
        let signature = b64(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// What is signed of a token.
pub(crate) fn message(header: &Value, claims: &str) -> String {
    format!("{}.{}", b64(header.to_string()), b64(claims))
}

pub(crate) fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

type Answer = (StatusCode, Vec<(&'static str, String)>, String);

/// Publishes keys, and counts how often it is asked for them.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    fetches: AtomicUsize,
    documents: AtomicUsize,
    answer: Mutex<Answer>,
    /// What the discovery document says, if not the truth.
    pub(crate) discovery: Mutex<Option<String>>,
    held: Mutex<Option<Arc<Notify>>>,
    pub(crate) asked: Notify,
}

impl Issuer {
    pub(crate) async fn start(keys: &[Value]) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Arc::new(Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            fetches: AtomicUsize::new(0),
            documents: AtomicUsize::new(0),
            answer: Mutex::new((StatusCode::OK, Vec::new(), jwks(keys))),
            discovery: Mutex::new(None),
            held: Mutex::new(None),
            asked: Notify::new(),
        });
        let app = Router::new()
            .route("/keys", get(keys_of))
            .route("/.well-known/openid-configuration", get(discovery_of))
            .with_state(Arc::clone(&issuer));
        tokio::spawn(async move { axum::serve(listener, app).await });
        issuer
    }

    /// From now on it publishes these.
    pub(crate) fn publish(&self, keys: &[Value]) {
        self.answer_with(StatusCode::OK, &[], &jwks(keys));
    }

    pub(crate) fn answer_with(
        &self,
        status: StatusCode,
        headers: &[(&'static str, &str)],
        body: &str,
    ) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        *self.answer.lock().unwrap() = (status, headers, body.to_owned());
    }

    /// Answers nothing until what this returns is notified.
    pub(crate) fn hold(&self) -> Arc<Notify> {
        let go = Arc::new(Notify::new());
        *self.held.lock().unwrap() = Some(Arc::clone(&go));
        go
    }

    /// How often its keys were asked for.
    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    /// How often its discovery document was.
    pub(crate) fn documents(&self) -> usize {
        self.documents.load(Ordering::SeqCst)
    }
}

async fn keys_of(State(issuer): State<Arc<Issuer>>) -> (StatusCode, HeaderMap, String) {
    issuer.fetches.fetch_add(1, Ordering::SeqCst);
    issuer.asked.notify_one();
    let held = issuer.held.lock().unwrap().take();
    if let Some(go) = held {
        go.notified().await;
    }
    let (status, headers, body) = issuer.answer.lock().unwrap().clone();
    let headers =
        headers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    (status, headers.collect(), body)
}

async fn discovery_of(State(issuer): State<Arc<Issuer>>) -> String {
    issuer.documents.fetch_add(1, Ordering::SeqCst);
    let said = issuer.discovery.lock().unwrap().clone();
    said.unwrap_or_else(|| {
        json!({"issuer": issuer.url, "jwks_uri": format!("{}/keys", issuer.url)}).to_string()
    })
}

/// Checks the tokens of an issuer whose keys are at its address, at [`NOW`].
pub(crate) fn authenticator(issuer: &Issuer) -> OidcAuthenticator {
    let mut config = OidcConfig::new("https://issuer.example", AUDIENCE);
    config.jwks_url = Some(format!("{}/keys", issuer.url));
    OidcAuthenticator::new(config, clock()).unwrap()
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_unix(NOW))
}

/// Claims that hold, with some of them replaced or (null) removed.
pub(crate) fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://issuer.example",
        "sub": "alice",
        "aud": AUDIENCE,
        "exp": NOW + 300,
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

pub(crate) async fn present(
    authenticator: &OidcAuthenticator,
    token: impl Into<String>,
) -> Result<Verified, AuthnError> {
    let bearer = Some(Secret::new(token.into()));
    authenticator.authenticate(&Credentials { bearer, certificate: None }).await
}

#[track_caller]
pub(crate) fn assert_refused(answer: Result<Verified, AuthnError>, case: &str) {
    match answer {
        Err(AuthnError::Unauthenticated(text)) => {
            assert_eq!(text, "the bearer token does not hold", "{case}");
        }
        other => panic!("{case}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_unavailable(answer: Result<Verified, AuthnError>) {
    assert!(matches!(answer, Err(AuthnError::Unavailable(_))), "{answer:?}");
}

/// Time that passes while nothing happens.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
