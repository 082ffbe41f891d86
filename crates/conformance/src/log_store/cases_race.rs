//! Many callers at once.

use std::collections::HashMap;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, stream};
use mainspring_api::{Fence, Head};
use mainspring_eventlog::{ImportRecord, ImportRow, Level, LogError, ReadLimit, StoredRecord};
use mainspring_testkit::{sample, verify_all};

use super::Subject;
use super::support::{
    Log, assert_refused, events, head, new_session, records, row, send, seq, session, session_of,
    texts,
};

const WRITERS: usize = 16;

/// Runs one task for each writer and gives their answers.
async fn all_at_once<T, F>(task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(task(writer))).collect();
    join_all(tasks).await.into_iter().map(|joined| joined.unwrap()).collect()
}

/// "If the journal's head is the batch's base": of many appends at one head
/// exactly one takes effect, and its answer says so.
pub async fn one_append_wins_each_position<S: Subject>(subject: S) {
    const WINS: usize = 12;
    let log = subject.log();
    let uid = session(&log, "s").await;
    let won = all_at_once(|writer| {
        let (log, uid) = (log.clone(), uid.clone());
        async move {
            let mut won = Vec::new();
            let mut at = Head::EMPTY;
            while won.len() < WINS {
                let text = format!("writer {writer} win {}", won.len());
                let batch = texts(at, &[&text]);
                match send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await {
                    Ok(after) => {
                        won.push((after, text));
                        at = after;
                    }
                    Err(LogError::Conflict { expected, head }) => {
                        assert_eq!(expected, at);
                        assert_ne!(head, at);
                        assert!(head.seq > at.seq, "heads never return");
                        at = head;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            won
        }
    })
    .await;
    let all = records(&log, &uid).await;
    assert_eq!(all.len(), WRITERS * WINS);
    let mut winners = HashMap::new();
    for (at, text) in won.into_iter().flatten() {
        let record = &all[usize::try_from(at.seq.get()).unwrap() - 1];
        assert_eq!(record.head(), at);
        assert_eq!(record.event().unwrap(), sample::input(&text));
        assert_eq!(winners.insert(at.seq, text), None, "one winner for each position");
    }
    assert_eq!(verify_all(&*log, &uid).await.unwrap(), all.last().unwrap().head());
}

/// "Readers see the whole batch or none of it."
pub async fn readers_see_whole_batches<S: Subject>(subject: S) {
    const TURN: usize = 5;
    let log = subject.log();
    let uid = session(&log, "s").await;
    let writer = tokio::spawn({
        let (log, uid) = (log.clone(), uid.clone());
        async move {
            let mut at = Head::EMPTY;
            for number in 0..40 {
                let batch = events(at, sample::turn(&sample::execution(number), "hi"));
                at = send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
            }
        }
    });
    let mut last = 0;
    let everything = ReadLimit { records: 10_000, bytes: usize::MAX };
    while last < 40 * TURN {
        let found = log.read(&uid, seq(1), everything, Level::Committed).await.unwrap();
        let row = row(&log, &uid).await;
        assert_eq!(found.len() % TURN, 0, "part of a batch is seen");
        assert!(found.len() >= last, "what was seen stays");
        assert!(row.view.head.seq.get() as usize >= found.len());
        assert_eq!(row.view.head.seq.get() as usize % TURN, 0);
        assert_eq!(row.view.executions as usize * TURN, row.view.head.seq.get() as usize);
        last = found.len();
        assert!(
            last == 40 * TURN || !writer.is_finished() || head(&log, &uid).await.seq.get() == 200
        );
    }
    writer.await.unwrap();
}

/// "In order": pages that are read while others append make the journal, with
/// no record missing, twice, or at another position.
pub async fn pages_during_appends_make_the_journal<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let writer = tokio::spawn({
        let (log, uid) = (log.clone(), uid.clone());
        async move {
            for number in 0..150 {
                let text = "y".repeat(number * 37 % 500);
                super::support::say(&log, &uid, &text).await;
            }
        }
    });
    let readers = [1, 7, 1_000].map(|records| {
        let (log, uid) = (log.clone(), uid.clone());
        tokio::spawn(async move {
            let mut pages: Vec<StoredRecord> = Vec::new();
            while pages.len() < 150 {
                let from = seq(pages.len() as u64 + 1);
                let limit = ReadLimit { records, ..ReadLimit::default() };
                let page = log.read(&uid, from, limit, Level::Committed).await.unwrap();
                assert!(page.len() <= records);
                pages.extend(page);
                tokio::task::yield_now().await;
            }
            pages
        })
    });
    writer.await.unwrap();
    let all = records(&log, &uid).await;
    for reader in readers {
        assert_eq!(reader.await.unwrap(), all);
    }
}

/// "By compare-and-swap on the fence": of many mints over one fence exactly one wins.
pub async fn one_mint_wins_each_fence<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    for round in 0..5 {
        let current = Fence::new(round);
        let minted = all_at_once(|writer| {
            let (log, uid) = (log.clone(), uid.clone());
            async move {
                let holder = sample::holder(&writer.to_string());
                let id = sample::fresh_id();
                if writer % 2 == 0 {
                    log.mint(&uid, id, current, holder).await
                } else {
                    log.acquire_if_head(&uid, id, current, Head::EMPTY, holder).await
                }
            }
        })
        .await;
        let winner = minted.iter().position(Result::is_ok).expect("one wins");
        for (writer, minted) in minted.into_iter().enumerate() {
            if writer == winner {
                assert_eq!(minted.unwrap(), current.next());
            } else {
                assert_refused!(minted, LogError::Moved { .. });
            }
        }
        let holder = row(&log, &uid).await.fence.holder;
        assert_eq!(holder, Some(sample::holder(&winner.to_string())));
    }
}

/// "`AlreadyExists` when the uid is taken": of many creates exactly one wins.
pub async fn one_create_wins_a_uid<S: Subject>(subject: S) {
    let log = subject.log();
    let created = all_at_once(|writer| {
        let log = log.clone();
        async move {
            let mut session = new_session("s");
            session.name = writer.to_string();
            log.create(sample::fresh_id(), session).await
        }
    })
    .await;
    let won: Vec<_> = created.iter().flatten().collect();
    assert_eq!(won.len(), 1);
    assert_eq!(&row(&log, &sample::session("s")).await, won[0]);
    for lost in created.into_iter().filter(Result::is_err) {
        assert_refused!(lost, LogError::AlreadyExists(_));
    }
}

/// "`AlreadyExists`": of many imports of one uid at most one is published, whole.
pub async fn one_import_wins_a_uid<S: Subject>(subject: S) {
    let log = subject.log();
    let mut sources = Vec::new();
    for writer in 0..WRITERS {
        sources.push(records(&log, &session_of(&log, &format!("s{writer}"), 3).await).await);
    }
    let imported = all_at_once(|writer| {
        let (log, records) = (log.clone(), sources[writer].clone());
        async move {
            let row = ImportRow { session: new_session("copy"), create_time: None, parent: None };
            let items: Vec<_> =
                records.into_iter().map(|record| Ok(ImportRecord::Record(record))).collect();
            log.import(sample::fresh_id(), row, Box::pin(stream::iter(items))).await
        }
    })
    .await;
    let winners: Vec<usize> = (0..WRITERS).filter(|writer| imported[*writer].is_ok()).collect();
    assert_eq!(winners.len(), 1, "one import wins");
    let copy = records(&log, &sample::session("copy")).await;
    assert_eq!(copy, sources[winners[0]]);
    for lost in imported.into_iter().filter(Result::is_err) {
        assert_refused!(lost, LogError::AlreadyExists(_));
    }
}

/// "Send the same operation again until it is judged", also before the first
/// copy was: all copies answer the same, and one is there.
pub async fn one_append_sent_often_is_there_once<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let (id, batch) = (sample::fresh_id(), texts(Head::EMPTY, &["a", "b"]));
    let answers = all_at_once(|_| {
        let (log, uid, batch) = (log.clone(), uid.clone(), batch.clone());
        async move { send(&log, &uid, id, Fence::NONE, &batch).await }
    })
    .await;
    for answer in answers {
        assert_eq!(answer.unwrap(), batch.head());
    }
    assert_eq!(records(&log, &uid).await.len(), 2);
}

async fn poll_and_drop(log: &Log, at: Head, polls: usize) {
    let (uid, id) = (sample::session("s"), sample::fresh_id());
    let batch = texts(at, &["x", "y", "z"]);
    {
        let mut sent = log.append(&uid, id, Fence::NONE, &batch);
        for _ in 0..polls {
            if (&mut sent).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // Whatever became of it, the same append again settles it.
    let after = send(log, &uid, id, Fence::NONE, &batch).await.unwrap();
    assert_eq!(after, batch.head());
    assert_eq!(head(log, &uid).await, after);
}

/// "A dropped future leaves the batch written or not written, never in part."
pub async fn a_dropped_append_is_whole_or_absent<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    for round in 0..30 {
        let at = head(&log, &uid).await;
        poll_and_drop(&log, at, round % 4).await;
        let all = records(&log, &uid).await;
        assert_eq!(all.len(), (round + 1) * 3);
    }
    verify_all(&*log, &uid).await.unwrap();
}
