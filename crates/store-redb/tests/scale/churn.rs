//! Sessions that come and go.

use mainspring_api::Head;
use mainspring_eventlog::{Engine as _, EventLog as _, Level, ListQuery};
use mainspring_testkit::scale::{Phases, in_child};
use mainspring_testkit::{append, create, sample};

use crate::journal::{append_turns, open, verify};

const SESSIONS: usize = 10_000;
const AT_ONCE: usize = 50;

/// A week's churn: the gauge of dead space says what a compaction gives back.
#[test]
fn b49_dead_space_after_churn_is_told_right() {
    in_child("churn::b49_dead_space_after_churn_is_told_right", async |dir| {
        let path = dir.path().join("churn.redb");
        let log = open(&path);
        let mut phases = Phases::start();
        let kept = sample::session("kept");
        create(&*log, &kept).await.unwrap();
        let mut head = Head::EMPTY;
        for from in (0..SESSIONS).step_by(AT_ONCE) {
            let churned = (from..from + AT_ONCE).map(|number| {
                let log = log.clone();
                tokio::spawn(async move {
                    let uid = sample::session(&format!("{number:05}"));
                    create(&*log, &uid).await.unwrap();
                    let turn = sample::turn(&sample::execution(number as u64), &"x".repeat(500));
                    append(&*log, &uid, sample::records(turn)).await.unwrap();
                    append(&*log, &uid, sample::records([sample::deletion()])).await.unwrap();
                })
            });
            for session in churned.collect::<Vec<_>>() {
                session.await.unwrap();
            }
            let turn = (from / AT_ONCE) as u64;
            head = append_turns(&log, &kept, head, turn..turn + 1, 1).await;
        }
        phases.done("create, fill and delete 10,000 sessions", &path);
        if let Some(purge) = log.purge() {
            let mut after = None;
            loop {
                let query = ListQuery {
                    project: "default".into(),
                    page_size: 500,
                    after,
                    ..Default::default()
                };
                let page = log.list(query, Level::Strict).await.unwrap();
                for row in page.rows.iter().filter(|row| row.session.uid != kept) {
                    purge.purge(sample::fresh_id(), &row.session.uid).await.unwrap();
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            phases.done("purge them", &path);
        }
        let usage = log.engine().usage().unwrap();
        phases.done("measure", &path);
        drop(log);

        let mut database = redb::Database::open(&path).unwrap();
        while database.compact().unwrap() {}
        database.close().unwrap();
        let left = std::fs::metadata(&path).unwrap().len();
        phases.done("compact", &path);
        let given_back = usage.disk_bytes - left;
        eprintln!("  {usage:?}, {given_back} bytes given back, {left} left");
        let off = usage.dead_bytes.abs_diff(given_back);
        let log = open(&path);
        assert_eq!(verify(&log, &kept).await, head);
        phases.check();
        assert!(off * 5 <= usage.disk_bytes, "off by {off} of {}", usage.disk_bytes);
    });
}
