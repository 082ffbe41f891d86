//! Exec's recovery path: empty inputs on a turn with a gate.

use mainspring_api::{Classify as _, Condition, ExecRequest, ExecState, ExecUpdate, Message};

use super::support::{Shown, refuses, turn};
use super::{Setup, Subject};

fn go_on(session: &mainspring_api::SessionUid) -> ExecRequest {
    ExecRequest { inputs: Vec::new(), config: Default::default(), ..turn(session, "") }
}

/// "A still pending request sends session, session, OK: no runtime call, no harness call."
pub async fn a_pending_request_shows_the_session_twice<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let shown = Shown::of(world.me.exec(go_on(&session)).await).await.ok();
    assert_eq!(shown.sessions().len(), 2);
    assert!(shown.records().is_empty());
    assert_eq!(shown.sessions()[1].pending_approval, Some(approval));
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

/// "Then as Resume, with records relayed. Ends with a final `session` frame."
pub async fn a_decided_turn_is_finished<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", out b").await;
    world.me.approve(&session, &approval, true).await.unwrap();
    let shown = Shown::of(world.me.exec(go_on(&session)).await).await.ok();
    assert_eq!(shown.kinds(), "TR OUT OUT END RESUME");
    let Some(ExecUpdate::Session(last)) = shown.updates.last() else { panic!("a session") };
    assert_eq!(last.exec_state, ExecState::Completed);
    assert_eq!(*world.tools.keys.lock().unwrap(), ["key-c1"]);
}

/// "Recorded inputs, config, harness, version, cursor win over the request."
pub async fn what_was_recorded_wins<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", out b").await;
    world.me.approve(&session, &approval, false).await.unwrap();
    let request = ExecRequest {
        config: "fail z".into(),
        harness: "other".to_owned(),
        resume_from_seq: 9,
        ..go_on(&session)
    };
    let shown = Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(shown.kinds(), "TR OUT OUT END RESUME");
    assert!(world.tools.keys.lock().unwrap().is_empty(), "a denied call is not made");
}

/// "then a set expected_last_seq against the head (mismatch ABORTED)"
pub async fn recovery_expects_its_position<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    world.me.approve(&session, &approval, true).await.unwrap();
    let request = ExecRequest { expected_last_seq: Some(5), ..go_on(&session) };
    refuses(world.me.exec(request).await, Condition::Conflict);
    let request = ExecRequest { expected_last_seq: Some(6), ..go_on(&session) };
    Shown::of(world.me.exec(request).await).await.ok();
}

/// "Under the guard: deadline or cancellation first"
pub async fn recovery_has_a_deadline<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    world.me.approve(&session, &approval, true).await.unwrap();
    let request = ExecRequest { deadline_unix: 1, ..go_on(&session) };
    let shown = Shown::of(world.me.exec(request).await).await;
    assert_eq!(shown.failed().code(), Condition::DeadlineExceeded.code());
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR");
}

/// After the receipt a gate is behind: empty inputs are an ordinary turn again.
pub async fn a_finished_gate_is_behind<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    world.me.approve(&session, &approval, true).await.unwrap();
    Shown::of(world.me.exec(go_on(&session)).await).await.ok();
    let request = ExecRequest { inputs: vec![Message::user("x")], ..turn(&session, "out c") };
    assert_eq!(Shown::of(world.me.exec(request).await).await.ok().kinds(), "ES IN OUT END");
}
