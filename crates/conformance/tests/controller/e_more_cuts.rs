//! The rows of the cut table that no numbered case names, and that need no mediated tool.

use std::sync::{Arc, Mutex};

use mainspring_api::{Classify as _, Event, EventBody, Mediation, ToolCall};
use mainspring_controller::ControllerError;

use crate::support::raw::{self, execution, some_usage};
use crate::support::{Fixture, Probe, Told, ask};

/// A trailing call whose provider fails again may be retried in the same run: the retry is a new intent.
async fn a_retry_after_a_redriven_failure_is_live(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "hello").into_iter().take(3)).await;
    let probe = Probe::new(|_, sink| async move {
        if ask(&*sink, "hello").await.is_err() {
            ask(&*sink, "hello").await?;
        }
        Ok(())
    });
    let probe = session.place(probe).await;
    session.model.fail(1);
    let resumed = session.resume(&probe).await;
    resumed.result.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC MC OUT END");
    assert_eq!(session.model.calls(), 2);
    session.replay_check(&probe, 1, &["echo:hello"]).await;
}

/// An intent that another effect follows is never driven again; the harness may handle that.
async fn an_intent_with_a_later_effect_is_not_driven_again(session: Fixture) {
    let id = execution(1);
    session.append(raw::echo_turn(&id, "hello").into_iter().take(3)).await;
    session.append([raw::usage(&id, some_usage())]).await;
    let codes = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&codes);
    let probe = Probe::new(move |_, sink| {
        let keep = Arc::clone(&keep);
        async move {
            let error = ask(&*sink, "hello").await.unwrap_err();
            keep.lock().unwrap().push(error.code());
            sink.usage(some_usage()).await?;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.resume(&probe).await.result.unwrap();
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES IN MC US END", 0));
    session.replay_check(&probe, 1, &[]).await;
    assert_eq!(*codes.lock().unwrap(), ["completion_missing"; 2]);
}

/// The same, unhandled: the turn fails with an error record and no call.
async fn an_unhandled_missing_completion_fails_the_turn(session: Fixture) {
    let id = execution(1);
    session.append(raw::echo_turn(&id, "hello").into_iter().take(3)).await;
    session.append([raw::usage(&id, some_usage())]).await;
    let echo = session.place(Probe::echo()).await;
    let resumed = session.resume(&echo).await;
    assert!(resumed.resumed);
    assert_eq!(resumed.result.unwrap_err().code(), "completion_missing");
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES IN MC US ERR", 0));
}

/// After the recorded effects a turn goes on live, whatever the last of them was.
async fn a_turn_goes_on_live_after_its_last_effect(session: Fixture) {
    let id = execution(1);
    let tail = [
        raw::output(&id, "said"),
        raw::usage(&id, some_usage()),
        Event::in_execution(&id, EventBody::ToolResult(Some(raw::reported("c1")))),
    ];
    for last in 1..=tail.len() {
        let session = Fixture::open(session.cell).await;
        session.append([raw::start(&id, Some(0))]).await;
        session.append(tail[..last].iter().cloned()).await;
        let probe = Probe::new(|_, sink| async move {
            sink.output("said".to_owned()).await?;
            sink.usage(some_usage()).await?;
            sink.report(raw::reported("c1")).await?;
            ask(&*sink, "more").await?;
            Ok(())
        });
        let probe = session.place(probe).await;
        session.resume(&probe).await.result.unwrap();
        assert_eq!(session.kinds().await, "ES OUT US TR MC OUT END", "cut after {last}");
        let fresh = (last as u64 + 2)..=7;
        let told: Vec<_> = session.watcher.take();
        assert_eq!(told.len(), fresh.clone().count(), "only what is new is told");
        assert!(matches!(&told[0], Told::Record(seq, _) if seq.get() == *fresh.start()));
        session.replay_check(&probe, 1, &["said", "echo:more"]).await;
    }
}

/// A recorded prefix that the harness does not ask for ends in an error, and nothing live.
async fn a_rejected_prefix_never_unlocks_live_effects(session: Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(0)), raw::output(&id, "said")]).await;
    let probe = Probe::new(|_, sink| async move {
        let _ = sink.output("other".to_owned()).await;
        let _ = sink.output("said".to_owned()).await;
        let _ = ask(&*sink, "more").await;
        let _ = sink.usage(some_usage()).await;
        let _ = sink.report(raw::reported("c1")).await;
        Ok(())
    });
    let probe = session.place(probe).await;
    let resumed = session.resume(&probe).await;
    assert!(resumed.resumed);
    assert!(matches!(resumed.result, Err(ControllerError::ReplayDiverged(_))));
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES OUT ERR", 0));

    // One that asks for nothing leaves the prefix unconsumed.
    let silent = session.place(Probe::saying(&[])).await;
    let resumed = session.resume(&silent).await;
    assert!(matches!(resumed.result, Err(ControllerError::ReplayDiverged(_))));
    assert_eq!(session.kinds().await, "ES OUT ERR ERR");
    let right = session.place(Probe::saying(&["said"])).await;
    session.resume(&right).await.result.unwrap();
    assert_eq!(session.kinds().await, "ES OUT ERR ERR END");
}

/// A turn that somebody took over ends without a mark of the writer that lost it.
async fn a_superseded_turn_leaves_no_mark(session: Fixture) {
    let other = session.clone();
    let probe = Probe::new(move |_, sink| {
        let other = other.clone();
        async move {
            sink.output("mine".to_owned()).await?;
            // Over the wire an output is on its way when the call returns.
            while other.head().await.seq.get() < 2 {
                tokio::task::yield_now().await;
            }
            other.take_over().await;
            sink.output("too late".to_owned()).await?;
            ask(&*sink, "too late").await?;
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &[]).await.unwrap_err();
    assert_eq!(error.code(), "fenced", "{error:?}");
    assert_eq!((session.kinds().await.as_str(), session.model.calls()), ("ES OUT", 0));
    let told: Vec<_> = session.watcher.take();
    assert_eq!(told.len(), 2, "nobody is told of what was not recorded: {told:?}");
}

/// A tool call without a result that a fork copied is refused; the child may start a turn of its own.
async fn an_inherited_tool_intent_is_not_driven(session: Fixture) {
    let id = execution(1);
    let call = ToolCall {
        id: "c1".to_owned(),
        tool: "search".to_owned(),
        mediation: Mediation::ControllerMediated,
        idempotency_key: "k1".to_owned(),
        ..ToolCall::default()
    };
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    session.append([Event::in_execution(&id, EventBody::ToolCall(Some(call)))]).await;
    let child = session.fork(3, "child").await.unwrap();
    let echo = child.place(Probe::echo()).await;
    let resumed = child.resume(&echo).await;
    assert!(!resumed.resumed);
    assert!(
        matches!(resumed.result, Err(ControllerError::InheritedToolIntent(seq)) if seq.get() == 3)
    );
    assert_eq!((echo.runs(), echo.describes(), child.model.calls()), (0, 0, 0));
    assert_eq!(child.kinds().await, "ES IN TC LC:FORK");
    child.exec(&echo, &["anew"]).await.unwrap();
    assert_eq!(child.kinds().await, "ES IN TC LC:FORK ES IN MC OUT END");
}

matrix! {
    run:
    everywhere {
        #[test] fn an_unhandled_missing_completion_fails_the_turn;
        #[test] fn a_turn_goes_on_live_after_its_last_effect;
        #[test] fn a_rejected_prefix_never_unlocks_live_effects;
        #[test] fn a_superseded_turn_leaves_no_mark;
        #[test] fn an_inherited_tool_intent_is_not_driven;
    }
    in_process {
        #[test] fn a_retry_after_a_redriven_failure_is_live;
        #[test] fn an_intent_with_a_later_effect_is_not_driven_again;
    }
}
