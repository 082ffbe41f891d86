//! Family B: replay determinism.

use std::sync::{Arc, Mutex};

use mainspring_api::{Bytes, EventBody, Message, ModelReply, Opaque, Part, ReasoningPart, Usage};
use mainspring_controller::{Controller, ControllerError, Options};
use mainspring_testkit::SeededEntropy;

use crate::support::raw::{execution, reported, some_usage};
use crate::support::{Fixture, Placed, Probe, TestModel, ask, turn};

/// Two model calls, a reported result, usage.
fn busy() -> Probe {
    Probe::new(|_, sink| async move {
        ask(&*sink, "first").await?;
        sink.report(reported("c1")).await?;
        let reply = ask(&*sink, "second").await?;
        sink.usage(reply.usage).await?;
        Ok(())
    })
}

/// B01 with a reported result in the place of a mediated call: the same outputs, and only reads.
async fn a_turn_of_many_effects_replays(session: Fixture) {
    session.model.respond(|request| async move {
        Ok(ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
    let busy = session.place(busy()).await;
    session.exec(&busy, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN MC OUT TR MC OUT US END");
    session.replay_check(&busy, 1, &["echo:first", "echo:second"]).await;
    assert_eq!(session.model.calls(), 2);
}

async fn drive_with_fixed_ids(session: &Fixture) -> Placed {
    let busy = session.place(busy()).await;
    let options = Options { entropy: Arc::new(SeededEntropy::new(11)), ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    for number in 1..=2 {
        let turn = mainspring_controller::Turn {
            execution_id: Some(execution(number)),
            ..turn(&["hello"])
        };
        controller.exec(&busy.harness, turn).await.unwrap();
    }
    busy
}

/// The same session in two stores is the same bytes, and replays to the same outputs.
async fn b02_fresh_store_same_bytes(session: Fixture) {
    let other = Fixture::open(session.cell).await;
    let (here, there) = (drive_with_fixed_ids(&session).await, drive_with_fixed_ids(&other).await);
    assert_ne!(session.store_id(), other.store_id());
    let bytes = |records: Vec<mainspring_eventlog::StoredRecord>| -> Vec<_> {
        records.into_iter().map(|record| (record.canonical, record.hash)).collect()
    };
    assert_eq!(bytes(session.records().await), bytes(other.records().await));
    let outputs = ["echo:first", "echo:second", "echo:first", "echo:second"];
    session.replay_check(&here, 2, &outputs).await;
    other.replay_check(&there, 2, &outputs).await;
}

/// Records a turn of `recorded` and replays it with `other`.
async fn replayed_by(
    session: &Fixture,
    recorded: Probe,
    other: Probe,
) -> Result<mainspring_controller::Replayed, ControllerError> {
    let recorded = session.place(recorded).await;
    session.exec(&recorded, &["hello"]).await.unwrap();
    let other = session.place(other).await;
    session.replay(&other).await
}

#[track_caller]
fn diverged(result: Result<mainspring_controller::Replayed, ControllerError>, names: &str) {
    match result {
        Err(ControllerError::ReplayDiverged(what)) => {
            assert!(what.to_string().contains(names), "{what:?} names {names:?}");
        }
        other => panic!("not a divergence: {other:?}"),
    }
}

/// A request that differs from the recorded one is a divergence that names the invariant.
async fn b03_changed_request(session: Fixture) {
    let asked = Probe::asking(&["hello"]);
    diverged(replayed_by(&session, asked, Probe::asking(&["other"])).await, "I0");
}

/// A harness that ignores the divergence does not hide it, nor unlock what follows.
async fn b04_swallowed_divergence(session: Fixture) {
    let swallowing = Probe::new(|_, sink| async move {
        let _ = ask(&*sink, "other").await;
        let _ = ask(&*sink, "hello").await;
        Ok(())
    });
    let asked = Probe::asking(&["hello"]);
    diverged(replayed_by(&session, asked, swallowing).await, "I0");
}

/// A harness that does one less than was recorded diverged.
async fn b05_unconsumed_effect(session: Fixture) {
    let result = replayed_by(&session, Probe::asking(&["a", "b"]), Probe::asking(&["a"])).await;
    diverged(result, "seq 5");
}

/// A harness that does one more than was recorded diverged: a finished turn has no beyond.
async fn an_effect_beyond_the_recorded_ones_diverges(session: Fixture) {
    let more = Probe::saying(&["a", "b"]);
    diverged(replayed_by(&session, Probe::saying(&["a"]), more).await, "output");
    let asking = Probe::new(|_, sink| async move {
        sink.output("a".to_owned()).await?;
        ask(&*sink, "b").await?;
        Ok(())
    });
    let asking = session.place(asking).await;
    diverged(session.replay(&asking).await, "model call (I0) is beyond");
}

/// An output that differs is a divergence that names outputs.
async fn b06_output_mismatch(session: Fixture) {
    let said = Probe::saying(&["a"]);
    diverged(replayed_by(&session, said, Probe::saying(&["b"])).await, "output");
}

/// Usage, reports and outputs are told apart, and each is compared.
async fn other_effects_are_compared_too(session: Fixture) {
    let using = |tokens| {
        Probe::new(move |_, sink| async move {
            sink.usage(Usage { input_tokens: tokens, ..some_usage() }).await?;
            Ok(())
        })
    };
    let reporting = |id: &'static str| {
        Probe::new(move |_, sink| async move { Ok(sink.report(reported(id)).await?) })
    };
    diverged(replayed_by(&session, using(1), using(2)).await, "usage");
    let session = Fixture::open(session.cell).await;
    diverged(replayed_by(&session, reporting("c1"), reporting("c2")).await, "tool result");
    let session = Fixture::open(session.cell).await;
    diverged(replayed_by(&session, reporting("c1"), Probe::saying(&["c1"])).await, "output");
}

/// Reasoning comes back as it was given, from a live call and from a replayed one (I2).
async fn b07_reasoning_verbatim(session: Fixture) {
    let thought = |ordinal, opaque| {
        Part::Reasoning(ReasoningPart {
            provider: "p".to_owned(),
            model_id: "m".to_owned(),
            opaque: Some(opaque),
            summary: vec![Part::Text("brief".to_owned())],
            item_id: format!("rs_{ordinal}"),
            ordinal,
            validity_scope: "scope".to_owned(),
            opaque_digest: "sha256:aa".to_owned(),
        })
    };
    let message = Message {
        role: "assistant".to_owned(),
        parts: vec![
            thought(2, Opaque::Bytes(Bytes::from_static(&[0, 0xff, 0xfe, b'"', 0x80]))),
            thought(1, Opaque::Uri("blob://1".to_owned())),
            Part::Text("yo".to_owned()),
        ],
    };
    let answer = message.clone();
    session.model.respond(move |_| {
        let message = answer.clone();
        async move { Ok(ModelReply { message, ..ModelReply::default() }) }
    });
    let got = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&got);
    let probe = Probe::new(move |_, sink| {
        let keep = Arc::clone(&keep);
        async move {
            let reply = ask(&*sink, "hello").await?;
            keep.lock().unwrap().push(reply.message);
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.events().await[3].body, EventBody::Output(Some(message.clone())));
    session.replay_check(&probe, 1, &["yo"]).await;
    assert_eq!(*got.lock().unwrap(), [message.clone(), message]);
}

/// The recorded output texts, in order, without a harness or a model.
async fn b08_outputs_are_the_recorded_texts(session: Fixture) {
    let probe = session.place(busy()).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    let said = session.place(Probe::saying(&["third", ""])).await;
    session.exec(&said, &[]).await.unwrap();
    let calls = session.model.calls();
    assert_eq!(session.outputs().await, ["echo:first", "echo:second", "third", ""]);
    assert_eq!((session.model.calls(), probe.runs(), said.runs()), (calls, 1, 1));
}

matrix! {
    run:
    everywhere {
        #[test] fn a_turn_of_many_effects_replays;
        #[test] fn b02_fresh_store_same_bytes;
        #[test] fn b03_changed_request;
        #[test] fn b04_swallowed_divergence;
        #[test] fn b05_unconsumed_effect;
        #[test] fn an_effect_beyond_the_recorded_ones_diverges;
        #[test] fn b06_output_mismatch;
        #[test] fn other_effects_are_compared_too;
        #[test] fn b07_reasoning_verbatim;
        #[test] fn b08_outputs_are_the_recorded_texts;
    }
}
