//! The optional part `follow`.

use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use mainspring_api::{BoxStream, Fence, Head};
use mainspring_eventlog::{LogError, StoredRecord};
use mainspring_testkit::{SeededRng, sample};

use super::Subject;
use super::support::{
    Log, assert_refused, events, fork, head_at, records, say, send, session, session_of, soon,
    texts,
};

type Followed = BoxStream<'static, Result<StoredRecord, LogError>>;

/// What follows `after`, where the store can follow.
fn follow(log: &Log, uid: &mainspring_api::SessionUid, after: Head) -> Option<Followed> {
    Some(log.follow()?.follow(uid, after))
}

async fn take(stream: &mut Followed, count: usize) -> Vec<StoredRecord> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let next = soon("a record", stream.next()).await;
        taken.push(next.expect("the store is open").unwrap());
    }
    taken
}

/// "First what is there, then each one once it is durable."
pub async fn a_follower_sees_what_is_there_and_what_comes<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 3).await;
    let Some(mut all) = follow(&log, &uid, Head::EMPTY) else { return };
    let there = take(&mut all, 3).await;
    assert_eq!(there, records(&log, &uid).await);
    assert!(all.next().now_or_never().is_none(), "nothing more has happened");
    let mut tail = follow(&log, &uid, head_at(&there, 2)).expect("it follows");
    assert_eq!(take(&mut tail, 1).await, there[2..]);
    let batch = events(head_at(&there, 3), sample::turn(&sample::execution(1), "hi"));
    send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    say(&log, &uid, "last").await;
    let now = records(&log, &uid).await;
    assert_eq!(take(&mut all, 6).await, now[3..], "as they are read, notes and all");
    assert_eq!(take(&mut tail, 6).await, now[3..]);
}

/// "No record is skipped and none comes twice": followers that start anywhere,
/// while many append.
pub async fn followers_during_appends_see_each_record_once<S: Subject>(subject: S) {
    const RECORDS: usize = 240;
    let log = subject.log();
    let uid = session(&log, "s").await;
    if log.follow().is_none() {
        return;
    }
    let writers = (0..4).map(|writer: usize| {
        let (log, uid) = (log.clone(), uid.clone());
        tokio::spawn(async move {
            for number in 0..RECORDS / 4 {
                let mut at = super::support::head(&log, &uid).await;
                loop {
                    let batch = texts(at, &[&format!("{writer} {number}")]);
                    match send(&log, &uid, sample::fresh_id(), Fence::NONE, &batch).await {
                        Ok(_) => break,
                        Err(LogError::Conflict { head, .. }) => at = head,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let followers = (0..6).map(|number: usize| {
        let (log, uid) = (log.clone(), uid.clone());
        tokio::spawn(async move {
            let mut after = Head::EMPTY;
            while (after.seq.get() as usize) < number * RECORDS / 8 {
                after = super::support::head(&log, &uid).await;
                tokio::task::yield_now().await;
            }
            let mut stream = follow(&log, &uid, after).expect("it follows");
            let first = after.seq.get() as usize;
            (first, take(&mut stream, RECORDS - first).await)
        })
    });
    let followed = join_all(followers.collect::<Vec<_>>()).await;
    join_all(writers).await.into_iter().for_each(|writer| writer.unwrap());
    let all = records(&log, &uid).await;
    assert_eq!(all.len(), RECORDS);
    for follower in followed {
        let (first, seen) = follower.unwrap();
        assert_eq!(seen, all[first..]);
    }
}

/// "However slow the reader is."
pub async fn a_slow_follower_gets_everything<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session(&log, "s").await;
    let Some(mut slow) = follow(&log, &uid, Head::EMPTY) else { return };
    say(&log, &uid, "first").await;
    take(&mut slow, 1).await;
    let mut rng = SeededRng::new(4);
    for _ in 0..40 {
        let at = super::support::head(&log, &uid).await;
        let many = (0..100).map(|_| sample::input(&"z".repeat(rng.below(400))));
        send(&log, &uid, sample::fresh_id(), Fence::NONE, &events(at, many)).await.unwrap();
    }
    let all = records(&log, &uid).await;
    assert_eq!(take(&mut slow, 4_000).await, all[1..]);
}

/// "`SessionNotFound`."
pub async fn a_follower_of_an_unknown_session_is_told<S: Subject>(subject: S) {
    let log = subject.log();
    let Some(mut stream) = follow(&log, &sample::session("nobody"), Head::EMPTY) else { return };
    let first = soon("an answer", stream.next()).await.expect("an answer");
    assert_refused!(first, LogError::SessionNotFound(_));
    assert!(stream.next().await.is_none(), "it ends after an error");
}

/// "`Tampered` when the journal does not pass through `after`."
pub async fn a_follower_after_another_head_is_tampered<S: Subject>(subject: S) {
    let log = subject.log();
    let (uid, other) = (session_of(&log, "s", 2).await, session_of(&log, "other", 5).await);
    let others = records(&log, &other).await;
    for known in [head_at(&others, 2), head_at(&others, 5)] {
        let Some(mut stream) = follow(&log, &uid, known) else { return };
        assert_refused!(
            soon("an answer", stream.next()).await.expect("an answer"),
            LogError::Tampered { seq, .. } if *seq == known.seq
        );
    }
}

/// "Every record after `after`": inherited ones too, as the child shows them.
pub async fn a_followed_child_shows_its_prefix<S: Subject>(subject: S) {
    let log = subject.log();
    let parent = session_of(&log, "s", 3).await;
    let at = head_at(&records(&log, &parent).await, 2);
    let child = fork(&log, &parent, at, "child").await;
    let Some(mut stream) = follow(&log, &child, Head::EMPTY) else { return };
    say(&log, &parent, "of the parent alone").await;
    say(&log, &child, "of the child").await;
    assert_eq!(take(&mut stream, 4).await, records(&log, &child).await);
}

/// "The stream ends when the store closes."
pub async fn a_follower_ends_with_its_store<S: Subject>(subject: S) {
    let log = subject.log();
    let uid = session_of(&log, "s", 1).await;
    let Some(mut stream) = follow(&log, &uid, Head::EMPTY) else { return };
    take(&mut stream, 1).await;
    drop(log);
    let _reopened = subject.reopen().await;
    if let Some(last) = soon("the end", stream.next()).await {
        assert_refused!(last, LogError::Unavailable { .. });
    }
}
