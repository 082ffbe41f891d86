//! Client certificates.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_api::{
    Authenticator, AuthnError, CallerIdentity, Clock, Credentials, Timestamp, Verified,
};
use reqwest::Url;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::config::AuthnConfigError;

/// The bytes that a certificate may have.
pub const CERTIFICATE_BYTES_MAX: usize = 64 << 10;

const BAD: AuthnError = AuthnError::Unauthenticated("the client certificate names nobody");

/// Reads client certificates that the transport has verified.
///
/// The issuer of the identity is the configured trust domain: what stands in
/// the certificate says for whom, never who vouches. The subject is the
/// certificate's only URI among its alternative names, or else its whole
/// distinguished name as RFC 4514 writes it; no text is both. The identity
/// expires with the certificate.
#[derive(Debug)]
pub struct CertificateAuthenticator {
    trust_domain: String,
    clock: Arc<dyn Clock>,
}

impl CertificateAuthenticator {
    /// An authenticator whose identities are of `trust_domain`.
    ///
    /// # Errors
    /// [`AuthnConfigError::Empty`].
    pub fn new(
        trust_domain: impl Into<String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuthnConfigError> {
        let trust_domain = trust_domain.into();
        if trust_domain.is_empty() {
            return Err(AuthnConfigError::Empty("trust_domain"));
        }
        Ok(Self { trust_domain, clock })
    }

    /// Who vouches.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// The identity behind a certificate, which is DER.
    ///
    /// # Errors
    /// `Unauthenticated`: it cannot be read, has run out, has several URIs, or
    /// has neither a URI nor a distinguished name.
    pub fn certificate(&self, der: &[u8]) -> Result<Verified, AuthnError> {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(BAD);
        }
        let certificate = Certificate::from_der(der).map_err(|_| BAD)?;
        let certificate = certificate.tbs_certificate();
        let expires = certificate.validity().not_after.to_unix_duration().as_secs();
        let expires = Timestamp { seconds: i64::try_from(expires).map_err(|_| BAD)?, nanos: 0 };
        // It held when the connection was made, which may be long ago.
        if expires < self.clock.now() {
            return Err(AuthnError::Unauthenticated("the client certificate has run out"));
        }
        let names = certificate.get_extension::<SubjectAltName>().map_err(|_| BAD)?;
        let names = names.map(|(_, names)| names.0).unwrap_or_default();
        let mut uris = names.iter().filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str()),
            _ => None,
        });
        let subject = match (uris.next(), uris.next()) {
            // With a scheme it cannot be read as a distinguished name.
            (Some(uri), None) if Url::parse(uri).is_ok() => uri.to_owned(),
            (None, None) if !certificate.subject().is_empty() => certificate.subject().to_string(),
            _ => return Err(BAD),
        };
        let identity = CallerIdentity { issuer: self.trust_domain.clone(), subject };
        Ok(Verified { identity, expires: Some(expires) })
    }
}

#[async_trait]
impl Authenticator for CertificateAuthenticator {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Verified, AuthnError> {
        match &credentials.certificate {
            Some(der) => self.certificate(der),
            None => Err(AuthnError::Unauthenticated("no client certificate was presented")),
        }
    }
}
