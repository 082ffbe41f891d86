//! The service behind gRPC: in the clear, and with TLS. Callers are known by
//! their tokens.

use std::sync::Arc;

use mainspring_api::{
    Authenticator, AuthnError, Caller, CallerIdentity, Credentials, RequestId, Secret, Signal,
    Verified, async_trait,
};
use mainspring_conformance::sessions::{Client, Parts, Subject};
use mainspring_transport_grpc::{
    ClientAuth, ClientTls, ConnectOptions, Listener, RemoteOperations, RemoteSessions,
    ServeOptions, ServerTls, ServerTlsFiles, serve,
};
use tempfile::TempDir;

use crate::host;

/// Takes the name of a caller for its token; nobody has the token `nobody`.
#[derive(Debug)]
struct ByName;

#[async_trait]
impl Authenticator for ByName {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Verified, AuthnError> {
        let who = credentials.bearer.as_ref().map_or("", Secret::expose);
        if who.is_empty() || who == "nobody" {
            return Err(AuthnError::Unauthenticated("no such token"));
        }
        let (issuer, subject) = (host::ISSUER.to_owned(), who.to_owned());
        Ok(Verified { identity: CallerIdentity { issuer, subject }, expires: None })
    }
}

/// A caller whose identity is its token's.
fn caller(_: &'static str, method: &'static str) -> Caller {
    Caller::anonymous(method, RequestId::new("suite").unwrap())
}

#[derive(Debug)]
struct Served {
    address: String,
    ca: Option<std::path::PathBuf>,
    stop: Signal<()>,
    _files: Option<TempDir>,
}

impl Served {
    async fn open(parts: Parts, tls: Option<(ServerTls, TempDir)>) -> Self {
        let (service, _) = host::open(parts);
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.address().to_string();
        let mut options = ServeOptions::default();
        options.authenticator = Some(Arc::new(ByName));
        options.operations = Some(Arc::new(service.clone()));
        let (tls, files) = tls.unzip();
        options.tls = tls;
        let stop = Signal::<()>::default();
        let stopped = stop.clone();
        let shutdown = async move { stopped.wait().await };
        tokio::spawn(serve(Arc::new(service), listener, options, shutdown));
        let ca = files.as_ref().map(|files| files.path().join("certificate.pem"));
        let address = if ca.is_some() { format!("https://{address}") } else { address };
        Self { address, ca, stop, _files: files }
    }

    async fn client(&self, who: &'static str) -> Client {
        let token = if who.is_empty() { "nobody" } else { who };
        let mut options = ConnectOptions::default();
        options.bearer = Some(Arc::new(Secret::new(token.to_owned())));
        options.tls =
            self.ca.as_ref().map(|ca| ClientTls { ca: Some(ca.clone()), ..ClientTls::default() });
        let sessions = RemoteSessions::connect(&self.address, options.clone()).await.unwrap();
        let operations = RemoteOperations::connect(&self.address, options).await.unwrap();
        Client { sessions: Arc::new(sessions), operations: Arc::new(operations), caller, who }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.set(());
    }
}

/// A certificate for this machine, and the server that presents it.
fn tls() -> (ServerTls, TempDir) {
    let files = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (files.path().join("certificate.pem"), files.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let loaded = ServerTls::load(ServerTlsFiles {
        certificate,
        key,
        client_ca: None,
        client_auth: ClientAuth::None,
    });
    (loaded.unwrap(), files)
}

mod in_the_clear {
    use super::{Client, Parts, Served, Subject};

    #[derive(Debug)]
    struct Clear(Served);

    impl Subject for Clear {
        async fn open(parts: Parts) -> Self {
            Self(Served::open(parts, None).await)
        }

        async fn client(&self, who: &'static str) -> Client {
            self.0.client(who).await
        }
    }

    mainspring_conformance::sessions_conformance!(Clear);
}

mod with_tls {
    use super::{Client, Parts, Served, Subject, tls};

    #[derive(Debug)]
    struct Encrypted(Served);

    impl Subject for Encrypted {
        async fn open(parts: Parts) -> Self {
            Self(Served::open(parts, Some(tls())).await)
        }

        async fn client(&self, who: &'static str) -> Client {
            self.0.client(who).await
        }
    }

    mainspring_conformance::sessions_conformance!(Encrypted);
}
