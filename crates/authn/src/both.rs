//! Tokens and certificates side by side.

use async_trait::async_trait;
use mainspring_api::{Authenticator, AuthnError, Credentials, Verified};

use crate::certificate::CertificateAuthenticator;
use crate::config::AuthnConfigError;
use crate::oidc::OidcAuthenticator;

/// Accepts tokens, certificates, or both.
///
/// A bearer token that was presented decides alone: one that does not hold is
/// never made up for by the certificate beside it.
#[derive(Debug)]
pub struct Authenticators {
    tokens: Option<OidcAuthenticator>,
    certificates: Option<CertificateAuthenticator>,
}

impl Authenticators {
    /// The ways that are there.
    ///
    /// # Errors
    /// [`AuthnConfigError::NoWay`] without any; [`AuthnConfigError::OneIssuer`]
    /// when both would give the same identities.
    pub fn new(
        tokens: Option<OidcAuthenticator>,
        certificates: Option<CertificateAuthenticator>,
    ) -> Result<Self, AuthnConfigError> {
        match (&tokens, &certificates) {
            (None, None) => return Err(AuthnConfigError::NoWay),
            (Some(tokens), Some(certificates))
                if tokens.issuer() == certificates.trust_domain() =>
            {
                return Err(AuthnConfigError::OneIssuer(tokens.issuer().to_owned()));
            }
            _ => {}
        }
        Ok(Self { tokens, certificates })
    }
}

#[async_trait]
impl Authenticator for Authenticators {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Verified, AuthnError> {
        match (&credentials.bearer, &credentials.certificate) {
            (Some(token), _) => match &self.tokens {
                Some(tokens) => tokens.bearer(token).await,
                None => Err(AuthnError::Unauthenticated("bearer tokens are not accepted here")),
            },
            (None, Some(der)) => match &self.certificates {
                Some(certificates) => certificates.certificate(der),
                None => {
                    Err(AuthnError::Unauthenticated("client certificates are not accepted here"))
                }
            },
            (None, None) => Err(AuthnError::Unauthenticated("no credential was presented")),
        }
    }
}
