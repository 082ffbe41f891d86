//! A client whose connections are cut, wherever that happens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures_util::stream;
use mainspring::api::{
    ApproveRequest, Approved, BoxStream, Caller, CancelRequest, ComputeState, Condition,
    CreateRequest, DeletionState, DescribeReport, Event, EventBody, ExecRequest, ExecState,
    ExecStream, ExecUpdate, Fence, FollowRequest, FollowUpdate, ForkRequest, Hash, ListPage,
    ListRequest, LogRecord, Message, ReplayRequest, ResolveRequest, ResumeRequest, Seq, Session,
    SessionUid, Sessions, SessionsError, Signal, Timestamp, async_trait,
};
use mainspring::transport_grpc::{Listener, ServeOptions, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Dir;

/// Records of the one turn.
const RECORDS: u64 = 40;

/// Connections that are cut; the next ones are whole.
const CUTS: usize = 4;

/// A service with one turn, which is attached to by its id.
#[derive(Debug, Default)]
struct Double(Mutex<BTreeSet<String>>);

fn none<T>() -> Result<T, SessionsError> {
    Err(SessionsError::new(Condition::Unimplemented, "the double does not do it"))
}

fn session(uid: &SessionUid) -> Session {
    Session {
        uid: uid.clone(),
        project: "default".to_owned(),
        name: String::new(),
        harness: "echo".to_owned(),
        model: String::new(),
        version: 1,
        create_time: Timestamp::default(),
        update_time: Timestamp::default(),
        exec_state: ExecState::Running,
        compute_state: ComputeState::Live,
        deletion_state: DeletionState::Active,
        pending_approval: None,
        last_seq: Seq::ZERO,
        parent_uid: None,
        fork_seq: Seq::ZERO,
        identity: None,
        origin: None,
        labels: Default::default(),
        annotations: Default::default(),
        owner: None,
        fault: None,
    }
}

#[async_trait]
impl Sessions for Double {
    async fn create(&self, _: &Caller, _: CreateRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn get(&self, _: &Caller, _: &SessionUid) -> Result<Session, SessionsError> {
        none()
    }

    async fn list(&self, _: &Caller, _: ListRequest) -> Result<ListPage, SessionsError> {
        none()
    }

    async fn describe(&self, _: &Caller, _: &SessionUid) -> Result<DescribeReport, SessionsError> {
        none()
    }

    async fn exec(&self, _: &Caller, request: ExecRequest) -> Result<ExecStream, SessionsError> {
        let id = request.execution_id.expect("a turn that can be attached to has an id");
        self.0.lock().unwrap().insert(id.to_string());
        let first = ExecUpdate::Session(Box::new(session(&request.session.unwrap())));
        let records = (1..=RECORDS).map(move |seq| {
            let text = format!("{seq}{}", " ".repeat(1_000));
            let mut event = Event::of(EventBody::Output(Some(Message::assistant(text))));
            event.execution_id = Some(id.clone());
            let record = LogRecord {
                seq: Seq::new(seq),
                prev_hash: (seq > 1).then(|| Hash::new([0; 32])),
                hash: Hash::new([0; 32]),
                fence: Fence::new(1),
                event,
                notes: Default::default(),
            };
            ExecUpdate::Record(Box::new(record))
        });
        Ok(Box::pin(stream::iter(std::iter::once(first).chain(records).map(Ok))))
    }

    async fn resume(&self, _: &Caller, _: ResumeRequest) -> Result<ExecStream, SessionsError> {
        none()
    }

    async fn follow(
        &self,
        _: &Caller,
        _: FollowRequest,
    ) -> Result<BoxStream<'static, Result<FollowUpdate, SessionsError>>, SessionsError> {
        none()
    }

    async fn replay(
        &self,
        _: &Caller,
        _: ReplayRequest,
    ) -> Result<BoxStream<'static, Result<LogRecord, SessionsError>>, SessionsError> {
        none()
    }

    async fn approve(&self, _: &Caller, _: ApproveRequest) -> Result<Approved, SessionsError> {
        none()
    }

    async fn resolve(&self, _: &Caller, _: ResolveRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn suspend(&self, _: &Caller, _: &SessionUid) -> Result<Session, SessionsError> {
        none()
    }

    async fn fork(&self, _: &Caller, _: ForkRequest) -> Result<Vec<Session>, SessionsError> {
        none()
    }

    async fn cancel(&self, _: &Caller, _: CancelRequest) -> Result<Session, SessionsError> {
        none()
    }

    async fn delete(&self, _: &Caller, _: &SessionUid) -> Result<Session, SessionsError> {
        none()
    }
}

/// Passes connections on, and cuts each of the first ones after so many bytes
/// from the server.
async fn proxy(listener: TcpListener, server: String, seed: u64) {
    for connection in 0.. {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(&server).await.unwrap();
        // Spread over the whole answer, and behind the settings of the connection.
        let bytes = 200 + (seed * 7_919 + connection * 104_729) % 40_000;
        let bytes = (usize::try_from(connection).unwrap() < CUTS).then_some(bytes);
        tokio::spawn(pass(client, server, bytes));
    }
}

async fn pass(client: TcpStream, server: TcpStream, bytes: Option<u64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let up = async { tokio::io::copy(&mut from_client, &mut to_server).await };
    let down = async {
        let mut limited = from_server.take(bytes.unwrap_or(u64::MAX));
        tokio::io::copy(&mut limited, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        _ = up => {}
        _ = down => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_goes_on_after_each_cut_and_shows_every_record_once() {
    let dir = Dir::new();
    let double = Arc::new(Double::default());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.address().to_string();
    let stop = Signal::<()>::default();
    let stopped = stop.clone();
    let sessions: Arc<dyn Sessions> = double.clone();
    let serving = tokio::spawn(async move {
        serve(sessions, listener, ServeOptions::default(), async move { stopped.wait().await })
            .await
    });
    for seed in 0..5 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let proxying = tokio::spawn(proxy(listener, server.clone(), seed));
        let args = ["exec", "--session", "sess-1", "--input", "x", "--server", &address];
        let mut command = dir.command(&args);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "seed {seed}: {stderr}");
        assert!(stderr.contains("mainspring: reconnecting (1)\n"), "seed {seed}: {stderr}");
        assert!(stderr.ends_with("mainspring: reconnected\n"), "seed {seed}: {stderr}");
        let stdout = String::from_utf8(done.stdout).unwrap();
        let shown: Vec<u64> = stdout
            .lines()
            .map(|line| line.strip_prefix("seq=").unwrap().split(' ').next().unwrap())
            .map(|seq| seq.parse().unwrap())
            .collect();
        assert_eq!(shown, (1..=RECORDS).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(std::mem::take(&mut *double.0.lock().unwrap()).len(), 1, "one turn");
        proxying.abort();
    }
    stop.set(());
    serving.await.unwrap().unwrap();
}
