//! Bearer tokens of an OpenID provider.

use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use mainspring_api::{
    Authenticator, AuthnError, CallerIdentity, Clock, Credentials, Secret, Verified,
};

use crate::claims::{Accepted, Claims};
use crate::config::{AuthnConfigError, OidcConfig, address};
use crate::crypto;
use crate::fetch::{DOCUMENT_BYTES_MAX, Fetcher, Source, discovery_url};
use crate::jwks::{Cache, Keys};
use crate::keys::{Found, KeySet};

/// By how much the issuer's clock may differ.
pub const LEEWAY: Duration = Duration::from_secs(60);

/// The bytes that a token may have.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// All that is said of a token that does not hold.
const BAD: AuthnError = AuthnError::Unauthenticated("the bearer token does not hold");

/// Checks the tokens of one issuer.
///
/// A token must be signed with one of the configured algorithms and a key of
/// the issuer, and must have `iss`, `sub`, `aud` and `exp`. The identity is
/// (`iss`, `sub`), and it expires [`LEEWAY`] after the token's `exp`, when the
/// token does, too. Keys are got when they are first needed; see
/// [`REFETCH_EVERY`](crate::REFETCH_EVERY),
/// [`JWKS_AGE_MAX`](crate::JWKS_AGE_MAX) and
/// [`JWKS_STALE_MAX`](crate::JWKS_STALE_MAX). A token that names no key is
/// checked with the one key that fits its algorithm; when that key or any other
/// does not fit, the keys are asked for once more.
pub struct OidcAuthenticator {
    config: OidcConfig,
    algorithms: Vec<Algorithm>,
    keys: Keys,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for OidcAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcAuthenticator").field("config", &self.config).finish_non_exhaustive()
    }
}

impl OidcAuthenticator {
    /// An authenticator. Connects to nothing yet.
    ///
    /// # Errors
    /// [`AuthnConfigError`], naming the setting.
    pub fn new(config: OidcConfig, clock: Arc<dyn Clock>) -> Result<Self, AuthnConfigError> {
        config.check()?;
        let algorithms = config.algorithms()?;
        let keys = match (&config.jwks_file, &config.jwks_url) {
            (Some(path), _) => Keys::Fixed(Arc::new(read(path)?)),
            (None, Some(url)) => fetched(Source::Url(address("jwks_url", url)?))?,
            (None, None) => {
                let document = address("issuer", &discovery_url(&config.issuer))?;
                fetched(Source::Discovered { document, issuer: config.issuer.clone() })?
            }
        };
        crypto::install();
        Ok(Self { config, algorithms, keys, clock })
    }

    /// Who issues the tokens.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.config.issuer
    }

    /// The identity behind a token.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    pub async fn bearer(&self, token: &Secret) -> Result<Verified, AuthnError> {
        let token = token.expose();
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused("size"));
        }
        let header = decode_header(token).map_err(|_| refused("form"))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(refused("algorithm"));
        }
        let id = header.kid.as_deref();
        let cannot_tell = || AuthnError::Unavailable("the issuer's keys cannot be had");
        let known = self.keys.known();
        let mut checked = self.checked(token, id, header.alg, known.keys.as_deref());
        if matches!(checked, Err(Unaccepted::NoKey)) {
            let known = self.keys.fresh().await;
            if known.keys.is_none() {
                return Err(cannot_tell());
            }
            checked = self.checked(token, id, header.alg, known.keys.as_deref());
            if known.failed && matches!(checked, Err(Unaccepted::NoKey)) {
                return Err(cannot_tell());
            }
        }
        let Accepted { subject, expires } = checked.map_err(|unaccepted| match unaccepted {
            Unaccepted::NoKey => refused("unknown key"),
            Unaccepted::Bad(check) => refused(check),
        })?;
        let identity = CallerIdentity { issuer: self.config.issuer.clone(), subject };
        Ok(Verified { identity, expires: Some(expires) })
    }

    /// Whom a token is about, by the keys that are known.
    fn checked(
        &self,
        token: &str,
        id: Option<&str>,
        algorithm: Algorithm,
        keys: Option<&KeySet>,
    ) -> Result<Accepted, Unaccepted> {
        let key = match keys.map_or(Found::Unknown, |keys| keys.find(id, algorithm)) {
            Found::Key(key) => key,
            Found::Unfit => return Err(Unaccepted::Bad("key")),
            Found::Unknown => return Err(Unaccepted::NoKey),
        };
        // The claims are checked below, by the host's clock and strictly.
        let mut signature_only = Validation::new(algorithm);
        signature_only.required_spec_claims.clear();
        signature_only.validate_exp = false;
        signature_only.validate_nbf = false;
        signature_only.validate_aud = false;
        let claims = match decode::<Claims>(token, key, &signature_only) {
            Ok(decoded) => decoded.claims,
            // Who names no key may have meant one that is not here yet.
            Err(error) if id.is_none() && *error.kind() == ErrorKind::InvalidSignature => {
                return Err(Unaccepted::NoKey);
            }
            Err(_) => return Err(Unaccepted::Bad("signature or claims")),
        };
        let leeway = LEEWAY.as_secs().cast_signed();
        claims
            .check(&self.config.issuer, &self.config.audiences, self.clock.now(), leeway)
            .map_err(Unaccepted::Bad)
    }
}

/// Why a token is not accepted.
#[derive(Debug)]
enum Unaccepted {
    /// The key that it was signed with is not known; it may be elsewhere.
    NoKey,
    /// A check failed.
    Bad(&'static str),
}

#[async_trait]
impl Authenticator for OidcAuthenticator {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Verified, AuthnError> {
        match &credentials.bearer {
            Some(token) => self.bearer(token).await,
            None => Err(AuthnError::Unauthenticated("no bearer token was presented")),
        }
    }
}

/// The caller learns that a token does not hold; which check it was is for the
/// host's own log.
fn refused(check: &'static str) -> AuthnError {
    tracing::debug!(check, "bearer token refused");
    BAD
}

fn fetched(source: Source) -> Result<Keys, AuthnConfigError> {
    Ok(Keys::Fetched(Cache::new(Fetcher::new(source)?)))
}

/// The keys of a file.
fn read(path: &Path) -> Result<KeySet, AuthnConfigError> {
    let failed = |reason: String| AuthnConfigError::File { path: path.to_owned(), reason };
    let mut document = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let most = u64::try_from(DOCUMENT_BYTES_MAX).unwrap_or(u64::MAX);
    let read = file.take(most + 1).read_to_end(&mut document);
    read.map_err(|error| failed(error.to_string()))?;
    if document.len() > DOCUMENT_BYTES_MAX {
        return Err(failed("it is over 512 KiB (DOCUMENT_BYTES_MAX)".to_owned()));
    }
    let keys = KeySet::parse(&document).map_err(|reason| failed(reason.to_owned()))?;
    if keys.is_empty() {
        return Err(failed("it has no key that tokens can be checked with".to_owned()));
    }
    Ok(keys)
}
