//! The certificates of a server, which may change while it serves.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use sha2::{Digest as _, Sha256};

use super::{ALPN_H2, TlsError, certificates, key, provider, read, roots, unusable};

/// How often the files are looked at.
pub(crate) const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// Whether clients present certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    None,
    /// They may; one that does not hold is refused.
    Optional,
    /// They must.
    Required,
}

/// The files of a server's TLS, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// The server's certificate, and then those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who vouches for clients.
    pub client_ca: Option<PathBuf>,
    /// Whether clients present certificates.
    pub client_auth: ClientAuth,
}

/// A server's TLS. Clones share it.
///
/// # Guarantees
/// - New connections use what was loaded last; existing ones stay as they are.
/// - A connection is never resumed: each one proves its certificate anew.
#[derive(Clone)]
pub struct ServerTls {
    files: Arc<ServerTlsFiles>,
    loaded: Arc<Mutex<Loaded>>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// Of the files that were looked at last, also when they could not be used.
    digest: [u8; 32],
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`], also when clients are to present certificates and nobody
    /// vouches for them, or the other way round.
    pub fn load(files: ServerTlsFiles) -> Result<Self, TlsError> {
        match (files.client_auth, &files.client_ca) {
            (ClientAuth::None, Some(_)) => {
                let rule = "a client CA is set, and clients are not asked for certificates";
                return Err(TlsError::Settings(rule));
            }
            (ClientAuth::Optional | ClientAuth::Required, None) => {
                let rule = "clients are asked for certificates, and no client CA is set";
                return Err(TlsError::Settings(rule));
            }
            _ => {}
        }
        let contents = Contents::read(&files)?;
        let config = contents.config(&files)?;
        let loaded = Loaded { config: Arc::new(config), digest: contents.digest() };
        Ok(Self { files: Arc::new(files), loaded: Arc::new(Mutex::new(loaded)) })
    }

    /// Reads the files again, and says whether they had changed. A server that
    /// serves does this by itself every 10 s.
    ///
    /// # Errors
    /// [`TlsError`]: what was loaded before stays in use.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let contents = Contents::read(&self.files)?;
        let digest = contents.digest();
        {
            let mut loaded = self.lock();
            if loaded.digest == digest {
                return Ok(false);
            }
            // Also if they cannot be used: they are spoken of once.
            loaded.digest = digest;
        }
        let config = contents.config(&self.files)?;
        self.lock().config = Arc::new(config);
        Ok(true)
    }

    /// Reloads now and then, for as long as it is polled.
    pub(crate) async fn keep_fresh(&self) {
        // They were read just now.
        let first = tokio::time::Instant::now() + RELOAD_EVERY;
        let mut ticks = tokio::time::interval_at(first, RELOAD_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut unread = false;
        loop {
            ticks.tick().await;
            let this = self.clone();
            let Ok(result) = tokio::task::spawn_blocking(move || this.reload()).await else {
                continue;
            };
            // A file that is missing is spoken of once, and not every time.
            let again =
                std::mem::replace(&mut unread, matches!(result, Err(TlsError::Read { .. })));
            match result {
                Ok(false) => {}
                Ok(true) => tracing::info!("new certificates in use"),
                Err(_) if again && unread => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "new certificates refused, the old ones stay in use"
                    );
                }
            }
        }
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.lock().config)
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of the files, read at one time.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Contents {
    fn read(files: &ServerTlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [&self.certificate, &self.key].into_iter().chain(&self.client_ca) {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    fn config(&self, files: &ServerTlsFiles) -> Result<ServerConfig, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match (&files.client_ca, &self.client_ca) {
            (Some(path), Some(pem)) => {
                let roots = Arc::new(roots(path, pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match files.client_auth {
                    ClientAuth::Required => verifier,
                    ClientAuth::None | ClientAuth::Optional => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
            }
            _ => builder.with_no_client_auth(),
        };
        let chain = certificates(&files.certificate, &self.certificate)?;
        let key = key(&files.key, &self.key)?;
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        // A resumed connection would skip the check of its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}
