//! A chain of forks, each of the one before, on a long journal.

use mainspring_api::{Head, Seq, SessionUid};
use mainspring_eventlog::{EventLog as _, Level, LogError, NewSession, ReadLimit};
use mainspring_testkit::scale::{Phases, in_child};
use mainspring_testkit::{append, create, sample};

use crate::journal::{Log, append_turns, export, import, open, verify};

const LENGTH: u64 = 100_000;
const FORKS: usize = 50;

async fn fork(log: &Log, parent: &SessionUid, at: Head, name: &str) -> SessionUid {
    let child = sample::session(name);
    let children = vec![(NewSession::bare(child.clone(), "default"), sample::fork_marker(at.seq))];
    let before = log.engine().commits();
    log.fork(sample::fresh_id(), parent, at, children).await.unwrap();
    let commits = log.engine().commits() - before;
    assert!(commits <= 2, "fork {name} took {commits} commits");
    child
}

async fn record_at(log: &Log, uid: &SessionUid, seq: u64) -> Head {
    let limit = ReadLimit { records: 1, bytes: 1 };
    let page = log.read(uid, Seq::new(seq), limit, Level::Strict).await.unwrap();
    page[0].head()
}

/// Fifty forks deep, each child shows its parent's records, and goes on when
/// the parent is deleted. A fork takes two commits at most.
#[test]
fn a_chain_of_forks_shares_a_long_prefix() {
    in_child("forks::a_chain_of_forks_shares_a_long_prefix", async |dir| {
        let path = dir.path().join("forks.redb");
        let log = open(&path);
        let first = sample::session("first");
        create(&*log, &first).await.unwrap();
        let mut phases = Phases::start();
        let head = append_turns(&log, &first, Head::EMPTY, 0..LENGTH / 5, 500).await;
        phases.done("append", &path);

        let mut chain = vec![(first.clone(), head)];
        for number in 0..FORKS {
            let (parent, at) = chain.last().expect("it begins with the first").clone();
            let child = fork(&log, &parent, at, &format!("child-{number}")).await;
            let own = sample::turn(&sample::execution(1_000_000 + number as u64), "own");
            let head = append(&*log, &child, sample::records(own)).await.unwrap();
            chain.push((child, head));
        }
        phases.done("50 forks, each at the head of the one before", &path);
        let (below, at) = (LENGTH / 2 + 3, record_at(&log, &first, LENGTH / 2 + 3).await);
        let (last, _) = chain.last().expect("it has forks").clone();
        let middle = fork(&log, &last, at, "middle").await;
        assert_eq!(log.head(&middle, Level::Strict).await.unwrap().seq.get(), below + 1);
        phases.done("a fork far below the head", &path);

        append(&*log, &first, sample::records([sample::deletion()])).await.unwrap();
        let refused =
            vec![(NewSession::bare(sample::session("no"), "default"), sample::input("x"))];
        let refused = log.fork(sample::fresh_id(), &first, head, refused).await.unwrap_err();
        assert!(matches!(refused, LogError::Deleted(_)), "{refused}");
        for (number, (child, head)) in chain.iter().enumerate().skip(1) {
            assert_eq!(log.head(child, Level::Strict).await.unwrap(), *head, "{child}");
            // Around each border between sessions, and in the first one.
            for (older, (_, border)) in chain[..number].iter().enumerate() {
                let marker = record_at(&log, child, border.seq.get() + 1).await;
                let nearer = &chain[older + 1].0;
                assert_eq!(marker, record_at(&log, nearer, border.seq.get() + 1).await);
                assert_eq!(record_at(&log, child, border.seq.get()).await, *border, "{child}");
            }
        }
        phases.done("read around every border of every child", &path);
        for (child, head) in chain.iter().skip(1).step_by(7).chain(chain.last()) {
            assert_eq!(verify(&log, child).await, *head, "{child}");
        }
        phases.done("verify nine children from the start", &path);

        let exported = dir.path().join("child.ndjson");
        let row = export(&log, &last, &exported).await;
        phases.done("export the last child", &exported);
        let copy = open(&dir.path().join("copy.redb"));
        let imported = import(&copy, &exported).await;
        assert_eq!(imported.view, row.view);
        assert_eq!(verify(&copy, &last).await, row.view.head);
        phases.done("import it elsewhere", &dir.path().join("copy.redb"));
        phases.check();
    });
}
