//! The parts of a server that know its callers: each is made in one place.

use std::sync::Arc;

use mainspring::api::{Authenticator, Authorizer};
use mainspring::transport_grpc::{ClientAuth, ServerTls, ServerTlsFiles};

use crate::config::{self, Config};
use crate::error::CliError;

/// The certificates to serve with, as `[tls]` says.
///
/// # Errors
/// A file that cannot be used, by its path.
pub(super) fn tls(config: &Config) -> Result<Option<ServerTls>, CliError> {
    let tls = &config.tls;
    let (Some(certificate), Some(key)) = (tls.certificate.clone(), tls.key.clone()) else {
        return Ok(None);
    };
    let client_auth = match (&tls.client_ca, tls.client_auth) {
        (None, _) => ClientAuth::None,
        (Some(_), config::ClientAuth::Optional) => ClientAuth::Optional,
        (Some(_), config::ClientAuth::Required) => ClientAuth::Required,
    };
    let files = ServerTlsFiles { certificate, key, client_ca: tls.client_ca.clone(), client_auth };
    let loaded = ServerTls::load(files);
    Ok(Some(loaded.map_err(|error| CliError::usage(mainspring::api::report(&error)))?))
}

/// Who callers are, as `[authn]` says.
///
/// # Errors
/// What is set up wrongly, or not in this build, by its name.
#[cfg(feature = "authn")]
pub(super) fn authenticator(config: &Config) -> Result<Option<Arc<dyn Authenticator>>, CliError> {
    use mainspring::api::{Clock, SystemClock};
    use mainspring::authn::{
        Authenticators, CertificateAuthenticator, OidcAuthenticator, OidcConfig,
    };
    let clock = || Arc::new(SystemClock) as Arc<dyn Clock>;
    let refuse = |error: mainspring::authn::AuthnConfigError| {
        CliError::usage(format!("authn: {}", mainspring::api::report(&error)))
    };
    let (oidc, mtls) = (&config.authn.oidc, &config.authn.mtls);
    if oidc.is_none() && mtls.is_none() {
        return Ok(None);
    }
    let tokens = oidc.as_ref().map(|oidc| {
        let mut issuer = OidcConfig::new(oidc.issuer.clone().unwrap_or_default(), "");
        issuer.audiences.clone_from(&oidc.audiences);
        issuer.jwks_url.clone_from(&oidc.jwks_url);
        issuer.jwks_file.clone_from(&oidc.jwks_file);
        if !oidc.algorithms.is_empty() {
            issuer.algorithms.clone_from(&oidc.algorithms);
        }
        OidcAuthenticator::new(issuer, clock())
    });
    let certificates = mtls.as_ref().map(|mtls| {
        CertificateAuthenticator::new(mtls.trust_domain.clone().unwrap_or_default(), clock())
    });
    let tokens = tokens.transpose().map_err(refuse)?;
    let certificates = certificates.transpose().map_err(refuse)?;
    Ok(Some(Arc::new(Authenticators::new(tokens, certificates).map_err(refuse)?)))
}

#[cfg(not(feature = "authn"))]
pub(super) fn authenticator(config: &Config) -> Result<Option<Arc<dyn Authenticator>>, CliError> {
    match config.authn.oidc.is_some() || config.authn.mtls.is_some() {
        true => Err(unbuilt("authn")),
        false => Ok(None),
    }
}

/// What callers may do, as `[authz]` says.
///
/// # Errors
/// What is set up wrongly, or not in this build, by its name.
#[cfg(feature = "authz")]
pub(super) fn authorizer(config: &Config) -> Result<Option<Arc<dyn Authorizer>>, CliError> {
    use mainspring::authz::{OwnerAllowlistPolicy, OwnerPolicy};

    use crate::config::PolicyKind;
    let authz = &config.authz;
    Ok(match authz.policy {
        None => None,
        Some(PolicyKind::Owner) => Some(Arc::new(OwnerPolicy)),
        Some(PolicyKind::OwnerAllowlist) => {
            Some(Arc::new(OwnerAllowlistPolicy::new(allowlist(&authz.allow)?)))
        }
        Some(PolicyKind::Cedar) => {
            let path = authz.cedar_policies.as_deref();
            Some(cedar(path.expect("the rules of the start require it"))?)
        }
    })
}

#[cfg(feature = "authz")]
fn allowlist(
    allow: &std::collections::BTreeMap<String, Vec<config::Listed>>,
) -> Result<mainspring::authz::Allowlist, CliError> {
    use mainspring::api::CallerIdentity;
    use mainspring::authz::{Allowlist, LISTED_ACTIONS};
    let mut list = Allowlist::default();
    for (name, callers) in allow {
        let Some(action) = LISTED_ACTIONS.iter().find(|action| action.name() == name) else {
            let names: Vec<_> = LISTED_ACTIONS.iter().map(|action| action.name()).collect();
            return Err(CliError::usage(format!(
                "authz.allow.{name}: there is no list for that action; there are lists for {}",
                names.join(", ")
            )));
        };
        for caller in callers {
            if caller.issuer.is_empty() || caller.subject.is_empty() {
                return Err(CliError::usage(format!(
                    "authz.allow.{name}: an issuer or a subject is empty"
                )));
            }
            let (issuer, subject) = (caller.issuer.clone(), caller.subject.clone());
            list = list.allow(*action, CallerIdentity { issuer, subject });
        }
    }
    Ok(list)
}

#[cfg(feature = "cedar")]
fn cedar(path: &std::path::Path) -> Result<Arc<dyn Authorizer>, CliError> {
    let policy = mainspring::authz::CedarPolicy::load(path);
    Ok(Arc::new(policy.map_err(|error| {
        CliError::usage(format!("authz.cedar_policies: {}", mainspring::api::report(&error)))
    })?))
}

#[cfg(all(feature = "authz", not(feature = "cedar")))]
fn cedar(_path: &std::path::Path) -> Result<Arc<dyn Authorizer>, CliError> {
    Err(unbuilt("cedar"))
}

#[cfg(not(feature = "authz"))]
pub(super) fn authorizer(config: &Config) -> Result<Option<Arc<dyn Authorizer>>, CliError> {
    match config.authz.policy {
        None => Ok(None),
        Some(_) => Err(unbuilt("authz")),
    }
}

#[cfg(not(all(feature = "authn", feature = "cedar")))]
fn unbuilt(feature: &str) -> CliError {
    CliError::of(
        mainspring::api::Condition::Unimplemented,
        format!("this build has no {feature}: it was built without that feature"),
    )
}
