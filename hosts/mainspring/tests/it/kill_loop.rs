//! `kill -9` of a serving host at random moments, under clients, many times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use mainspring::api::{
    Caller, CreateRequest, EventBody, ExecRequest, ExecState, ExecUpdate, Hash, ListRequest,
    LogRecord, Message, ReplayRequest, RequestId, ResumeRequest, Seq, SessionUid, Sessions as _,
};
use mainspring::transport_grpc::{LinkOptions, RemoteSessions};
use mainspring_testkit::SeededRng;
use tokio::sync::mpsc;

use crate::support::{Dir, Serving};

const SEED: u64 = 0x6b11;
const ROUNDS: u64 = 200;
const WRITERS: usize = 16;
/// Writers go on with new sessions after so many rounds, so that a round stays short.
const ROUNDS_OF_A_SESSION: u64 = 4;
/// From the start of the process until it answers.
const START_UP_MAX: Duration = Duration::from_secs(10);

pub(crate) fn caller() -> Caller {
    Caller::anonymous("test", RequestId::new("test").unwrap())
}

/// What one client saw of its session.
#[derive(Debug, Default)]
struct Seen {
    records: BTreeMap<Seq, Hash>,
    /// Each turn's text, and whether its end was seen.
    turns: BTreeMap<String, bool>,
}

#[derive(Debug)]
struct Writer {
    session: SessionUid,
    seen: Seen,
}

#[expect(clippy::disallowed_methods, reason = "the start-up of a real process is measured")]
fn now() -> Instant {
    Instant::now()
}

/// A host that answers, and how long that took.
async fn start(dir: &Dir) -> (Serving, RemoteSessions, Duration) {
    let since = now();
    let address = format!("unix:{}", dir.path("s.sock").display());
    let args = ["serve", "--addr", &address, "--journal", "j.redb"];
    let serving = Serving::start(dir, &args);
    let client = RemoteSessions::connect(&serving.address, &LinkOptions::default()).await.unwrap();
    client.list(&caller(), ListRequest::default()).await.unwrap();
    (serving, client, since.elapsed())
}

/// Runs turns until the host is gone, and tells of each record.
async fn write(
    client: RemoteSessions,
    mut writer: Writer,
    round: u64,
    told: mpsc::UnboundedSender<()>,
) -> Writer {
    for number in 0.. {
        let text = format!("{} round {round} turn {number}", writer.session);
        writer.seen.turns.insert(text.clone(), false);
        let request = ExecRequest {
            session: Some(writer.session.clone()),
            inputs: vec![Message::user(&*text)],
            ..ExecRequest::default()
        };
        let Ok(mut updates) = client.exec(&caller(), request).await else { break };
        while let Some(Ok(update)) = updates.next().await {
            let ExecUpdate::Record(record) = update else { continue };
            let twice = writer.seen.records.insert(record.seq, record.hash);
            assert!(twice.is_none(), "{}: seq {} came twice", writer.session, record.seq);
            if matches!(record.event.body, EventBody::End(_)) {
                writer.seen.turns.insert(text.clone(), true);
            }
            let _ = told.send(());
        }
        if !writer.seen.turns[&text] {
            break;
        }
    }
    writer
}

/// All records, verified by the host.
pub(crate) async fn replay(client: &RemoteSessions, session: &SessionUid) -> Vec<LogRecord> {
    let session = session.clone();
    let request = ReplayRequest { session, from_seq: 0, to_seq: 0, verify: true };
    let records = client.replay(&caller(), request).await.unwrap();
    records.map(|record| record.unwrap()).collect().await
}

/// What was seen is there, under its number and with its hash; no turn is
/// there twice, and each one whose end was seen is there.
fn check(writer: &Writer, records: &[LogRecord]) {
    let uid = &writer.session;
    for (number, record) in records.iter().enumerate() {
        assert_eq!(record.seq, Seq::new(number as u64 + 1), "{uid}");
    }
    for (seq, hash) in &writer.seen.records {
        let place = usize::try_from(seq.get()).unwrap() - 1;
        let found = records.get(place).map(|record| record.hash);
        assert_eq!(found, Some(*hash), "{uid}: seq {seq} was shown to a client");
    }
    for (text, ended) in &writer.seen.turns {
        let inputs = records.iter().filter(
            |record| matches!(&record.event.body, EventBody::Input(Some(input)) if input.plain_text() == *text),
        );
        let times = inputs.count();
        assert!(times <= 1 && (times == 1 || !ended), "{uid}: {text:?} is there {times} times");
    }
}

/// Whether the last turn has begun and not ended.
fn interrupted(records: &[LogRecord]) -> bool {
    let of_turns = |body: &&EventBody| !matches!(body, EventBody::Lifecycle(_));
    let last = records.iter().map(|record| &record.event.body).rfind(of_turns);
    !matches!(last, None | Some(EventBody::End(_)))
}

async fn new_session(client: &RemoteSessions) -> Writer {
    let created = client.create(&caller(), CreateRequest::default()).await.unwrap();
    Writer { session: created.uid, seen: Seen::default() }
}

/// The host comes back, shows each interrupted turn as running, and finishes it.
async fn recover(client: &RemoteSessions, writer: &Writer, state: ExecState) -> bool {
    let records = replay(client, &writer.session).await;
    check(writer, &records);
    let expected = match (records.is_empty(), interrupted(&records)) {
        (true, _) => ExecState::Pending,
        (_, true) => ExecState::Running,
        (_, false) => ExecState::Completed,
    };
    assert_eq!(state, expected, "{} after {} records", writer.session, records.len());
    if expected != ExecState::Running {
        return false;
    }
    let request = ResumeRequest { session: writer.session.clone(), approval_ttl: None };
    let updates = client.resume(&caller(), request).await.unwrap();
    updates.for_each(|update| async move { drop(update.unwrap()) }).await;
    let finished = replay(client, &writer.session).await;
    assert_eq!(finished[..records.len()], records[..], "{}: a resume only adds", writer.session);
    let kinds: Vec<_> = finished.iter().map(|record| record.event.kind().name()).collect();
    assert!(!interrupted(&finished), "{}: resumed and not ended: {kinds:?}", writer.session);
    check(writer, &finished);
    true
}

/// 200 times killed under 16 clients: what a client saw is there, once, and
/// what was cut off is finished.
#[test]
fn killed_two_hundred_times_no_client_misses_a_record() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let dir = Dir::new();
        // Clients resume here, and would meet the host's own recovery.
        dir.write("mainspring.toml", "resume_interrupted = false\n");
        let mut rng = SeededRng::new(SEED);
        let (mut longest, mut resumed, mut seen) = (Duration::ZERO, 0_u64, 0_usize);
        let mut writers: Vec<Writer> = Vec::new();
        let (mut serving, mut client, _) = start(&dir).await;
        for round in 0..ROUNDS {
            if round % ROUNDS_OF_A_SESSION == 0 {
                writers.clear();
                for _ in 0..WRITERS {
                    writers.push(new_session(&client).await);
                }
            }
            let (told, mut heard) = mpsc::unbounded_channel();
            let running: Vec<_> = writers
                .drain(..)
                .map(|writer| tokio::spawn(write(client.clone(), writer, round, told.clone())))
                .collect();
            drop(told);
            // After some number of records, and then at any moment.
            let (records, pause) = (rng.below(48), Duration::from_micros(rng.next_u64() % 5_000));
            let failing = Failing { round, records, pause };
            for _ in 0..records {
                heard.recv().await.unwrap();
            }
            tokio::time::sleep(pause).await;
            serving.kill();
            for writer in running {
                writers.push(writer.await.unwrap());
            }
            let took;
            (serving, client, took) = start(&dir).await;
            assert!(took < START_UP_MAX, "round {round}: started in {took:?}");
            longest = longest.max(took);

            let query = ListRequest { page_size: 500, ..ListRequest::default() };
            let page = client.list(&caller(), query).await.unwrap();
            let states: BTreeMap<_, _> = page
                .sessions
                .into_iter()
                .map(|session| (session.uid, session.exec_state))
                .collect();
            for writer in &writers {
                let state = states.get(&writer.session).copied();
                let state = state.unwrap_or_else(|| panic!("{} is not listed", writer.session));
                resumed += u64::from(recover(&client, writer, state).await);
                seen += writer.seen.records.len();
            }
            drop(failing);
        }
        assert_eq!(serving.terminate(), 0);
        eprintln!("longest start-up {longest:?}, {resumed} turns resumed, {seen} records compared");
        assert!(resumed > ROUNDS, "only {resumed} turns were cut");
    });
}

/// Says where it was when a test fails.
struct Failing {
    round: u64,
    records: usize,
    pause: Duration,
}

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { round, records, pause } = self;
            eprintln!(
                "seed {SEED:#x}, round {round}: killed after {records} records and {pause:?}"
            );
        }
    }
}
