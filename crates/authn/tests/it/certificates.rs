//! Whom client certificates name.

use mainspring_api::{Authenticator as _, AuthnError, Bytes, Credentials, Timestamp, Verified};
use mainspring_authn::{AuthnConfigError, CERTIFICATE_BYTES_MAX, CertificateAuthenticator};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, date_time_ymd};

use crate::support::clock;

/// A certificate with these alternative names and this distinguished name.
pub(crate) fn certificate(uris: &[&str], name: &[(DnType, &str)]) -> Bytes {
    made(|params| {
        let uri = |uri: &&str| SanType::URI((*uri).try_into().unwrap());
        params.subject_alt_names.extend(uris.iter().map(uri));
        for (kind, value) in name {
            params.distinguished_name.push(kind.clone(), *value);
        }
    })
}

fn made(change: impl FnOnce(&mut CertificateParams)) -> Bytes {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 1);
    change(&mut params);
    Bytes::copy_from_slice(params.self_signed(&key).unwrap().der())
}

async fn read(der: Bytes) -> Result<Verified, AuthnError> {
    let authenticator = CertificateAuthenticator::new("mesh.example", clock()).unwrap();
    authenticator.authenticate(&Credentials { bearer: None, certificate: Some(der) }).await
}

async fn subject(der: Bytes) -> Option<String> {
    match read(der).await {
        Ok(verified) => {
            assert_eq!(verified.identity.issuer, "mesh.example");
            // 2030-01-01T00:00:00Z.
            let expires = Timestamp { seconds: 1_893_456_000, nanos: 0 };
            assert_eq!(verified.expires, Some(expires));
            Some(verified.identity.subject)
        }
        Err(AuthnError::Unauthenticated(_)) => None,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn the_subject_is_the_only_uri_or_else_the_whole_name() {
    let (spiffe, other) = ("spiffe://mesh.example/agent", "https://mesh.example/x");
    let name = [
        (DnType::CountryName, "NO"),
        (DnType::OrganizationName, "Widgets, Inc."),
        (DnType::CommonName, "alice"),
    ];
    type Case<'a> = (&'a [&'a str], &'a [(DnType, &'a str)], Option<&'a str>);
    let cases: [Case<'_>; 7] = [
        (&[spiffe], &[], Some(spiffe)),
        (&[spiffe], &name, Some(spiffe)),
        (&[], &name, Some("CN=alice,O=Widgets\\, Inc.,C=NO")),
        (&[spiffe, other], &name, None),
        (&[spiffe, spiffe], &[], None),
        (&[], &[], None),
        // It would be the subject of a certificate with that name.
        (&["CN=alice"], &[], None),
    ];
    for (uris, name, expected) in cases {
        let found = subject(certificate(uris, name)).await;
        assert_eq!(found.as_deref(), expected, "{uris:?} {name:?}");
    }
}

#[tokio::test]
async fn other_alternative_names_do_not_count() {
    let der = made(|params| {
        params.subject_alt_names.push(SanType::DnsName("alice.example".try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name("a@b.example".try_into().unwrap()));
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    });
    assert_eq!(subject(der).await, None, "they are no subject");
}

#[tokio::test]
async fn names_that_could_be_taken_for_others_differ() {
    let one = certificate(&[], &[(DnType::CommonName, "a,O=b")]);
    let two = certificate(&[], &[(DnType::OrganizationName, "b"), (DnType::CommonName, "a")]);
    let (one, two) = (subject(one).await.unwrap(), subject(two).await.unwrap());
    assert_eq!((one.as_str(), two.as_str()), ("CN=a\\,O=b", "CN=a,O=b"));
}

#[tokio::test]
async fn a_certificate_that_has_run_out_since_is_refused() {
    let der = made(|params| {
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.not_after = date_time_ymd(2026, 12, 31);
    });
    assert!(matches!(read(der).await, Err(AuthnError::Unauthenticated(_))));
}

#[tokio::test]
async fn what_is_no_certificate_is_refused() {
    let whole = certificate(&["spiffe://mesh.example/a"], &[]);
    let mut long = whole.to_vec();
    long.push(0);
    for der in [
        Bytes::new(),
        Bytes::from_static(b"not DER"),
        whole.slice(..whole.len() - 1),
        Bytes::from(long),
        Bytes::from(vec![0x30; CERTIFICATE_BYTES_MAX + 1]),
    ] {
        assert_eq!(subject(der).await, None);
    }
}

#[test]
fn a_trust_domain_has_a_name() {
    let error = CertificateAuthenticator::new("", clock()).unwrap_err();
    assert_eq!(error, AuthnConfigError::Empty("trust_domain"));
}
