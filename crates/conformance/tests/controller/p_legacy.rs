//! Family P: id-less journals of the first format.

use mainspring_api::{ApprovalRequest, Classify as _, Event, EventBody, Fence};
use mainspring_controller::{Controller, ControllerError, Options, correlation_token};
use mainspring_testkit::sample;

use crate::support::raw::{self, execution, idless, kinds, vector};
use crate::support::{Fixture, Placed, Probe};

/// An id-less turn of the harness echo.
fn legacy_turn(text: &str) -> Vec<Event> {
    raw::echo_turn(&execution(0), text).into_iter().skip(1).map(idless).collect()
}

async fn without_uid(session: &Fixture) -> Controller {
    let options = Options { session: None, ..session.options() };
    Controller::new(session.journal(), options).await.unwrap()
}

/// A completed journal replays as one run, and nobody is asked who recorded it.
async fn p01_completed(session: Fixture) {
    let session = Fixture::import(session.cell, &vector("completed")).await;
    let echo = session.place(Probe::echo()).await;
    session.replay_check(&echo, 1, &["echo:hello"]).await;
    assert_eq!((echo.describes(), echo.runs()), (0, 1));
    assert_eq!(session.outputs().await, ["echo:hello"]);
    let seen = echo.probe.seen();
    assert_eq!(
        (seen[0].inputs.as_slice(), kinds(&seen[0].history).as_str()),
        (&["hello".to_owned()][..], "IN MC OUT END")
    );
}

/// Cut after its input, it is resumed live with id-less records; a run needs the session's uid.
async fn p02_crashed_input(session: Fixture) {
    let session = Fixture::import(session.cell, &vector("crashed-input")).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = without_uid(&session).await.resume(&echo.harness, None).await;
    assert!(!resumed.resumed);
    assert!(matches!(resumed.result, Err(ControllerError::MissingSessionUid)));
    assert_eq!((session.kinds().await.as_str(), echo.runs()), ("IN", 0));

    let resumed = session.resume(&echo).await;
    assert!(resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("IN MC OUT END", 1));
    assert!(session.events().await.iter().all(|event| event.execution_id.is_none()));
    assert_eq!(echo.describes(), 0);
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

/// A resume of the last of several turns is given that turn's input, and all before it as history.
async fn a_later_turn_is_resumed_alone(session: Fixture) {
    let session = Fixture::import(session.cell, &vector("multi-turn")).await;
    session.append(legacy_turn("third").into_iter().take(1)).await;
    let echo = session.place(Probe::echo()).await;
    session.resume(&echo).await.result.unwrap();
    let seen = echo.probe.seen();
    assert_eq!(seen[0].inputs, ["third"]);
    assert_eq!(kinds(&seen[0].history), "IN MC OUT END IN MC OUT END");
    assert_eq!(session.kinds().await, "IN MC OUT END IN MC OUT END IN MC OUT END");
    assert_eq!(session.model.texts(), ["third"]);
}

/// Cut after its model call, it fails without a call and with one id-less error, which settles it.
async fn p03_crashed_model(session: Fixture) {
    let session = Fixture::import(session.cell, &vector("crashed-model")).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = session.resume(&echo).await;
    assert!(resumed.resumed);
    let error = resumed.result.unwrap_err();
    assert_eq!(error.code(), "completion_missing", "{error:?}");
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("IN MC ERR", 0));
    assert_eq!(session.events().await[2].execution_id, None);

    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), echo.runs()), ("IN MC ERR", 1));
}

/// A prefix through its last end replays before the modern turns.
async fn p04_mixed_completed(session: Fixture) {
    let session = Fixture::import(session.cell, &vector("mixed-completed")).await;
    let echo = session.place(Probe::echo()).await;
    session.replay_check(&echo, 2, &["echo:hello", "echo:new"]).await;
    let seen = echo.probe.seen();
    assert_eq!(kinds(&seen[0].history), "IN MC OUT END");
    assert_eq!(kinds(&seen[1].history), "IN MC OUT END");
    assert_eq!(seen[1].execution_id.as_str(), "721cca6eababd5be");
    session.exec(&echo, &["more"]).await.unwrap();
    session.replay_check(&echo, 3, &["echo:hello", "echo:new", "echo:more"]).await;
}

/// An interrupted tail of the prefix is left out of the replay and stays in history.
async fn p04_mixed_interrupted(session: Fixture) {
    session.append(legacy_turn("old")).await;
    session.append(legacy_turn("cut").into_iter().take(2)).await;
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["new"]).await.unwrap();
    assert_eq!(session.kinds().await, "IN MC OUT END IN MC ES IN MC OUT END");
    session.replay_check(&echo, 2, &["echo:old", "echo:new"]).await;
    let seen = echo.probe.seen();
    assert_eq!(seen[0].history, seen[2].history, "live as replayed");
    assert_eq!(
        (seen[1].inputs.as_slice(), kinds(&seen[2].history).as_str()),
        (&["old".to_owned()][..], "IN MC OUT END IN MC")
    );
    // The modern turn is the latest, so nothing is left to resume.
    assert!(!session.resume(&echo).await.resumed);
    // A prefix that never ended is not replayed at all.
    let unended = Fixture::open(session.cell).await;
    unended.append(legacy_turn("cut").into_iter().take(2)).await;
    let echo = unended.place(Probe::echo()).await;
    unended.exec(&echo, &["new"]).await.unwrap();
    unended.replay_check(&echo, 1, &["echo:new"]).await;
}

/// Nothing of a journal with such records is run, and nothing is appended.
async fn refused_by_all(session: &Fixture, bad_seq: u64) {
    let head = session.head().await;
    let echo: Placed = session.place(Probe::echo()).await;
    let executed = session.exec(&echo, &["more"]).await.map(drop);
    let resumed = session.resume(&echo).await;
    assert!(!resumed.resumed);
    let replayed = session.replay(&echo).await.map(drop);
    for result in [executed, resumed.result, replayed] {
        assert!(
            matches!(&result, Err(ControllerError::InvalidExecutionLog { seq, .. })
                if seq.get() == bad_seq),
            "{result:?}"
        );
    }
    assert_eq!((echo.runs(), echo.describes(), session.head().await), (0, 0, head));
}

/// An id-less event after a modern one is refused; a lifecycle event, which has no id, is not.
async fn p05_idless_after_modern(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "one")).await;
    session.append_lifecycle(raw::lifecycle(mainspring_api::LifecycleKind::Resume)).await;
    let echo = session.place(Probe::echo()).await;
    session.replay_check(&echo, 1, &["echo:one"]).await;
    session.append(legacy_turn("late").into_iter().take(1)).await;
    refused_by_all(&session, 7).await;
}

/// A modern event without a start cannot follow an unfinished prefix: whose it is is not known.
async fn an_unfinished_prefix_needs_a_start_after_it(session: Fixture) {
    session.append(legacy_turn("cut").into_iter().take(2)).await;
    session.append([raw::input(&execution(1), "new")]).await;
    refused_by_all(&session, 3).await;
}

/// The id of an id-less run is a hash of session and anchor: stable, the session's own, and never recorded.
async fn p06_compatibility_token(session: Fixture) {
    let records = vector("crashed-input");
    let session = Fixture::import(session.cell, &records).await;
    let echo = session.place(Probe::echo()).await;
    session.resume(&echo).await.result.unwrap();
    session.replay(&echo).await.unwrap();
    session.replay(&echo).await.unwrap();
    // SHA-256 of {"session_uid":"sess-imported","seq":"1","event":{..}}, computed apart.
    let token = "legacy-34f66df0d89dfe91ca28113bc8ae2af1bebf93120d8c1989ecf64a6274ac387a";
    assert!(echo.probe.seen().iter().all(|seen| seen.execution_id.as_str() == token));
    assert_eq!(echo.probe.seen().len(), 3);
    let other = correlation_token(&sample::session("other"), &records[0]);
    assert_ne!(other.as_str(), token);
    for record in session.records().await {
        let text = String::from_utf8(record.canonical.to_vec()).unwrap();
        assert!(!text.contains("legacy-") && !text.contains("execution_id"), "{text}");
    }

    // Characters that the reference's encoder escapes inside of strings.
    let escaped = Fixture::open(session.cell).await.session(&sample::session("imported"));
    mainspring_testkit::create(&*escaped.log, &escaped.uid).await.unwrap();
    escaped.append([idless(raw::input(&execution(0), "<a&b>\u{2028}\u{2029}"))]).await;
    let records = escaped.records().await;
    assert_eq!(correlation_token(&escaped.uid, &records[0]).as_str(), ESCAPED_TOKEN);
}

/// As above, of the text `<a&b>` and the two line separators.
const ESCAPED_TOKEN: &str =
    "legacy-22f1ce9de5c1e95d4b7acaf8e57c203e846d187c402a9cf1a7f3531194d788c0";

/// An id-less event of a kind that the first format did not have is refused.
async fn p07_unknown_idless_kind(session: Fixture) {
    let request = EventBody::ApprovalRequest(Some(ApprovalRequest {
        tool_call_id: "c1".to_owned(),
        reason: String::new(),
    }));
    session.append(legacy_turn("old").into_iter().take(1)).await;
    session.append([Event::of(request)]).await;
    refused_by_all(&session, 2).await;
    let start = Fixture::open(session.cell).await;
    start.append([idless(raw::start(&execution(0), Some(0)))]).await;
    refused_by_all(&start, 1).await;
}

/// Usage is no effect of an id-less turn: it is neither needed nor compared.
async fn usage_of_an_idless_turn_is_ignored(session: Fixture) {
    let mut turn = legacy_turn("old");
    turn.insert(3, idless(raw::usage(&execution(0), raw::some_usage())));
    session.append(turn).await;
    let echo = session.place(Probe::echo()).await;
    session.replay_check(&echo, 1, &["echo:old"]).await;
    let counting = Probe::new(|_, sink| async move {
        crate::support::ask(&*sink, "old").await?;
        sink.usage(mainspring_api::Usage::default()).await?;
        Ok(())
    });
    let counting = session.place(counting).await;
    session.replay_check(&counting, 1, &["echo:old"]).await;
    assert_eq!(session.fence().await, Fence::NONE);
}

matrix! {
    run:
    everywhere {
        #[test] fn p01_completed;
        #[test] fn p02_crashed_input;
        #[test] fn a_later_turn_is_resumed_alone;
        #[test] fn p03_crashed_model;
        #[test] fn p04_mixed_completed;
        #[test] fn p04_mixed_interrupted;
        #[test] fn p05_idless_after_modern;
        #[test] fn an_unfinished_prefix_needs_a_start_after_it;
        #[test] fn p06_compatibility_token;
        #[test] fn p07_unknown_idless_kind;
        #[test] fn usage_of_an_idless_turn_is_ignored;
    }
}
