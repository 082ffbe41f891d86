//! `kill -9` of a process that writes to a store, many times.
//!
//! The process is this test binary, started again. It says what was
//! acknowledged, a line each, until it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use mainspring_api::{AppendId, Fence, Head, Seq, SessionUid};
use mainspring_eventlog::{Batch, EventLog, Level, LogError};
use mainspring_store_redb::RedbStore;
use mainspring_testkit::{SeededRng, create, fold_all, read_all, sample, verify_all};

use crate::support::{open, text_batch};

const SEED: u64 = 0x6b12;
const ROUNDS: u64 = 60;
const WRITERS: u64 = 16;
/// Sessions that two writers race on, each; the other writers have their own.
const SHARED: u64 = 4;

const STORE: &str = "MAINSPRING_KILLED_STORE";
const ROUND: &str = "MAINSPRING_KILLED_ROUND";

/// The session of a writer: the first eight meet in four.
fn session_of(round: u64, writer: u64) -> SessionUid {
    let name = if writer < 2 * SHARED { writer / 2 } else { writer };
    sample::session(&format!("{}-{name}", round / 10))
}

/// The nth append of a writer. It can be made again from its name.
fn append_of(round: u64, writer: u64, number: u64, base: Head) -> (AppendId, Batch) {
    let mut id = [0; 16];
    for (part, value) in id.chunks_mut(5).zip([round, writer, number]) {
        part.copy_from_slice(&value.to_be_bytes()[3..]);
    }
    (AppendId::new(id), text_batch(base, &format!("{round}/{writer}/{number}")))
}

/// One writer, until it is killed: what it sends, then what it was told.
async fn write(log: Arc<RedbStore>, round: u64, writer: u64) {
    let uid = session_of(round, writer);
    match create(&*log, &uid).await {
        Ok(_) | Err(LogError::AlreadyExists(_)) => {}
        Err(error) => panic!("{uid}: {error}"),
    }
    let mut at = log.head(&uid, Level::Strict).await.unwrap();
    for number in 0.. {
        let (id, batch) = append_of(round, writer, number, at);
        let hash = at.hash.map(|hash| hash.to_string()).unwrap_or_default();
        say(&format!("sent {writer} {number} {} {hash}", at.seq));
        match log.append(&uid, id, Fence::NONE, &batch).await {
            Ok(after) => {
                say(&format!("done {writer} {number}"));
                at = after;
            }
            Err(LogError::Conflict { head, .. }) => {
                say(&format!("lost {writer} {number}"));
                at = head;
            }
            Err(error) => panic!("{uid}: {error}"),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Started by the test below as a process of its own; otherwise it does nothing.
#[test]
fn process_that_is_killed() {
    let Ok(path) = std::env::var(STORE) else { return };
    let round = std::env::var(ROUND).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let log = Arc::new(open(Path::new(&path)).unwrap());
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write(log.clone(), round, writer)));
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
}

/// What a process said of one append.
#[derive(Debug, Clone)]
struct Sent {
    base: Head,
    /// `None` when it was killed before it knew.
    won: Option<bool>,
}

type Said = BTreeMap<(u64, u64), Sent>;

/// Starts the process and kills it once it has said so many lines.
fn run_and_kill(path: &Path, round: u64, lines: usize) -> Said {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::process_that_is_killed", "--nocapture"])
        .env(STORE, path)
        .env(ROUND, round.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Said::new();
    let out = BufReader::new(process.stdout.take().unwrap());
    for (count, line) in out.lines().enumerate() {
        if count == lines {
            process.kill().unwrap();
        }
        // What was in the pipe when it was killed counts too; a cut line does not.
        let line = line.unwrap();
        note(&mut said, &line.split(' ').collect::<Vec<_>>());
    }
    process.wait().unwrap();
    said
}

fn note(said: &mut Said, words: &[&str]) {
    let key = |writer: &str, number: &str| (writer.parse().unwrap(), number.parse().unwrap());
    match *words {
        ["sent", writer, number, seq, hash] => {
            let base = match mainspring_api::Hash::from_hex(hash) {
                Ok(hash) => Head::at(Seq::new(seq.parse().unwrap()), hash),
                Err(_) if seq == "0" => Head::EMPTY,
                Err(_) => return,
            };
            said.insert(key(writer, number), Sent { base, won: None });
        }
        ["done" | "lost", writer, number] => {
            // A number that was cut short names an append that was judged before.
            if let Some(sent) = said.get_mut(&key(writer, number)) {
                sent.won = Some(words[0] == "done");
            }
        }
        _ => {}
    }
}

/// Everything acknowledged is there, once; everything lost is not; what is not
/// known is judged when it is sent again, and its verdict stays.
async fn check(log: &RedbStore, round: u64, said: &Said) -> usize {
    let mut settled = 0;
    for ((writer, number), sent) in said {
        let uid = session_of(round, *writer);
        let (id, batch) = append_of(round, *writer, *number, sent.base);
        let again = log.append(&uid, id, Fence::NONE, &batch).await;
        let won = match again {
            Ok(after) => {
                assert_eq!(after, batch.head(), "{uid}");
                true
            }
            Err(LogError::Conflict { .. }) => false,
            Err(error) => panic!("{uid}: {writer}/{number}: {error}"),
        };
        assert_eq!(won, sent.won.unwrap_or(won), "{uid}: {writer}/{number}: {sent:?}");
        settled += usize::from(sent.won.is_none());
        let page = read_all(log, &uid).await.unwrap();
        let hash = batch.head().hash;
        let times = page.iter().filter(|record| Some(record.hash) == hash).count();
        assert_eq!(times, usize::from(won), "{uid}: {writer}/{number}");
    }
    let sessions: BTreeSet<_> = said.keys().map(|(writer, _)| session_of(round, *writer)).collect();
    for uid in sessions {
        let head = verify_all(log, &uid).await.unwrap();
        let row = log.get(&uid, Level::Strict).await.unwrap();
        assert_eq!(row.view.head, head, "{uid}");
        assert_eq!(row.view, fold_all(log, &uid).await.unwrap(), "{uid}");
    }
    settled
}

/// Of two writers that race on a session exactly one wins each position, and
/// no kill changes what either was told.
#[tokio::test]
async fn killed_sixty_times_every_append_ends_at_one_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.redb");
    let mut rng = SeededRng::new(SEED);
    let (mut settled, mut lost, mut done) = (0, 0, 0);
    for round in 0..ROUNDS {
        let lines = 20 + rng.below(180);
        eprintln!("seed {SEED:#x}, round {round}: killed after {lines} lines");
        let said = run_and_kill(&path, round, lines);
        assert!(!said.is_empty());
        lost += said.values().filter(|sent| sent.won == Some(false)).count();
        done += said.values().filter(|sent| sent.won == Some(true)).count();
        let log = open(&path).unwrap();
        settled += check(&log, round, &said).await;
    }
    eprintln!("{done} appends won, {lost} lost, {settled} settled afterwards");
    assert!(settled > 100 && lost > 100 && done > 1_000, "{settled}, {lost}, {done}");
}
