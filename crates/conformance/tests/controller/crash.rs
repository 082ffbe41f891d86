//! A turn that is cut at every record, and once more at every record of each resume.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_api::{EventBody, Message, ModelReply};
use mainspring_controller::{Controller, ControllerError, Resumed};
use mainspring_eventlog::{EventLog, StoredRecord};
use mainspring_testkit::{CutMode, CutOp, CutPoint, CutSide, CutStore};

use crate::support::raw::{reported, some_usage};
use crate::support::{Fixture, Placed, Probe, TestModel, ask};

const WHOLE: &str = "ES IN MC OUT OUT US TR MC OUT END";
const OUTPUTS: [&str; 3] = ["echo:first", "said", "echo:second"];

/// The turn `MC OUT, OUT, US, TR, MC OUT, END`.
fn worker() -> Probe {
    Probe::new(|_, sink| async move {
        let reply = ask(&*sink, "first").await?;
        sink.output("said".to_owned()).await?;
        sink.usage(reply.usage).await?;
        sink.report(reported("c1")).await?;
        ask(&*sink, "second").await?;
        Ok(())
    })
}

fn costs(session: &Fixture) {
    session.model.respond(|request| async move {
        Ok(ModelReply { usage: some_usage(), ..TestModel::echo(&request) })
    });
}

async fn whole_turn(session: &Fixture) -> Vec<StoredRecord> {
    costs(session);
    let worker = session.place(worker()).await;
    session.exec(&worker, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, WHOLE);
    session.records().await
}

/// The texts of the calls that the journal holds a completion of.
async fn completed_calls(session: &Fixture) -> Vec<String> {
    let texts = session.events().await.into_iter().filter_map(|event| match event.body {
        EventBody::Output(message) => message.as_ref().map(Message::plain_text),
        _ => None,
    });
    texts.filter_map(|text| text.strip_prefix("echo:").map(str::to_owned)).collect()
}

/// Runs one life of a host over `log`, and checks that no completed call was made in it.
async fn life(session: &Fixture, log: &Arc<dyn EventLog>, worker: &Placed) -> Resumed {
    let completed = completed_calls(session).await;
    let before = session.model.calls();
    let host = session.through(Arc::clone(log));
    let controller = Controller::new(host.journal(), host.options()).await.unwrap();
    let resumed = controller.resume(&worker.harness, None).await;
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for text in session.model.texts().into_iter().skip(before) {
        assert!(!completed.contains(&text), "{text:?} was completed, and is called again");
        *made.entry(text).or_default() += 1;
    }
    assert!(made.values().all(|calls| *calls == 1), "{made:?}: once in each life at most");
    resumed
}

/// The turn is whole, of one execution, verified, and replays.
async fn assert_whole(session: &Fixture, worker: &Placed) {
    assert_eq!(session.kinds().await, WHOLE);
    let events = session.events().await;
    assert!(events.iter().all(|event| event.execution_id == events[0].execution_id));
    session.replay_check(worker, 1, &OUTPUTS).await;
}

/// Resumes until the turn has ended, on one more host.
async fn recover(session: &Fixture, worker: &Placed, cut: usize) {
    let resumed = life(session, &session.log, worker).await;
    assert_eq!(resumed.resumed, (2..=9).contains(&cut), "cut after {cut}");
    match cut {
        0 | 10 => resumed.result.unwrap(),
        1 => {
            let error = resumed.result.unwrap_err();
            assert!(matches!(error, ControllerError::IncompleteInvocation { .. }), "{error:?}");
        }
        _ => resumed.result.unwrap(),
    }
    if cut >= 2 {
        assert_whole(session, worker).await;
    }
}

/// Every prefix of the turn, imported into a fresh store, is resumed to its end.
async fn a_turn_cut_at_any_record_is_resumed(session: Fixture) {
    let turn = whole_turn(&session).await;
    for cut in 0..=turn.len() {
        let session = Fixture::import(session.cell, &turn[..cut]).await;
        costs(&session);
        let worker = session.place(worker()).await;
        recover(&session, &worker, cut).await;
        let expected: usize = match cut {
            0 | 1 => 0,
            2 | 3 => 2,
            4..=8 => 1,
            _ => 0,
        };
        assert_eq!(session.model.calls(), expected, "cut after {cut}");
        if cut < 2 {
            // What never began in full is begun anew, with all its inputs.
            session.exec(&worker, &["hello"]).await.unwrap();
            session.replay_check(&worker, 1, &OUTPUTS).await;
        }
    }
}

/// The cut points of a resume, as one that is not cut passes them.
async fn points_of_a_resume(cell: crate::support::Cell, prefix: &[StoredRecord]) -> Vec<CutPoint> {
    let session = Fixture::import(cell, prefix).await;
    costs(&session);
    let worker = session.place(worker()).await;
    let counting = Arc::new(CutStore::counting(Arc::clone(&session.log)));
    let log: Arc<dyn EventLog> = Arc::clone(&counting) as Arc<_>;
    life(&session, &log, &worker).await.result.unwrap();
    counting.points().into_iter().filter(|point| point.op == CutOp::Append).collect()
}

/// Every resume of every prefix, cut before and after each of its appends, is resumed to the end.
async fn a_resume_cut_at_any_record_is_resumed(session: Fixture) {
    let turn = whole_turn(&session).await;
    let mut pairs = 0;
    for cut in 2..turn.len() {
        let points = points_of_a_resume(session.cell, &turn[..cut]).await;
        // The intent that is there already, or a completion, is all that a cut saves.
        assert_eq!(points.len(), 2 * (turn.len() - cut), "cut after {cut}");
        for point in points {
            let session = Fixture::import(session.cell, &turn[..cut]).await;
            costs(&session);
            let worker = session.place(worker()).await;
            let dying = CutStore::new(Arc::clone(&session.log), point, CutMode::Dead);
            let dying: Arc<dyn EventLog> = Arc::new(dying);
            let resumed = life(&session, &dying, &worker).await;
            assert!(resumed.resumed && resumed.result.is_err(), "{cut}, then {point}");
            let landed = point.nth - u64::from(point.side == CutSide::Before);
            let second = cut + usize::try_from(landed).unwrap();
            assert_eq!(session.records().await.len(), second, "{cut}, then {point}");
            recover(&session, &worker, second).await;
            pairs += 1;
        }
    }
    assert_eq!(pairs, 2 * (1..=8).sum::<usize>(), "all pairs of cuts");
}

matrix! {
    run_on_one_thread:
    everywhere {
        #[test] fn a_turn_cut_at_any_record_is_resumed;
    }
    in_process {
        #[test] fn a_resume_cut_at_any_record_is_resumed;
    }
}
