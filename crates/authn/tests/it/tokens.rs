//! Which tokens hold.

use mainspring_api::Timestamp;
use mainspring_authn::{OidcAuthenticator, OidcConfig};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
};
use serde_json::{Value, json};

use crate::support::{
    AUDIENCE, Issuer, Key, NOW, assert_refused, authenticator, b64, claims, clock, message, present,
};

#[tokio::test]
async fn each_kind_of_key_gives_issuer_subject_and_expiry() {
    for key in [Key::rsa(), Key::ec(), Key::ed()] {
        let issuer = Issuer::start(&[key.jwk("k1")]).await;
        let authenticator = authenticator(&issuer);
        let verified = present(&authenticator, key.token("k1", &claims(&json!({})))).await.unwrap();
        assert_eq!(verified.identity.issuer, "https://issuer.example");
        assert_eq!(verified.identity.subject, "alice");
        // As long as the token holds, and so with the leeway.
        assert_eq!(verified.expires, Some(Timestamp { seconds: NOW + 360, nanos: 0 }));
    }
}

/// What is configured beyond the defaults is checked as well, and only when it is configured.
#[tokio::test]
async fn other_algorithms_are_accepted_where_they_are_configured() {
    let (rsa, rng) = (Key::rsa(), SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &rng).unwrap();
    let p384 =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, pkcs8.as_ref(), &rng).unwrap();
    let point = p384.public_key().as_ref();
    let (x, y) = (b64(&point[1..49]), b64(&point[49..]));
    let ec = json!({"kty": "EC", "kid": "ES384", "crv": "P-384", "x": x, "y": y});
    let issuer = Issuer::start(&[rsa.jwk("rsa"), ec]).await;

    let Key::Rsa(pair) = &rsa else { unreachable!() };
    let by_rsa = |how: &'static dyn RsaEncoding, message: &str| {
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(how, &rng, message.as_bytes(), &mut signature).unwrap();
        signature
    };
    type Sign<'a> = Box<dyn Fn(&str) -> Vec<u8> + 'a>;
    let cases: [(&str, &str, Sign<'_>); 6] = [
        ("RS384", "rsa", Box::new(|message| by_rsa(&RSA_PKCS1_SHA384, message))),
        ("RS512", "rsa", Box::new(|message| by_rsa(&RSA_PKCS1_SHA512, message))),
        ("PS256", "rsa", Box::new(|message| by_rsa(&RSA_PSS_SHA256, message))),
        ("PS384", "rsa", Box::new(|message| by_rsa(&RSA_PSS_SHA384, message))),
        ("PS512", "rsa", Box::new(|message| by_rsa(&RSA_PSS_SHA512, message))),
        (
            "ES384",
            "ES384",
            Box::new(|message| p384.sign(&rng, message.as_bytes()).unwrap().as_ref().to_vec()),
        ),
    ];
    for (algorithm, kid, sign) in &cases {
        let message =
            message(&json!({"alg": algorithm, "kid": kid}), &claims(&json!({})).to_string());
        let token = format!("{message}.{}", b64(sign(&message)));
        let mut config = OidcConfig::new("https://issuer.example", AUDIENCE);
        config.jwks_url = Some(format!("{}/keys", issuer.url));
        let by_default = OidcAuthenticator::new(config.clone(), clock()).unwrap();
        assert_refused(present(&by_default, token.clone()).await, algorithm);
        config.algorithms = vec![(*algorithm).to_owned()];
        let configured = OidcAuthenticator::new(config, clock()).unwrap();
        present(&configured, token).await.unwrap();
        let default = rsa.token("rsa", &claims(&json!({})));
        assert_refused(present(&configured, default).await, "RS256 is not configured");
    }
}

#[tokio::test]
async fn a_token_holds_only_with_claims_that_say_so() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let cases = [
        (true, json!({"aud": ["other", AUDIENCE]})),
        (true, json!({"sub": "a\u{0}b \u{e9}"})),
        (true, json!({"exp": NOW - 59})),
        (true, json!({"exp": 1_800_000_300.5})),
        (true, json!({"nbf": NOW + 60})),
        (true, json!({"groups": [1, {"a": null}]})),
        (false, json!({"exp": NOW - 60})),
        (false, json!({"exp": NOW - 61})),
        (false, json!({"exp": null})),
        (false, json!({"exp": "1900000000"})),
        (false, json!({"exp": -1})),
        (false, json!({"exp": 1e300})),
        (false, json!({"exp": u64::MAX})),
        (false, json!({"nbf": NOW + 61})),
        (false, json!({"nbf": "now"})),
        (false, json!({"aud": null})),
        (false, json!({"aud": "other"})),
        (false, json!({"aud": []})),
        (false, json!({"aud": "Mainspring"})),
        (false, json!({"aud": [AUDIENCE, 1]})),
        (false, json!({"iss": null})),
        (false, json!({"iss": "https://other.example"})),
        (false, json!({"iss": "https://issuer.example/"})),
        (false, json!({"iss": ["https://issuer.example"]})),
        (false, json!({"sub": null})),
        (false, json!({"sub": ""})),
        (false, json!({"sub": 7})),
        (false, json!({"sub": ["alice"]})),
    ];
    for (holds, changes) in cases {
        let answer = present(&authenticator, key.token("k1", &claims(&changes))).await;
        match holds {
            true => drop(answer.unwrap_or_else(|error| panic!("{changes}: {error}"))),
            false => assert_refused(answer, &changes.to_string()),
        }
    }
}

#[tokio::test]
async fn a_claim_that_comes_twice_is_refused() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let once = claims(&json!({})).to_string();
    let twice = format!("{{\"sub\":\"root\",{}", &once[1..]);
    let header = json!({"alg": "EdDSA", "kid": "k1"});
    for (claims, holds) in [(once, true), (twice, false)] {
        let message = message(&header, &claims);
        let token = format!("{message}.{}", b64(key.sign(message.as_bytes())));
        assert_eq!(present(&authenticator, token).await.is_ok(), holds);
    }
}

#[tokio::test]
async fn the_signature_and_its_algorithm_are_the_issuers() {
    let (rsa, ed) = (Key::rsa(), Key::ed());
    let jwk = rsa.jwk("k1");
    let issuer = Issuer::start(&[jwk.clone(), ed.jwk("k2")]).await;
    let authenticator = authenticator(&issuer);
    let claims = claims(&json!({}));
    let good = rsa.token("k1", &claims);
    present(&authenticator, good.clone()).await.unwrap();

    let (signed, signature) = good.rsplit_once('.').unwrap();
    let unsigned = |alg: &str| message(&json!({"alg": alg, "kid": "k1"}), &claims.to_string());
    // The public key as a shared secret, in each form that it is known in.
    let with_public_key = |secret: &[u8]| {
        let message = unsigned("HS256");
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        format!("{message}.{}", b64(hmac::sign(&secret, message.as_bytes())))
    };
    let mut other_claims = claims.clone();
    other_claims["sub"] = json!("root");
    let swapped = message(&json!({"alg": "RS256", "kid": "k1"}), &other_claims.to_string());
    let n = jwk["n"].as_str().unwrap();
    let cases = [
        ("no signature", format!("{signed}.")),
        ("none", format!("{}.", unsigned("none"))),
        ("none, signed", format!("{}.{signature}", unsigned("none"))),
        ("HS256 with the modulus", with_public_key(n.as_bytes())),
        ("HS256 with the key set", with_public_key(jwk.to_string().as_bytes())),
        ("other claims", format!("{swapped}.{signature}")),
        ("another key's", Key::ed().token("k2", &claims)),
        ("another key id", ed.token("k1", &claims)),
        ("another algorithm of the family", {
            let header = json!({"alg": "RS512", "kid": "k1"});
            rsa.token_of(&header, &claims)
        }),
        ("a critical extension", {
            let header = json!({"alg": "EdDSA", "kid": "k2", "crit": ["exp"], "exp": 1});
            ed.token_of(&header, &claims)
        }),
    ];
    for (case, token) in cases {
        assert_refused(present(&authenticator, token).await, case);
    }
    assert_eq!(issuer.fetches(), 1, "none of these is worth another look");
}

#[tokio::test]
async fn what_is_no_token_or_a_huge_one_is_refused_without_asking() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let huge = key.token("k1", &claims(&json!({"x": "y".repeat(16 << 10)})));
    let texts =
        ["", ".", "..", "...", "a.b", "a.b.c", "e30.e30.e30", "\u{0}", "Bearer x", huge.as_str()];
    for text in texts {
        assert_refused(present(&authenticator, text).await, &text[..text.len().min(20)]);
    }
    assert_eq!(issuer.fetches(), 0);
    let near = key.token("k1", &claims(&json!({"x": "y".repeat(10 << 10)})));
    present(&authenticator, near).await.unwrap();
}

#[tokio::test]
async fn only_keys_for_signatures_of_sound_size_count() {
    let (rsa, ed) = (Key::rsa(), Key::ed());
    let changed = |mut jwk: Value, name: &str, value: Value| {
        jwk[name] = value;
        jwk
    };
    let cases = [
        ("for encryption", &rsa, changed(rsa.jwk("k1"), "use", json!("enc"))),
        ("for signing alone", &rsa, changed(rsa.jwk("k1"), "key_ops", json!(["sign"]))),
        ("for another algorithm", &rsa, changed(rsa.jwk("k1"), "alg", json!("PS256"))),
        ("of another curve", &ed, changed(ed.jwk("k1"), "crv", json!("P-256"))),
        ("too short", &ed, changed(ed.jwk("k1"), "x", json!(b64([1; 31])))),
        ("small", &rsa, changed(rsa.jwk("k1"), "n", json!(b64([0xff; 128])))),
        ("shared", &ed, json!({"kty": "oct", "kid": "k1", "k": b64("secret")})),
        ("unknown", &ed, json!({"kty": "PQC", "kid": "k1"})),
        ("no key", &ed, json!(7)),
    ];
    for (case, key, jwk) in cases {
        let spare = Key::ec();
        let issuer = Issuer::start(&[jwk, spare.jwk("spare")]).await;
        let authenticator = authenticator(&issuer);
        let answer = present(&authenticator, key.token("k1", &claims(&json!({})))).await;
        assert_refused(answer, case);
        let spared = present(&authenticator, spare.token("spare", &claims(&json!({})))).await;
        assert!(spared.is_ok(), "{case} spoils the others");
    }
}

#[tokio::test]
async fn a_token_that_names_no_key_means_the_only_one_that_fits() {
    let (ec, ed) = (Key::ec(), Key::ed());
    let issuer = Issuer::start(&[ec.jwk("a"), ed.jwk("b")]).await;
    let one_each = authenticator(&issuer);
    let token = ed.token_of(&json!({"alg": "EdDSA"}), &claims(&json!({})));
    present(&one_each, token.clone()).await.unwrap();
    issuer.publish(&[ed.jwk("b"), Key::ed().jwk("c")]);
    assert_refused(present(&authenticator(&issuer), token).await, "two fit");
}

#[tokio::test]
async fn nothing_of_a_token_is_shown() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let authenticator = authenticator(&issuer);
    let token = key.token("k1", &claims(&json!({"sub": "mallory", "aud": "elsewhere"})));
    let error = present(&authenticator, token.clone()).await.unwrap_err();
    let shown = format!("{error} {error:?} {authenticator:?}");
    for part in token.split('.').chain(["mallory", "elsewhere"]) {
        assert!(!shown.contains(part), "{shown}");
    }
}
