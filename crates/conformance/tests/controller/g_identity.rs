//! Family G: whether a tool call is the one that was recorded, on replay and at a cut.

use mainspring_api::{
    Classify as _, Condition, Event, EventBody, JsonObject, Mediation, ToolCall, ToolResult,
};
use mainspring_controller::ControllerError;
use mainspring_eventlog::json;

use crate::support::raw::{self, execution};
use crate::support::{Cell, Fixture, Probe, gated, mediated};

/// How far the turn came before it was driven again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// The intent alone, of a declared tool.
    Cut,
    /// The result as well.
    Answered,
    /// The whole turn.
    Whole,
}

fn args(text: &str) -> Option<JsonObject> {
    Some(json::parse_object(text.as_bytes()).unwrap())
}

fn recorded() -> ToolCall {
    ToolCall { args: args(r#"{"to":"rec0rded","n":1}"#), ..mediated("c1", "search") }
}

/// A session whose first turn holds this event in the place of its call's intent.
async fn session_with(cell: Cell, call: Event, recorded: Recorded) -> Fixture {
    let session = Fixture::open(cell).await.with_tools();
    session.executor().declare("search");
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello"), call]).await;
    let result = ToolResult { id: "c1".to_owned(), ..ToolResult::default() };
    let rest = [raw::tool_result(&id, result), raw::end(&id)];
    let count = match recorded {
        Recorded::Cut => 0,
        Recorded::Answered => 1,
        Recorded::Whole => 2,
    };
    session.append(rest.into_iter().take(count)).await;
    session
}

/// Drives the turn again with a harness that makes `call`.
async fn again(
    cell: Cell,
    recorded: Event,
    how: Recorded,
    call: ToolCall,
) -> (Fixture, Result<(), ControllerError>) {
    let session = session_with(cell, recorded, how).await;
    let probe = session.place_agreed(Probe::calling([call])).await;
    let result = if how == Recorded::Whole {
        session.replay(&probe).await.map(drop)
    } else {
        session.resume(&probe).await.result
    };
    (session, result)
}

/// The call differs in `field`: that is what the divergence names, and neither value.
async fn differs(cell: Cell, recorded: &ToolCall, call: &ToolCall, field: &str, values: &[&str]) {
    for how in [Recorded::Cut, Recorded::Answered, Recorded::Whole] {
        let event = raw::tool_call(&execution(1), recorded.clone());
        let (session, result) = again(cell, event, how, call.clone()).await;
        let error = result.unwrap_err();
        let ControllerError::ReplayDiverged(divergence) = &error else {
            panic!("{how:?}: not a divergence: {error:?}")
        };
        assert_eq!(divergence.seq.unwrap().get(), 3);
        let words = error.to_string();
        assert!(words.contains(field), "{how:?}: {words:?} names {field:?}");
        assert!(!values.iter().any(|value| words.contains(value)), "{how:?}: {words:?}");
        assert_eq!(session.executor().calls(), 0, "{how:?}");
        let kinds = match how {
            Recorded::Cut => "ES IN TC ERR",
            Recorded::Answered => "ES IN TC TR ERR",
            Recorded::Whole => "ES IN TC TR END",
        };
        assert_eq!(session.kinds().await, kinds);
    }
}

/// A call under another id diverges.
async fn g01_another_id(session: Fixture) {
    let call = ToolCall { id: "0ther".to_owned(), ..recorded() };
    differs(session.cell, &recorded(), &call, "call's id", &["0ther", "c1"]).await;
}

/// A call of another tool diverges.
async fn g02_another_tool(session: Fixture) {
    let call = ToolCall { tool: "0ther".to_owned(), ..recorded() };
    differs(session.cell, &recorded(), &call, "call's tool", &["0ther", "search"]).await;
}

/// A call that is mediated otherwise diverges, also one that would be refused by its own form.
async fn g03_another_mediation(session: Fixture) {
    for mediation in
        [Mediation::RequiresApproval, Mediation::Unspecified, Mediation::InHarnessReported]
    {
        let call = ToolCall { mediation, ..recorded() };
        differs(session.cell, &recorded(), &call, "mediation", &["rec0rded"]).await;
    }
}

/// A call that was gated when it was recorded diverges without its gate, with a key or without.
async fn g03_the_gate_is_gone(session: Fixture) {
    for key in ["key-c1", ""] {
        let session = Fixture::open(session.cell).await.with_tools();
        let id = execution(1);
        session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
        session.append([raw::tool_call(&id, gated("c1", "search"))]).await;
        session.append([raw::approval_request(&id, "c1")]).await;
        session.append([raw::approval_result(&id, "c1", true, 4)]).await;
        let call = ToolCall { idempotency_key: key.to_owned(), ..mediated("c1", "search") };
        let probe = session.place_agreed(Probe::calling([call])).await;
        let error = session.resume(&probe).await.result.unwrap_err();
        assert!(matches!(&error, ControllerError::ReplayDiverged(_)), "{error:?}");
        assert!(error.to_string().contains("mediation"), "{error}");
        assert_eq!(session.kinds().await, "ES IN TC AQ AR ERR");
        assert_eq!(session.executor().calls(), 0);
    }
}

/// A call under another key diverges.
async fn g04_another_key(session: Fixture) {
    let call = ToolCall { idempotency_key: "0ther".to_owned(), ..recorded() };
    differs(session.cell, &recorded(), &call, "key", &["0ther", "key-c1"]).await;
}

/// A call with another value, one more, or one less argument diverges.
async fn g05_another_argument(session: Fixture) {
    for other in [
        r#"{"to":"0ther","n":1}"#,
        r#"{"to":"rec0rded","n":1.5}"#,
        r#"{"to":"rec0rded","n":1,"cc":"0ther"}"#,
        r#"{"to":"rec0rded"}"#,
        r#"{"to":"rec0rded","n":"1"}"#,
    ] {
        let call = ToolCall { args: args(other), ..recorded() };
        differs(session.cell, &recorded(), &call, "arguments", &["0ther", "rec0rded", "1.5"]).await;
    }
}

/// Numbers that are equal and members in another order are the same arguments.
async fn g06_numerically_equal_args(session: Fixture) {
    for (written, sent) in [
        (r#"{"n":2}"#, r#"{"n":2.0}"#),
        (r#"{"n":100}"#, r#"{"n":1e2}"#),
        (r#"{"n":0}"#, r#"{"n":-0.0}"#),
        (r#"{"a":1,"b":[{"c":2,"d":3}]}"#, r#"{"b":[{"d":3.0,"c":2.0}],"a":1.0}"#),
    ] {
        for how in [Recorded::Answered, Recorded::Whole] {
            let written = ToolCall { args: args(written), ..recorded() };
            let sent = ToolCall { args: args(sent), ..recorded() };
            let event = raw::tool_call(&execution(1), written);
            again(session.cell, event, how, sent).await.1.unwrap();
        }
    }
}

/// What has no value, an empty one, or one of another kind is not the same.
async fn g07_absent_is_not_empty(session: Fixture) {
    let table = [
        (None, args("{}")),
        (args(r#"{"a":1}"#), args(r#"{"a":1,"b":null}"#)),
        (args(r#"{"a":null}"#), args("{}")),
        (args(r#"{"a":{}}"#), args(r#"{"a":[]}"#)),
        (args(r#"{"a":[1,2]}"#), args(r#"{"a":[2,1]}"#)),
        (args(r#"{"a":0}"#), args(r#"{"a":false}"#)),
        (args(r#"{"a":""}"#), args(r#"{"a":null}"#)),
    ];
    for (one, other) in table {
        for (written, sent) in [(&one, &other), (&other, &one)] {
            let written = ToolCall { args: written.clone(), ..recorded() };
            let sent = ToolCall { args: sent.clone(), ..recorded() };
            differs(session.cell, &written, &sent, "arguments", &[]).await;
        }
    }
}

/// Arguments that could not be recorded are not what was recorded.
async fn g07_args_without_a_recorded_form(session: Fixture) {
    let call = ToolCall { args: args(r#"{"n":9007199254740992}"#), ..recorded() };
    differs(session.cell, &recorded(), &call, "arguments", &["9007"]).await;
}

/// Recorded evidence that no host writes is a divergence, with what is wrong with it as its cause.
async fn bad_evidence(cell: Cell, event: Event, call: &ToolCall, cause: Option<Condition>) {
    for how in [Recorded::Answered, Recorded::Whole] {
        let (session, result) = again(cell, event.clone(), how, call.clone()).await;
        let error = result.unwrap_err();
        assert!(matches!(error, ControllerError::ReplayDiverged(_)), "{how:?}: {error:?}");
        assert!(error.is(Condition::ReplayDiverged));
        for condition in [Condition::UnmediatedToolCall, Condition::MissingIdempotencyKey] {
            assert_eq!(error.is(condition), cause == Some(condition), "{how:?}: {error:?}");
        }
        assert_eq!(session.executor().calls(), 0);
    }
}

/// A recorded call without a body, or without mediation, is a divergence, and the latter says so.
async fn g08_bodyless_or_unmediated_evidence(session: Fixture) {
    let id = execution(1);
    let bodyless = Event::in_execution(&id, EventBody::ToolCall(None));
    bad_evidence(session.cell, bodyless, &recorded(), None).await;
    for mediation in [Mediation::Unspecified, Mediation::InHarnessReported] {
        let unmediated = ToolCall { mediation, ..recorded() };
        let cause = Some(Condition::UnmediatedToolCall);
        let event = raw::tool_call(&id, unmediated.clone());
        // Also when the harness makes the very call that is recorded.
        for call in [recorded(), unmediated] {
            bad_evidence(session.cell, event.clone(), &call, cause).await;
        }
    }
}

/// A recorded call without a key is a divergence that says so.
async fn g09_evidence_without_a_key(session: Fixture) {
    let event =
        raw::tool_call(&execution(1), ToolCall { idempotency_key: String::new(), ..recorded() });
    bad_evidence(session.cell, event, &recorded(), Some(Condition::MissingIdempotencyKey)).await;
}

/// A call without a key is refused as such, whatever is recorded next, and consumes nothing.
async fn g09_call_without_a_key_consumes_nothing(session: Fixture) {
    let session =
        session_with(session.cell, raw::tool_call(&execution(1), recorded()), Recorded::Whole)
            .await;
    let keyless = ToolCall { idempotency_key: String::new(), ..recorded() };
    let swallowing = Probe::new(move |_, sink| {
        let keyless = keyless.clone();
        async move {
            assert_eq!(
                sink.tool_call(keyless).await.unwrap_err().code(),
                "missing_idempotency_key"
            );
            sink.tool_call(recorded()).await?;
            Ok(())
        }
    });
    let swallowing = session.place_agreed(swallowing).await;
    session.replay_check(&swallowing, 1, &[]).await;
}

/// A call that nobody mediates is refused as when it was recorded, before the call that is recorded next, and consumes nothing.
async fn g08_unmediated_call_consumes_nothing(session: Fixture) {
    for mediation in [Mediation::Unspecified, Mediation::InHarnessReported] {
        for how in [Recorded::Answered, Recorded::Whole] {
            let event = raw::tool_call(&execution(1), recorded());
            let session = session_with(session.cell, event, how).await;
            let unmediated = ToolCall { id: "c0".to_owned(), mediation, ..recorded() };
            let handling = Probe::new(move |_, sink| {
                let unmediated = unmediated.clone();
                async move {
                    let refused = sink.tool_call(unmediated).await.unwrap_err();
                    assert_eq!(refused.code(), "unmediated_tool_call");
                    sink.tool_call(recorded()).await?;
                    Ok(())
                }
            });
            let handling = session.place_agreed(handling).await;
            session.resume(&handling).await.result.unwrap();
            assert_eq!(session.kinds().await, "ES IN TC TR END");
            session.replay_check(&handling, 1, &[]).await;
        }
    }
}

/// The call as it was recorded is none of these.
async fn the_recorded_call_is_itself(session: Fixture) {
    for how in [Recorded::Cut, Recorded::Answered, Recorded::Whole] {
        let event = raw::tool_call(&execution(1), recorded());
        let (session, result) = again(session.cell, event, how, recorded()).await;
        result.unwrap();
        assert_eq!(session.kinds().await, "ES IN TC TR END");
        assert_eq!(session.executor().calls(), usize::from(how == Recorded::Cut));
    }
}

matrix! {
    run:
    everywhere {
        #[test] fn g01_another_id;
        #[test] fn g02_another_tool;
        #[test] fn g03_another_mediation;
        #[test] fn g03_the_gate_is_gone;
        #[test] fn g04_another_key;
        #[test] fn g05_another_argument;
        #[test] fn g06_numerically_equal_args;
        #[test] fn g07_absent_is_not_empty;
        #[test] fn g08_bodyless_or_unmediated_evidence;
        #[test] fn g09_evidence_without_a_key;
        #[test] fn the_recorded_call_is_itself;
        #[test] fn g07_args_without_a_recorded_form;
        #[test] fn g08_unmediated_call_consumes_nothing;
        #[test] fn g09_call_without_a_key_consumes_nothing;
    }
}
