//! Who calls.
//!
//! - [`OidcAuthenticator`] checks bearer tokens of one OpenID provider against
//!   its published keys.
//! - [`CertificateAuthenticator`] reads a client certificate that the transport
//!   has verified.
//! - [`Authenticators`] is both: a bearer token that was presented decides
//!   alone.
//!
//! An identity is the pair of who vouches and for whom, byte for byte. The two
//! ways never merge: a trust domain that is also the issuer of tokens is refused.
//!
//! ```
//! use std::sync::Arc;
//! use mainspring_api::SystemClock;
//! use mainspring_authn::{Authenticators, CertificateAuthenticator, OidcAuthenticator, OidcConfig};
//!
//! let clock = Arc::new(SystemClock);
//! let mut config = OidcConfig::new("https://id.example", "mainspring");
//! config.jwks_url = Some("http://127.0.0.1:9000/keys".to_owned());
//! let tokens = OidcAuthenticator::new(config, clock.clone())?;
//! let certificates = CertificateAuthenticator::new("mesh.example", clock)?;
//! let authenticators = Authenticators::new(Some(tokens), Some(certificates))?;
//! # drop(authenticators);
//! # Ok::<(), mainspring_authn::AuthnConfigError>(())
//! ```
//!
//! What is not done here: issuing or renewing credentials, token introspection,
//! revocation lists.

mod both;
mod certificate;
mod claims;
mod config;
mod crypto;
mod fetch;
mod jwks;
mod keys;
mod oidc;

pub use both::Authenticators;
pub use certificate::{CERTIFICATE_BYTES_MAX, CertificateAuthenticator};
pub use config::{AuthnConfigError, OidcConfig};
pub use fetch::{DOCUMENT_BYTES_MAX, FETCH_MAX};
pub use jwks::{JWKS_AGE_MAX, JWKS_STALE_MAX, REFETCH_EVERY};
pub use keys::JWKS_KEYS_MAX;
pub use oidc::{LEEWAY, OidcAuthenticator, TOKEN_BYTES_MAX};
