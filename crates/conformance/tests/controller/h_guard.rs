//! Family H: the sink guard.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use mainspring_api::{Classify as _, EventBody, EventSink, Mediation, SinkError, ToolCall};
use mainspring_controller::ControllerError;

use crate::support::raw::{reported, some_usage};
use crate::support::{Fixture, Probe, TestModel, ask};

/// A sink that a case took out of a run.
type Kept = Arc<Mutex<Option<Arc<dyn EventSink>>>>;

/// The codes of all five methods' refusals.
async fn refusals(kept: &Kept) -> Vec<&'static str> {
    let sink = kept.lock().unwrap().take().expect("the run kept its sink");
    let call = ToolCall {
        id: "c1".to_owned(),
        mediation: Mediation::ControllerMediated,
        idempotency_key: "k1".to_owned(),
        ..ToolCall::default()
    };
    let errors: [SinkError; 5] = [
        ask(&*sink, "late").await.unwrap_err(),
        sink.output("late".to_owned()).await.unwrap_err(),
        sink.tool_call(call).await.unwrap_err(),
        sink.report(reported("c1")).await.unwrap_err(),
        sink.usage(some_usage()).await.unwrap_err(),
    ];
    errors.iter().map(|error| error.code()).collect()
}

fn keeping(kept: &Kept, fails: bool) -> Probe {
    let kept = Arc::clone(kept);
    Probe::new(move |_, sink| {
        let kept = Arc::clone(&kept);
        async move {
            *kept.lock().unwrap() = Some(Arc::clone(&sink));
            ask(&*sink, "hello").await?;
            if fails { Err(mainspring_api::HarnessError::failed("no")) } else { Ok(()) }
        }
    })
}

/// Once a run has returned every method is closed and nothing is recorded: live, resumed, replayed, failed.
async fn h01_late_effects(session: Fixture) {
    let kept = Kept::default();
    let closed = async |journal: &str| {
        assert_eq!(refusals(&kept).await, ["sink_closed"; 5], "{journal}");
        assert_eq!(session.kinds().await, journal);
    };
    let probe = session.place(keeping(&kept, false)).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    closed("ES IN MC OUT END").await;
    session.replay_check(&probe, 1, &["echo:hello"]).await;
    closed("ES IN MC OUT END").await;

    let failing = session.place(keeping(&kept, true)).await;
    session.exec(&failing, &["hello"]).await.unwrap_err();
    closed("ES IN MC OUT END ES IN MC OUT ERR").await;
    session.resume(&probe).await.result.unwrap();
    closed("ES IN MC OUT END ES IN MC OUT ERR END").await;
    assert_eq!(session.model.texts(), ["hello", "hello"], "a late call reached no model");
}

/// Effects of many tasks are recorded one complete effect at a time.
async fn h02_concurrent_effects(session: Fixture) {
    let probe = Probe::new(|_, sink: Arc<dyn EventSink>| async move {
        let mut tasks = Vec::new();
        for number in 0..32 {
            let sink = Arc::clone(&sink);
            tasks.push(tokio::spawn(async move {
                match number % 4 {
                    0 => ask(&*sink, &format!("m{number}")).await.map(drop),
                    _ => sink.output(format!("o{number}")).await,
                }
            }));
        }
        for task in tasks {
            task.await.unwrap()?;
        }
        Ok(())
    });
    let probe = session.place(probe).await;
    session.model.respond(|request| async move {
        // Others get their chance while the call is in flight.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        Ok(TestModel::echo(&request))
    });
    session.exec(&probe, &[]).await.unwrap();

    let events = session.events().await;
    assert_eq!(events.len(), 1 + 8 * 2 + 24 + 1, "seqs are contiguous, and none is missing");
    let mut said = BTreeSet::new();
    let mut intent = None;
    for event in &events[1..events.len() - 1] {
        match &event.body {
            EventBody::ModelCall(Some(call)) => {
                assert!(intent.replace(call.input_hash.clone()).is_none(), "two intents in a row");
            }
            EventBody::Output(Some(message)) => {
                let text = message.plain_text();
                assert_eq!(intent.take().is_some(), text.starts_with("echo:m"), "{text}");
                assert!(said.insert(text.clone()), "{text} twice");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(said.len(), 32);
}

/// A sink that is used from inside its own model call answers with an error, and the turn goes on.
async fn h03_reentrance(session: Fixture) {
    let kept = Kept::default();
    let inside = Arc::new(Mutex::new(Vec::new()));
    let (in_model, told) = (Arc::clone(&kept), Arc::clone(&inside));
    session.model.respond(move |request| {
        let (kept, told) = (Arc::clone(&in_model), Arc::clone(&told));
        async move {
            let codes = refusals(&kept).await;
            told.lock().unwrap().extend(codes);
            Ok(TestModel::echo(&request))
        }
    });
    let probe = session.place(keeping(&kept, false)).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(*inside.lock().unwrap(), ["sink_reentered"; 5]);
    assert_eq!(session.kinds().await, "ES IN MC OUT END");
    session.replay_check(&probe, 1, &["echo:hello"]).await;
}

/// A failure that came from the recorded prefix is every later call's answer, too.
async fn a_divergence_is_every_later_answer(session: Fixture) {
    let said = session.place(Probe::saying(&["a"])).await;
    session.exec(&said, &[]).await.unwrap();
    let kept = Kept::default();
    let codes = Arc::new(Mutex::new(Vec::new()));
    let (keep, told) = (Arc::clone(&kept), Arc::clone(&codes));
    let probe = Probe::new(move |_, sink| {
        let (keep, told) = (Arc::clone(&keep), Arc::clone(&told));
        async move {
            sink.output("b".to_owned()).await.unwrap_err();
            *keep.lock().unwrap() = Some(Arc::clone(&sink));
            let codes = refusals(&keep).await;
            told.lock().unwrap().extend(codes);
            *keep.lock().unwrap() = Some(sink);
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    let error = session.replay(&probe).await.unwrap_err();
    assert!(matches!(error, ControllerError::ReplayDiverged(_)), "{error:?}");
    assert_eq!(*codes.lock().unwrap(), ["replay_diverged"; 5]);
    assert_eq!(refusals(&kept).await, ["sink_closed"; 5], "closed comes before the failure");
}

matrix! {
    run:
    everywhere {
        #[test] fn h01_late_effects;
        #[test] fn h02_concurrent_effects;
    }
    in_process {
        #[test] fn h03_reentrance;
        #[test] fn a_divergence_is_every_later_answer;
    }
}
