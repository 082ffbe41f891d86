//! How tokens are checked, as a host configures it.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use reqwest::Url;
use serde::Deserialize;

use crate::fetch;

/// One OpenID provider, and what its tokens must say.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OidcConfig {
    /// Who issues the tokens: the `iss` of each, byte for byte.
    pub issuer: String,
    /// Whom tokens must be for: one of these must be in `aud`. At least one.
    pub audiences: Vec<String>,
    /// Where the issuer's keys are. Unless this or `jwks_file` is set, they are
    /// where the issuer's `/.well-known/openid-configuration` says.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// A file with the issuer's keys, read once, in the place of `jwks_url`.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// The algorithms that tokens may be signed with; `RS256`, `ES256` and
    /// `EdDSA` unless set. Those without a key, and those with a shared one,
    /// are not among the possible ones.
    #[serde(default = "algorithms")]
    pub algorithms: Vec<String>,
}

impl OidcConfig {
    /// Tokens of `issuer` for `audience`, with keys where the issuer says.
    #[must_use]
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: vec![audience.into()],
            jwks_url: None,
            jwks_file: None,
            algorithms: algorithms(),
        }
    }
}

fn algorithms() -> Vec<String> {
    ["RS256", "ES256", "EdDSA"].map(str::to_owned).into()
}

/// Why there is no authenticator. Names the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthnConfigError {
    /// A setting is left empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// Keys are to come from two places.
    #[error("jwks_url and jwks_file are both set")]
    TwoSources,
    /// An algorithm that tokens cannot be checked with, or must not be.
    #[error("algorithm {name:?} is not one of {}", ALGORITHMS.map(|(name, _)| name).join(", "))]
    Algorithm {
        /// What was asked for.
        name: String,
    },
    /// An address that is neither https nor on this machine, or that holds
    /// credentials or a fragment.
    #[error("{setting} is not usable: {reason}")]
    Address {
        /// Which one.
        setting: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file of keys cannot be used.
    #[error("jwks_file {path:?}: {reason}")]
    File {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no HTTP client.
    #[error("{0}")]
    Client(String),
    /// Tokens and certificates would have the same identities.
    #[error("the trust domain of certificates is the issuer of tokens: {0:?}")]
    OneIssuer(String),
    /// Neither tokens nor certificates are accepted.
    #[error("there is no way to authenticate")]
    NoWay,
}

/// Every algorithm that a configuration may name.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

impl OidcConfig {
    /// The algorithms, none of which is `none` or an HMAC.
    pub(crate) fn algorithms(&self) -> Result<Vec<Algorithm>, AuthnConfigError> {
        if self.algorithms.is_empty() {
            return Err(AuthnConfigError::Empty("algorithms"));
        }
        let find = |name: &String| {
            let found = ALGORITHMS.iter().find(|(known, _)| known == name);
            found
                .map(|(_, algorithm)| *algorithm)
                .ok_or_else(|| AuthnConfigError::Algorithm { name: name.clone() })
        };
        self.algorithms.iter().map(find).collect()
    }

    pub(crate) fn check(&self) -> Result<(), AuthnConfigError> {
        if self.issuer.is_empty() {
            return Err(AuthnConfigError::Empty("issuer"));
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            return Err(AuthnConfigError::Empty("audiences"));
        }
        if self.jwks_url.is_some() && self.jwks_file.is_some() {
            return Err(AuthnConfigError::TwoSources);
        }
        Ok(())
    }
}

/// An address that keys may come from.
pub(crate) fn address(setting: &'static str, text: &str) -> Result<Url, AuthnConfigError> {
    fetch::usable(text).map_err(|reason| AuthnConfigError::Address { setting, reason })
}
