//! A host on a socket, a proxy before it, and clients that connect again.
//!
//! Time is held, and moves when nothing else does: what takes minutes takes
//! none here. Pings would judge connections by it, so there are none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mainspring::api::{
    Caller, CreateRequest, Descriptor, EndState, EventBody, EventSink, ExecRequest, ExecStream,
    ExecUpdate, ExecutionId, FollowRequest, FollowUpdate, Harness, HarnessError, LogRecord,
    Mediation, Message, ModelError, ModelProvider, ModelReply, ModelRequest, OsEntropy, RequestId,
    Seq, SessionUid, Sessions as _, Start, StreamingModel, ToolCall, ToolError, ToolExecutor,
    ToolResult, ToolScope, Usage, async_trait,
};
use mainspring::eventlog::{EventLog, Level, ReadLimit, StoredRecord};
use mainspring::harness::Keys;
use mainspring::layers::{Notice, Reconnect, ReconnectOptions};
use mainspring::runtime_local::LocalRuntime;
use mainspring::transport_grpc::{ConnectOptions, Listener, RemoteSessions, ServeOptions, serve};
use mainspring::{Host, HostBuilder, Stores};
use mainspring_testkit::{Proxy, SeededEntropy, SeededRng};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How often clients ask for a sign of life.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// What is not over by then hangs: in time that is held, hours are nothing.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Bytes of an output where nothing else is asked for.
pub(crate) const SMALL: usize = 100;

/// For each step that its config asks for: a tool, what the model has to say of
/// it, and an output of so many bytes.
#[derive(Debug)]
struct Worker;

#[async_trait]
impl Harness for Worker {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(Descriptor { id: "worker".into(), version: "1".into(), ..Descriptor::default() })
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let config = String::from_utf8(start.config.to_vec()).unwrap();
        let (steps, bytes) = config.split_once(' ').unwrap();
        let (steps, bytes): (u32, usize) = (steps.parse().unwrap(), bytes.parse().unwrap());
        let mut keys = Keys::of(&start);
        for step in 0..steps {
            let call = ToolCall {
                id: format!("call-{step}"),
                tool: "step".to_owned(),
                args: None,
                mediation: Mediation::ControllerMediated,
                idempotency_key: keys.next_key(),
            };
            sink.tool_call(call).await?;
            let messages = vec![Message::user(step.to_string())];
            sink.model(ModelRequest { messages, ..ModelRequest::default() }).await?;
            sink.output("x".repeat(bytes)).await?;
        }
        Ok(())
    }
}

/// Says what it says in pieces.
#[derive(Debug)]
struct Talker;

#[async_trait]
impl ModelProvider for Talker {
    async fn complete(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        self.stream(request, &mut |_| {}).await
    }

    fn streaming(&self) -> Option<&dyn StreamingModel> {
        Some(self)
    }
}

#[async_trait]
impl StreamingModel for Talker {
    async fn stream(
        &self,
        _: &ModelRequest,
        on_chunk: &mut (dyn for<'a> FnMut(&'a str) + Send),
    ) -> Result<ModelReply, ModelError> {
        let pieces = ["one ", "two ", "three"];
        for piece in pieces {
            on_chunk(piece);
            tokio::task::yield_now().await;
        }
        Ok(ModelReply { message: Message::assistant(pieces.concat()), usage: Usage::default() })
    }
}

/// What the tool did, by session and key. It does a step when it is let.
#[derive(Debug)]
pub(crate) struct Ledger {
    done: Mutex<BTreeMap<(SessionUid, String), u32>>,
    steps: Semaphore,
}

impl Ledger {
    /// Lets it do so many more steps.
    pub(crate) fn release(&self, steps: usize) {
        self.steps.add_permits(steps);
    }

    /// How often each key of a session was done.
    pub(crate) fn of(&self, session: &SessionUid) -> Vec<u32> {
        let done = self.done.lock().unwrap();
        done.iter().filter(|((of, _), _)| of == session).map(|(_, times)| *times).collect()
    }
}

#[async_trait]
impl ToolExecutor for Ledger {
    async fn execute(&self, scope: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        self.steps.acquire().await.unwrap().forget();
        let key = (scope.session.clone(), call.idempotency_key.clone());
        *self.done.lock().unwrap().entry(key).or_default() += 1;
        Ok(ToolResult { id: call.id.clone(), ..ToolResult::default() })
    }

    fn offers(&self, _: &str) -> bool {
        true
    }

    fn is_repeatable(&self, _: &str) -> bool {
        // What was dropped while it waited was not done.
        true
    }
}

/// A host, and the line to it.
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) proxy: Proxy,
    serving: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("t").unwrap())
}

impl World {
    pub(crate) async fn new() -> Self {
        let log = Stores::with_defaults().open("memory:", Default::default()).unwrap();
        let ledger = Arc::new(Ledger { done: Mutex::default(), steps: Semaphore::new(0) });
        Self::over(log, ledger).await
    }

    /// Stops the turns of this host, and gives the one that comes after it.
    pub(crate) async fn next(self) -> Self {
        let service = self.host.service();
        service.interrupt();
        service.idle().await;
        Self::over(Arc::clone(service.log()), Arc::clone(&self.ledger)).await
    }

    async fn over(log: Arc<dyn EventLog>, ledger: Arc<Ledger>) -> Self {
        let runtime = LocalRuntime::builder().built_in("worker", Arc::new(Worker)).build();
        let host = HostBuilder::new(log)
            .harness("worker", Arc::new(runtime.unwrap()))
            .model(Arc::new(Talker))
            .tools(ledger.clone())
            .build()
            .unwrap();
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.address().to_string().parse().unwrap();
        let service = Arc::new(host.service().clone());
        let mut options = ServeOptions::default();
        options.link.keep_alive_interval = None;
        let serving = tokio::spawn(async move {
            serve(service, listener, options, std::future::pending()).await.unwrap();
        });
        let proxy = Proxy::to(address).await.unwrap();
        Self { host, ledger, proxy, serving }
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self, seed: u64) -> Client {
        let mut options = ConnectOptions::default();
        options.heartbeat = Some(HEARTBEAT);
        options.link.keep_alive_interval = None;
        let address = self.proxy.address().to_string();
        let remote = RemoteSessions::connect(&address, options).await.unwrap();
        let notices = Notices::default();
        let told = notices.clone();
        let mut options = ReconnectOptions::default();
        options.entropy = Arc::new(SeededEntropy::new(seed));
        options.on_notice =
            Some(Arc::new(move |notice| told.0.lock().unwrap().push((notice, Instant::now()))));
        Client { sessions: Reconnect::new(Arc::new(remote), options), notices }
    }

    /// Cuts every connection behind one of the next bytes that the host sends,
    /// or while nobody has anything to say.
    pub(crate) async fn cut_within(&self, bytes: usize, rng: &mut SeededRng) {
        let at_rest = tokio::time::sleep(HEARTBEAT * 3);
        tokio::select! {
            () = self.proxy.cut_after(1 + rng.below(bytes)) => {}
            () = at_rest => self.proxy.cut(),
        }
    }

    pub(crate) async fn session(&self) -> SessionUid {
        let request = CreateRequest { harness: "worker".to_owned(), ..CreateRequest::default() };
        self.host.service().create(&caller(), request).await.unwrap().uid
    }

    /// The journal, as positions and hashes. It has one turn, which is complete,
    /// and nothing behind it but that it was resumed.
    pub(crate) async fn journal(&self, session: &SessionUid) -> Vec<(u64, String)> {
        let (log, mut records) = (self.host.service().log(), Vec::new());
        loop {
            let from = Seq::new(records.len() as u64 + 1);
            let page = log.read(session, from, ReadLimit::default(), Level::Strict).await.unwrap();
            if page.is_empty() {
                break;
            }
            records.extend(page.iter().map(StoredRecord::to_record).map(Result::unwrap));
        }
        let starts =
            |record: &&LogRecord| matches!(record.event.body, EventBody::ExecutionStart(_));
        assert_eq!(records.iter().filter(starts).count(), 1, "one turn");
        let end = records.iter().position(is_completed).expect("it is complete");
        let resumed = |record: &LogRecord| matches!(record.event.body, EventBody::Lifecycle(_));
        assert!(records[end + 1..].iter().all(resumed));
        records.iter().map(place).collect()
    }

    /// What must hold of a session whose one turn is over.
    pub(crate) async fn assert_one_turn(&self, session: &SessionUid, steps: u32, what: &str) {
        let done = self.ledger.of(session);
        assert_eq!(done.len(), steps as usize, "{what}: each step has its key");
        assert!(done.iter().all(|times| *times == 1), "{what}: {done:?}");
    }
}

fn is_completed(record: &LogRecord) -> bool {
    let EventBody::End(Some(end)) = &record.event.body else { return false };
    end.end_state() == Some(EndState::Completed)
}

fn place(record: &LogRecord) -> (u64, String) {
    (record.seq.get(), record.hash.to_string())
}

/// What a client was told of its connections, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices(Arc<Mutex<Vec<(Notice, Instant)>>>);

impl Notices {
    /// When it noticed that it had lost its connection, for the first time.
    pub(crate) fn first_loss(&self) -> Option<Instant> {
        let told = self.0.lock().unwrap();
        told.iter().find(|(n, _)| *n == Notice::Reconnecting { attempt: 1 }).map(|(_, at)| *at)
    }

    pub(crate) fn last(&self) -> Option<Notice> {
        self.0.lock().unwrap().last().map(|(notice, _)| *notice)
    }

    pub(crate) fn attempts(&self) -> usize {
        let told = self.0.lock().unwrap();
        told.iter().filter(|(n, _)| matches!(n, Notice::Reconnecting { .. })).count()
    }
}

/// A client that connects again by itself.
pub(crate) struct Client {
    pub(crate) sessions: Reconnect,
    pub(crate) notices: Notices,
}

/// What a stream gave.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) records: Vec<(u64, String)>,
    pub(crate) session: Option<SessionUid>,
    pub(crate) sessions: u32,
    pub(crate) deltas: u32,
    pub(crate) gaps: u32,
}

/// A turn of so many steps, each with an output of so many bytes.
pub(crate) fn turn(session: Option<&SessionUid>, steps: u32, bytes: usize) -> ExecRequest {
    ExecRequest {
        session: session.cloned(),
        harness: "worker".to_owned(),
        inputs: vec![Message::user("work")],
        config: format!("{steps} {bytes}").into(),
        ..ExecRequest::default()
    }
}

/// The same, under an id of its own.
pub(crate) fn named(session: &SessionUid, steps: u32, bytes: usize) -> ExecRequest {
    ExecRequest {
        execution_id: Some(ExecutionId::random(&OsEntropy)),
        ..turn(Some(session), steps, bytes)
    }
}

/// Everything that a turn's stream gives.
pub(crate) async fn watched(mut updates: ExecStream) -> Given {
    let mut given = Given::default();
    while let Some(update) = updates.next().await {
        match update.unwrap() {
            ExecUpdate::Session(session) => {
                given.session = Some(session.uid);
                given.sessions += 1;
            }
            ExecUpdate::Record(record) => given.records.push(place(&record)),
            ExecUpdate::Delta(_) => given.deltas += 1,
        }
    }
    given
}

/// Runs a turn to its end.
pub(crate) fn exec(client: &Client, request: ExecRequest) -> JoinHandle<Given> {
    let sessions = client.sessions.clone();
    tokio::spawn(async move { watched(sessions.exec(&caller(), request).await.unwrap()).await })
}

/// Follows until a turn is complete.
pub(crate) async fn follow(client: &Client, session: &SessionUid) -> JoinHandle<Given> {
    let request = FollowRequest { session: session.clone(), after_seq: Seq::ZERO };
    let mut updates = client.sessions.follow(&caller(), request).await.unwrap();
    tokio::spawn(async move {
        let mut given = Given::default();
        loop {
            match updates.next().await.unwrap().unwrap() {
                FollowUpdate::Record(record) => {
                    given.records.push(place(&record));
                    if is_completed(&record) {
                        return given;
                    }
                }
                FollowUpdate::Delta(_) => given.deltas += 1,
                FollowUpdate::DeltaGap => given.gaps += 1,
                FollowUpdate::Heartbeat => {}
            }
        }
    })
}

/// What a task comes to, which does not hang.
pub(crate) async fn done<T>(task: JoinHandle<T>, what: &str) -> T {
    let done = tokio::time::timeout(PATIENCE, task).await;
    let done = done.unwrap_or_else(|_| panic!("{what}: it hangs"));
    done.unwrap_or_else(|error| panic!("{what}: {error}"))
}
