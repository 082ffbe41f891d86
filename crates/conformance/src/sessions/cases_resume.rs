//! Suspend and Resume.

use mainspring_api::{ComputeState, ExecState};

use super::{Setup, Subject};

/// "Appends SUSPEND with the snapshot. Response compute COLD."
pub async fn a_suspend_is_recorded<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let suspended = world.me.suspend(&session).await.unwrap();
    assert_eq!(suspended.compute_state, ComputeState::Cold);
    assert_eq!(suspended.last_seq.get(), 5);
    assert_eq!(world.journal(&session).await, "ES IN OUT END SUSPEND");
}

/// "A complete session still gets a RESUME record each time."
pub async fn a_resume_is_recorded_each_time<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    for _ in 0..2 {
        let shown = world.me.resume(&session).await.ok();
        assert_eq!(shown.kinds(), "RESUME");
        assert_eq!(shown.sessions().pop().unwrap().compute_state, ComputeState::Live);
    }
    assert_eq!(world.journal(&session).await, "ES IN OUT END RESUME RESUME");
}

/// "Pending owned approval: returns the current Session, no runtime call, no RESUME."
pub async fn a_resume_waits_with_its_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let shown = world.me.resume(&session).await.ok();
    assert!(shown.records().is_empty());
    assert_eq!(shown.sessions().pop().unwrap().pending_approval, Some(approval));
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND");
}

/// "A second park: no RESUME either."
pub async fn a_second_park_has_no_resume<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked(", gate c2").await;
    world.me.approve(&session, &approval, true).await.unwrap();
    let shown = world.me.resume(&session).await.ok();
    assert_eq!(shown.kinds(), "TR OUT TC AQ SUSPEND");
    let last = shown.sessions().pop().unwrap();
    assert_eq!(last.exec_state, ExecState::Awaiting);
    assert_eq!(last.pending_approval.unwrap().tool_call_id, "c2");
}

/// Ten rounds of suspending twice and resuming twice lose nothing.
pub async fn b45_suspends_and_resumes_can_be_repeated<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    for _ in 0..10 {
        world.me.suspend(&session).await.unwrap();
        world.me.suspend(&session).await.unwrap();
        world.me.resume(&session).await.ok();
        world.me.resume(&session).await.ok();
    }
    world.me.run(&session, "out b").await.ok();
}
