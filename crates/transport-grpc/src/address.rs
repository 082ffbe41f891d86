//! Where a gRPC peer can be reached.

use std::fmt;
use std::path::{Path, PathBuf};

use http::uri::Authority;

/// Names that gRPC resolvers use as schemes. As a bare host one of them is
/// more likely a misspelt address than a machine.
const RESOLVER_SCHEMES: [&str; 9] =
    ["dns", "unix", "unix-abstract", "ipv4", "ipv6", "passthrough", "xds", "vsock", "google-c2p"];

/// A parsed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerAddress {
    /// `host:port`; an IPv6 host is in brackets.
    Tcp(String),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => f.write_str(authority),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address {address:?}: {why}")]
pub struct AddressError {
    /// The text.
    pub address: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

impl PeerAddress {
    /// The address of a harness: `host:port`, `dns:///host:port`,
    /// `dns://resolver/host:port` (names are always resolved by the machine's
    /// own resolver), `unix:///abs`, `unix://rel` or `unix:path`.
    ///
    /// # Errors
    /// [`AddressError`] for everything else: other schemes, a missing port, an
    /// empty or root socket path, user information, a query, a fragment, and a
    /// bare host that is the name of a gRPC resolver scheme.
    pub fn harness(text: &str) -> Result<Self, AddressError> {
        parse(text, 1).map_err(|why| refuse(text, why))
    }

    /// The address of a sessions service: as for a harness, and
    /// `http://host:port` or `https://host:port`.
    ///
    /// # Errors
    /// As for a harness.
    pub fn server(text: &str) -> Result<Self, AddressError> {
        Self::with_scheme(text).map(|(peer, _)| peer)
    }

    /// The address of a sessions service, and what it says of TLS.
    pub(crate) fn with_scheme(text: &str) -> Result<(Self, Scheme), AddressError> {
        let (scheme, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (Scheme::Http, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (Scheme::Https, rest)
        } else {
            (Scheme::Unsaid, text)
        };
        let peer = match scheme {
            Scheme::Unsaid => parse(rest, 1),
            Scheme::Http | Scheme::Https => host_port_only(rest.strip_suffix('/').unwrap_or(rest)),
        };
        Ok((peer.map_err(|why| refuse(text, why))?, scheme))
    }

    /// An address to listen on: as for a server; port 0 picks a free port.
    ///
    /// # Errors
    /// As for a server.
    pub fn listen(text: &str) -> Result<Self, AddressError> {
        parse(text, 0).map_err(|why| refuse(text, why))
    }
}

/// What an address says of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Nothing.
    Unsaid,
    /// There is none.
    Http,
    /// There is.
    Https,
}

fn host_port_only(text: &str) -> Result<PeerAddress, &'static str> {
    match parse(text, 1)? {
        peer @ PeerAddress::Tcp(_) => Ok(peer),
        PeerAddress::Unix(_) => Err("http and https are for host:port"),
    }
}

fn refuse(address: &str, why: &'static str) -> AddressError {
    AddressError { address: address.to_owned(), why }
}

fn parse(text: &str, port_min: u16) -> Result<PeerAddress, &'static str> {
    if text.contains(['?', '#']) {
        return Err("a query or fragment is not allowed");
    }
    if text.chars().any(char::is_control) {
        return Err("control characters are not allowed");
    }
    if let Some(rest) = text.strip_prefix("unix:") {
        return socket(rest.strip_prefix("//").unwrap_or(rest));
    }
    if let Some(rest) = text.strip_prefix("dns:") {
        // `dns:443` is a bare host that looks like a scheme, and falls through.
        if let Some(rest) = rest.strip_prefix("//") {
            let (_resolver, host) = rest.split_once('/').ok_or("the host is missing")?;
            return host_port(host, port_min);
        }
    }
    if text.contains("://") {
        return Err("the scheme is not one of dns, unix");
    }
    host_port(text, port_min)
}

fn socket(path: &str) -> Result<PeerAddress, &'static str> {
    if path.starts_with('@') {
        return Err("abstract sockets are not supported");
    }
    if path.split('/').next().is_some_and(|first| first.contains('@')) {
        return Err("user information is not allowed");
    }
    let path = Path::new(path);
    if path.file_name().is_none() {
        return Err("the socket path is empty or the root");
    }
    Ok(PeerAddress::Unix(path.to_owned()))
}

fn host_port(text: &str, port_min: u16) -> Result<PeerAddress, &'static str> {
    if text.contains('@') {
        return Err("user information is not allowed");
    }
    let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
    if host.is_empty() {
        return Err("the host is missing");
    }
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !bracketed {
        return Err("more than one colon; an IPv6 host is written in brackets");
    }
    if RESOLVER_SCHEMES.contains(&host) {
        return Err("the host is the name of a resolver scheme");
    }
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number >= port_min => {}
        _ => return Err("the port is not a number from 1 to 65535"),
    }
    text.parse::<Authority>().map_err(|_| "the host is malformed")?;
    Ok(PeerAddress::Tcp(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_harness_addresses() {
        let tcp = |text: &str| PeerAddress::Tcp(text.to_owned());
        let unix = |text: &str| PeerAddress::Unix(PathBuf::from(text));
        let rows = [
            ("localhost:80", tcp("localhost:80")),
            ("[::1]:8080", tcp("[::1]:8080")),
            ("dns:///h.example:1", tcp("h.example:1")),
            ("dns://1.1.1.1/h:65535", tcp("h:65535")),
            ("unix:///a/b.sock", unix("/a/b.sock")),
            ("unix://rel/b", unix("rel/b")),
            ("unix:b.sock", unix("b.sock")),
            ("unix:/a b", unix("/a b")),
        ];
        for (text, expected) in rows {
            assert_eq!(PeerAddress::harness(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refused_addresses() {
        for text in [
            "",
            "h",
            "h:",
            ":80",
            "h:0",
            "h:65536",
            "h:+1",
            "h:x",
            "http://h:1",
            "https://h:1",
            "ipv4:1.2.3.4:80",
            "xds:///x",
            "dns:443",
            "unix:",
            "unix:/",
            "unix:///",
            "unix://",
            "unix:@x",
            "unix://u@h/x",
            "u@h:1",
            "dns:///u@h:1",
            "h:1?q",
            "h:1#f",
            "::1:80",
            "dns://h:1",
            "passthrough:1",
            "h h:1",
            "unix:/a\nb",
            "h:1/p",
        ] {
            let error = PeerAddress::harness(text).expect_err(text);
            assert!(error.to_string().starts_with("address "), "{error}");
        }
    }

    #[test]
    fn a_server_may_be_named_by_http_and_listen_on_any_port() {
        let tcp = |text: &str| Ok(PeerAddress::Tcp(text.to_owned()));
        assert_eq!(PeerAddress::server("http://h:1"), tcp("h:1"));
        assert_eq!(PeerAddress::server("http://h:1/"), tcp("h:1"));
        assert_eq!(PeerAddress::server("https://h:1/"), tcp("h:1"));
        assert!(PeerAddress::server("https://unix:/a").is_err());
        assert!(PeerAddress::server("https://h").is_err());
        assert!(PeerAddress::server("h:0").is_err());
        assert_eq!(PeerAddress::listen("127.0.0.1:0"), tcp("127.0.0.1:0"));
    }
}
