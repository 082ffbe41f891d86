//! A host: races appends on all sessions, as the test tells it to by its
//! standard input, and settles each before it is done.

use std::collections::VecDeque;
use std::io::BufRead as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_api::{AppendId, Fence, OsEntropy, SystemClock};
use mainspring_eventlog::{EventLog as _, Holder, Level, LogError, SessionRow};
use mainspring_store_kafka::KafkaStore;
use mainspring_store_redb::{RedbConfig, RedbEngine};
use mainspring_testkit::SeededRng;
use tokio::sync::Semaphore;

use crate::clock;
use crate::ledger::{Answer, Append, Ledger, Mint};
use crate::plan::{Plan, SESSIONS, config, session};

/// Appends that a host has on their way at a time.
const WORKERS: u64 = 6;
/// Pause before what failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// What a process ends with when the store said what it must not.
const FAULT: i32 = 3;
/// How long it goes on with what it has begun when nobody tells it anything any
/// more: whoever started it may be gone, and the brokers with it.
const END_MAX: Duration = Duration::from_secs(90);
/// Appends whose answers are asked for again later.
const REMEMBERED: usize = 8;

/// Runs a host until its standard input ends.
pub(crate) fn run(plan: &Plan) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system has threads");
    runtime.block_on(host(plan));
}

async fn host(plan: &Plan) {
    let ledger = Ledger::create(&plan.ledger);
    let store = open(plan).await;
    ledger.opened();
    let fences = Mutex::new([None; SESSIONS]);
    let name = format!("{}.{}", plan.host, plan.incarnation);
    let host = Arc::new(Host { store, ledger, fences, name, tickets: Semaphore::new(0) });
    let seed = plan.seed ^ ((plan.host as u64) << 32) ^ ((plan.incarnation as u64) << 16);
    let workers: Vec<_> =
        (0..WORKERS).map(|worker| tokio::spawn(Arc::clone(&host).work(seed ^ worker))).collect();
    let (commands, mut told) = tokio::sync::mpsc::channel(64);
    // It ends with the process: nothing interrupts a read of the standard input.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let line = line.expect("commands are text");
            commands.blocking_send(line).expect("the host lives as long as its commands");
        }
    });
    while let Some(command) = told.recv().await {
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("go", tickets) => host.tickets.add_permits(tickets.parse().expect("a number")),
            ("take", _) => host.take_all().await,
            ("stale", _) => host.write_as_before().await,
            _ => panic!("there is no command `{command}`"),
        }
    }
    host.tickets.close();
    let ended = tokio::time::timeout(END_MAX, futures_util::future::join_all(workers)).await;
    let Ok(ended) = ended else {
        eprintln!("FAULT: what was begun does not end");
        std::process::exit(FAULT);
    };
    ended.into_iter().for_each(|worker| worker.expect("a worker does not panic"));
}

/// Opens the store, as soon as there are brokers that answer.
async fn open(plan: &Plan) -> KafkaStore {
    loop {
        let view = RedbEngine::open(&RedbConfig::at(&plan.view), &SystemClock);
        let view = Arc::new(view.unwrap_or_else(|error| fault("the view", &error)));
        match KafkaStore::open(config(&plan.brokers, &plan.topic, plan.lossy), view).await {
            Ok(store) => return store,
            Err(error @ LogError::Unavailable { .. }) => {
                eprintln!("not open yet: {}", mainspring_api::report(&error));
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(error) => fault("open", &error),
        }
    }
}

/// Ends the process: the test sees that, and shows what was said.
fn fault(what: &str, error: &LogError) -> ! {
    eprintln!("FAULT: {what}: {}", mainspring_api::report(error));
    std::process::exit(FAULT)
}

struct Host {
    store: KafkaStore,
    ledger: Ledger,
    /// The newest fence that this host was given, by session.
    fences: Mutex<[Option<Fence>; SESSIONS]>,
    name: String,
    /// Appends that this host may still try.
    tickets: Semaphore,
}

impl Host {
    async fn work(self: Arc<Self>, seed: u64) {
        let mut rng = SeededRng::new(seed);
        let mut settled: VecDeque<(u64, Append, Answer)> = VecDeque::new();
        while let Ok(ticket) = self.tickets.acquire().await {
            ticket.forget();
            let (number, append, answer) = self.one(&mut rng).await;
            if answer.is_settled() {
                settled.push_back((number, append, answer));
                settled.truncate(REMEMBERED);
            }
            if rng.percent(10)
                && let Some((number, append, _)) = settled.pop_front()
            {
                self.settle(number, &append, None).await;
            }
            self.ledger.done();
        }
    }

    /// One append, until it is settled.
    async fn one(&self, rng: &mut SeededRng) -> (u64, Append, Answer) {
        let at = rng.below(SESSIONS);
        let level = if rng.percent(10) { Level::Strict } else { Level::Committed };
        let (mut row, read_at) = self.row(at, level).await;
        let own = self.fence(at);
        let holds = own == Some(row.fence.fence);
        // A holder seldom lets go. Others take over, or race for the head under
        // the fence in force, or write as if theirs were still good.
        let (mints, stale) = if holds { (3, 0) } else { (15, 40) };
        let mut fence = row.fence.fence;
        if fence == Fence::NONE || rng.percent(mints) {
            if let Some(minted) = self.mint(at, &row, rng.percent(70)).await {
                fence = minted;
                row.fence.fence = minted;
            }
        } else if rng.percent(stale) {
            fence = own.unwrap_or(fence);
        }
        let seq = row.view.head.seq;
        // Now and then all hosts write the same bytes: only the id tells them apart.
        let by = if rng.percent(20) { "any" } else { &self.name };
        let texts = (0..=rng.below(3)).map(|n| format!("{by} {} {seq} {n}", rng_of(by, rng)));
        let append = Append {
            session: at,
            id: AppendId::random(&OsEntropy),
            fence,
            in_force: row.fence.fence,
            base: row.view.head,
            texts: texts.collect(),
            level,
            read_at,
        };
        let number = self.ledger.append(&append);
        // Who asks may go away before there is an answer.
        let patience = rng.percent(4).then(|| Duration::from_micros(rng.next_u64() % 3_000));
        let answer = self.settle(number, &append, patience).await;
        (number, append, answer)
    }

    /// Sends an append until it is judged. One that was not sent at all is left.
    async fn settle(&self, number: u64, append: &Append, patience: Option<Duration>) -> Answer {
        let session = session(append.session);
        let batch = append.batch();
        let mut patience = patience;
        let mut sent = false;
        loop {
            let written = self.store.append(&session, append.id, append.fence, &batch);
            let answer = match patience.take() {
                Some(patience) => tokio::time::timeout(patience, written).await.ok(),
                None => Some(written.await),
            };
            let answer = match answer {
                None => Answer::Unknown,
                Some(Ok(head)) => Answer::Ok(head),
                Some(Err(error)) => Answer::of(&error).unwrap_or_else(|| fault("append", &error)),
            };
            self.ledger.answer(number, answer);
            if answer.is_settled() || (answer == Answer::Refused && !sent) {
                return answer;
            }
            sent = true;
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// A session's row, and when it was asked for.
    async fn row(&self, at: usize, level: Level) -> (SessionRow, u64) {
        loop {
            let read_at = clock::now();
            match self.store.get(&session(at), level).await {
                Ok(row) => return (row, read_at),
                Err(LogError::Unavailable { .. }) => tokio::time::sleep(AGAIN_AFTER).await,
                Err(error) => fault("get", &error),
            }
        }
    }

    /// Takes a session over, until that is judged.
    async fn mint(&self, at: usize, row: &SessionRow, at_head: bool) -> Option<Fence> {
        let (current, head) = (row.fence.fence, at_head.then_some(row.view.head));
        let id = AppendId::random(&OsEntropy);
        let number = self.ledger.mint(&Mint { session: at, id, current, at: head });
        let holder = Holder { id: id.to_string(), name: self.name.clone() };
        loop {
            let minted = match head {
                Some(head) => {
                    let of = session(at);
                    self.store.acquire_if_head(&of, id, current, head, holder.clone()).await
                }
                None => self.store.mint(&session(at), id, current, holder.clone()).await,
            };
            let answer = match &minted {
                Ok(_) => Answer::Ok(row.view.head),
                Err(error) => Answer::of(error).unwrap_or_else(|| fault("mint", error)),
            };
            self.ledger.answer(number, answer);
            if let Ok(fence) = minted {
                assert_eq!(current.next(), fence, "a mint is a step");
                let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
                fences[at] = fences[at].max(Some(fence));
                return Some(fence);
            }
            if answer.is_settled() {
                return None;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    fn fence(&self, at: usize) -> Option<Fence> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)[at]
    }

    /// Takes all sessions over.
    async fn take_all(&self) {
        for at in 0..SESSIONS {
            loop {
                let (row, _) = self.row(at, Level::Committed).await;
                if self.mint(at, &row, true).await.is_some() {
                    break;
                }
            }
        }
        self.ledger.done();
    }

    /// Appends to every session that it held, under the fence that it had.
    async fn write_as_before(&self) {
        for at in 0..SESSIONS {
            let Some(fence) = self.fence(at) else { continue };
            let level = Level::Committed;
            let (row, read_at) = self.row(at, level).await;
            let append = Append {
                session: at,
                id: AppendId::random(&OsEntropy),
                fence,
                in_force: row.fence.fence,
                base: row.view.head,
                texts: vec![format!("{} as before", self.name)],
                level,
                read_at,
            };
            let number = self.ledger.append(&append);
            self.settle(number, &append, None).await;
        }
        self.ledger.done();
    }
}

/// What makes a text one of its own; what all write the same has nothing of it.
fn rng_of(by: &str, rng: &mut SeededRng) -> u64 {
    if by == "any" { 0 } else { rng.next_u64() % 1_000_000 }
}
