//! The addresses that a harness may have.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;
use std::str::FromStr;

/// Scheme names of gRPC resolvers. `dns:443` is no host called `dns`.
const RESOLVER_SCHEMES: [&str; 11] = [
    "dns",
    "google-c2p",
    "http",
    "https",
    "ipv4",
    "ipv6",
    "passthrough",
    "unix",
    "unix-abstract",
    "vsock",
    "xds",
];

/// `sun_path` holds 108 bytes with its terminator.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A DNS name has at most 253 characters.
const HOST_BYTES_MAX: usize = 253;

/// Where a harness is served, checked and in one normal form.
///
/// It is read from `host:port`, `dns:///host:port`, `unix:///absolute`,
/// `unix://relative` or `unix:path`, and shown as `host:port`,
/// `dns:///host:port` or `unix:///absolute`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HarnessAddress(String);

/// Why a text is no such address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// Another scheme, or a host that is the name of one.
    #[error("its scheme is not dns or unix")]
    Scheme,
    /// A DNS server of its own.
    #[error("a resolver of its own (dns://resolver/...) is not supported, use dns:///host:port")]
    Resolver,
    /// User info.
    #[error("it has user info")]
    UserInfo,
    /// A query.
    #[error("it has a query")]
    Query,
    /// A fragment.
    #[error("it has a fragment")]
    Fragment,
    /// No host, or one with a character that no host has.
    #[error("its host is missing or has a character that no host has")]
    Host,
    /// No port.
    #[error("its port is missing")]
    NoPort,
    /// Not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// Something after the port.
    #[error("it has a path after its port")]
    Path,
    /// An empty socket path, or the root folder.
    #[error("its socket path is empty or a folder")]
    SocketPath,
    /// A socket path that no socket can have.
    #[error(
        "its socket path is longer than {SOCKET_PATH_BYTES_MAX} bytes or has a control character"
    )]
    SocketPathForm,
    /// A relative socket path, while the working folder is unknown.
    #[error("its socket path is relative and the working folder cannot be read")]
    WorkingFolder,
}

impl HarnessAddress {
    /// The normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HarnessAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HarnessAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if text.contains('?') {
            return Err(AddressError::Query);
        }
        if text.contains('#') {
            return Err(AddressError::Fragment);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return socket(path.strip_prefix("//").unwrap_or(path));
        }
        if let Some(rest) = text.strip_prefix("dns://") {
            return dns(rest);
        }
        if text.contains("://") {
            return Err(AddressError::Scheme);
        }
        host_and_port(text).map(Self)
    }
}

fn dns(rest: &str) -> Result<HarnessAddress, AddressError> {
    match rest.split_once('/') {
        Some(("", name)) => Ok(HarnessAddress(format!("dns:///{}", host_and_port(name)?))),
        Some(_) => Err(AddressError::Resolver),
        // `dns://host:port` names a resolver and nothing to resolve.
        None => Err(AddressError::Host),
    }
}

fn socket(path: &str) -> Result<HarnessAddress, AddressError> {
    // A path that ends in a slash, the root included, names a folder.
    if path.is_empty() || path.ends_with('/') {
        return Err(AddressError::SocketPath);
    }
    if path.chars().any(char::is_control) {
        return Err(AddressError::SocketPathForm);
    }
    let absolute = std::path::absolute(Path::new(path)).map_err(|_| AddressError::WorkingFolder)?;
    let absolute = absolute.to_str().ok_or(AddressError::WorkingFolder)?;
    if absolute.len() > SOCKET_PATH_BYTES_MAX {
        return Err(AddressError::SocketPathForm);
    }
    if Path::new(absolute).file_name().is_none() {
        return Err(AddressError::SocketPath);
    }
    Ok(HarnessAddress(format!("unix://{absolute}")))
}

fn host_and_port(text: &str) -> Result<String, AddressError> {
    if text.contains('@') {
        return Err(AddressError::UserInfo);
    }
    let (host, port) = if text.starts_with('[') {
        let (host, rest) = text.split_once(']').ok_or(AddressError::Host)?;
        (&host[1..], rest.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let bracketed = text.starts_with('[');
    if RESOLVER_SCHEMES.contains(&host.to_ascii_lowercase().as_str()) {
        return Err(AddressError::Scheme);
    }
    if bracketed && host.parse::<Ipv6Addr>().is_err() || !bracketed && !is_name(host) {
        return Err(AddressError::Host);
    }
    check_port(port.ok_or(AddressError::NoPort)?)?;
    Ok(text.to_owned())
}

/// A DNS name or an IPv4 address.
fn is_name(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    (1..=HOST_BYTES_MAX).contains(&host.len())
        && host.bytes().all(allowed)
        && !host.starts_with('.')
}

fn check_port(port: &str) -> Result<(), AddressError> {
    if port.is_empty() {
        return Err(AddressError::NoPort);
    }
    if port.contains('/') {
        return Err(AddressError::Path);
    }
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(1..) if digits && !port.starts_with('0') => Ok(()),
        _ => Err(AddressError::Port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, AddressError>) {
        let parsed = text.parse::<HarnessAddress>().map(|address| address.to_string());
        assert_eq!(parsed, expected.map(str::to_owned), "{text}");
    }

    #[test]
    fn every_form_is_taken_and_normalised() {
        for same in [
            "127.0.0.1:1",
            "localhost:65535",
            "agent_1.internal.example:8080",
            "[::1]:50051",
            "dns:///agent.example:443",
            "dns:///[2001:db8::1]:443",
            "unix:///run/agent.sock",
        ] {
            check(same, Ok(same));
        }
        check("unix:/run/agent.sock", Ok("unix:///run/agent.sock"));
        let here = std::env::current_dir().unwrap();
        let relative = format!("unix://{}/a.sock", here.display());
        check("unix:a.sock", Ok(&relative));
        check("unix://a.sock", Ok(&relative));
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        use AddressError as E;
        for (text, error) in [
            ("", E::Empty),
            ("http://a:1", E::Scheme),
            ("https://a:1", E::Scheme),
            ("xds:///a:1", E::Scheme),
            ("UNIX:///a", E::Scheme),
            ("dns:443", E::Scheme),
            ("DNS:443", E::Scheme),
            ("ipv4:127.0.0.1:80", E::Scheme),
            ("passthrough:1", E::Scheme),
            ("dns://8.8.8.8/a:1", E::Resolver),
            ("dns://a:1", E::Host),
            ("dns:///dns:1", E::Scheme),
            ("user@a:1", E::UserInfo),
            ("dns:///user:pw@a:1", E::UserInfo),
            ("a:1?x=y", E::Query),
            ("unix:///a?x", E::Query),
            ("a:1#x", E::Fragment),
            ("a", E::NoPort),
            ("a:", E::NoPort),
            ("[::1]", E::NoPort),
            ("dns:///a", E::NoPort),
            (":80", E::Host),
            ("a b:80", E::Host),
            ("a/b:80", E::Host),
            ("[::1:80", E::Host),
            ("[a]:80", E::Host),
            ("::1:80", E::Host),
            (".a:80", E::Host),
            ("a:0", E::Port),
            ("a:65536", E::Port),
            ("a:+80", E::Port),
            ("a:080", E::Port),
            ("a:http", E::Port),
            ("a:1:2", E::Port),
            ("a:80/", E::Path),
            ("dns:///a:80/x", E::Path),
            ("unix:", E::SocketPath),
            ("unix://", E::SocketPath),
            ("unix:///", E::SocketPath),
            ("unix:/", E::SocketPath),
            ("unix:///run/", E::SocketPath),
            ("unix:///run/..", E::SocketPath),
            ("unix:///a\0b", E::SocketPathForm),
        ] {
            check(text, Err(error));
        }
        check(&format!("unix:///{}", "x".repeat(107)), Err(E::SocketPathForm));
        check(&format!("{}:1", "x".repeat(254)), Err(E::Host));
    }
}
