//! TLS over real sockets: who trusts whom, and what becomes of those who do not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Classify as _, Condition, ErrorKind, Secret, Sessions, SessionsError};
use mainspring_transport_grpc::{
    ClientAuth, ClientTls, ConnectOptions, RemoteHarnessRegistry, RemoteSessions, ServeError,
    ServeOptions, ServerTls, ServerTlsFiles, TlsError,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::address_book::{Over, Running};
use crate::authentication::Gatekeeper;
use crate::fake::{Fake, assert_condition, caller, uid};
use crate::fake_operations::{FakeOperations, FakeRegistry};

/// An authority, and files of what it vouches for.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

/// Until when a certificate holds.
#[derive(Clone, Copy)]
enum Until {
    Later,
    Past,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// PEM of a certificate for `host` and of its key.
    fn issue(&self, host: &str, until: Until) -> (String, String) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        if let Until::Past = until {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a certificate and its key, under the same names each time.
    fn write(&self, host: &str, until: Until) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.issue(host, until);
        let dir = self.dir.path();
        let files = (dir.join(format!("{host}.pem")), dir.join(format!("{host}.key")));
        std::fs::write(&files.0, certificate).unwrap();
        std::fs::write(&files.1, key).unwrap();
        files
    }

    pub(crate) fn server(
        &self,
        client_auth: ClientAuth,
        client_ca: Option<PathBuf>,
    ) -> ServerTlsFiles {
        let (certificate, key) = self.write("127.0.0.1", Until::Later);
        ServerTlsFiles { certificate, key, client_ca, client_auth }
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self) -> ClientTls {
        ClientTls { ca: Some(self.ca()), ..Default::default() }
    }
}

fn with_certificate(tls: ClientTls, files: (PathBuf, PathBuf)) -> ClientTls {
    ClientTls { certificate: Some(files.0), key: Some(files.1), ..tls }
}

async fn serving(files: ServerTlsFiles) -> (Running, Arc<Fake>, ServerTls) {
    let fake = Arc::new(Fake::default());
    let tls = ServerTls::load(files).unwrap();
    let mut options = ServeOptions::default();
    options.tls = Some(tls.clone());
    (Running::sessions_with(Over::Tcp, fake.clone(), options).await, fake, tls)
}

fn options(tls: ClientTls) -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.tls = Some(tls);
    options
}

/// A connection, and a call over it.
async fn reach(running: &Running, tls: ClientTls) -> Result<(), SessionsError> {
    let remote = RemoteSessions::connect(&running.address, options(tls)).await?;
    remote.get(&caller(), &uid("s")).await.map(|_| ())
}

#[track_caller]
fn refused(result: Result<(), SessionsError>, words: &str) {
    let error = result.expect_err("must be refused");
    assert_condition(&error, Condition::Unavailable);
    assert!(error.to_string().contains(words), "{words} is not in {error}");
}

#[tokio::test]
async fn a_client_that_trusts_the_server_is_served() {
    let authority = Authority::new("a");
    let (running, ..) = serving(authority.server(ClientAuth::None, None)).await;
    reach(&running, authority.client()).await.unwrap();
    let https = format!("https://{}", running.address);
    let remote = RemoteSessions::connect(&https, options(authority.client())).await.unwrap();
    remote.get(&caller(), &uid("s")).await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_call() {
    let (authority, other) = (Authority::new("a"), Authority::new("b"));
    let (running, fake, _) = serving(authority.server(ClientAuth::None, None)).await;
    refused(reach(&running, other.client()).await, "UnknownIssuer");
    let named = ClientTls { server_name: Some("h.example".to_owned()), ..authority.client() };
    refused(reach(&running, named).await, "not valid for name");
    assert_eq!(fake.last(), "");

    let (certificate, key) = authority.write("127.0.0.1", Until::Past);
    let files = ServerTlsFiles { certificate, key, client_ca: None, client_auth: ClientAuth::None };
    let (running, ..) = serving(files).await;
    refused(reach(&running, authority.client()).await, "expired");
}

#[tokio::test]
async fn a_name_of_the_server_may_be_told() {
    let authority = Authority::new("a");
    let (certificate, key) = authority.write("h.example", Until::Later);
    let files = ServerTlsFiles { certificate, key, client_ca: None, client_auth: ClientAuth::None };
    let (running, ..) = serving(files).await;
    refused(reach(&running, authority.client()).await, "not valid for name");
    let named = ClientTls { server_name: Some("h.example".to_owned()), ..authority.client() };
    reach(&running, named).await.unwrap();
}

#[tokio::test]
async fn a_client_without_a_certificate_that_holds_is_refused_where_one_is_needed() {
    let (authority, clients, other) =
        (Authority::new("a"), Authority::new("c"), Authority::new("b"));
    for client_auth in [ClientAuth::Required, ClientAuth::Optional] {
        let files = authority.server(client_auth, Some(clients.ca()));
        let (running, fake, _) = serving(files).await;
        let good = clients.write("ann", Until::Later);
        reach(&running, with_certificate(authority.client(), good)).await.unwrap();
        fake.seen.lock().unwrap().clear();
        let expired = clients.write("old", Until::Past);
        let result = reach(&running, with_certificate(authority.client(), expired)).await;
        assert_condition(&result.unwrap_err(), Condition::Unavailable);
        let foreign = other.write("eve", Until::Later);
        let result = reach(&running, with_certificate(authority.client(), foreign)).await;
        assert_condition(&result.unwrap_err(), Condition::Unavailable);
        assert_eq!(fake.last(), "", "nothing reached the service");
        let nobody = reach(&running, authority.client()).await;
        assert_eq!(nobody.is_ok(), client_auth == ClientAuth::Optional);
    }
}

#[tokio::test]
async fn a_verified_certificate_is_a_credential() {
    let (authority, clients) = (Authority::new("a"), Authority::new("c"));
    let fake = Arc::new(Fake::default());
    let files = authority.server(ClientAuth::Optional, Some(clients.ca()));
    let mut serve = ServeOptions::default();
    serve.tls = Some(ServerTls::load(files).unwrap());
    serve.authenticator = Some(Arc::new(Gatekeeper::default()));
    let running = Running::sessions_with(Over::Tcp, fake.clone(), serve.clone()).await;
    let mine = clients.write("ann", Until::Later);
    reach(&running, with_certificate(authority.client(), mine.clone())).await.unwrap();
    let seen = fake.callers.lock().unwrap().pop().unwrap();
    let subject = seen.identity.unwrap().subject;
    assert!(subject.ends_with(" bytes of DER") && !subject.starts_with('0'), "{subject}");

    let error = reach(&running, authority.client()).await.unwrap_err();
    assert_condition(&error, Condition::Unauthenticated);
    // One that does not hold is not made up for by the other.
    let mut both = options(with_certificate(authority.client(), mine));
    both.bearer = Some(Arc::new(Secret::new("bad".to_owned())));
    let remote = RemoteSessions::connect(&running.address, &both).await.unwrap();
    let error = remote.get(&caller(), &uid("s")).await.unwrap_err();
    assert_condition(&error, Condition::Unauthenticated);
    both.bearer = Some(Arc::new(Secret::new("good-bob".to_owned())));
    let remote = RemoteSessions::connect(&running.address, &both).await.unwrap();
    remote.get(&caller(), &uid("s")).await.unwrap();

    // The operators' listener takes the same.
    let operators = Running::operators(
        Over::Tcp,
        Arc::new(FakeRegistry::default()),
        Arc::new(FakeOperations::default()),
        serve,
    )
    .await;
    use mainspring_api::HarnessRegistry as _;
    let remote = RemoteHarnessRegistry::connect(&operators.address, &both).await.unwrap();
    remote.get(&caller(), "n", false).await.unwrap();
}

#[tokio::test]
async fn plain_text_and_tls_do_not_meet() {
    let authority = Authority::new("a");
    let (secured, fake, _) = serving(authority.server(ClientAuth::None, None)).await;
    let remote = RemoteSessions::connect(&secured.address, &ConnectOptions::default()).await;
    let error = match remote {
        Err(error) => error,
        Ok(remote) => remote.get(&caller(), &uid("s")).await.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(fake.last(), "");

    let plain = Running::sessions(Over::Tcp, Arc::new(Fake::default())).await;
    let error = reach(&plain, authority.client()).await.unwrap_err();
    assert_condition(&error, Condition::Unavailable);
}

#[tokio::test]
async fn a_client_that_stalls_in_its_handshake_blocks_nobody() {
    let authority = Authority::new("a");
    let (running, ..) = serving(authority.server(ClientAuth::None, None)).await;
    let mut stalled = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&running.address).await.unwrap();
        // The beginning of a handshake.
        stream.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
        stalled.push(stream);
    }
    reach(&running, authority.client()).await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_its_time_and_no_more() {
    let authority = Authority::new("a");
    let (_running, ..) = serving(authority.server(ClientAuth::None, None)).await;
    let mut stream = TcpStream::connect(&_running.address).await.unwrap();
    let started = tokio::time::Instant::now();
    let mut rest = Vec::new();
    let closed = stream.read_to_end(&mut rest).await;
    assert!(closed.is_err() || rest.is_empty());
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn of_too_many_handshakes_the_oldest_is_given_up() {
    let authority = Authority::new("a");
    let (running, ..) = serving(authority.server(ClientAuth::None, None)).await;
    let mut stalled = Vec::new();
    for _ in 0..=1024 {
        stalled.push(TcpStream::connect(&running.address).await.unwrap());
    }
    let started = tokio::time::Instant::now();
    let mut rest = Vec::new();
    let closed = stalled[0].read_to_end(&mut rest).await;
    assert!(closed.is_err() || rest.is_empty());
    assert_eq!(started.elapsed().as_secs(), 0, "it did not have its time");
    let second = stalled[1].read_to_end(&mut rest).await;
    assert!(second.is_err() || rest.is_empty());
    assert_eq!(started.elapsed().as_secs(), 10, "and the next one had");
}

#[tokio::test]
async fn new_files_are_used_for_new_connections_and_bad_ones_are_not() {
    let (old, new) = (Authority::new("a"), Authority::new("b"));
    let files = old.server(ClientAuth::None, None);
    let (certificate, key) = (files.certificate.clone(), files.key.clone());
    let (running, _, tls) = serving(files).await;
    let kept = RemoteSessions::connect(&running.address, options(old.client())).await.unwrap();
    kept.get(&caller(), &uid("s")).await.unwrap();
    assert!(!tls.reload().unwrap(), "nothing has changed");

    let (new_certificate, new_key) = new.issue("127.0.0.1", Until::Later);
    std::fs::write(&certificate, &new_certificate).unwrap();
    let error = tls.reload().unwrap_err();
    assert!(matches!(error, TlsError::Unusable(_)), "the key is another one's: {error}");
    reach(&running, old.client()).await.unwrap();
    std::fs::write(&key, "no key").unwrap();
    assert!(matches!(tls.reload().unwrap_err(), TlsError::Malformed { .. }));
    reach(&running, old.client()).await.unwrap();

    std::fs::write(&key, &new_key).unwrap();
    assert!(tls.reload().unwrap());
    reach(&running, new.client()).await.unwrap();
    refused(reach(&running, old.client()).await, "UnknownIssuer");
    kept.get(&caller(), &uid("s")).await.unwrap();

    std::fs::remove_file(&key).unwrap();
    assert!(matches!(tls.reload().unwrap_err(), TlsError::Read { .. }));
    reach(&running, new.client()).await.unwrap();
}

#[tokio::test]
async fn who_vouches_for_clients_may_change_too() {
    let (authority, old, new) = (Authority::new("a"), Authority::new("c"), Authority::new("d"));
    let client_ca = authority.dir.path().join("clients.pem");
    std::fs::copy(old.ca(), &client_ca).unwrap();
    let files = authority.server(ClientAuth::Required, Some(client_ca.clone()));
    let (running, _, tls) = serving(files).await;
    let client =
        |of: &Authority| with_certificate(authority.client(), of.write("ann", Until::Later));
    reach(&running, client(&old)).await.unwrap();
    assert!(reach(&running, client(&new)).await.is_err());
    std::fs::copy(new.ca(), &client_ca).unwrap();
    assert!(tls.reload().unwrap());
    reach(&running, client(&new)).await.unwrap();
    assert!(reach(&running, client(&old)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_looks_at_its_files_by_itself() {
    let (old, new) = (Authority::new("a"), Authority::new("b"));
    let files = old.server(ClientAuth::None, None);
    let (certificate, key) = (files.certificate.clone(), files.key.clone());
    let (running, ..) = serving(files).await;
    reach(&running, old.client()).await.unwrap();
    let (new_certificate, new_key) = new.issue("127.0.0.1", Until::Later);
    std::fs::write(&certificate, &new_certificate).unwrap();
    std::fs::write(&key, &new_key).unwrap();
    let started = tokio::time::Instant::now();
    while reach(&running, new.client()).await.is_err() {
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(started.elapsed() < Duration::from_secs(60), "it never looked");
    }
}

#[tokio::test]
async fn settings_that_do_not_go_together_are_refused_by_name() {
    let authority = Authority::new("a");
    let load = |files| ServerTls::load(files).unwrap_err().to_string();
    let asked = authority.server(ClientAuth::Required, None);
    assert_eq!(load(asked), "clients are asked for certificates, and no client CA is set");
    let unasked = authority.server(ClientAuth::None, Some(authority.ca()));
    assert_eq!(load(unasked), "a client CA is set, and clients are not asked for certificates");
    let good = authority.server(ClientAuth::None, None);
    let missing = ServerTlsFiles { key: Path::new("/nowhere/key").to_owned(), ..good.clone() };
    assert_eq!(load(missing), "/nowhere/key cannot be read");
    let swapped = ServerTlsFiles { certificate: good.key.clone(), ..good.clone() };
    assert!(load(swapped).ends_with("there is no certificate in it"));
    let huge = authority.dir.path().join("huge.pem");
    std::fs::write(&huge, vec![b'\n'; (1 << 20) + 1]).unwrap();
    let swapped = ServerTlsFiles { certificate: huge, ..good };
    assert!(load(swapped).contains("TLS_FILE_BYTES_MAX"));

    let mut serve = ServeOptions::default();
    let files = authority.server(ClientAuth::None, None);
    serve.tls = Some(ServerTls::load(files).unwrap());
    let running = Running::sessions_with(Over::Unix, Arc::new(Fake::default()), serve).await;
    assert!(matches!(running.stop().await, Err(ServeError::Tls(TlsError::Settings(_)))));

    let refused = async |address: &str, tls: ClientTls| {
        let error = RemoteSessions::connect(address, options(tls)).await.unwrap_err();
        assert_condition(&error, Condition::InvalidArgument);
        error.to_string()
    };
    let text = refused("http://127.0.0.1:1", authority.client()).await;
    assert!(text.ends_with("http and TLS exclude each other"), "{text}");
    let text = refused("unix:/a/b", authority.client()).await;
    assert!(text.ends_with("TLS is for TCP"), "{text}");
    let half = ClientTls { certificate: Some(authority.ca()), ..authority.client() };
    assert!(refused("127.0.0.1:1", half).await.contains("come together"));
    let none = ClientTls { ca: Some("/nowhere/ca".into()), ..Default::default() };
    assert!(refused("127.0.0.1:1", none).await.contains("/nowhere/ca cannot be read"));
}
