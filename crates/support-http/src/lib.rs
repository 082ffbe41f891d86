//! The HTTP client of every adapter that calls an address.
//!
//! [`client`] makes one for an address. It trusts this machine's certificate
//! authorities, follows no redirect, sends each request once, and reaches this
//! machine without a proxy.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::{Client, Url, redirect, retry};
use rustls::{ClientConfig, RootCertStore};

/// Why there is no client. Carries no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpClientError {
    /// No certificate authority is known, so no https address can be trusted.
    #[error("this machine's certificate authorities cannot be read: {message}")]
    NoRoots {
        /// What was tried.
        message: String,
    },
    /// The client cannot be set up.
    #[error("http client: {message}")]
    Client {
        /// What it says.
        message: String,
    },
}

/// A client for `url`, which opens a connection within `connect_within` or not at all.
///
/// # Errors
/// [`HttpClientError`]: the machine cannot make one.
pub fn client(url: &Url, connect_within: Duration) -> Result<Client, HttpClientError> {
    let mut builder = Client::builder()
        .connect_timeout(connect_within)
        // A redirect would carry a key, and the request's content, elsewhere.
        .redirect(redirect::Policy::none())
        // Whether a request may be sent twice is never the client's to judge.
        .retry(retry::never())
        .user_agent(concat!("mainspring/", env!("CARGO_PKG_VERSION")));
    if is_loopback(url) {
        // A proxy of the environment is for the world, not for this machine.
        builder = builder.no_proxy();
    }
    let client = builder.tls_backend_preconfigured(tls(url.scheme())?).build();
    client.map_err(|error| HttpClientError::Client { message: error.without_url().to_string() })
}

/// Whether `url` names this machine.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// The system's certificate authorities; an http address needs none.
fn tls(scheme: &str) -> Result<ClientConfig, HttpClientError> {
    let roots = match scheme {
        "https" => system_roots()?,
        _ => Arc::new(RootCertStore::empty()),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpClientError::Client { message: error.to_string() })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Read once: a host has many clients, and the system's file is long.
fn system_roots() -> Result<Arc<RootCertStore>, HttpClientError> {
    static ROOTS: OnceLock<Result<Arc<RootCertStore>, HttpClientError>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        if roots.is_empty() {
            let why = native.errors.first().map(ToString::to_string);
            let message = why.unwrap_or_else(|| "there are none".to_owned());
            return Err(HttpClientError::NoRoots { message });
        }
        Ok(Arc::new(roots))
    };
    ROOTS.get_or_init(read).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_names() {
        for (url, loopback) in [
            ("http://localhost:1/x", true),
            ("http://127.0.0.9", true),
            ("http://[::1]:1", true),
            ("http://localhost.example", false),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), loopback, "{url}");
        }
    }
}
