//! Where a server may listen, and what it needs for that.
//!
//! Loopback and unix sockets are free. Elsewhere callers must be known, what
//! they may do must be decided, and the line must be encrypted.

use std::net::IpAddr;

use mainspring::eventlog::HOST_ADDRESS_BYTES_MAX;

use crate::config::{Config, PolicyKind};
use crate::error::CliError;

/// What is set up for callers from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Means {
    tls: bool,
    authenticator: bool,
    policy: bool,
}

impl Means {
    fn of(config: &Config) -> Self {
        Self {
            tls: config.tls.certificate.is_some() && config.tls.key.is_some(),
            authenticator: config.authn.oidc.is_some() || config.authn.mtls.is_some(),
            policy: config.authz.policy.is_some(),
        }
    }

    /// What is missing, by name; empty when nothing is.
    fn missing(self) -> String {
        let parts = [
            (self.tls, "TLS (tls.certificate and tls.key)"),
            (self.authenticator, "an authenticator (authn.oidc or authn.mtls)"),
            (self.policy, "a policy (authz.policy)"),
        ];
        parts.iter().filter(|(has, _)| !has).map(|(_, part)| *part).collect::<Vec<_>>().join(", ")
    }
}

/// What an address reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reach<'a> {
    /// A socket in the file system, which only its owner can open.
    Unix(&'a str),
    /// This machine.
    Loopback {
        port: &'a str,
        /// Whether the address says so itself, and not a name.
        is_literal: bool,
    },
    /// Beyond it.
    Beyond { port: &'a str },
}

impl Reach<'_> {
    fn of(address: &str) -> Result<Reach<'_>, CliError> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Reach::Unix(path.strip_prefix("//").unwrap_or(path)));
        }
        let Some((host, port)) = address.rsplit_once(':') else {
            return Err(CliError::usage(format!("{address} is neither HOST:PORT nor unix:PATH")));
        };
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_literal = ip.is_ok_and(|ip| ip.is_loopback());
        if is_literal || host == "localhost" {
            return Ok(Reach::Loopback { port, is_literal });
        }
        Ok(Reach::Beyond { port })
    }

    fn port(&self) -> Option<&str> {
        match self {
            Reach::Unix(_) => None,
            Reach::Loopback { port, .. } | Reach::Beyond { port } => Some(port),
        }
    }
}

/// Refuses to start a server that is set up in part, or that would be open to
/// callers that nobody knows.
///
/// # Errors
/// A usage error that names what is missing.
pub(super) fn check(config: &Config) -> Result<(), CliError> {
    whole(config)?;
    let means = Means::of(config);
    tls_is_used(config)?;
    sessions(&config.addr, means)?;
    if let Some(address) = &config.registry_addr {
        operators(address, &config.addr, means)?;
    }
    if let Some(address) = &config.metrics.addr {
        metrics(address)?;
    }
    if let Some(address) = &config.advertise {
        advertised(address)?;
    }
    Ok(())
}

/// Refuses to send clients where nobody is.
fn advertised(address: &str) -> Result<(), CliError> {
    Reach::of(address)?;
    if is_unspecified(address) || address.len() > HOST_ADDRESS_BYTES_MAX {
        return Err(CliError::usage(format!(
            "advertise {address}: it must be an address that clients can connect to, of at most \
             {HOST_ADDRESS_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Whether an address stands for all of a machine, as only who listens can use it.
pub(super) fn is_unspecified(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.is_empty() || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

/// Whether an address is a socket in the file system.
pub(super) fn is_unix(address: &str) -> bool {
    address.starts_with("unix:")
}

/// Refuses certificates that no listener would serve with.
fn tls_is_used(config: &Config) -> Result<(), CliError> {
    let addresses = std::iter::once(&config.addr).chain(&config.registry_addr);
    if config.tls.certificate.is_some() && addresses.clone().all(|address| is_unix(address)) {
        return Err(CliError::usage(
            "tls.certificate and tls.key are for TCP, and every address here is a unix socket",
        ));
    }
    Ok(())
}

fn sessions(address: &str, means: Means) -> Result<(), CliError> {
    match Reach::of(address)? {
        Reach::Unix(_) | Reach::Loopback { .. } => Ok(()),
        Reach::Beyond { .. } => beyond(address, "a loopback address", means),
    }
}

fn beyond(address: &str, no: &str, means: Means) -> Result<(), CliError> {
    let missing = means.missing();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{address} is not {no}: listening there needs TLS, an authenticator and a policy; missing: \
         {missing}"
    )))
}

fn operators(address: &str, sessions: &str, means: Means) -> Result<(), CliError> {
    let (reach, others) = (Reach::of(address)?, Reach::of(sessions)?);
    let shared = match (&reach, &others) {
        (Reach::Unix(path), Reach::Unix(other)) => path == other,
        _ => reach.port().is_some_and(|port| port != "0" && others.port() == Some(port)),
    };
    if shared {
        return Err(CliError::usage(format!(
            "registry_addr {address} and addr {sessions} share a port: operators have a listener \
             of their own"
        )));
    }
    match reach {
        Reach::Unix(_) | Reach::Loopback { is_literal: true, .. } => Ok(()),
        Reach::Loopback { .. } | Reach::Beyond { .. } => {
            beyond(address, "a literal loopback address", means)
        }
    }
}

/// The page is open to whoever reaches it, so only this machine does.
fn metrics(address: &str) -> Result<(), CliError> {
    match Reach::of(address)? {
        Reach::Loopback { is_literal: true, .. } => Ok(()),
        _ => Err(CliError::usage(format!(
            "metrics.addr {address} is not a literal loopback address: its page needs no \
             credentials"
        ))),
    }
}

/// Refuses parts of the security settings without the rest of them.
fn whole(config: &Config) -> Result<(), CliError> {
    let refuse = |what: &str| Err(CliError::usage(what));
    let tls = &config.tls;
    if tls.certificate.is_some() != tls.key.is_some() {
        return refuse("tls.certificate and tls.key come together");
    }
    if tls.client_ca.is_some() && tls.certificate.is_none() {
        return refuse("tls.client_ca needs tls.certificate and tls.key");
    }
    if tls.client_auth == crate::config::ClientAuth::Required && tls.client_ca.is_none() {
        return refuse("tls.client_auth = \"required\" needs tls.client_ca");
    }
    if let Some(oidc) = &config.authn.oidc {
        if oidc.issuer.as_deref().is_none_or(str::is_empty) {
            return refuse("authn.oidc needs issuer");
        }
        if oidc.audiences.is_empty() {
            return refuse("authn.oidc needs audiences: a token for anybody is for nobody");
        }
        if oidc.jwks_url.is_some() && oidc.jwks_file.is_some() {
            return refuse("authn.oidc takes jwks_url or jwks_file, and not both");
        }
    }
    if let Some(mtls) = &config.authn.mtls {
        if mtls.trust_domain.as_deref().is_none_or(str::is_empty) {
            return refuse("authn.mtls needs trust_domain");
        }
        if tls.client_ca.is_none() {
            return refuse("authn.mtls needs tls.client_ca");
        }
    }
    let authz = &config.authz;
    if !authz.allow.is_empty() && authz.policy != Some(PolicyKind::OwnerAllowlist) {
        return refuse("authz.allow needs authz.policy = \"owner+allowlist\"");
    }
    if authz.cedar_policies.is_some() != (authz.policy == Some(PolicyKind::Cedar)) {
        return refuse("authz.policy = \"cedar\" and authz.cedar_policies come together");
    }
    let means = Means::of(config);
    if means.policy && !means.authenticator {
        return refuse("authz.policy needs an authenticator (authn.oidc or authn.mtls)");
    }
    if means.authenticator && !means.policy {
        return refuse("authn.oidc and authn.mtls need a policy (authz.policy)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Means = Means { tls: false, authenticator: false, policy: false };
    const ALL: Means = Means { tls: true, authenticator: true, policy: true };

    #[track_caller]
    fn says(result: Result<(), CliError>, expected: &str) {
        match result {
            Ok(()) => assert_eq!(expected, "", "it was allowed"),
            Err(error) => {
                assert!(!expected.is_empty(), "refused: {}", error.message);
                assert!(error.message.contains(expected), "{}", error.message);
                assert_eq!(error.exit_code(), 2);
            }
        }
    }

    #[test]
    fn sessions_are_free_here_and_need_everything_elsewhere() {
        let tls = "TLS (tls.certificate and tls.key)";
        for (address, means, expected) in [
            ("127.0.0.1:1", NONE, ""),
            ("127.9.9.9:1", NONE, ""),
            ("[::1]:1", NONE, ""),
            ("localhost:1", NONE, ""),
            ("unix:a", NONE, ""),
            ("unix:///a", NONE, ""),
            ("0.0.0.0:1", NONE, tls),
            ("[::]:1", NONE, "needs TLS, an authenticator and a policy; missing: TLS"),
            ("10.0.0.1:1", Means { tls: false, ..ALL }, tls),
            ("10.0.0.1:1", Means { authenticator: false, ..ALL }, "missing: an authenticator"),
            ("10.0.0.1:1", Means { policy: false, ..ALL }, "missing: a policy"),
            ("localhost.example:1", NONE, tls),
            ("10.0.0.1:1", ALL, ""),
            ("nonsense", ALL, "neither HOST:PORT nor unix:PATH"),
        ] {
            says(sessions(address, means), expected);
        }
    }

    #[test]
    fn operators_have_a_listener_of_their_own() {
        for (address, sessions, means, expected) in [
            ("unix:b", "unix:a", NONE, ""),
            ("unix:a", "unix:a", ALL, "share"),
            ("unix:///a", "unix:/a", ALL, "share"),
            ("127.0.0.1:2", "127.0.0.1:1", NONE, ""),
            ("127.0.0.1:0", "127.0.0.1:0", NONE, ""),
            ("127.0.0.1:1", "127.0.0.1:1", NONE, "share"),
            ("127.0.0.1:1", "10.0.0.1:1", ALL, "share"),
            ("127.0.0.1:1", "unix:a", NONE, ""),
            ("localhost:2", "127.0.0.1:1", NONE, "a literal loopback address"),
            ("10.0.0.1:2", "127.0.0.1:1", NONE, "missing: TLS"),
            ("10.0.0.1:2", "127.0.0.1:1", ALL, ""),
        ] {
            says(operators(address, sessions, means), expected);
        }
    }

    #[test]
    fn certificates_are_for_some_listener() {
        let tls = "[tls]\ncertificate='c'\nkey='k'\n";
        for (addresses, expected) in [
            ("addr='unix:a'\n", "for TCP"),
            ("addr='unix:a'\nregistry_addr='unix:b'\n", "for TCP"),
            ("addr='unix:a'\nregistry_addr='127.0.0.1:1'\n", ""),
            ("addr='127.0.0.1:1'\nregistry_addr='unix:b'\n", ""),
        ] {
            let config: Config = toml::from_str(&format!("{addresses}{tls}")).unwrap();
            says(tls_is_used(&config), expected);
        }
    }

    #[test]
    fn what_is_advertised_can_be_connected_to() {
        for (address, expected) in [
            ("h.example:7777", ""),
            ("[2001:db8::1]:7777", ""),
            ("unix:a", ""),
            ("0.0.0.0:7777", "can connect to"),
            ("[::]:7777", "can connect to"),
            ("nowhere", "neither"),
        ] {
            says(advertised(address), expected);
        }
        says(advertised(&format!("{}:1", "h".repeat(HOST_ADDRESS_BYTES_MAX))), "can connect to");
    }

    #[test]
    fn metrics_are_for_this_machine() {
        for (address, expected) in [
            ("127.0.0.1:9", ""),
            ("[::1]:9", ""),
            ("localhost:9", "literal loopback"),
            ("0.0.0.0:9", "literal loopback"),
            ("unix:a", "literal loopback"),
        ] {
            says(metrics(address), expected);
        }
    }

    #[test]
    fn settings_in_part_are_refused_by_name() {
        let tls = "[tls]\ncertificate='c'\nkey='k'\nclient_ca='a'\n";
        let oidc = "[authn.oidc]\nissuer='i'\naudiences=['a']\njwks_file='f'\n";
        for (text, expected) in [
            ("", ""),
            ("[tls]\ncertificate='c'\n", "come together"),
            ("[tls]\nclient_ca='c'\n", "tls.client_ca needs"),
            ("[tls]\ncertificate='c'\nkey='k'\nclient_auth='required'\n", "needs tls.client_ca"),
            (tls, ""),
            ("[authn.oidc]\naudiences=['a']\njwks_file='f'\n", "needs issuer"),
            ("[authn.oidc]\nissuer='i'\njwks_file='f'\n", "needs audiences"),
            (
                "[authn.oidc]\nissuer='i'\naudiences=['a']\n",
                "authn.oidc and authn.mtls need a policy (authz.policy)",
            ),
            (
                "[authn.oidc]\nissuer='i'\naudiences=['a']\njwks_url='u'\njwks_file='f'\n",
                "jwks_url or jwks_file",
            ),
            (oidc, "need a policy"),
            ("[authn.mtls]\n", "needs trust_domain"),
            ("[authn.mtls]\ntrust_domain='d'\n", "needs tls.client_ca"),
            ("[authz]\npolicy='owner'\n", "needs an authenticator"),
            ("[authz]\npolicy='cedar'\n", "come together"),
            ("[authz]\ncedar_policies='p'\n", "come together"),
            ("[authz.allow]\ncreate=[]\n", "owner+allowlist"),
        ] {
            let config: Config = toml::from_str(text).unwrap();
            says(whole(&config), expected);
        }
        let config: Config = toml::from_str(&format!("{oidc}[authz]\npolicy='owner'\n")).unwrap();
        says(whole(&config), "");
    }
}
