//! Who calls, and what they have to show for it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// The time of the host, in seconds since 1970: late in 2096, so that a
/// certificate can have run out for the host, and not for the machine.
pub(crate) const NOW: i64 = 4_000_000_000;
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "mainspring";
pub(crate) const TRUST_DOMAIN: &str = "mesh.example";

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key that an issuer signs with.
pub(crate) struct Signer(EcdsaKeyPair);

impl Signer {
    pub(crate) fn new() -> Self {
        let (random, how) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &random).unwrap())
    }

    /// Writes the public key where an authenticator reads it.
    pub(crate) fn publish(&self, path: &Path) {
        let point = self.0.public_key().as_ref();
        let (x, y) = (b64(&point[1..33]), b64(&point[33..]));
        let key = json!({"kty": "EC", "kid": "k", "crv": "P-256", "x": x, "y": y});
        std::fs::write(path, json!({ "keys": [key] }).to_string()).unwrap();
    }

    fn token_of(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", b64(signature))
    }

    /// A token that holds but for `changes` of its claims.
    pub(crate) fn token(&self, subject: &str, changes: &Value) -> String {
        let mut claims =
            json!({"iss": ISSUER, "sub": subject, "aud": AUDIENCE, "exp": NOW + 300, "nbf": NOW});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.token_of(&json!({"alg": "ES256", "typ": "JWT", "kid": "k"}), &claims)
    }
}

/// Every value of `authorization` that proves nothing, by name.
pub(crate) fn bad_tokens(signer: &Signer) -> Vec<(&'static str, Vec<String>)> {
    let bearer = |token: String| vec![format!("Bearer {token}")];
    let good = signer.token("alice", &json!({}));
    let (message, signature) = good.rsplit_once('.').unwrap();
    let claims = message.split_once('.').unwrap().1;
    let unsigned = format!("{}.{claims}.", b64(json!({"alg": "none"}).to_string()));
    let shared = format!("{}.{claims}.{signature}", b64(json!({"alg": "HS256"}).to_string()));
    let other = Signer::new().token("alice", &json!({}));
    let swapped = format!("{message}.{}", other.rsplit_once('.').unwrap().1);
    vec![
        ("none", vec![]),
        ("empty", vec![String::new()]),
        ("garbage", bearer("garbage".to_owned())),
        ("another scheme", vec![format!("Basic {good}")]),
        ("twice", vec![format!("Bearer {good}"), format!("Bearer {good}")]),
        ("huge", bearer("x".repeat(9 << 10))),
        ("expired", bearer(signer.token("alice", &json!({"exp": NOW - 61})))),
        ("not yet valid", bearer(signer.token("alice", &json!({"nbf": NOW + 61})))),
        ("another's signature", bearer(swapped)),
        ("another's key", bearer(other)),
        ("another audience", bearer(signer.token("alice", &json!({"aud": "elsewhere"})))),
        ("another issuer", bearer(signer.token("alice", &json!({"iss": "https://evil.example"})))),
        ("nobody", bearer(signer.token("", &json!({})))),
        ("not signed", bearer(unsigned)),
        ("a shared key", bearer(shared)),
    ]
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct Certified {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Until when a certificate holds.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// For the host and the machine.
    Later,
    /// For the machine only.
    BeforeNow,
    /// For neither.
    Past,
}

/// Vouches for servers and clients.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, params: CertificateParams) -> Certified {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certified { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn server(&self) -> Certified {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        self.sign(params)
    }

    /// Of a client that is named by `uris`.
    pub(crate) fn client(&self, uris: &[&str], until: Until) -> Certified {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names =
            uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        match until {
            Until::Later => {}
            Until::BeforeNow => params.not_after = date_time_ymd(2090, 1, 1),
            Until::Past => {
                params.not_before = date_time_ymd(2001, 1, 1);
                params.not_after = date_time_ymd(2002, 1, 1);
            }
        }
        self.sign(params)
    }
}
