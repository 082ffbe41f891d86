//! The parts of a server that know its callers: each is made in one place.

use std::sync::Arc;

use mainspring::api::{Authenticator, Authorizer};

use crate::config::{Config, Loaded, Origin};
use crate::error::CliError;

/// Who callers are, as `[authn]` says.
///
/// # Errors
/// What is configured and not in this build, by its name.
pub(super) fn authenticator(config: &Config) -> Result<Option<Arc<dyn Authenticator>>, CliError> {
    if config.authn.oidc.is_some() {
        return Err(unbuilt("authenticator for authn.oidc"));
    }
    if config.authn.mtls.is_some() {
        return Err(unbuilt("authenticator for authn.mtls"));
    }
    Ok(None)
}

/// What callers may do, as `[authz]` says.
///
/// # Errors
/// What is configured and not in this build, by its name.
pub(super) fn authorizer(config: &Config) -> Result<Option<Arc<dyn Authorizer>>, CliError> {
    match config.authz.policy {
        None => Ok(None),
        Some(policy) => Err(unbuilt(&format!("policy {:?} for authz.policy", policy.name()))),
    }
}

/// Settings of a server whose part is not in this build.
///
/// # Errors
/// The first of them, by its name.
pub(super) fn refuse_unbuilt(loaded: &Loaded) -> Result<(), CliError> {
    let config = &loaded.config;
    if config.tls.certificate.is_some() {
        return Err(unbuilt("TLS for tls.certificate"));
    }
    if config.registry_addr.is_some() {
        return Err(CliError::unimplemented("--registry-addr"));
    }
    if config.delete.retention_days.is_some() {
        return Err(unbuilt("reclaimer for delete.retention_days"));
    }
    if *loaded.origin("resume_interrupted") != Origin::Default && config.resume_interrupted {
        return Err(unbuilt("start that goes on with turns, for resume_interrupted"));
    }
    Ok(())
}

fn unbuilt(what: &str) -> CliError {
    CliError::of(mainspring::api::Condition::Unimplemented, format!("this build has no {what}"))
}
