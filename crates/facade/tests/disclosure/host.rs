//! A host with callers, sessions in every state, and a store that is looked at
//! from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use mainspring::api::{
    Action, ApprovalRef, Authenticator, Caller, CallerIdentity, CreateRequest, ExecRequest,
    ExecUpdate, Message, ModelError, ModelProvider, ModelReply, ModelRequest, OsEntropy, RequestId,
    SessionUid, Sessions as _, Signal, ToolCall, ToolError, ToolExecutor, ToolResult, ToolScope,
    async_trait,
};
use mainspring::eventlog::{Engine as _, Keep, KvOptions, KvStore, LogError, Space};
use mainspring::{Host, HostBuilder};
use mainspring_authn::{Authenticators, CertificateAuthenticator, OidcAuthenticator, OidcConfig};
use mainspring_authz::{Allowlist, OwnerAllowlistPolicy};
use mainspring_testkit::{HookedLog, LogCall, LogHook, ManualClock, SharedMemory};
use mainspring_transport_grpc::{
    ClientAuth, Listener, ServeOptions, ServerTls, ServerTlsFiles, serve, serve_operators,
};
use serde_json::json;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::people::{AUDIENCE, Authority, ISSUER, NOW, Signer, TRUST_DOMAIN};
use crate::wire::{self, Answer, framed};

/// The bytes that a message may have here.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// Says what it hears. At `hold` it waits for good, at `fail` it fails.
#[derive(Debug, Default)]
struct Model {
    held: Signal<()>,
}

#[async_trait]
impl ModelProvider for Model {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let message = request.messages.last().cloned().unwrap();
        if message == Message::user("fail") {
            return Err(ModelError::Refused { status: 500, message: "no".to_owned() });
        }
        if message == Message::user("hold") {
            self.held.set(());
            std::future::pending::<()>().await;
        }
        Ok(ModelReply { message, usage: Default::default() })
    }
}

#[derive(Debug)]
struct Tools;

#[async_trait]
impl ToolExecutor for Tools {
    async fn execute(&self, _: &ToolScope, _: &ToolCall) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::default())
    }

    fn offers(&self, _: &str) -> bool {
        true
    }

    fn is_repeatable(&self, _: &str) -> bool {
        false
    }
}

/// Counts what the store is asked.
#[derive(Debug, Default, Clone)]
pub(crate) struct Reads(Arc<AtomicUsize>);

impl Reads {
    /// How often since the last time.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl LogHook for Reads {
    async fn around<T: Send>(
        &self,
        _: LogCall,
        run: impl Future<Output = Result<T, LogError>> + Send,
    ) -> Result<T, LogError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        run.await
    }
}

/// Which listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Sessions,
    Operators,
}

/// A host that serves.
pub(crate) struct World {
    pub(crate) host: Host,
    engine: SharedMemory,
    pub(crate) reads: Reads,
    pub(crate) signer: Signer,
    pub(crate) authority: Authority,
    addresses: [String; 2],
    channels: [Channel; 2],
    held: Signal<()>,
    /// What the files of certificates and keys lie in.
    _dir: TempDir,
}

/// Alice owns, Bob owns others, Mallory owns nothing; Olga operates; Nobody is
/// on no list.
fn policy() -> OwnerAllowlistPolicy {
    let mut list = Allowlist::default();
    for action in [Action::Create, Action::List, Action::Approve] {
        for subject in ["alice", "bob", "mallory"] {
            list = list.allow(action, person(subject));
        }
    }
    for action in [
        Action::Adopt,
        Action::RegistryRead,
        Action::RegistryList,
        Action::RegistryRegister,
        Action::RegistryRetire,
    ] {
        list = list.allow(action, person("olga"));
    }
    OwnerAllowlistPolicy::new(list)
}

fn person(subject: &str) -> CallerIdentity {
    CallerIdentity { issuer: ISSUER.to_owned(), subject: subject.to_owned() }
}

pub(crate) fn caller(subject: &str) -> Caller {
    let identity = Some(person(subject));
    Caller { identity, ..Caller::anonymous("setup", RequestId::new("setup").unwrap()) }
}

impl World {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (signer, authority) = (Signer::new(), Authority::new("ours"));
        signer.publish(&path("keys.json"));
        let server = authority.server();
        std::fs::write(path("server.pem"), &server.certificate).unwrap();
        std::fs::write(path("server.key"), &server.key).unwrap();
        std::fs::write(path("ca.pem"), authority.pem()).unwrap();

        let clock = Arc::new(ManualClock::at_unix(NOW));
        let (engine, reads) = (SharedMemory::default(), Reads::default());
        let options = KvOptions { clock: clock.clone(), ..KvOptions::default() };
        let store = KvStore::open(engine.clone(), options).unwrap();
        let model = Arc::new(Model::default());
        let held = model.held.clone();
        let host = HostBuilder::new(Arc::new(HookedLog::with_hook(Arc::new(store), reads.clone())))
            .clock(clock.clone(), Arc::new(OsEntropy))
            .model(model)
            .tools(Arc::new(Tools))
            .authorizer(Arc::new(policy()))
            .build()
            .unwrap();
        let registry = Arc::new(host.open_registry().await.unwrap());

        let mut tokens = OidcConfig::new(ISSUER, AUDIENCE);
        tokens.jwks_file = Some(path("keys.json"));
        let tokens = OidcAuthenticator::new(tokens, clock.clone()).unwrap();
        let certificates = CertificateAuthenticator::new(TRUST_DOMAIN, clock).unwrap();
        let authenticators = Authenticators::new(Some(tokens), Some(certificates)).unwrap();
        let authenticator: Arc<dyn Authenticator> = Arc::new(authenticators);
        let service = Arc::new(host.service().clone());
        let mut options = ServeOptions::default();
        options.link.message_bytes_max = MESSAGE_BYTES_MAX;
        options.authenticator = Some(authenticator);
        options.operations = Some(service.clone());
        options.tls = Some(
            ServerTls::load(ServerTlsFiles {
                certificate: path("server.pem"),
                key: path("server.key"),
                client_ca: Some(path("ca.pem")),
                client_auth: ClientAuth::Optional,
            })
            .unwrap(),
        );
        let beside = Listener::bind("127.0.0.1:0").await.unwrap();
        let operators = Listener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [beside.address().to_string(), operators.address().to_string()];
        let never = std::future::pending();
        tokio::spawn(serve(service.clone(), beside, options.clone(), never));
        let never = std::future::pending();
        tokio::spawn(serve_operators(registry, service, operators, options, never));
        let channels = [
            wire::connect(&addresses[0], &authority.pem(), None).await.unwrap(),
            wire::connect(&addresses[1], &authority.pem(), None).await.unwrap(),
        ];
        Self { host, engine, reads, signer, authority, addresses, channels, held, _dir: dir }
    }

    pub(crate) fn address(&self, port: Port) -> &str {
        &self.addresses[port as usize]
    }

    pub(crate) fn channel(&self, port: Port) -> &Channel {
        &self.channels[port as usize]
    }

    /// The value of `authorization` of somebody.
    pub(crate) fn bearer(&self, subject: &str) -> String {
        format!("Bearer {}", self.signer.token(subject, &json!({})))
    }

    /// Calls as `subject`, beside `headers`.
    pub(crate) async fn call(
        &self,
        subject: &str,
        (port, path, is_stream): (Port, &str, bool),
        headers: &[(&str, &str)],
        message: &[u8],
    ) -> Answer {
        let bearer = self.bearer(subject);
        let headers = [&[("authorization", &bearer[..])], headers].concat();
        let answer = wire::call(self.channel(port), path, &headers, framed(message), is_stream);
        answer.await.unwrap_or_else(|error| panic!("{path}: {error:?}"))
    }

    /// A session of somebody's on the harness that does what it is told.
    pub(crate) async fn created(&self, subject: &str) -> SessionUid {
        let request = CreateRequest { harness: "gate".to_owned(), ..CreateRequest::default() };
        self.host.service().create(&caller(subject), request).await.unwrap().uid
    }

    /// A session after a turn, and what it waits for; while nothing else runs.
    pub(crate) async fn ran(&self, subject: &str, text: &str) -> (SessionUid, Option<ApprovalRef>) {
        let uid = self.created(subject).await;
        let inputs = vec![Message::user(text)];
        let request = ExecRequest { session: Some(uid.clone()), inputs, ..Default::default() };
        let mut updates = self.host.service().exec(&caller(subject), request).await.unwrap();
        let mut approval = None;
        while let Some(update) = updates.next().await {
            if let Ok(ExecUpdate::Session(session)) = update {
                approval = session.pending_approval.or(approval);
            }
        }
        self.host.service().idle().await;
        (uid, approval)
    }

    /// Alice's sessions, one in each state, by the name of the state.
    pub(crate) async fn states(&self) -> (Vec<(&'static str, SessionUid)>, ApprovalRef) {
        let service = self.host.service();
        let fresh = self.created("alice").await;
        let (done, _) = self.ran("alice", "hello").await;
        let (failed, _) = self.ran("alice", "fail").await;
        let (parked, approval) = self.ran("alice", "refund 5").await;
        let (deleted, _) = self.ran("alice", "hello").await;
        service.delete(&caller("alice"), &deleted).await.unwrap();
        let (damaged, _) = self.ran("alice", "hello").await;
        self.damage(&damaged);
        let running = self.created("alice").await;
        let inputs = vec![Message::user("hold")];
        let request = ExecRequest { session: Some(running.clone()), inputs, ..Default::default() };
        let turn = service.exec(&caller("alice"), request).await.unwrap();
        self.held.wait().await;
        // Whoever leaves before its start is recorded takes the turn along.
        drop(turn);
        let states = vec![
            ("fresh", fresh),
            ("done", done),
            ("failed", failed),
            ("parked", parked),
            ("deleted", deleted),
            ("damaged", damaged),
            ("running", running),
        ];
        (states, approval.expect("it waits"))
    }

    /// Makes the session's row unreadable.
    fn damage(&self, uid: &SessionUid) {
        let rows = self.dump().into_iter();
        let (_, key, _) = rows
            .filter(|(space, ..)| *space == Space::Rows)
            .find(|(_, key, _)| String::from_utf8_lossy(key).contains(uid.as_str()))
            .expect("it has a row");
        self.engine
            .write(&mut |kv| kv.put(Space::Rows, &key, b"\xffnot a row").map(|()| Keep::Yes))
            .unwrap();
    }

    /// All that the store holds.
    pub(crate) fn dump(&self) -> Vec<(Space, Vec<u8>, Vec<u8>)> {
        let mut dump = Vec::new();
        self.engine
            .read(&mut |kv| {
                Space::ALL.into_iter().try_for_each(|space| {
                    kv.scan(space, &[], &[0xff; 64], &mut |key, value| {
                        dump.push((space, key.to_vec(), value.to_vec()));
                        std::ops::ControlFlow::Continue(())
                    })
                })
            })
            .unwrap();
        dump
    }
}
