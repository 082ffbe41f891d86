//! TLS towards a server.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Uri;

use super::{ALPN_H2, TlsError, certificates, key, provider, read, roots, unusable};

/// How a client trusts its server, and shows who it is. The files are PEM, and
/// are read anew for every connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Who vouches for the server; the machine's own roots when absent.
    pub ca: Option<PathBuf>,
    /// The client's certificate, and then those that vouch for it.
    pub certificate: Option<PathBuf>,
    /// Its private key; there with the certificate, and only then.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must have; the host of its
    /// address when absent.
    pub server_name: Option<String>,
}

impl ClientTls {
    fn config(&self) -> Result<ClientConfig, TlsError> {
        let roots = match &self.ca {
            Some(path) => roots(path, &read(path)?)?,
            None => system_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        let mut config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(chain_path), Some(key_path)) => {
                let chain = certificates(chain_path, &read(chain_path)?)?;
                let key = key(key_path, &read(key_path)?)?;
                builder.with_client_auth_cert(chain, key).map_err(unusable)?
            }
            _ => {
                let rule = "a client's certificate and its key come together";
                return Err(TlsError::Settings(rule));
            }
        };
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        Ok(config)
    }

    /// The name to check, for a server at `host`, where IPv6 is in brackets.
    fn name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.server_name.as_deref().unwrap_or(bare);
        ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::Settings("the server's name is no host name"))
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(TlsError::Settings("the machine has no root certificates; name a CA"));
    }
    Ok(roots)
}

/// Connects to `authority`, `host:port`, each time it is called.
///
/// # Errors
/// [`TlsError`] when the settings cannot be used now.
pub(crate) async fn connector(
    authority: String,
    tls: ClientTls,
) -> Result<
    impl tower::Service<Uri, Response = TokioIo<TlsStream<TcpStream>>, Error = io::Error, Future: Send>
    + Clone
    + Send
    + Sync,
    TlsError,
> {
    let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
    let name = tls.name(host)?;
    load(tls.clone()).await?;
    Ok(tower::service_fn(move |_: Uri| {
        let (authority, tls, name) = (authority.clone(), tls.clone(), name.clone());
        async move {
            let config = load(tls).await.map_err(io::Error::other)?;
            let stream = TcpStream::connect(&authority).await?;
            stream.set_nodelay(true)?;
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            if stream.get_ref().1.alpn_protocol() != Some(ALPN_H2) {
                return Err(io::Error::other("the server does not speak HTTP/2"));
            }
            Ok(TokioIo::new(stream))
        }
    }))
}

async fn load(tls: ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let loading = tokio::task::spawn_blocking(move || tls.config());
    loading.await.map_err(unusable)?.map(Arc::new)
}
