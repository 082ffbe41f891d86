//! TLS, on both sides: rustls with ring, HTTP/2 and nothing else.

mod client;
mod server;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use client::ClientTls;
pub(crate) use client::connector;
pub use server::{ClientAuth, ServerTls, ServerTlsFiles};

/// The largest file of certificates or keys that is read.
pub const TLS_FILE_BYTES_MAX: u64 = 1 << 20;

/// The protocol that both sides agree on in the handshake.
const ALPN_H2: &[u8] = b"h2";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Settings(&'static str),
    /// The certificates and keys do not go together.
    #[error("certificates cannot be used: {0}")]
    Unusable(String),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(TLS_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > TLS_FILE_BYTES_MAX) {
        let why = "it is larger than TLS_FILE_BYTES_MAX, 1 MiB";
        return Err(TlsError::Malformed { path: path.to_owned(), why });
    }
    Ok(bytes)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = |why| TlsError::Malformed { path: path.to_owned(), why };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| malformed("it is not PEM"))?;
    if found.is_empty() {
        return Err(malformed("there is no certificate in it"));
    }
    Ok(found)
}

fn key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    // The parser's own error is left out, as it may quote what it read.
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| TlsError::Malformed {
        path: path.to_owned(),
        why: "there is no private key in it",
    })
}

fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots.add(certificate).map_err(|_| TlsError::Malformed {
            path: path.to_owned(),
            why: "a certificate in it cannot vouch for others",
        })?;
    }
    Ok(roots)
}

fn unusable(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable(error.to_string())
}
