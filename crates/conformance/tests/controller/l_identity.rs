//! Family L: who ran a turn.

use std::error::Error as _;

use mainspring_api::{Classify as _, EventBody, HarnessError};
use mainspring_controller::{Controller, ControllerError, Options};

use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe, turn};

fn echo_as(id: &'static str, version: &'static str) -> Probe {
    Probe::echo().named(id, version)
}

/// What the first record says of the harness.
async fn recorded(session: &Fixture) -> (String, String) {
    let events = session.events().await;
    match &events[0].body {
        EventBody::ExecutionStart(Some(start)) => {
            (start.harness.clone(), start.harness_version.clone())
        }
        other => panic!("{other:?}"),
    }
}

/// A controller that calls the harness `name`.
async fn controller_for(session: &Fixture, name: &str) -> Controller {
    let options = Options { harness: name.to_owned(), ..session.options() };
    Controller::new(session.journal(), options).await.unwrap()
}

/// A turn records the descriptor's id and version, or the name that the host gives the harness.
async fn l01_recorded(session: Fixture) {
    let echo = session.place(echo_as("agent", "2026.1 rc")).await;
    session.exec(&echo, &["hello"]).await.unwrap();
    assert_eq!(recorded(&session).await, ("agent".to_owned(), "2026.1 rc".to_owned()));

    let named = Fixture::open(session.cell).await;
    let echo = named.place(echo_as("agent", "3")).await;
    let controller = controller_for(&named, "prod").await;
    controller.exec(&echo.harness, turn(&["hello"])).await.unwrap();
    assert_eq!(recorded(&named).await, ("prod".to_owned(), "3".to_owned()));
    // The name is what counts later; the id alone is another harness.
    let error = named.replay(&echo).await.unwrap_err();
    assert!(matches!(error, ControllerError::HarnessMismatch { .. }), "{error:?}");
    let other_id = named.place(echo_as("renamed", "3")).await;
    let controller = controller_for(&named, "prod").await;
    let replayed = controller.replay(&other_id.harness).await.unwrap();
    assert_eq!(replayed.outputs, ["echo:hello"]);
}

/// A completed turn and, after it, an interrupted one, both of harness `agent` version `1`.
async fn two_turns_of_agent(session: &Fixture) {
    let agent = session.place(echo_as("agent", "1")).await;
    session.exec(&agent, &["one"]).await.unwrap();
    session.model.fail(1);
    session.exec(&agent, &["two"]).await.unwrap_err();
}

/// A resume and a replay by `other` are refused, before any run or record, as `judge` says.
async fn refused(
    session: &Fixture,
    other: Probe,
    judge: impl Fn(&ControllerError) -> bool,
) -> Placed {
    let other = session.place(other).await;
    let (head, calls) = (session.head().await, session.model.calls());
    let resumed = session.resume(&other).await;
    assert!(!resumed.resumed);
    let error = resumed.result.unwrap_err();
    assert!(judge(&error), "{error:?}");
    let error = session.replay(&other).await.unwrap_err();
    assert!(judge(&error), "{error:?}");
    assert_eq!((other.runs(), session.head().await, session.model.calls()), (0, head, calls));
    other
}

/// Another name, another version, and no version any more, are each refused by name.
async fn l02_name_or_version_differs(session: Fixture) {
    two_turns_of_agent(&session).await;
    refused(&session, echo_as("other", "1"), |error| {
        matches!(error, ControllerError::HarnessMismatch { recorded, actual }
            if recorded == "agent" && actual == "other")
    })
    .await;
    for version in ["2", "", "1 "] {
        let other = refused(&session, echo_as("agent", version), |error| {
            matches!(error, ControllerError::HarnessVersionMismatch { recorded, actual }
                if recorded == "1" && actual == version)
        });
        assert_eq!(other.await.describes(), 2, "once for the resume and once for the replay");
    }
    let same = session.place(echo_as("agent", "1")).await;
    session.resume(&same).await.result.unwrap();
    session.replay_check(&same, 2, &["echo:one", "echo:two"]).await;
}

/// When both differ the name is what is told.
async fn l03_both_differ(session: Fixture) {
    two_turns_of_agent(&session).await;
    refused(&session, echo_as("other", "2"), |error| {
        matches!(error, ControllerError::HarnessMismatch { .. })
    })
    .await;
}

/// A turn that recorded no version takes any.
async fn l04_recorded_version_empty(session: Fixture) {
    let unversioned = session.place(echo_as("agent", "")).await;
    session.exec(&unversioned, &["one"]).await.unwrap();
    session.model.fail(1);
    session.exec(&unversioned, &["two"]).await.unwrap_err();
    let versioned = session.place(echo_as("agent", "9")).await;
    session.resume(&versioned).await.result.unwrap();
    session.replay_check(&versioned, 2, &["echo:one", "echo:two"]).await;
    refused_on_replay(&session, echo_as("other", "")).await;
}

async fn refused_on_replay(session: &Fixture, other: Probe) {
    let other = session.place(other).await;
    let error = session.replay(&other).await.unwrap_err();
    assert!(matches!(error, ControllerError::HarnessMismatch { .. }), "{error:?}");
    assert_eq!(other.runs(), 0);
}

/// The mismatch of a later turn stops a replay before the first turn's run.
async fn identities_are_checked_before_the_first_run(session: Fixture) {
    let first = session.place(echo_as("agent", "1")).await;
    session.exec(&first, &["one"]).await.unwrap();
    let second = session.place(echo_as("agent", "2")).await;
    session.exec(&second, &["two"]).await.unwrap();
    let error = session.replay(&first).await.unwrap_err();
    assert!(matches!(error, ControllerError::HarnessVersionMismatch { .. }), "{error:?}");
    assert_eq!(first.runs(), 1, "only the live one");
}

/// A harness that cannot describe itself stops exec, resume and replay, with its cause.
async fn l05_describe_fails(session: Fixture) {
    two_turns_of_agent(&session).await;
    let speechless = Probe::echo().describing(|| async { Err(HarnessError::failed("no words")) });
    let speechless = refused(&session, speechless, failed_to_describe).await;
    let head = session.head().await;
    let error = session.exec(&speechless, &["three"]).await.unwrap_err();
    assert!(failed_to_describe(&error), "{error:?}");
    assert_eq!((speechless.runs(), session.head().await), (0, head));
}

fn failed_to_describe(error: &ControllerError) -> bool {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    error.code() == "harness_describe_failed" && cause.contains("no words")
}

/// Each operation asks the harness once, and one with nothing to check asks nobody.
async fn l07_describe_once(session: Fixture) {
    let agent = session.place(echo_as("agent", "1")).await;
    session.exec(&agent, &["one"]).await.unwrap();
    assert_eq!(agent.describes(), 1);
    session.exec(&agent, &["two"]).await.unwrap();
    session.model.fail(1);
    session.exec(&agent, &["three"]).await.unwrap_err();
    assert_eq!(agent.describes(), 3);
    session.resume(&agent).await.result.unwrap();
    assert_eq!(agent.describes(), 4);
    session.replay(&agent).await.unwrap();
    assert_eq!((agent.describes(), agent.runs()), (5, 7), "once, for three turns");

    // Turns that name nobody are checked against nobody.
    let unnamed = Fixture::open(session.cell).await;
    unnamed.append(raw::echo_turn(&execution(1), "one")).await;
    unnamed.append(raw::echo_turn(&execution(2), "two").into_iter().take(3)).await;
    let anyone = unnamed.place(echo_as("anyone", "0")).await;
    unnamed.resume(&anyone).await.result.unwrap();
    unnamed.replay_check(&anyone, 2, &["echo:one", "echo:two"]).await;
    assert_eq!(anyone.describes(), 0);
}

matrix! {
    run:
    everywhere {
        #[test] fn l01_recorded;
        #[test] fn l02_name_or_version_differs;
        #[test] fn l03_both_differ;
        #[test] fn l04_recorded_version_empty;
        #[test] fn identities_are_checked_before_the_first_run;
        #[test] fn l05_describe_fails;
        #[test] fn l07_describe_once;
    }
}
