//! A hundred thousand sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mainspring_eventlog::{EventLog as _, Level, ListQuery, PageKey};
use mainspring_testkit::scale::{Phases, in_child};
use mainspring_testkit::{create, sample};

use crate::journal::{Log, open};

const SESSIONS: u64 = 100_000;
const CREATORS: u64 = 64;

/// How often each session was shown, by one walk over all pages.
async fn walk(log: &Log) -> Vec<u8> {
    let mut shown = vec![0_u8; usize::try_from(SESSIONS).unwrap()];
    let mut last: Option<PageKey> = None;
    loop {
        let query = ListQuery {
            project: "default".to_owned(),
            page_size: 500,
            after: last.clone(),
            ..ListQuery::default()
        };
        let page = log.list(query, Level::Committed).await.unwrap();
        for row in &page.rows {
            let key = PageKey { create_time: row.create_time, uid: row.session.uid.clone() };
            if let Some(last) = &last {
                let newest_first = (last.create_time, &key.uid) > (key.create_time, &last.uid);
                assert!(newest_first, "{last:?} before {key:?}");
            }
            let number = key.uid.as_str().rsplit('-').next().unwrap().parse::<usize>().unwrap();
            shown[number] += 1;
            last = Some(key);
        }
        match page.next {
            Some(next) => last = Some(next),
            None => return shown,
        }
    }
}

/// Whoever pages while others create misses nothing that was there before, and
/// sees nothing twice.
#[test]
fn a_hundred_thousand_sessions_are_listed_while_they_are_created() {
    in_child("many::a_hundred_thousand_sessions_are_listed_while_they_are_created", async |dir| {
        let path = dir.path().join("many.redb");
        let log = open(&path);
        let mut phases = Phases::start();
        let next = Arc::new(AtomicU64::new(0));
        // Each creator's numbers rise, so all below its last one are there.
        let done: Arc<Vec<AtomicU64>> =
            Arc::new((0..CREATORS).map(|_| AtomicU64::new(0)).collect());
        let running = Arc::new(AtomicUsize::new(0));
        let creators: Vec<_> = (0..CREATORS)
            .map(|creator| {
                let (log, next, running) = (log.clone(), next.clone(), running.clone());
                let done = done.clone();
                running.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    for number in (creator..SESSIONS).step_by(CREATORS as usize) {
                        let uid = sample::session(&format!("{number:06}"));
                        create(&*log, &uid).await.unwrap();
                        done[usize::try_from(creator).unwrap()].store(number + 1, Ordering::SeqCst);
                        next.fetch_add(1, Ordering::SeqCst);
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        let mut walks = 0;
        while running.load(Ordering::SeqCst) > 0 {
            let before: Vec<u64> = done.iter().map(|last| last.load(Ordering::SeqCst)).collect();
            let shown = walk(&log).await;
            walks += 1;
            for (number, times) in shown.iter().enumerate() {
                let number = number as u64;
                let was_there = number < before[usize::try_from(number % CREATORS).unwrap()];
                assert!(*times <= 1, "session {number} was shown {times} times");
                assert!(*times == 1 || !was_there, "session {number} was left out");
            }
        }
        for creator in creators {
            creator.await.unwrap();
        }
        phases.done(&format!("create, and {walks} walks meanwhile"), &path);
        assert!(walk(&log).await.iter().all(|times| *times == 1));
        phases.done("list all", &path);
        drop(log);
        let log = open(&path);
        phases.done("close and open", &path);
        assert!(walk(&log).await.iter().all(|times| *times == 1));
        phases.done("list all, by a fresh handle", &path);
        phases.check();
    });
}
