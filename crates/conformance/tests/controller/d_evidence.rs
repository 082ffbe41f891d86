//! Family D: ill-formed evidence of a turn, which only raw appends can leave.

use mainspring_api::{Event, EventBody, Head};
use mainspring_controller::{ControllerError, resume_invocation};

use crate::support::raw::{self, execution};
use crate::support::{Fixture, Probe};

/// Neither a replay nor a resume touches the harness or the journal.
async fn refused_everywhere(cell: &Fixture, what: &str, events: Vec<Event>, bad_seq: u64) {
    let session = Fixture::open(cell.cell).await;
    session.append(events).await;
    let before = session.head().await;
    let echo = session.place(Probe::echo()).await;
    let replayed = session.replay(&echo).await.map(drop);
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed, "{what}");
    let pending = resume_invocation(&session.journal()).await.map(drop);
    for result in [replayed, resumed.result, pending] {
        match result {
            Err(ControllerError::InvalidExecutionLog { seq, .. }) => {
                assert_eq!(seq.get(), bad_seq, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert_eq!((echo.runs(), echo.describes()), (0, 0), "{what}");
    assert_eq!((session.head().await, session.model.calls()), (before, 0), "{what}");
}

/// A start that is not first, double, bodyless or without a count, and inputs that do not fit it.
async fn d06_ill_formed_start_or_inputs(session: Fixture) {
    let id = execution(1);
    let start = |count| raw::start(&id, count);
    let input = || raw::input(&id, "hello");
    let bodyless = |body| Event::in_execution(&id, body);
    for (what, bad_seq, events) in [
        ("start not first", 2, vec![input(), start(Some(1))]),
        ("two starts", 2, vec![start(Some(0)), start(Some(0))]),
        ("two starts, later", 3, vec![start(Some(1)), input(), start(Some(1))]),
        ("start without a body", 1, vec![bodyless(EventBody::ExecutionStart(None))]),
        ("input without a message", 2, vec![start(Some(1)), bodyless(EventBody::Input(None))]),
        ("no count", 1, vec![start(None), input()]),
        ("negative count", 1, vec![start(Some(-1)), input()]),
        ("excess input", 3, vec![start(Some(1)), input(), input()]),
        ("any input where none is declared", 2, vec![start(Some(0)), input()]),
    ] {
        refused_everywhere(&session, what, events.clone(), bad_seq).await;
        let ended = events.into_iter().chain([raw::end(&id)]).collect();
        refused_everywhere(&session, &format!("{what}, ended"), ended, bad_seq).await;
    }
}

/// A completed turn with too few inputs is ill-formed, not incomplete.
async fn d07_few_inputs_completed(session: Fixture) {
    let id = execution(1);
    let events = vec![raw::start(&id, Some(2)), raw::input(&id, "one"), raw::end(&id)];
    refused_everywhere(&session, "few inputs, completed", events, 3).await;
}

/// An interrupted turn with too few inputs is refused by name, and a new turn may leave it behind.
async fn few_inputs_interrupted_is_incomplete(session: Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(3)), raw::input(&id, "one")]).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    let pending = resume_invocation(&session.journal()).await.map(drop);
    for result in [resumed.result, pending] {
        assert!(
            matches!(&result, Err(ControllerError::IncompleteInvocation { execution, missing: 2 })
                if *execution == id),
            "{result:?}"
        );
    }
    assert_eq!((echo.runs(), echo.describes(), session.head().await.seq.get()), (0, 0, 2));
    session.exec(&echo, &["one", "two", "three"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN ES IN IN IN MC OUT END");
    session.replay_check(&echo, 1, &["echo:three"]).await;
}

/// A turn with ids and without a start has an empty config and no cursor, and asks nobody who ran it.
async fn d08_markerless_modern(session: Fixture) {
    let id = execution(1);
    session.append(raw::echo_turn(&id, "one").into_iter().skip(1)).await;
    let other = session.place(Probe::echo().named("another", "7")).await;
    session.replay_check(&other, 1, &["echo:one"]).await;
    let seen = other.probe.seen();
    assert_eq!((seen[0].config.as_ref(), seen[0].resume_from_seq), (&[][..], 0));
    assert_eq!((seen[0].inputs.as_slice(), &seen[0].execution_id), (&["one".to_owned()][..], &id));

    // Interrupted, it is resumed on the same terms.
    session.append(raw::echo_turn(&execution(2), "two").into_iter().skip(1).take(2)).await;
    let resumed = session.resume(&other).await;
    assert!(resumed.resumed);
    resumed.result.unwrap();
    assert_eq!(session.kinds().await, "IN MC OUT END IN MC OUT END");
    assert_eq!((other.describes(), session.model.calls()), (0, 1));
    session.replay_check(&other, 2, &["echo:one", "echo:two"]).await;
}

/// A journal without records has nothing to resume or replay.
async fn an_empty_journal_has_nothing_to_drive(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.replay_check(&echo, 0, &[]).await;
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((echo.runs(), echo.describes(), session.head().await), (0, 0, Head::EMPTY));
}

matrix! {
    run:
    everywhere {
        #[test] fn d06_ill_formed_start_or_inputs;
        #[test] fn d07_few_inputs_completed;
        #[test] fn few_inputs_interrupted_is_incomplete;
        #[test] fn d08_markerless_modern;
        #[test] fn an_empty_journal_has_nothing_to_drive;
    }
}
