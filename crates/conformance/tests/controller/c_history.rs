//! Family C: turn boundaries and history.

use mainspring_api::{EndState, LifecycleKind, SnapshotRef};
use mainspring_testkit::sample;

use crate::support::raw::{self, execution, kinds, lifecycle};
use crate::support::{Fixture, Probe};

/// A later turn is given exactly the events before it, apart from its inputs; a replay gives each its own.
async fn c01_two_turns(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    session.exec(&echo, &["two"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT END ES IN MC OUT END");
    let events = session.events().await;
    let live = echo.probe.seen();
    assert!(live[0].history.is_empty());
    assert_eq!(live[1].history, events[..5]);
    assert_eq!(
        (live[0].inputs.as_slice(), live[1].inputs.as_slice()),
        (&["one".to_owned()][..], &["two".to_owned()][..])
    );
    session.replay_check(&echo, 2, &["echo:one", "echo:two"]).await;
    assert_eq!(echo.probe.seen()[2..], live, "a replay starts each turn as it was started");
}

/// A failed turn is not replayed, and stays in the history of the turn after it.
async fn c02_failed_turn_between(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    session.model.fail(1);
    session.exec(&echo, &["two"]).await.unwrap_err();
    session.exec(&echo, &["three"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT END ES IN MC ERR ES IN MC OUT END");
    session.replay_check(&echo, 2, &["echo:one", "echo:three"]).await;
    let events = session.events().await;
    let seen = echo.probe.seen();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[2].history, events[..9]);
    assert_eq!(seen[4].history, events[..9]);
    assert_eq!(kinds(&seen[4].history[5..]), "ES IN MC ERR");
}

/// An unfinished turn that a completed one follows is neither resumed nor replayed.
async fn c03_interrupted_earlier_turn(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "one").into_iter().take(3)).await;
    session.append(raw::echo_turn(&execution(2), "two")).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((echo.runs(), session.model.calls()), (0, 0));
    assert_eq!(session.kinds().await, "ES IN MC ES IN MC OUT END");
    session.replay_check(&echo, 1, &["echo:two"]).await;
    let seen = echo.probe.seen();
    assert_eq!(kinds(&seen[0].history), "ES IN MC");
    assert_eq!(seen[0].execution_id, execution(2));
}

/// A late error of an older execution does not make it the latest again.
async fn a_late_record_of_an_older_turn_changes_no_order(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "one").into_iter().take(3)).await;
    session.append(raw::echo_turn(&execution(2), "two").into_iter().take(2)).await;
    session.append([raw::error(&execution(1), "late")]).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = session.resume(&echo).await;
    assert!(resumed.resumed);
    resumed.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC ES IN ERR MC OUT END");
    assert_eq!(session.model.texts(), ["two"]);
    assert_eq!(kinds(&echo.probe.seen()[0].history), "ES IN MC");
    session.replay_check(&echo, 1, &["echo:two"]).await;
}

/// A turn that ended otherwise than completed is over, and is not run again: where it was cut depended on time.
async fn a_turn_that_ended_otherwise_is_neither_resumed_nor_replayed(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    for (number, state) in [(1, EndState::Canceled), (2, EndState::Failed)] {
        let id = execution(number);
        session.append(raw::echo_turn(&id, "cut").into_iter().take(3)).await;
        session.append([sample::end(&id, state)]).await;
        let resumed = session.resume(&echo).await;
        assert!(!resumed.resumed, "{state:?}");
        resumed.result.unwrap();
    }
    session.exec(&echo, &["done"]).await.unwrap();
    session.replay_check(&echo, 1, &["echo:done"]).await;
    let seen = echo.probe.seen();
    assert_eq!(kinds(&seen[1].history), "ES IN MC END ES IN MC END");
    assert_eq!(seen.len(), 2);
}

/// Lifecycle records stand in later history and are no effects of any turn.
async fn c04_lifecycle_in_history(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["one"]).await.unwrap();
    let mut suspend = lifecycle(LifecycleKind::Suspend);
    suspend.snapshot = SnapshotRef { local: session.uid.to_string(), ..SnapshotRef::default() };
    session.append_lifecycle(suspend).await;
    session.append_lifecycle(lifecycle(LifecycleKind::Resume)).await;
    session.exec(&echo, &["two"]).await.unwrap();
    let whole = "ES IN MC OUT END LC:SUSPEND LC:RESUME ES IN MC OUT END";
    assert_eq!(session.kinds().await, whole);
    assert_eq!(echo.probe.seen()[1].history, session.events().await[..7]);
    session.replay_check(&echo, 2, &["echo:one", "echo:two"]).await;
    assert_eq!(echo.probe.seen()[3].history, session.events().await[..7]);
}

/// A lifecycle record inside a turn is passed over too, on resume and on replay.
async fn lifecycle_inside_a_turn_is_no_effect(session: Fixture) {
    let turn = raw::echo_turn(&execution(1), "one");
    session.append(turn[..3].iter().cloned()).await;
    session.append_lifecycle(lifecycle(LifecycleKind::Suspend)).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = session.resume(&echo).await;
    resumed.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC LC:SUSPEND OUT END");
    assert_eq!(session.model.calls(), 1);
    session.replay_check(&echo, 1, &["echo:one"]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn c01_two_turns;
        #[test] fn c02_failed_turn_between;
        #[test] fn c03_interrupted_earlier_turn;
        #[test] fn a_late_record_of_an_older_turn_changes_no_order;
        #[test] fn a_turn_that_ended_otherwise_is_neither_resumed_nor_replayed;
        #[test] fn c04_lifecycle_in_history;
        #[test] fn lifecycle_inside_a_turn_is_no_effect;
    }
}
