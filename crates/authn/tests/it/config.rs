//! What is refused before anything is asked.

use mainspring_authn::{AuthnConfigError, OidcAuthenticator, OidcConfig};
use serde_json::json;

use crate::support::{AUDIENCE, Key, assert_refused, claims, clock, jwks, present};

fn refused(change: impl FnOnce(&mut OidcConfig)) -> AuthnConfigError {
    let mut config = OidcConfig::new("https://issuer.example", AUDIENCE);
    change(&mut config);
    OidcAuthenticator::new(config, clock()).unwrap_err()
}

#[test]
fn a_setting_that_cannot_be_is_named() {
    use AuthnConfigError as E;
    assert_eq!(refused(|c| c.issuer.clear()), E::Empty("issuer"));
    assert_eq!(refused(|c| c.audiences.clear()), E::Empty("audiences"));
    assert_eq!(refused(|c| c.audiences.push(String::new())), E::Empty("audiences"));
    assert_eq!(refused(|c| c.algorithms.clear()), E::Empty("algorithms"));
    assert_eq!(
        refused(|c| {
            c.jwks_url = Some("https://a.example".to_owned());
            c.jwks_file = Some("x".into());
        }),
        E::TwoSources
    );
    for name in ["none", "None", "HS256", "HS512", "rs256", ""] {
        let error = refused(|c| c.algorithms.push(name.to_owned()));
        assert_eq!(error, E::Algorithm { name: name.to_owned() });
    }
}

#[test]
fn keys_come_over_tls_or_from_this_machine() {
    for url in [
        "http://issuer.example/keys",
        "http://10.0.0.1/keys",
        "ftp://127.0.0.1/keys",
        "file:///keys",
        "keys",
        "https://user:secret@issuer.example/keys",
        "https://issuer.example/keys#k1",
    ] {
        let error = refused(|c| c.jwks_url = Some(url.to_owned()));
        assert!(
            matches!(error, AuthnConfigError::Address { setting: "jwks_url", .. }),
            "{url}: {error}"
        );
        assert!(!error.to_string().contains("secret"));
    }
    let error = refused(|c| c.issuer = "http://issuer.example".to_owned());
    assert!(matches!(error, AuthnConfigError::Address { setting: "issuer", .. }), "{error}");
    for url in ["https://issuer.example/keys", "http://localhost:9/k", "http://[::1]:9/k"] {
        let mut config = OidcConfig::new("an issuer", AUDIENCE);
        config.jwks_url = Some(url.to_owned());
        OidcAuthenticator::new(config, clock()).unwrap();
    }
}

#[tokio::test]
async fn keys_of_a_file_serve_without_an_issuer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.json");
    let key = Key::ec();
    let mut config = OidcConfig::new("https://issuer.example", AUDIENCE);
    config.jwks_file = Some(path.clone());
    let open = || OidcAuthenticator::new(config.clone(), clock());
    assert!(matches!(open(), Err(AuthnConfigError::File { .. })), "it is not there");
    for (text, reason) in [("{", "it is no set of keys"), (r#"{"keys":[]}"#, "it has no key")] {
        std::fs::write(&path, text).unwrap();
        let Err(AuthnConfigError::File { reason: found, .. }) = open() else { panic!("{text}") };
        assert!(found.starts_with(reason), "{found}");
    }
    std::fs::write(&path, jwks(&[key.jwk("k1")])).unwrap();
    let authenticator = open().unwrap();
    present(&authenticator, key.token("k1", &claims(&json!({})))).await.unwrap();
    let unknown = present(&authenticator, key.token("k2", &claims(&json!({})))).await;
    assert_refused(unknown, "a file has no further keys");
}

#[test]
fn a_configuration_is_read_with_its_defaults_and_nothing_unknown() {
    let text = r#"{"issuer":"https://issuer.example","audiences":["mainspring"]}"#;
    let config: OidcConfig = serde_json::from_str(text).unwrap();
    assert_eq!(config, OidcConfig::new("https://issuer.example", "mainspring"));
    assert_eq!(config.algorithms, ["RS256", "ES256", "EdDSA"]);
    let unknown = text.replace('}', r#","leeway":900}"#);
    assert!(serde_json::from_str::<OidcConfig>(&unknown).is_err());
}
