//! Family L: who may carry out a gate.

use mainspring_api::{Condition, Event, EventBody};
use mainspring_controller::ControllerError;

use crate::support::gates::{Asked, deploying, gate_ref, gate_turn};
use crate::support::raw::execution;
use crate::support::{Fixture, Probe, parked};

/// The first `count` records of a gate's turn, by harness `agent` of version `1`, or by nobody.
fn turn_of(named: bool, count: usize) -> Vec<Event> {
    let mut events = gate_turn(&execution(1), 1, true);
    if let EventBody::ExecutionStart(Some(start)) = &mut events[0].body
        && named
    {
        (start.harness, start.harness_version) = ("agent".to_owned(), "1".to_owned());
    }
    events.into_iter().take(count).collect()
}

/// A harness that needs its memory neither carries out a decided gate nor replays a finished one.
async fn gates_need_a_stateless_harness(session: Fixture) {
    let approval = gate_ref(&execution(1), 1);
    for (asked, records) in [(Asked::Resume, 5), (Asked::Resume, 6), (Asked::Replay, 7)] {
        let session = Fixture::open(session.cell).await.with_tools();
        session.append(turn_of(false, records)).await;
        let placed = session.place(deploying().with_memory()).await;
        let before = session.row().await;
        let error = asked.of(&session, &placed, &approval).await.unwrap_err();
        assert!(matches!(error, ControllerError::ApprovalUnavailable), "{records}: {error:?}");
        assert_eq!(error.condition(), Condition::ApprovalUnavailable);
        assert_eq!((placed.describes(), placed.runs()), (1, 0), "{records}");
        assert_eq!((session.row().await, session.executor().calls()), (before, 0), "{records}");
        // A stateless one does both, and is asked although the turn names nobody.
        let stateless = session.place(deploying()).await;
        asked.of(&session, &stateless, &approval).await.unwrap();
        assert_eq!((stateless.describes(), stateless.runs()), (1, 1), "{records}");
    }
}

/// The gate of a turn that is not replayed asks nobody.
async fn a_gate_of_an_unfinished_turn_asks_nobody_on_replay(session: Fixture) {
    session.append(turn_of(true, 4)).await;
    let placed = session.place(deploying().with_memory()).await;
    session.replay_check(&placed, 0, &[]).await;
    assert_eq!(placed.describes(), 0);
}

/// An undecided gate is parked again without a word from the harness, whatever it is.
async fn an_undecided_gate_is_parked_by_anyone(session: Fixture) {
    session.append(turn_of(true, 4)).await;
    let speechless = Probe::echo()
        .describing(|| async { Err(mainspring_api::HarnessError::failed("no words")) });
    for probe in [deploying().with_memory(), deploying().named("other", "9"), speechless] {
        let placed = session.place(probe).await;
        let before = session.head().await;
        let resumed = session.resume(&placed).await;
        assert!(resumed.resumed);
        assert_eq!(parked(resumed.result), gate_ref(&execution(1), 1));
        assert_eq!((placed.describes(), placed.runs()), (0, 0));
        assert_eq!(session.head().await, before);
    }
}

/// A decided gate is carried out by the harness that recorded it alone.
async fn a_decided_gate_is_its_own_harness_s(session: Fixture) {
    let session = session.with_tools();
    session.append(turn_of(true, 5)).await;
    for (probe, condition) in [
        (deploying().named("other", "1"), Condition::HarnessMismatch),
        (deploying().named("agent", "2"), Condition::HarnessVersionMismatch),
    ] {
        let placed = session.place(probe).await;
        let before = session.head().await;
        let resumed = session.resume(&placed).await;
        assert!(!resumed.resumed);
        assert_eq!(resumed.result.unwrap_err().condition(), condition);
        assert_eq!((placed.runs(), session.head().await), (0, before));
    }
    assert_eq!(session.executor().calls(), 0);
    let agent = session.place(deploying().named("agent", "1")).await;
    session.resume(&agent).await.result.unwrap();
    assert_eq!(session.executor().ledger(), ["key-c1"]);
    session.replay_check(&agent, 1, &[]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn gates_need_a_stateless_harness;
        #[test] fn a_gate_of_an_unfinished_turn_asks_nobody_on_replay;
        #[test] fn an_undecided_gate_is_parked_by_anyone;
        #[test] fn a_decided_gate_is_its_own_harness_s;
    }
}
