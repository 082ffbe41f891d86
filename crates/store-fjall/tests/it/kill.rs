//! A process that appends is killed, again and again.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use mainspring_api::Fence;
use mainspring_eventlog::{EventLog as _, LogError};
use mainspring_testkit::{SeededRng, create, read_all, sample, verify_all};

use crate::support::{child, open_small, text_batch};

const CHILD: &str = "MAINSPRING_TEST_KILLED";
const WRITERS: usize = 16;
const ROUNDS: usize = 40;

/// Not a test of its own: as a child process, it appends to the store that the
/// environment names, and tells of each record after it was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = Arc::new(open_small(Path::new(&path)).unwrap());
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let uid = sample::session(&writer.to_string());
            match create(&*store, &uid).await {
                Ok(_) | Err(LogError::AlreadyExists(_)) => {}
                Err(error) => panic!("{error}"),
            }
            let mut at = store.head(&uid, Default::default()).await.unwrap();
            loop {
                let batch = text_batch(at, &"x".repeat(400));
                at = store.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
                let told = format!("\ntold {writer} {} {} .", at.seq, at.hash.unwrap());
                // One write, so that lines of others do not cut it.
                if std::io::stdout().lock().write_all(told.as_bytes()).is_err() {
                    return;
                }
                std::io::stdout().flush().unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Whatever was acknowledged before a kill is there afterwards, in its place.
#[tokio::test]
async fn what_was_acknowledged_survives_kills() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut rng = SeededRng::new(11);
    let mut told: HashMap<usize, Vec<(usize, String)>> = HashMap::new();
    let mut total = 0;
    for _ in 0..ROUNDS {
        let (mut child, lines) = child("kill::child_that_is_killed", CHILD, &path);
        let kill_after = rng.below(120);
        if kill_after == 0 {
            child.kill().unwrap();
        }
        let mut seen = 0;
        for line in lines {
            let Ok(line) = line else { break };
            let parts: Vec<_> = line.split(' ').collect();
            let ["told", writer, seq, hash, "."] = parts[..] else { continue };
            let acknowledged = (seq.parse().unwrap(), hash.to_owned());
            told.entry(writer.parse().unwrap()).or_default().push(acknowledged);
            seen += 1;
            if seen == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        total += seen;

        let store = open_small(&path).unwrap();
        for (writer, told) in &told {
            let uid = sample::session(&writer.to_string());
            let records = read_all(&store, &uid).await.unwrap();
            assert!(
                records.iter().enumerate().all(|(at, record)| record.seq.get() == at as u64 + 1)
            );
            for (seq, hash) in told {
                assert_eq!(records[seq - 1].hash.to_string(), *hash, "{writer} {seq}");
            }
            let head = verify_all(&store, &uid).await.unwrap();
            assert_eq!(head.seq.get(), records.len() as u64);
        }
    }
    assert!(total > ROUNDS * 30, "only {total} records were told");
}
