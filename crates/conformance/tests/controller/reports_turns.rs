//! Reports about other systems that became experiments: approvals that wait, divergences, tool lists.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Bytes, HarnessError, Message, ModelRequest, ToolDefinition, ToolResult};
use mainspring_controller::{Controller, ControllerError, Options, Turn, inspect_approval};
use mainspring_testkit::ManualClock;

use crate::support::gates::deploying;
use crate::support::raw::{self, description, execution};
use crate::support::{Fixture, Probe, TestTools, ask, mediated, parked, turn};

/// A request that nobody decides stays open, however long that is and however often hosts come back.
async fn b14_a_pending_approval_stays_pending(session: Fixture) {
    let session = session.with_tools();
    let clock = Arc::new(ManualClock::at_unix(1_800_000_000));
    // Also where requests are noted to expire: ending them then takes a decision.
    for approval_ttl in [None, Some(Duration::from_secs(60))] {
        let fresh = Fixture::open(session.cell).await.with_tools();
        let host = || async {
            let options =
                Options { clock: Arc::clone(&clock) as Arc<_>, approval_ttl, ..fresh.options() };
            Controller::new(fresh.journal(), options).await.unwrap()
        };
        let placed = fresh.place(deploying()).await;
        let park = parked(host().await.exec(&placed.harness, turn(&["hello"])).await.map(drop));
        let before = fresh.records().await;
        for _ in 0..10 {
            clock.advance(Duration::from_secs(100 * 3600));
            let controller = host().await;
            let resumed = controller.resume(&placed.harness, None).await;
            assert!(resumed.resumed);
            assert_eq!(parked(resumed.result), park);
            assert_eq!(controller.park_again().await.unwrap(), Some(park.clone()));
            let state = inspect_approval(&fresh.journal(), 0).await.unwrap().unwrap();
            assert!(state.request.is_some() && state.decision.is_none());
        }
        assert_eq!((fresh.records().await, placed.runs()), (before, 1));
        assert_eq!(fresh.executor().calls(), 0);
        fresh.decide(&park, true, "at last").await.unwrap();
        host().await.resume(&placed.harness, None).await.result.unwrap();
        assert_eq!(fresh.kinds().await, "ES IN TC AQ AR TR END");
        assert_eq!(fresh.executor().calls(), 1);
    }
}

/// The turn `MC OUT TC TR OUT` of harness `agent` of `version`, cut before its end.
fn recorded_turn() -> Vec<mainspring_api::Event> {
    let id = execution(1);
    let result = raw::tool_result(&id, raw::reported("c1"));
    vec![
        raw::start(&id, Some(1)),
        raw::input(&id, "hello"),
        raw::model_call(&id, "hello"),
        raw::output(&id, "echo:hello"),
        raw::tool_call(&id, mediated("c1", "look")),
        result,
        raw::output(&id, "looked"),
    ]
}

/// A harness that does otherwise at some step.
fn differing(step: usize) -> Probe {
    Probe::new(move |_, sink| async move {
        match step {
            0 => drop(sink.output("hello".to_owned()).await?),
            1 => drop(ask(&*sink, "s3cret").await?),
            _ => drop(ask(&*sink, "hello").await?),
        }
        match step {
            2 => drop(ask(&*sink, "hello").await?),
            3 => drop(sink.tool_call(mediated("c1", "s3cret")).await?),
            4 => {
                let mut call = mediated("c1", "look");
                call.args = Some([("s3cret".to_owned(), 2.0.into())].into());
                sink.tool_call(call).await?;
            }
            _ => drop(sink.tool_call(mediated("c1", "look")).await?),
        }
        match step {
            5 => sink.output("s3cret".to_owned()).await?,
            6 => sink.report(raw::reported("c1")).await?,
            _ => return Ok(()),
        }
        Ok(())
    })
}

/// A divergence names the position, and what was done against what is recorded, to whoever asks.
async fn b34_a_divergence_says_where_and_what(session: Fixture) {
    for (step, seq, words) in [
        (0, 3, &["output", "MODEL_CALL"][..]),
        (1, 3, &["model request", "I0"]),
        (2, 5, &["model call", "TOOL_CALL"]),
        (3, 5, &["tool call", " tool "]),
        (4, 5, &["tool call", "arguments"]),
        (5, 7, &["output", "differs"]),
        (6, 7, &["tool result", "OUTPUT"]),
        (7, 7, &["was not asked for"]),
    ] {
        let session = Fixture::open(session.cell).await;
        session.append(recorded_turn()).await;
        let other = session.place(differing(step)).await;
        let error = session.resume(&other).await.result.unwrap_err();
        let told = error.to_string();
        match &error {
            ControllerError::ReplayDiverged(what) => {
                assert_eq!(what.seq.map(|seq| seq.get()), Some(seq), "{step}: {told}");
            }
            other => panic!("{step}: {other:?}"),
        }
        for word in words.iter().copied().chain([format!("seq {seq}").as_str()]) {
            assert!(told.contains(word), "{step}: {word:?} in {told:?}");
        }
        assert!(!told.contains("s3cret"), "{told}");
        // Whoever describes the session reads the same in its journal.
        let events = session.events().await;
        assert_eq!(events.len(), 8, "{step}");
        assert_eq!(description(&events[7]), told);
        // So does a replay of the turn once it is complete.
        let whole = Fixture::open(session.cell).await;
        whole.append(recorded_turn()).await;
        whole.append([raw::end(&execution(1))]).await;
        let other = whole.place(differing(step)).await;
        assert_eq!(whole.replay(&other).await.unwrap_err().to_string(), told);
    }
}

/// When the versions differ that is what is told, with both, before anything runs.
async fn b34_versions_are_told_apart(session: Fixture) {
    let first = session.place(Probe::asking(&["hello", "more"]).named("agent", "1.0")).await;
    session.exec(&first, &["hello"]).await.unwrap();
    let records = session.records().await;
    let second = session.place(Probe::saying(&["hello"]).named("agent", "2.0-beta")).await;
    let cut = Fixture::open(session.cell).await;
    cut.append_recorded(&records[..4]).await;
    let told =
        [session.replay(&second).await.unwrap_err(), cut.resume(&second).await.result.unwrap_err()];
    for error in told {
        assert!(
            matches!(&error, ControllerError::HarnessVersionMismatch { recorded, actual }
                if recorded == "1.0" && actual == "2.0-beta"),
            "{error:?}"
        );
        let words = error.to_string();
        assert!(words.contains("1.0") && words.contains("2.0-beta"), "{words}");
    }
    assert_eq!((second.runs(), cut.kinds().await.as_str()), (0, "ES IN MC OUT"));
}

/// A harness that offers the model exactly the tools that its configuration lists.
fn configured() -> Probe {
    Probe::new(|start, sink| async move {
        let text = std::str::from_utf8(&start.config).unwrap_or_default();
        let names: Vec<_> = text.split(',').filter(|name| !name.is_empty()).collect();
        let tools = names
            .iter()
            .map(|name| ToolDefinition { name: (*name).to_owned(), ..ToolDefinition::default() });
        let request = ModelRequest {
            model: "echo".to_owned(),
            messages: vec![Message::user("use your tools")],
            tools: tools.collect(),
            ..ModelRequest::default()
        };
        sink.model(request).await?;
        for name in names {
            sink.tool_call(mediated(&format!("call-{name}"), name)).await?;
        }
        Ok::<_, HarnessError>(())
    })
}

/// A resume on a host with more tools works by the recorded list; a wider one is a new, recorded turn.
async fn b41_the_recorded_tool_list_is_kept(session: Fixture) {
    let placed = session.place(configured()).await;
    session.model.fail(1);
    let with = |list: &'static str| Turn {
        config: Bytes::from_static(list.as_bytes()),
        ..turn(&["hello"])
    };
    session.exec_turn(&placed, with("look,list")).await.unwrap_err();
    assert_eq!(session.kinds().await, "ES IN MC ERR");

    // Another host, with an executor that knows more tools and a wider configuration at hand.
    let other = session.clone().with_tools();
    for tool in ["look", "list", "deploy"] {
        other.executor().declare(tool);
    }
    other.executor().respond(|call| async move {
        let result = TestTools::answer(&call);
        Ok(ToolResult { output_uri: format!("blob://{}", call.tool), ..result })
    });
    let elsewhere = other.place(configured()).await;
    other.resume(&elsewhere).await.result.unwrap();
    assert_eq!(other.kinds().await, "ES IN MC ERR OUT TC TR TC TR END");
    assert_eq!(elsewhere.probe.seen()[0].config, "look,list");
    let offered = |asked: usize| -> Vec<String> {
        session.model.asked()[asked].tools.iter().map(|tool| tool.name.clone()).collect()
    };
    assert_eq!((offered(0), offered(1)), (offered(1), vec!["look".to_owned(), "list".to_owned()]));
    let ran: Vec<_> = other.executor().attempts().into_iter().map(|(_, call)| call.tool).collect();
    assert_eq!(ran, ["look", "list"]);

    other.exec_turn(&elsewhere, with("look,list,deploy")).await.unwrap();
    assert_eq!(offered(2).len(), 3);
    let starts = other.events().await.into_iter().filter_map(|event| match event.body {
        mainspring_api::EventBody::ExecutionStart(Some(start)) => Some(start.config),
        _ => None,
    });
    assert_eq!(starts.collect::<Vec<_>>(), ["look,list", "look,list,deploy"]);
    other.replay_check(&elsewhere, 2, &["echo:use your tools"; 2]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn b14_a_pending_approval_stays_pending;
        #[test] fn b34_versions_are_told_apart;
        #[test] fn b41_the_recorded_tool_list_is_kept;
    }
    // The harness is given a refusal.
    in_process {
        #[test] fn b34_a_divergence_says_where_and_what;
    }
}
