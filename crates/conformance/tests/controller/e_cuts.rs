//! Family E: a turn that was cut around a model call.

use std::sync::Arc;

use mainspring_api::{Classify as _, Event, Fence, Head};
use mainspring_controller::{Controller, ControllerError, Options, Resumed};
use tokio::sync::Barrier;

use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe, TestModel, sink_error};

/// The first records of a turn of the harness echo.
fn cut(records: usize) -> Vec<Event> {
    raw::echo_turn(&execution(1), "hello").into_iter().take(records).collect()
}

#[track_caller]
fn driven(resumed: Resumed) {
    assert!(resumed.resumed);
    resumed.result.unwrap();
}

async fn one_execution(session: &Fixture) {
    let events = session.events().await;
    assert!(events.iter().all(|event| event.execution_id == Some(execution(1))), "one id");
}

/// Cut after the intent: the model is called once, under the recorded intent.
async fn e01_crash_after_model_call(session: Fixture) {
    session.append(cut(3)).await;
    let echo = session.place(Probe::echo()).await;
    let controller = session.controller().await;
    driven(controller.resume(&echo.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN MC OUT END");
    assert_eq!((session.model.calls(), controller.model_invocations()), (1, 1));
    one_execution(&session).await;
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// A provider that failed is asked once more, under the intent of the failed attempt.
async fn e02_provider_error_then_resume(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.model.fail(1);
    session.exec(&echo, &["hello"]).await.unwrap_err();
    driven(session.resume(&echo).await);
    assert_eq!(session.kinds().await, "ES IN MC ERR OUT END");
    assert_eq!(session.model.calls(), 2);
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

async fn failing_thrice(session: &Fixture) -> Placed {
    let echo = session.place(Probe::echo()).await;
    session.model.fail(3);
    session.exec(&echo, &["hello"]).await.unwrap_err();
    for attempt in 2..=3 {
        let resumed = session.resume(&echo).await;
        assert!(resumed.resumed);
        let error = resumed.result.unwrap_err();
        assert_eq!(sink_error(&error).code(), "model_unavailable");
        assert_eq!(session.model.calls(), attempt);
    }
    driven(session.resume(&echo).await);
    echo
}

/// Each resume makes one attempt and, while it fails, leaves one error.
async fn e03_two_failing_resumes(session: Fixture) {
    failing_thrice(&session).await;
    assert_eq!(session.kinds().await, "ES IN MC ERR ERR ERR OUT END");
    assert_eq!(session.model.calls(), 4, "one in the turn, one in each of three resumes");
    let fence = session.fence().await;
    assert_eq!(fence.get(), 4, "each controller minted one fence");
}

/// At a cut another request is a divergence: no call, one more error, and the right harness still completes.
async fn e04_changed_request_at_cut(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    session.model.fail(1);
    session.exec(&echo, &["hello"]).await.unwrap_err();
    let changed = session.place(Probe::asking(&["other"]).named("echo", "1")).await;
    let resumed = session.resume(&changed).await;
    assert!(resumed.resumed);
    assert!(matches!(resumed.result, Err(ControllerError::ReplayDiverged(_))));
    assert_eq!((session.model.calls(), changed.runs()), (1, 1));
    assert_eq!(session.kinds().await, "ES IN MC ERR ERR");
    driven(session.resume(&echo).await);
    assert_eq!(session.kinds().await, "ES IN MC ERR ERR OUT END");
    assert_eq!(session.model.texts(), ["hello", "hello"]);
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// A completion that was recorded is served.
async fn e05_cut_after_output(session: Fixture) {
    session.append(cut(4)).await;
    let echo = session.place(Probe::echo()).await;
    driven(session.resume(&echo).await);
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES IN MC OUT END", 0));
    one_execution(&session).await;
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// Cut before any effect, the turn runs live, also when it declares no input.
async fn e06_cut_before_any_effect(session: Fixture) {
    session.append(cut(2)).await;
    let echo = session.place(Probe::echo()).await;
    driven(session.resume(&echo).await);
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES IN MC OUT END", 1));
    one_execution(&session).await;

    let inputless = Fixture::open(session.cell).await;
    inputless.append([raw::start(&execution(1), Some(0))]).await;
    let echo = inputless.place(Probe::echo()).await;
    driven(inputless.resume(&echo).await);
    assert_eq!((inputless.kinds().await.as_str(), inputless.model.calls()), ("ES MC OUT END", 1));
    one_execution(&inputless).await;
    inputless.replay_check(&echo, 1, &["echo:"]).await;
}

/// A completed turn is not resumed: nobody is asked and nothing is written.
async fn e07_completed(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let nothing_to_do = async |head: Head| {
        let (runs, describes, calls) = (echo.runs(), echo.describes(), session.model.calls());
        let resumed = session.resume(&echo).await;
        assert!(!resumed.resumed);
        resumed.result.unwrap();
        assert_eq!(session.head().await, head);
        assert_eq!(
            (echo.runs(), echo.describes(), session.model.calls()),
            (runs, describes, calls)
        );
    };
    nothing_to_do(Head::EMPTY).await;
    let done = session.exec(&echo, &["hello"]).await.unwrap();
    nothing_to_do(done.head).await;
}

/// Two hosts drive one cut at once, under fences as `fences` says.
async fn driven_by_two(session: &Fixture, fences: [Option<Fence>; 2]) -> ControllerError {
    session.append(cut(3)).await;
    let both = Arc::new(Barrier::new(2));
    session.model.respond(move |request| {
        let both = Arc::clone(&both);
        async move {
            // Each has made its call before either is answered.
            both.wait().await;
            Ok(TestModel::echo(&request))
        }
    });
    let mut hosts = Vec::new();
    for fence in fences {
        let options = Options { fence, ..session.options() };
        let controller = Controller::new(session.journal(), options).await.unwrap();
        hosts.push((controller, session.place(Probe::echo()).await));
    }
    let (one, other) = futures_util::join!(
        hosts[0].0.resume(&hosts[0].1.harness, None),
        hosts[1].0.resume(&hosts[1].1.harness, None),
    );
    assert!(one.resumed && other.resumed);
    assert_eq!(session.model.calls(), 2);
    assert_eq!(session.kinds().await, "ES IN MC OUT END", "the loser leaves no mark");
    let (lost, won): (Vec<_>, Vec<_>) =
        [one.result, other.result].into_iter().partition(Result::is_err);
    assert_eq!(won.len(), 1);
    session.replay_check(&hosts[0].1, 1, &["echo:hello"]).await;
    lost.into_iter().next().unwrap().unwrap_err()
}

/// Of two hosts at one cut one ends the turn; the other is told, and leaves nothing.
async fn e08_two_hosts_redrive(session: Fixture) {
    // The second fence supersedes the first, whoever is answered first.
    let error = driven_by_two(&session, [None, None]).await;
    assert!(matches!(error.code(), "fenced" | "conflict"), "{error:?}");

    let shared = Fixture::open(session.cell).await;
    let fence = Some(shared.take_over().await);
    let error = driven_by_two(&shared, [fence, fence]).await;
    assert_eq!(error.code(), "conflict");
    let cause = sink_error(&error).as_failed().map(|cause| cause.code());
    assert_eq!(cause, Some("conflict"), "the log's own refusal, through the sink: {error:?}");
}

/// A journal full of failed attempts replays as the one turn that it became.
async fn e09_replay_after_recovery(session: Fixture) {
    let echo = failing_thrice(&session).await;
    session.replay_check(&echo, 1, &["echo:hello"]).await;
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn e01_crash_after_model_call;
        #[test] fn e02_provider_error_then_resume;
        #[test] fn e03_two_failing_resumes;
        #[test] fn e04_changed_request_at_cut;
        #[test] fn e05_cut_after_output;
        #[test] fn e06_cut_before_any_effect;
        #[test] fn e07_completed;
        #[test] fn e08_two_hosts_redrive;
        #[test] fn e09_replay_after_recovery;
    }
}
