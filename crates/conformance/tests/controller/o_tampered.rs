//! Family O: journals that were changed behind the host's back.

use mainspring_api::{Condition, Event, Seq};
use mainspring_controller::{Controller, ControllerError, Options, outputs, resume_invocation};
use mainspring_eventlog::{Level, LogError};
use mainspring_testkit::sample;

use crate::support::engine::Bytes;
use crate::support::gates::{Asked, CALL, deploying, gate_ref, gate_turn};
use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe};

fn turn(records: usize) -> Vec<Event> {
    gate_turn(&execution(1), 1, true).into_iter().take(records).collect()
}

#[track_caller]
fn tampered_at(error: &ControllerError, what: &str) -> u64 {
    assert_eq!(error.condition(), Condition::JournalTampered, "{what}: {error:?}");
    match error {
        ControllerError::Log(LogError::Tampered { seq, .. }) => seq.get(),
        other => panic!("{what}: {other:?}"),
    }
}

/// Every operation refuses the journal, names the record and does nothing.
async fn refused_by_all(session: &Fixture, placed: &Placed, bad_seq: u64, what: &str) {
    for asked in Asked::ALL {
        let approval = gate_ref(&execution(1), 1);
        let error = asked.refused(session, placed, &approval, what).await;
        assert_eq!(tampered_at(&error, what), bad_seq, "{what}: {asked:?}");
    }
    let error = outputs(&session.journal()).await.unwrap_err();
    assert_eq!(tampered_at(&error, what), bad_seq, "{what}: outputs");
    let error = resume_invocation(&session.journal()).await.unwrap_err();
    assert_eq!(tampered_at(&error, what), bad_seq, "{what}: invocation");
    let head = session.head().await.seq.get();
    let error = session.fork(head, "child").await.unwrap_err();
    assert_eq!(tampered_at(&error, what), bad_seq, "{what}: fork");
    let child = session.log.get(&sample::session("child"), Level::Strict).await.unwrap_err();
    assert!(matches!(child, LogError::SessionNotFound(_)), "{what}: no child, hence no fence");
}

/// A record that was edited before this host looked stops every operation, wherever the turn stands.
async fn o01_edited_record(session: Fixture) {
    for records in [2, 3, 4, 5, 6] {
        for bad_seq in [1, records] {
            let (session, bytes) = Bytes::under(&session).await;
            let session = session.with_tools();
            session.append(turn(records as usize)).await;
            bytes.edit(bad_seq);
            let placed = session.place(deploying()).await;
            let what = format!("{records} records, {bad_seq} edited");
            refused_by_all(&session, &placed, bad_seq, &what).await;
        }
    }
}

/// The same when the last turn is complete: there is nothing to do, and it is refused all the same.
async fn o02_completed_last_turn(session: Fixture) {
    for bad_seq in 1..=7 {
        let (session, bytes) = Bytes::under(&session).await;
        session.append(turn(7)).await;
        bytes.edit(bad_seq);
        let placed = session.place(deploying()).await;
        refused_by_all(&session, &placed, bad_seq, &format!("{bad_seq} edited")).await;
    }
}

/// Of several bad records the first is named; a fork before it passes.
async fn o01_the_first_bad_record_is_named(session: Fixture) {
    let (session, bytes) = Bytes::under(&session).await;
    session.append(raw::echo_turn(&execution(1), "hello")).await;
    session.append(raw::echo_turn(&execution(2), "more")).await;
    bytes.edit(9);
    bytes.edit(7);
    let echo = session.place(Probe::echo()).await;
    let error = session.replay(&echo).await.unwrap_err();
    assert_eq!(tampered_at(&error, "replay"), 7);
    assert_eq!(tampered_at(&session.fork(7, "bad").await.unwrap_err(), "fork at it"), 7);
    let child = session.fork(6, "child").await.unwrap();
    assert_eq!(child.kinds().await, "ES IN MC OUT END ES LC:FORK");
}

/// Every operation of one controller, which has verified its journal before, finds the tail gone.
async fn o03_truncated_tail(session: Fixture) {
    for kept in [2, 4, 5] {
        let (session, bytes) = Bytes::under(&session).await;
        let session = session.with_tools();
        session.append(turn(kept)).await;
        let dump = bytes.dump();
        session.append(turn(7).into_iter().skip(kept)).await;
        let journal = session.journal();
        let options = Options { fence: Some(session.fence().await), ..session.options() };
        let controller = Controller::new(journal.clone(), options).await.unwrap();
        let placed = session.place(deploying()).await;
        controller.replay(&placed.harness).await.unwrap();
        bytes.restore(&dump);
        let (row, runs, describes) = (session.row().await, placed.runs(), placed.describes());
        assert_eq!(row.view.head.seq, Seq::new(kept as u64));
        for asked in Asked::ALL {
            let approval = gate_ref(&execution(1), 1);
            let asked_now = asked.asked(&session, &controller, &journal, &placed, &approval);
            let error = asked_now.await.unwrap_err();
            let what = format!("{asked:?} after {kept}");
            assert_eq!(tampered_at(&error, &what), kept as u64 + 1, "{what}");
        }
        for result in
            [outputs(&journal).await.map(drop), resume_invocation(&journal).await.map(drop)]
        {
            assert_eq!(tampered_at(&result.unwrap_err(), "reads"), kept as u64 + 1);
        }
        assert_eq!((placed.runs(), placed.describes()), (runs, describes));
        assert_eq!((session.row().await, session.executor().calls()), (row, 0));
        // A fresh host cannot know, and goes on from what is there.
        let fresh = bytes.reopened(&session);
        let resumed = fresh.resume(&placed).await;
        assert!(resumed.resumed, "{kept}: {:?}", resumed.result);
        assert!(fresh.head().await.seq >= Seq::new(kept as u64));
    }
}

/// A tail that was cut off and grew again with other records is found as well.
async fn o03_a_tail_that_grew_again(session: Fixture) {
    let (session, bytes) = Bytes::under(&session).await;
    session.append(turn(4)).await;
    let dump = bytes.dump();
    session.append(turn(5).into_iter().skip(4)).await;
    let journal = session.journal();
    let placed = session.place(deploying()).await;
    let options = Options { fence: Some(session.fence().await), ..session.options() };
    let controller = Controller::new(journal.clone(), options).await.unwrap();
    controller.replay(&placed.harness).await.unwrap();
    bytes.restore(&dump);
    let other = bytes.reopened(&session);
    other.append([raw::approval_result(&execution(1), CALL, false, 4)]).await;
    let head = other.head().await;
    for more in [false, true] {
        if more {
            other.append([raw::error(&execution(1), "and more")]).await;
        }
        for asked in Asked::ALL {
            let approval = gate_ref(&execution(1), 1);
            let asked_now = asked.asked(&session, &controller, &journal, &placed, &approval);
            let error = asked_now.await.unwrap_err();
            assert_eq!(error.condition(), Condition::JournalTampered, "{asked:?}: {error:?}");
        }
    }
    assert_eq!((placed.runs(), other.head().await.seq), (0, head.seq.next()));
}

matrix! {
    run:
    everywhere {
        #[test] fn o01_edited_record;
        #[test] fn o01_the_first_bad_record_is_named;
        #[test] fn o02_completed_last_turn;
        #[test] fn o03_truncated_tail;
        #[test] fn o03_a_tail_that_grew_again;
    }
}
