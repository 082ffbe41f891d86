//! Family S: turns under a policy that says no, or that changed since.

use mainspring_api::{Condition, ModelPolicy};
use mainspring_controller::ControllerError;

use super::s_policy::{
    allowing, asking_for, hash, recorded_calls, recorded_default, request, under,
};
use crate::support::raw::description;
use crate::support::{Fixture, Placed, Probe, turn};

/// A request for a model that is not allowed fails the turn, whatever the harness makes of it.
async fn s04_mediated_request_outside(session: Fixture) {
    let swallowing = Probe::new(|_, sink| async move {
        sink.model(request("first")).await?;
        let _ = sink.model(request("third")).await;
        // Nothing after it is recorded or called either.
        let _ = sink.model(request("first")).await;
        let _ = sink.output("all is well".to_owned()).await;
        Ok(())
    });
    for probe in [asking_for(&["first", "third"]), swallowing] {
        let session = Fixture::open(session.cell).await;
        let placed = session.place(probe).await;
        let controller = under(&session, Some(allowing(&["first"])), "").await;
        let error = controller.exec(&placed.harness, turn(&[])).await.unwrap_err();
        assert!(
            matches!(&error, ControllerError::ModelNotAllowed(model) if model == "third"),
            "{error:?}"
        );
        assert_eq!(session.kinds().await, "ES MC OUT ERR");
        assert_eq!((session.model.calls(), controller.model_invocations()), (1, 1));
        let events = session.events().await;
        assert_eq!(description(&events[3]), "model \"third\" is not allowed by policy");
        session.replay_check(&placed, 0, &[]).await;
    }
}

/// A completed turn of two calls under a policy that allowed both, `first` by default.
async fn recorded(session: &Fixture) -> Placed {
    let placed = session.place(asking_for(&["", "second"])).await;
    let controller = under(session, Some(allowing(&["first", "second"])), "").await;
    controller.exec(&placed.harness, turn(&[])).await.unwrap();
    placed
}

/// Policies of today that allow less than was recorded.
fn stricter() -> [ModelPolicy; 2] {
    [allowing(&["second"]), allowing(&["other"])]
}

/// What was recorded is replayed under any policy, by the recorded default.
async fn s05_replay_under_a_stricter_policy(session: Fixture) {
    let placed = recorded(&session).await;
    for policy in stricter() {
        let controller = under(&session, Some(policy), "").await;
        let replayed = controller.replay(&placed.harness).await.unwrap();
        assert_eq!(replayed.outputs, ["echo:hello", "echo:hello"]);
        assert!(placed.probe.seen().iter().all(|seen| seen.model == "first"));
    }
    session.replay_check(&placed, 1, &["echo:hello", "echo:hello"]).await;
    let explicit = session.place(asking_for(&["first", "second"])).await;
    session.replay_check(&explicit, 1, &["echo:hello", "echo:hello"]).await;
}

/// A served call is never refused, whatever the policy of today.
async fn s05_a_served_call_is_never_refused(session: Fixture) {
    let placed = recorded(&session).await;
    let records = session.records().await;
    for policy in stricter() {
        let cut = Fixture::open(session.cell).await;
        cut.append_recorded(&records[..5]).await;
        let controller = under(&cut, Some(policy), "").await;
        controller.resume(&placed.harness, None).await.result.unwrap();
        assert_eq!((cut.kinds().await.as_str(), cut.model.calls()), ("ES MC OUT MC OUT END", 0));
    }
}

/// A trailing call is made once more under today's policy: a forbidden one is refused, and stays.
async fn a_trailing_call_is_a_live_effect(session: Fixture) {
    let placed = recorded(&session).await;
    let records = session.records().await;
    let cut = Fixture::open(session.cell).await;
    cut.append_recorded(&records[..2]).await;
    for errors in 1..=2 {
        let controller = under(&cut, Some(allowing(&["second"])), "").await;
        let resumed = controller.resume(&placed.harness, None).await;
        assert!(resumed.resumed);
        let error = resumed.result.unwrap_err();
        assert_eq!(error.condition(), Condition::ModelNotAllowed, "{error:?}");
        assert_eq!(cut.kinds().await, format!("ES MC{}", " ERR".repeat(errors)));
    }
    assert_eq!(cut.model.calls(), 0);
    // The call stays open for a policy that allows it.
    let controller = under(&cut, Some(allowing(&["second", "first"])), "").await;
    controller.resume(&placed.harness, None).await.result.unwrap();
    assert_eq!(cut.kinds().await, "ES MC ERR ERR OUT MC OUT END");
    let asked: Vec<_> = cut.model.asked().into_iter().map(|asked| asked.model).collect();
    assert_eq!(asked, ["first", "second"]);
    cut.replay_check(&placed, 1, &["echo:hello", "echo:hello"]).await;
}

/// The live tail of a resume obeys today's policy; its default is the recorded one.
async fn the_live_tail_obeys_the_policy_of_today(session: Fixture) {
    let placed = recorded(&session).await;
    let records = session.records().await;
    let after = |count: usize| {
        let (cell, records) = (session.cell, &records);
        async move {
            let cut = Fixture::open(cell).await;
            cut.append_recorded(&records[..count]).await;
            cut
        }
    };
    // The default of today is another; the turn keeps its own.
    let cut = after(1).await;
    let controller = under(&cut, Some(allowing(&["second", "first"])), "second").await;
    controller.resume(&placed.harness, None).await.result.unwrap();
    assert_eq!(recorded_default(&cut, 0).await, "first");
    let calls = [(hash("first"), "first".to_owned()), (hash("second"), "second".to_owned())];
    assert_eq!(recorded_calls(&cut).await, calls);
    // A recorded default that is forbidden today is refused where it is used.
    let cut = after(1).await;
    let controller = under(&cut, Some(allowing(&["second"])), "").await;
    let error = controller.resume(&placed.harness, None).await.result.unwrap_err();
    assert_eq!(error.condition(), Condition::ModelNotAllowed, "{error:?}");
    assert_eq!((cut.kinds().await.as_str(), cut.model.calls()), ("ES ERR", 0));
    // So is the second call, after the first was served.
    let cut = after(3).await;
    let controller = under(&cut, Some(allowing(&["first"])), "").await;
    let error = controller.resume(&placed.harness, None).await.result.unwrap_err();
    assert_eq!(error.condition(), Condition::ModelNotAllowed, "{error:?}");
    assert_eq!(cut.kinds().await, "ES MC OUT ERR");
    // Without a policy today the recorded default still resolves.
    let cut = after(1).await;
    cut.resume(&placed).await.result.unwrap();
    assert_eq!(recorded_calls(&cut).await, calls);
}

/// A turn that was begun without a policy is not bound by one of today.
async fn a_turn_without_a_policy_goes_on_without_one(session: Fixture) {
    let placed = session.place(asking_for(&["", "third"])).await;
    session.exec(&placed, &[]).await.unwrap();
    let records = session.records().await;
    for count in [1, 2, 3, 4] {
        let cut = Fixture::open(session.cell).await;
        cut.append_recorded(&records[..count]).await;
        let controller = under(&cut, Some(allowing(&["first"])), "").await;
        controller.resume(&placed.harness, None).await.result.unwrap();
        let calls = [(hash(""), String::new()), (hash("third"), "third".to_owned())];
        assert_eq!(recorded_calls(&cut).await, calls, "{count}");
    }
}

matrix! {
    run:
    everywhere {
        #[test] fn s05_replay_under_a_stricter_policy;
        #[test] fn s05_a_served_call_is_never_refused;
        #[test] fn a_turn_without_a_policy_goes_on_without_one;
        #[test] fn s04_mediated_request_outside;
        #[test] fn a_trailing_call_is_a_live_effect;
        #[test] fn the_live_tail_obeys_the_policy_of_today;
    }
}
