//! Each recorded journal of the reference, imported and driven as its `holds` says.

use mainspring_controller::ControllerError;

use crate::support::raw::{idless, vector};
use crate::support::{Cell, Fixture, Placed, Probe};

/// The journal in a store, its bytes and hashes as they were recorded.
async fn imported(cell: Cell, name: &str) -> (Fixture, Placed) {
    let session = Fixture::import(cell, &vector(name)).await;
    assert_same(&session, name, vector(name).len()).await;
    let echo = session.place(Probe::echo()).await;
    (session, echo)
}

/// The first `count` records are those of the vector.
async fn assert_same(session: &Fixture, name: &str, count: usize) {
    let (ours, theirs) = (session.records().await, vector(name));
    for (ours, theirs) in ours[..count].iter().zip(&theirs[..count]) {
        assert_eq!((&ours.canonical, ours.hash), (&theirs.canonical, theirs.hash), "{name}");
        assert_eq!(
            (ours.seq, ours.prev_hash, ours.fence),
            (theirs.seq, theirs.prev_hash, theirs.fence)
        );
    }
}

async fn nothing_to_resume(session: &Fixture, echo: &Placed) {
    let (head, runs) = (session.head().await, echo.runs());
    let resumed = session.resume(echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((session.head().await, echo.runs(), session.model.calls()), (head, runs, 0));
}

async fn completed_replays_and_is_not_resumed(session: Fixture) {
    let (session, echo) = imported(session.cell, "completed").await;
    session.replay_check(&echo, 1, &["echo:hello"]).await;
    nothing_to_resume(&session, &echo).await;
}

async fn crashed_input_is_resumed_with_one_call(session: Fixture) {
    let (session, echo) = imported(session.cell, "crashed-input").await;
    session.resume(&echo).await.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("IN MC OUT END", 1));
    let events = session.events().await;
    assert_eq!(events.clone().into_iter().map(idless).collect::<Vec<_>>(), events);
}

async fn crashed_model_is_not_driven_again(session: Fixture) {
    let (session, echo) = imported(session.cell, "crashed-model").await;
    let error = session.resume(&echo).await.result.unwrap_err();
    assert!(error.to_string().contains("expected a recorded completion"), "{error}");
    assert_eq!(session.model.calls(), 0);
}

async fn mixed_completed_replays_both_outputs(session: Fixture) {
    let (session, echo) = imported(session.cell, "mixed-completed").await;
    session.replay_check(&echo, 2, &["echo:hello", "echo:new"]).await;
    nothing_to_resume(&session, &echo).await;
}

async fn multi_turn_fails_the_hash_check_on_replay(session: Fixture) {
    let (session, echo) = imported(session.cell, "multi-turn").await;
    match session.replay(&echo).await {
        Err(ControllerError::ReplayDiverged(what)) => {
            assert!(what.to_string().contains("I0"), "{what}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(session.outputs().await, ["echo:first", "echo:second"]);
    nothing_to_resume(&session, &echo).await;
}

/// Its first three records are a journal that was cut after its output; our resume makes the fourth.
async fn upgraded_resume_is_what_our_resume_makes(session: Fixture) {
    let (whole, echo) = imported(session.cell, "upgraded-resume").await;
    whole.replay_check(&echo, 1, &["echo:hello"]).await;
    nothing_to_resume(&whole, &echo).await;

    let cut = Fixture::import(session.cell, &vector("upgraded-resume")[..3]).await;
    let echo = cut.place(Probe::echo()).await;
    cut.resume(&echo).await.result.unwrap();
    assert_eq!((cut.kinds().await.as_str(), cut.model.calls()), ("IN MC OUT END", 0));
    assert_same(&cut, "upgraded-resume", 4).await;
    assert_eq!(cut.records().await[3].fence.get(), 2);
}

matrix! {
    run:
    everywhere {
        #[test] fn completed_replays_and_is_not_resumed;
        #[test] fn crashed_input_is_resumed_with_one_call;
        #[test] fn crashed_model_is_not_driven_again;
        #[test] fn mixed_completed_replays_both_outputs;
        #[test] fn multi_turn_fails_the_hash_check_on_replay;
        #[test] fn upgraded_resume_is_what_our_resume_makes;
    }
}
