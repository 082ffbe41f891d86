//! Family M: forks of a stateless session.

use mainspring_api::{Classify as _, EventBody, Fence, LifecycleKind, Seq, SessionUid};
use mainspring_controller::{ControllerError, fork};
use mainspring_eventlog::{Level, LogError, NewSession, StoredRecord};
use mainspring_testkit::{SeededEntropy, sample};

use crate::support::raw::{self, execution, kinds};
use crate::support::{Fixture, Probe};

/// What forks must keep: position, bytes and hash of each record.
fn prefix(records: &[StoredRecord], at: usize) -> Vec<(Seq, &[u8], mainspring_api::Hash)> {
    records[..at].iter().map(|record| (record.seq, &record.canonical[..], record.hash)).collect()
}

/// A fork at an end shares the prefix, adds its marker, and changes nothing of its parent.
async fn m01_fork_at_end(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    session.exec(&echo, &["two"]).await.unwrap();
    let before = (session.row().await, session.records().await);
    let child = session.fork(5, "child").await.unwrap();
    assert_eq!((session.row().await, session.records().await), before, "the parent is only read");

    assert_eq!(child.kinds().await, "ES IN MC OUT END LC:FORK");
    let records = child.records().await;
    assert_eq!(prefix(&records, 5), prefix(&before.1, 5));
    assert_eq!(records[5].prev_hash, Some(before.1[4].hash));
    let EventBody::Lifecycle(Some(marker)) = records[5].event().unwrap().body else { panic!() };
    assert_eq!((marker.kind, marker.detail.as_str()), (LifecycleKind::Fork, "parent@5"));
    assert_eq!(marker.compute_instance, "");
    assert_eq!(child.row().await.parent, Some((session.uid.clone(), Seq::new(5))));
    assert_eq!(child.fence().await, Fence::new(1), "a fence of its own");

    child.replay_check(&echo, 1, &["echo:one"]).await;
    child.exec(&echo, &["three"]).await.unwrap();
    let seen = echo.probe.seen();
    let started = seen.last().unwrap();
    assert_eq!(started.session, Some(child.uid.clone()));
    assert_eq!(kinds(&started.history), "ES IN MC OUT END LC:FORK");
    child.replay_check(&echo, 2, &["echo:one", "echo:three"]).await;
}

/// A fork at 0 has only its marker.
async fn m02_fork_at_zero(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    let child = session.fork(0, "child").await.unwrap();
    assert_eq!(child.kinds().await, "LC:FORK");
    let records = child.records().await;
    assert_eq!((records[0].seq, records[0].prev_hash), (Seq::new(1), None));
    let EventBody::Lifecycle(Some(marker)) = records[0].event().unwrap().body else { panic!() };
    assert_eq!(marker.detail, "parent@0");
    let resumed = child.resume(&echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    child.exec(&echo, &["two"]).await.unwrap();
    assert_eq!(child.kinds().await, "LC:FORK ES IN MC OUT END");
}

/// A fork at an intent drives it once in the child; the parent's is still open.
async fn m03_fork_at_model_call(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "hello").into_iter().take(3)).await;
    let child = session.fork(3, "child").await.unwrap();
    let echo = child.place(Probe::echo()).await;
    let resumed = child.resume(&echo).await;
    assert!(resumed.resumed);
    resumed.result.unwrap();
    assert_eq!(child.kinds().await, "ES IN MC LC:FORK OUT END");
    assert_eq!((child.model.calls(), session.kinds().await.as_str()), (1, "ES IN MC"));
    child.replay_check(&echo, 1, &["echo:hello"]).await;
    session.resume(&echo).await.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES IN MC OUT END", 1));
}

/// A fork at a completion serves it in the child.
async fn a_fork_after_an_output_serves_it(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["hello"]).await.unwrap();
    let child = session.fork(4, "child").await.unwrap();
    child.resume(&echo).await.result.unwrap();
    assert_eq!(child.kinds().await, "ES IN MC OUT LC:FORK END");
    assert_eq!(child.model.calls(), 0);
}

async fn exists(session: &Fixture, uid: &SessionUid) -> bool {
    match session.log.get(uid, Level::Strict).await {
        Ok(_) => true,
        Err(LogError::SessionNotFound(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A uid that is taken, by an empty session or another, refuses all children of the call.
async fn m06_child_exists(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    let empty = session.session(&sample::session("empty"));
    mainspring_testkit::create(&*session.log, &empty.uid).await.unwrap();
    let used = session.fork(5, "used").await.unwrap();
    used.exec(&echo, &["two"]).await.unwrap();
    let fresh = sample::session("fresh");
    for taken in [&empty, &used, &session] {
        let before = (taken.row().await, taken.records().await);
        let children =
            [&fresh, &taken.uid].map(|uid| NewSession::bare(uid.clone(), "default")).to_vec();
        let error = fork(&session.journal(), Seq::new(5), children, &SeededEntropy::new(1)).await;
        let error = error.unwrap_err();
        assert_eq!(error.code(), "already_exists", "{error:?}");
        assert!(!exists(&session, &fresh).await, "no child of the call is left");
        assert_eq!((taken.row().await, taken.records().await), before);
    }
}

/// A position beyond the head is refused and creates nothing.
async fn a_fork_beyond_the_head_is_refused(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "one")).await;
    let error = session.fork(6, "child").await.unwrap_err();
    assert!(
        matches!(error, ControllerError::InvalidExecutionLog { seq, .. } if seq == Seq::new(6)),
        "{error:?}"
    );
    assert!(!exists(&session, &sample::session("child")).await);
}

/// Parent and child go on independently, and both replay.
async fn m07_divergence(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    let child = session.fork(5, "child").await.unwrap();
    let grandchild = child.fork(6, "grandchild").await.unwrap();
    session.exec(&echo, &["parent's"]).await.unwrap();
    child.exec(&echo, &["child's"]).await.unwrap();
    grandchild.exec(&echo, &["grandchild's"]).await.unwrap();
    session.exec(&echo, &["again"]).await.unwrap();
    for (who, turns, outputs) in [
        (&session, 3, &["echo:one", "echo:parent's", "echo:again"][..]),
        (&child, 2, &["echo:one", "echo:child's"]),
        (&grandchild, 2, &["echo:one", "echo:grandchild's"]),
    ] {
        who.replay_check(&echo, turns, outputs).await;
        assert_eq!(who.outputs().await, outputs);
    }
    let two_markers = "ES IN MC OUT END LC:FORK LC:FORK ES IN MC OUT END";
    assert_eq!(grandchild.kinds().await, two_markers);
}

matrix! {
    run:
    everywhere {
        #[test] fn m01_fork_at_end;
        #[test] fn m02_fork_at_zero;
        #[test] fn m03_fork_at_model_call;
        #[test] fn a_fork_after_an_output_serves_it;
        #[test] fn m06_child_exists;
        #[test] fn a_fork_beyond_the_head_is_refused;
        #[test] fn m07_divergence;
    }
}
