//! Reports about other systems that became experiments: histories that come back whole.

use std::path::Path;
use std::sync::Arc;

use mainspring_api::{
    Bytes, Classify as _, Condition, EventBody, Message, ModelError, ModelReply, ModelRequest,
    Opaque, Part, ReasoningPart,
};
use mainspring_controller::ControllerError;
use mainspring_eventlog::EventLog;
use mainspring_harness::conversation;
use mainspring_testkit::{SeededRng, SharedMemory};

use crate::support::{Fixture, Kept, Probe, TestModel, open_log};

/// Sends the whole conversation.
fn conversing() -> Probe {
    Probe::new(|start, sink| async move {
        let mut messages = conversation(&*start.history).await?;
        messages.extend(start.inputs);
        let model = "echo".to_owned();
        sink.model(ModelRequest { model, messages, ..ModelRequest::default() }).await?;
        Ok(())
    })
}

const SIGNATURE_BYTES: usize = 4 << 10;

/// The answer of a provider that signs what it thought: two signed parts and a text.
fn signed(number: u64) -> Message {
    let mut rng = SeededRng::new(number);
    let mut thought = |ordinal: i32| {
        let mut signature = vec![0; SIGNATURE_BYTES];
        rng.fill(&mut signature);
        Part::Reasoning(ReasoningPart {
            provider: "p".to_owned(),
            model_id: "m".to_owned(),
            opaque: Some(Opaque::Bytes(Bytes::from(signature))),
            summary: vec![Part::Text(format!("thought {number}"))],
            item_id: format!("rs_{number}_{ordinal}"),
            ordinal,
            ..ReasoningPart::default()
        })
    };
    let parts = vec![thought(0), thought(1), Part::Text(format!("answer {number}"))];
    Message { role: "assistant".to_owned(), parts }
}

/// Signs its answers, and refuses a history in which one byte of them is not as it was.
fn signing(session: &Fixture) {
    session.model.respond(|request| async move {
        let mut answers = 0;
        for message in request.messages.iter().filter(|message| message.role == "assistant") {
            answers += 1;
            if *message != signed(answers) {
                let message = format!("signature {answers} is not mine");
                return Err(ModelError::Refused { status: 400, message });
            }
        }
        let asked = request.messages.iter().filter(|message| message.role == "user").count();
        assert_eq!(asked as u64, answers + 1, "every turn is there");
        Ok(ModelReply { message: signed(answers + 1), ..ModelReply::default() })
    });
}

/// The store of a cell, opened once more after every handle of it was dropped.
async fn reopened(kept: Kept, dir: &Path, memory: &SharedMemory) -> Arc<dyn EventLog> {
    open_log(kept, memory, dir).await.expect("this cell's store is there")
}

/// Twenty turns of signed reasoning survive a restart, a fork and a resume: the provider takes every history.
async fn b8_signatures_come_back(session: Fixture) {
    let (dir, memory) = (tempfile::tempdir().unwrap(), SharedMemory::default());
    signing(&session);
    let placed = session.place(conversing()).await;
    let first = session.through(reopened(session.cell.kept, dir.path(), &memory).await);
    mainspring_testkit::create(&*first.log, &first.uid).await.unwrap();
    for number in 0..20 {
        first.exec(&placed, &[&format!("question {number}")]).await.unwrap();
    }
    drop(first);

    let again = session.through(reopened(session.cell.kept, dir.path(), &memory).await);
    let recorded: Vec<_> = again
        .events()
        .await
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::Output(message) => message,
            _ => None,
        })
        .collect();
    assert_eq!(recorded, (1..=20).map(signed).collect::<Vec<_>>());
    again.exec(&placed, &["question 20"]).await.unwrap();

    // Cut after the model call of the tenth turn, and after its completion.
    for (at, name, calls) in [(48, "at-call", 1), (49, "at-output", 0)] {
        let child = again.fork(at, name).await.unwrap();
        signing(&child);
        let resumed = child.resume(&placed).await;
        assert!(resumed.resumed);
        resumed.result.unwrap();
        assert_eq!(child.model.calls(), calls);
        child.exec(&placed, &["and another"]).await.unwrap();
        let outputs = child.outputs().await;
        let expected: Vec<_> = (1..=11).map(|number| format!("answer {number}")).collect();
        assert_eq!(outputs, expected);
    }
    let outputs: Vec<_> = (1..=21).map(|number| format!("answer {number}")).collect();
    let outputs: Vec<_> = outputs.iter().map(String::as_str).collect();
    again.replay_check(&placed, 21, &outputs).await;
}

/// A provider that refuses every history with a word in it.
fn refusing(session: &Fixture, word: &'static str) {
    session.model.respond(move |request| async move {
        let bad = request.messages.iter().any(|message| message.plain_text().contains(word));
        match bad {
            true => {
                let message = "history is not acceptable".to_owned();
                Err(ModelError::Refused { status: 400, message })
            }
            false => Ok(TestModel::echo(&request)),
        }
    });
}

/// A refused history is sent once for each turn that a caller starts, and a fork before the bad part goes on.
async fn b9_a_refused_history_is_not_sent_again(session: Fixture) {
    refusing(&session, "poison");
    let placed = session.place(conversing()).await;
    session.exec(&placed, &["good"]).await.unwrap();
    let before = session.model.calls();
    for attempt in 1..=3 {
        let error = session.exec(&placed, &["poison"]).await.unwrap_err();
        assert_eq!(session.model.calls(), before + attempt, "one request a turn, no retry");
        assert_eq!(error.condition(), Condition::ModelFailed, "{error:?}");
        match &error {
            ControllerError::Run(cause) => assert_eq!(cause.code(), "model_refused"),
            other => panic!("{other:?}"),
        }
        let events = session.events().await;
        let words = crate::support::raw::description(events.last().unwrap());
        assert!(words.contains("(400)") && words.contains("not acceptable"), "{words}");
    }
    assert_eq!(session.kinds().await, "ES IN MC OUT END ES IN MC ERR ES IN MC ERR ES IN MC ERR");
    // A resume is one more attempt that somebody asked for, and no more than one.
    let resumed = session.resume(&placed).await;
    assert!(resumed.resumed && resumed.result.is_err());
    assert_eq!(session.model.calls(), before + 4);

    let child = session.fork(5, "child").await.unwrap();
    refusing(&child, "poison");
    child.exec(&placed, &["better"]).await.unwrap();
    assert_eq!(child.outputs().await, ["echo:good", "echo:better"]);
    child.replay_check(&placed, 2, &["echo:good", "echo:better"]).await;
}

/// Forks of forks share the prefix's hashes, have one marker each, and add no input.
async fn b15_a_fork_of_a_fork_of_a_fork(session: Fixture) {
    let placed = session.place(conversing()).await;
    session.exec(&placed, &["one"]).await.unwrap();
    session.exec(&placed, &["two"]).await.unwrap();
    let parent = session.records().await;
    // At the same position a fork of a fork does not see the first one's marker.
    let mut from = session.clone();
    for name in ["same-1", "same-2", "same-3"] {
        from = from.fork(10, name).await.unwrap();
        let records = from.records().await;
        assert_eq!(records.len(), 11, "{name}: the prefix and one marker");
        for (ours, theirs) in records.iter().zip(&parent) {
            assert_eq!((ours.hash, &ours.canonical), (theirs.hash, &theirs.canonical), "{name}");
        }
    }
    // At its own head each fork adds one marker to those that it inherits.
    let mut from = session.clone();
    for (markers, name) in (1..).zip(["deep-1", "deep-2", "deep-3"]) {
        from = from.fork(9 + markers, name).await.unwrap();
        let kinds = from.kinds().await;
        assert_eq!(kinds.matches("LC:FORK").count() as u64, markers, "{name}");
        assert_eq!(kinds.matches("IN").count(), 2, "{name}: {kinds}");
        let records = from.records().await;
        assert!(records.iter().zip(&parent).all(|(ours, theirs)| ours.hash == theirs.hash));
    }
    from.exec(&placed, &["three"]).await.unwrap();
    let asked = from.model.asked();
    let texts: Vec<_> = asked[0].messages.iter().map(Message::plain_text).collect();
    assert_eq!(texts, ["one", "echo:one", "two", "echo:two", "three"]);
    from.replay_check(&placed, 3, &["echo:one", "echo:two", "echo:three"]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn b8_signatures_come_back;
        #[test] fn b15_a_fork_of_a_fork_of_a_fork;
        #[test] fn b9_a_refused_history_is_not_sent_again;
    }
}
