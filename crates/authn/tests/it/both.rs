//! Tokens and certificates side by side.

use mainspring_api::{Authenticator as _, AuthnError, Credentials, Secret, Verified};
use mainspring_authn::{
    Authenticators, AuthnConfigError, CertificateAuthenticator, OidcAuthenticator, OidcConfig,
};
use serde_json::json;

use crate::certificates::certificate;
use crate::support::{AUDIENCE, Issuer, Key, authenticator, claims, clock};

#[tokio::test]
async fn a_bearer_that_was_presented_decides_alone() {
    let key = Key::ed();
    let issuer = Issuer::start(&[key.jwk("k1")]).await;
    let certificates = || CertificateAuthenticator::new("mesh.example", clock()).unwrap();
    let both = Authenticators::new(Some(authenticator(&issuer)), Some(certificates())).unwrap();
    let tokens = Authenticators::new(Some(authenticator(&issuer)), None).unwrap();
    let certificates = Authenticators::new(None, Some(certificates())).unwrap();
    let good = key.token("k1", &claims(&json!({})));
    let bad = key.token("k1", &claims(&json!({"aud": "elsewhere"})));
    let (alice, agent) = (Some("alice"), Some("spiffe://mesh.example/agent"));
    let cases = [
        (&both, Some(&good), true, alice),
        (&both, Some(&good), false, alice),
        (&both, Some(&bad), true, None),
        (&both, None, true, agent),
        (&both, None, false, None),
        (&tokens, Some(&good), true, alice),
        (&tokens, None, true, None),
        (&certificates, None, true, agent),
        (&certificates, Some(&good), true, None),
        (&certificates, Some(&bad), true, None),
    ];
    for (number, (authenticators, bearer, has_certificate, expected)) in
        cases.into_iter().enumerate()
    {
        let credentials = Credentials {
            bearer: bearer.map(|token| Secret::new(token.clone())),
            certificate: has_certificate
                .then(|| certificate(&["spiffe://mesh.example/agent"], &[])),
        };
        let found = match authenticators.authenticate(&credentials).await {
            Ok(Verified { identity, .. }) => Some(identity.subject),
            Err(AuthnError::Unauthenticated(_)) => None,
            Err(error) => panic!("{number}: {error:?}"),
        };
        assert_eq!(found.as_deref(), expected, "case {number}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_checked_is_not_made_up_for() {
    let issuer = Issuer::start(&[]).await;
    issuer.answer_with(axum::http::StatusCode::BAD_GATEWAY, &[], "");
    let certificates = CertificateAuthenticator::new("mesh.example", clock()).unwrap();
    let both = Authenticators::new(Some(authenticator(&issuer)), Some(certificates)).unwrap();
    let credentials = Credentials {
        bearer: Some(Secret::new(Key::ed().token("k1", &claims(&json!({}))))),
        certificate: Some(certificate(&["spiffe://mesh.example/agent"], &[])),
    };
    let answer = both.authenticate(&credentials).await;
    assert!(matches!(answer, Err(AuthnError::Unavailable(_))), "{answer:?}");
}

#[test]
fn the_two_ways_never_merge() {
    let of = |issuer: &str| {
        let config = OidcConfig::new(issuer, AUDIENCE);
        OidcAuthenticator::new(config, clock()).unwrap()
    };
    let certificates = |domain: &str| CertificateAuthenticator::new(domain, clock()).unwrap();
    let one = "https://one.example";
    let error = Authenticators::new(Some(of(one)), Some(certificates(one))).unwrap_err();
    assert_eq!(error, AuthnConfigError::OneIssuer(one.to_owned()));
    Authenticators::new(Some(of(one)), Some(certificates("mesh.example"))).unwrap();
    assert_eq!(Authenticators::new(None, None).unwrap_err(), AuthnConfigError::NoWay);
}
