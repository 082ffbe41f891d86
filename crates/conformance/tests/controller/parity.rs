//! The same turns, driven with the same ids, are the same bytes in every cell.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    Bytes, DataPart, FilePart, FileSource, HarnessError, Hash, Mediation, Message, Part, SinkError,
    ToolCall,
};
use mainspring_controller::{Approval, Controller, Options, Turn, approve};
use mainspring_harness::conversation;
use mainspring_testkit::{ManualClock, SeededEntropy};

use crate::support::raw::{execution, reported, some_usage};
use crate::support::{
    Cell, Fixture, Probe, TestModel, TestTools, ask, gated, mediated, parked, run, turn,
};

/// Sends the whole conversation, so that what history and inputs look like is hashed.
fn conversing() -> Probe {
    Probe::new(|start, sink| async move {
        let mut messages = conversation(&*start.history).await?;
        messages.extend(start.inputs);
        let request = mainspring_api::ModelRequest {
            model: "echo".to_owned(),
            messages,
            ..mainspring_api::ModelRequest::default()
        };
        let reply = sink.model(request).await?;
        sink.usage(reply.usage).await?;
        Ok(())
    })
}

fn busy() -> Probe {
    Probe::new(|_, sink| async move {
        sink.output("said".to_owned()).await?;
        sink.report(reported("c1")).await?;
        ask(&*sink, "asked").await?;
        sink.usage(some_usage()).await?;
        Ok(())
    })
}

fn failing() -> Probe {
    Probe::new(|_, sink| async move {
        sink.output("half".to_owned()).await?;
        Err(HarnessError::failed("gave up"))
    })
}

/// An input with every kind of part that a client may send, and minus zero.
fn rich_input() -> Message {
    let data = [("n".to_owned(), (-0.0).into()), ("e".to_owned(), 1e21.into())];
    Message {
        role: "user".to_owned(),
        parts: vec![
            Part::Text("hi \u{2028}<&>".to_owned()),
            Part::Empty,
            Part::Data(DataPart { data: Some(data.into()) }),
            Part::Data(DataPart { data: None }),
            Part::File(FilePart {
                mime: "image/png".to_owned(),
                source: Some(FileSource::Bytes(Bytes::from_static(&[1, 2, 0xff]))),
                ..FilePart::default()
            }),
            // A host records no empty source.
            Part::File(FilePart {
                source: Some(FileSource::Bytes(Bytes::new())),
                ..FilePart::default()
            }),
        ],
    }
}

/// A session of many turns; returns the hashes of its records.
async fn driven(session: &Fixture) -> Vec<Hash> {
    let options = Options { entropy: Arc::new(SeededEntropy::new(5)), ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    let talker = session.place(conversing()).await;
    let mut next = 0;
    let mut turn_of = |inputs: Vec<Message>| {
        next += 1;
        Turn { inputs, execution_id: Some(execution(next)), ..turn(&[]) }
    };
    let first = turn_of(vec![rich_input(), Message::user("and")]);
    controller.exec(&talker.harness, first).await.unwrap();
    for probe in [conversing(), busy()] {
        let placed = session.place(probe).await;
        let turn = turn_of(vec![Message::user("more")]);
        controller.exec(&placed.harness, turn).await.unwrap();
    }
    let failing = session.place(failing()).await;
    let turn = turn_of(vec![Message::user("try")]);
    controller.exec(&failing.harness, turn).await.unwrap_err();
    session.model.fail(1);
    let turn = turn_of(vec![Message::user("last")]);
    controller.exec(&talker.harness, turn).await.unwrap_err();
    controller.resume(&talker.harness, None).await.result.unwrap();
    session.records().await.into_iter().map(|record| record.hash).collect()
}

/// Every record of the session has the same hash, wherever harness and journal are.
#[test]
fn a_session_is_the_same_bytes_in_every_cell() {
    let expected = Arc::new(Mutex::new(None));
    for cell in Cell::ALL {
        let expected = Arc::clone(&expected);
        run(cell, async move |session| {
            let hashes = driven(&session).await;
            assert_eq!(session.kinds().await, ALL_KINDS, "{cell:?}");
            let mut expected = expected.lock().unwrap();
            assert_eq!(*expected.get_or_insert_with(|| hashes.clone()), hashes, "{cell:?}");
        });
    }
}

const ALL_KINDS: &str = "ES IN IN MC OUT US END \
                         ES IN MC OUT US END \
                         ES IN OUT TR MC OUT US END \
                         ES IN OUT ERR \
                         ES IN MC ERR OUT US END";

/// Every failure that a harness can handle, and every tool cut that is driven again.
fn tooled() -> Probe {
    Probe::new(|_, sink| async move {
        let unmediated = ToolCall { mediation: Mediation::Unspecified, ..mediated("c0", "look") };
        handled(sink.tool_call(unmediated).await)?;
        sink.tool_call(mediated("c1", "look")).await?;
        handled(sink.tool_call(mediated("c2", "broken")).await)?;
        sink.report(reported("r1")).await?;
        handled(ask(&*sink, "flaky").await)?;
        ask(&*sink, "asked").await?;
        sink.tool_call(gated("c3", "look")).await?;
        sink.tool_call(mediated("c4", "look")).await?;
        Ok(())
    })
}

/// Goes on after a failure that an author may handle.
fn handled<T>(result: Result<T, SinkError>) -> Result<(), SinkError> {
    match result {
        Err(
            SinkError::Failed(_)
            | SinkError::UnmediatedToolCall
            | SinkError::CompletionMissing
            | SinkError::ToolResultMissing,
        ) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => panic!("it was to fail"),
    }
}

/// A turn that fails in every handled way, parks, is cut in a tool, and is resumed to its end.
async fn driven_with_tools(session: &Fixture) -> Vec<Hash> {
    let tools = session.executor();
    tools.declare("look");
    tools.respond(|call| async move {
        match call.tool.as_str() {
            "look" => Ok(TestTools::answer(&call)),
            _ => Err(TestTools::failure()),
        }
    });
    session.model.respond(|request| async move {
        match request.messages[0].plain_text().as_str() {
            "flaky" => Err(TestModel::failure()),
            _ => Ok(TestModel::echo(&request)),
        }
    });
    let entropy = Arc::new(SeededEntropy::new(6));
    let clock = Arc::new(ManualClock::at_unix(1_800_000_000));
    let options = || Options {
        entropy: Arc::clone(&entropy) as Arc<_>,
        clock: Arc::clone(&clock) as Arc<_>,
        ..session.options()
    };
    let controller = Controller::new(session.journal(), options()).await.unwrap();
    let placed = session.place_agreed(tooled()).await;
    let turn = Turn { execution_id: Some(execution(1)), ..turn(&["go"]) };
    let park = parked(controller.exec(&placed.harness, turn).await);
    let decision = Approval {
        clock: Arc::clone(&clock) as Arc<_>,
        entropy: Arc::clone(&entropy) as Arc<_>,
        ..session.decision(&park, true, "fine")
    };
    approve(&session.journal(), decision).await.unwrap();
    // Cut right after the intent of the last call: it is declared, and driven again.
    tools.respond(|call| async move {
        match call.id.as_str() {
            "c4" => Err(TestTools::failure()),
            _ => Ok(TestTools::answer(&call)),
        }
    });
    let controller = Controller::new(session.journal(), options()).await.unwrap();
    controller.resume(&placed.harness, None).await.result.unwrap_err();
    tools.respond(|call| async move { Ok(TestTools::answer(&call)) });
    let controller = Controller::new(session.journal(), options()).await.unwrap();
    controller.resume(&placed.harness, None).await.result.unwrap();
    let replayed = session.replay(&placed).await.unwrap();
    assert_eq!((replayed.turns, replayed.outputs), (1, vec!["echo:asked".to_owned()]));
    session.records().await.into_iter().map(|record| record.hash).collect()
}

/// Tools, approvals and handled failures over the bridge are the journal of a harness in process.
#[test]
fn t01_parity() {
    let expected = Arc::new(Mutex::new(None));
    for cell in Cell::ALL {
        let expected = Arc::clone(&expected);
        run(cell, async move |session| {
            let session = session.with_tools();
            let hashes = driven_with_tools(&session).await;
            let kinds = "ES IN TC TR TC TR MC MC OUT TC AQ AR TR TC ERR TR END";
            assert_eq!(session.kinds().await, kinds, "{cell:?}");
            let mut expected = expected.lock().unwrap();
            assert_eq!(*expected.get_or_insert_with(|| hashes.clone()), hashes, "{cell:?}");
        });
    }
}

/// What was recorded live is what a replay by the other way of reaching the harness sees.
#[test]
fn a_session_recorded_in_one_cell_replays_in_every_other() {
    run(Cell::ALL[0], async |recorded| {
        let talker = recorded.place(conversing()).await;
        let turn = Turn { inputs: vec![rich_input()], ..turn(&[]) };
        recorded.exec_turn(&talker, turn).await.unwrap();
        recorded.exec(&talker, &["more"]).await.unwrap();
        let outputs = recorded.outputs().await;
        let outputs: Vec<_> = outputs.iter().map(String::as_str).collect();
        for cell in Cell::ALL {
            let imported = Fixture::import(cell, &recorded.records().await).await;
            let talker = imported.place(conversing()).await;
            imported.replay_check(&talker, 2, &outputs).await;
        }
    });
}
