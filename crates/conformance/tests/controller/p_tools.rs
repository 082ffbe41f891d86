//! Family P: tool calls of id-less journals.

use mainspring_api::{Classify as _, Event, Fence};
use mainspring_controller::ControllerError;

use crate::support::raw::{self, execution, idless};
use crate::support::{Fixture, Probe, mediated};

/// An id-less turn: input, call, result, end.
fn tool_turn() -> Vec<Event> {
    let id = execution(0);
    let call = raw::tool_call(&id, mediated("c1", "look"));
    let result = raw::tool_result(&id, raw::reported("c1"));
    [raw::input(&id, "hello"), call, result, raw::end(&id)].map(idless).into()
}

fn looking() -> Probe {
    Probe::new(|_, sink| async move {
        let result = sink.tool_call(mediated("c1", "look")).await?;
        assert_eq!(result, raw::reported("c1"));
        Ok(())
    })
}

/// A recorded call is served with its recorded result, with and without an executor.
async fn p01_a_recorded_call_replays(session: Fixture) {
    session.append(tool_turn()).await;
    for session in [session.clone(), session.with_tools()] {
        let placed = session.place_agreed(looking()).await;
        session.replay_check(&placed, 1, &[]).await;
        assert_eq!((placed.describes(), placed.runs()), (0, 1));
        assert_eq!(session.fence().await, Fence::NONE);
    }
}

/// A turn that was cut after the result is resumed with it.
async fn p02_a_result_is_served_to_a_resume(session: Fixture) {
    let session = session.with_tools();
    session.append(tool_turn().into_iter().take(3)).await;
    let placed = session.place_agreed(looking()).await;
    session.resume(&placed).await.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("IN TC TR END", 0));
    assert_eq!(session.executor().consulted(), Vec::<String>::new());
    assert!(session.events().await.iter().all(|event| event.execution_id.is_none()));
    session.replay_check(&placed, 1, &[]).await;
}

/// A call without a result is refused when the executor does not declare it, with nothing done.
async fn p03_an_undeclared_call_is_refused(session: Fixture) {
    let session = session.with_tools();
    session.append(tool_turn().into_iter().take(2)).await;
    let placed = session.place_agreed(looking()).await;
    let before = session.head().await;
    let resumed = session.resume(&placed).await;
    assert!(!resumed.resumed);
    match resumed.result {
        Err(ControllerError::UnansweredToolCall { seq, call_id }) => {
            assert_eq!((seq.get(), call_id.as_str()), (2, "c1"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((placed.runs(), placed.describes(), session.head().await), (0, 0, before));
    assert_eq!(session.executor().consulted(), ["look"], "by the recorded name");
}

/// Otherwise the turn runs, and the call is not driven again: one id-less error settles it.
async fn p03_a_declared_call_is_not_driven_again(session: Fixture) {
    for declared in [true, false] {
        let mut session = Fixture::open(session.cell).await;
        if declared {
            session = session.with_tools();
            session.executor().declare("look");
        }
        session.append(tool_turn().into_iter().take(2)).await;
        let placed = session.place_agreed(looking()).await;
        let resumed = session.resume(&placed).await;
        assert!(resumed.resumed);
        let error = resumed.result.unwrap_err();
        assert_eq!(error.code(), "tool_result_missing", "{error:?}");
        assert_eq!(session.kinds().await, "IN TC ERR");
        assert_eq!(session.events().await[2].execution_id, None);
        assert_eq!(session.tools.as_ref().map_or(0, |tools| tools.calls()), 0);
        assert!(!session.resume(&placed).await.resumed, "the error settled it");
    }
}

/// A live call of an id-less turn is recorded id-less; a gate needs ids.
async fn a_live_call_of_an_idless_turn(session: Fixture) {
    let session = session.with_tools();
    session.append(tool_turn().into_iter().take(1)).await;
    let gating = Probe::new(|_, sink| async move {
        let refused = sink.tool_call(crate::support::gated("c0", "deploy")).await.unwrap_err();
        assert_eq!(refused.code(), "invalid_approval_call");
        sink.tool_call(mediated("c1", "look")).await?;
        Ok(())
    });
    let placed = session.place_agreed(gating).await;
    session.resume(&placed).await.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("IN TC TR END", 1));
    assert!(session.events().await.iter().all(|event| event.execution_id.is_none()));
}

matrix! {
    run:
    everywhere {
        #[test] fn p01_a_recorded_call_replays;
        #[test] fn p02_a_result_is_served_to_a_resume;
        #[test] fn p03_an_undeclared_call_is_refused;
        #[test] fn p03_a_declared_call_is_not_driven_again;
        #[test] fn a_live_call_of_an_idless_turn;
    }
}
