//! A server that is restarted again and again under turns that run, and
//! clients that go on by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use futures_util::StreamExt as _;
use mainspring::api::{
    Caller, CreateRequest, EndState, EventBody, ExecRequest, ExecUpdate, FollowRequest,
    FollowUpdate, LogRecord, Message, ReplayRequest, RequestId, Seq, SessionUid, Sessions as _,
};
use mainspring::layers::{Reconnect, ReconnectOptions};
use mainspring::transport_grpc::{ConnectOptions, RemoteSessions};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::support::{Dir, Serving};

/// Sessions, each with one turn.
const TURNS: usize = 20;

/// Calls of the tool in each turn.
const STEPS: usize = 10;

/// What is not over by then hangs.
const PATIENCE: Duration = Duration::from_secs(50);

/// The tool: it outlives every server, does each step once by its key, and
/// answers only when it is let.
#[derive(Debug)]
struct Ledger {
    /// The step of each session and key.
    done: Mutex<BTreeMap<(String, String), String>>,
    let_go: Semaphore,
    released: AtomicUsize,
    answered: watch::Sender<usize>,
}

impl Ledger {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            done: Mutex::default(),
            let_go: Semaphore::new(0),
            released: AtomicUsize::new(0),
            answered: watch::Sender::new(0),
        })
    }

    /// Serves it, and says how a host is told of it.
    async fn served(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", post(step)).with_state(Arc::clone(self));
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("step=http:http://{address}/,durable")
    }

    /// Lets it give so many more answers.
    fn release(&self, answers: usize) {
        self.released.fetch_add(answers, Ordering::SeqCst);
        self.let_go.add_permits(answers);
    }

    /// Waits until it has given all that it was let.
    async fn has_answered(&self) {
        let released = self.released.load(Ordering::SeqCst);
        let mut answered = self.answered.subscribe();
        let reached = tokio::time::timeout(PATIENCE, answered.wait_for(|all| *all >= released));
        assert!(reached.await.is_ok(), "{} of {released}", *self.answered.borrow());
    }

    /// The steps of a session, one of each key.
    fn of(&self, session: &SessionUid) -> Vec<String> {
        let done = self.done.lock().unwrap();
        let own = done.iter().filter(|((of, _), _)| of == session.as_str());
        own.map(|(_, step)| step.clone()).collect()
    }

    fn note(&self, key: (String, String), step: &str) {
        let before = self.done.lock().unwrap().insert(key, step.to_owned());
        assert!(before.is_none_or(|before| before == step), "a key is one call's");
    }
}

/// Every other step is done before its answer waits: a host that goes away
/// meanwhile cannot know.
async fn step(State(ledger): State<Arc<Ledger>>, headers: HeaderMap, step: String) -> String {
    let header = |name| headers[name].to_str().unwrap().to_owned();
    let key = (header("x-mainspring-session"), header("idempotency-key"));
    let is_early = key.1.ends_with(['0', '2', '4', '6', '8']);
    if is_early {
        ledger.note(key.clone(), &step);
    }
    ledger.let_go.acquire().await.unwrap().forget();
    if !is_early {
        ledger.note(key, &step);
    }
    ledger.answered.send_modify(|answered| *answered += 1);
    "{}".to_owned()
}

/// How a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is asked, and each turn comes to rest with the answer of its tool.
    Asked,
    /// It is asked, and the tools do not answer before it goes.
    AskedInVain,
    Killed,
}

struct Rolling {
    dir: Dir,
    tool: String,
    /// `None` between two of them.
    server: Option<Serving>,
    address: String,
    ledger: Arc<Ledger>,
    /// Moves when a client has lost its connection, or is told to leave.
    lost: watch::Sender<usize>,
}

impl Rolling {
    async fn start(address: &str) -> Self {
        let ledger = Ledger::new();
        let (dir, address, tool) = (Dir::new(), address.to_owned(), ledger.served().await);
        let lost = watch::Sender::new(0);
        let mut rolling = Self { dir, tool, server: None, address, ledger, lost };
        rolling.serve();
        rolling
    }

    /// Starts the next server, and gives what it had to say by then.
    fn serve(&mut self) -> String {
        let args = ["serve", "--addr", &self.address, "--tool", &self.tool];
        let args = [&args[..], &["--drain-max", "0", "--journal", "j.redb"]].concat();
        let said = self.dir.path("said");
        let mut command = self.dir.command(&args);
        command.stderr(File::create(&said).unwrap());
        let server = Serving::spawn(command);
        self.address.clone_from(&server.address);
        self.server = Some(server);
        std::fs::read_to_string(said).unwrap()
    }

    /// Ends the server while every turn is inside of the tool, and starts it
    /// again on the same journal and address.
    async fn restart(&mut self, end: End) {
        let server = self.server.take().unwrap();
        let mut lost = self.lost.subscribe();
        let ended = tokio::task::spawn_blocking(move || match end {
            End::Killed => drop(server),
            _ => assert_eq!(server.terminate(), 0, "it ends well"),
        });
        if end == End::Asked {
            // Followers are told of the drain, which is over at once.
            tokio::time::timeout(PATIENCE, lost.changed()).await.unwrap().unwrap();
            self.ledger.release(TURNS);
        }
        tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap();
        let said = self.serve();
        let recovers = said.contains("store is recovering");
        assert_eq!(recovers, end == End::Killed, "a store is left closed: {said}");
    }

    async fn client(&self) -> Reconnect {
        // A socket's path is relative to the folder that the server runs in.
        let address = match self.address.strip_prefix("unix:") {
            Some(path) => format!("unix://{}", self.dir.path(path).display()),
            None => self.address.clone(),
        };
        let remote = RemoteSessions::connect(&address, ConnectOptions::default()).await.unwrap();
        let lost = self.lost.clone();
        let mut options = ReconnectOptions::default();
        options.on_notice = Some(Arc::new(move |_| lost.send_modify(|lost| *lost += 1)));
        Reconnect::new(Arc::new(remote), options)
    }
}

fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("t").unwrap())
}

fn place(record: &LogRecord) -> (u64, String) {
    (record.seq.get(), record.hash.to_string())
}

fn is_completed(record: &LogRecord) -> bool {
    let EventBody::End(Some(end)) = &record.event.body else { return false };
    end.end_state() == Some(EndState::Completed)
}

/// The records of a turn as they came: to its end, or until the client goes
/// away as soon as the tool is called.
async fn run(client: Reconnect, session: SessionUid, leaves: bool) -> Records {
    let steps: Vec<_> =
        (0..STEPS).map(|n| format!("{{\"tool\":\"step\",\"args\":{{\"n\":{n}}}}}")).collect();
    let request = ExecRequest {
        session: Some(session),
        inputs: vec![Message::user("go")],
        config: format!("{{\"steps\":[{}]}}", steps.join(",")).into(),
        ..ExecRequest::default()
    };
    let mut updates = client.exec(&caller(), request).await.unwrap();
    let mut records = Vec::new();
    while let Some(update) = updates.next().await {
        let ExecUpdate::Record(record) = update.unwrap() else { continue };
        records.push(place(&record));
        if leaves && matches!(record.event.body, EventBody::ToolCall(_)) {
            break;
        }
    }
    records
}

/// The records of a session that is followed until its turn is complete.
async fn follow(client: &Reconnect, session: &SessionUid) -> JoinHandle<Records> {
    let request = FollowRequest { session: session.clone(), after_seq: Seq::ZERO };
    let mut updates = client.follow(&caller(), request).await.unwrap();
    tokio::spawn(async move {
        let mut records = Vec::new();
        loop {
            if let FollowUpdate::Record(record) = updates.next().await.unwrap().unwrap() {
                records.push(place(&record));
                if is_completed(&record) {
                    return records;
                }
            }
        }
    })
}

type Records = Vec<(u64, String)>;

/// A session, what its client sees, whether that one goes away, and what its
/// follower sees.
type Turn = (SessionUid, JoinHandle<Records>, bool, JoinHandle<Records>);

async fn done<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(PATIENCE, task).await.expect("it hangs").unwrap()
}

/// What each of the restarts leaves, for all turns and all of their clients.
async fn survives(address: &str, ends: &[End]) {
    let mut rolling = Rolling::start(address).await;
    let ledger = Arc::clone(&rolling.ledger);
    let mut turns: Vec<Turn> = Vec::new();
    for number in 0..TURNS {
        let client = rolling.client().await;
        let create = CreateRequest { harness: "gate".to_owned(), ..CreateRequest::default() };
        let session = client.create(&caller(), create).await.unwrap().uid;
        let follower = follow(&client, &session).await;
        // Nobody calls for every fourth again: the next server goes on with it.
        let is_left = number % 4 == 3;
        let turn = tokio::spawn(run(client, session.clone(), is_left));
        turns.push((session, turn, is_left, follower));
    }
    for end in ends {
        // Wherever each of them is: some are further than others.
        ledger.release(TURNS + TURNS / 2);
        ledger.has_answered().await;
        rolling.restart(*end).await;
    }
    let is_over = |(_, turn, is_left, follower): &Turn| {
        follower.is_finished() || (turn.is_finished() && !is_left)
    };
    assert!(!turns.iter().any(is_over), "it was over before");
    ledger.release(2 * TURNS * STEPS);
    let client = rolling.client().await;
    for (session, turn, is_left, follower) in turns {
        let (shown, followed) = (done(turn).await, done(follower).await);
        let steps = ledger.of(&session);
        let distinct: BTreeSet<_> = steps.iter().collect();
        assert_eq!((steps.len(), distinct.len()), (STEPS, STEPS), "{session}: {steps:?}");
        let request =
            ReplayRequest { session: session.clone(), from_seq: 1, to_seq: 0, verify: true };
        let records = client.replay(&caller(), request).await.unwrap();
        let records: Vec<_> = records.map(Result::unwrap).collect().await;
        let journal: Vec<_> = records.iter().map(place).collect();
        let end = records.iter().position(is_completed).expect("the turn is complete") + 1;
        assert_eq!(followed, journal[..end], "{session}");
        // That it was resumed is recorded behind it: who was there then has seen that, too.
        let all = match shown.len() {
            len if is_left => len,
            len if len > end => journal.len(),
            _ => end,
        };
        assert_eq!(shown, journal[..all], "{session}");
        let count = |is: fn(&EventBody) -> bool| {
            records.iter().filter(|record| is(&record.event.body)).count()
        };
        assert_eq!(count(|body| matches!(body, EventBody::ExecutionStart(_))), 1, "{session}");
        assert_eq!(count(|body| matches!(body, EventBody::End(_))), 1, "{session}");
        assert_eq!(count(|body| matches!(body, EventBody::ToolResult(_))), STEPS, "{session}");
        let verify = ["verify", "--server", &rolling.address, "--session", session.as_str()];
        rolling.dir.run(&verify).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_turns_survive_three_restarts_none_lost_and_none_doubled() {
    survives("127.0.0.1:0", &[End::Asked, End::AskedInVain, End::Asked]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_turns_survive_kills_between_restarts_none_lost_and_none_doubled() {
    survives("unix:s.sock", &[End::Killed, End::Asked, End::Killed]).await;
}
