//! Family Q: deltas and observers.

use std::sync::{Arc, Mutex};

use mainspring_api::{Delta, LogRecord, Seq, SessionUid};
use mainspring_controller::{Controller, Observer, Options, Turn};
use mainspring_eventlog::{EventLog, Level};
use mainspring_testkit::SeededEntropy;

use crate::support::raw::{self, execution};
use crate::support::{Answers, Fixture, Probe, TestModel, Told, driven, gated, parked, turn};

async fn canonical_turn(session: &Fixture) -> Vec<mainspring_api::Hash> {
    let echo = session.place(Probe::echo()).await;
    let options = Options { entropy: Arc::new(SeededEntropy::new(3)), ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    let turn = Turn { execution_id: Some(execution(1)), ..turn(&["hello"]) };
    controller.exec(&echo.harness, turn).await.unwrap();
    session.records().await.into_iter().map(|record| record.hash).collect()
}

/// Streaming changes no record.
async fn q01_journal_independent_of_streaming(session: Fixture) {
    let streaming = Fixture::open(session.cell).await;
    streaming.model.stream_chunks();
    assert_eq!(canonical_turn(&session).await, canonical_turn(&streaming).await);
    let deltas =
        |told: Vec<Told>| told.into_iter().filter(|told| matches!(told, Told::Delta(..))).count();
    assert_eq!((deltas(session.watcher.take()), deltas(streaming.watcher.take())), (0, 3));
}

fn record(seq: u64, kind: &str) -> Told {
    Told::Record(Seq::new(seq), kind.to_owned())
}

fn delta(chunk: &str, done: bool) -> Told {
    Told::Delta(chunk.to_owned(), done)
}

/// Deltas come between the intent and the completion; an empty chunk is not one; the last says that it is.
async fn q02_order(session: Fixture) {
    session.model.stream_chunks();
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["hello"]).await.unwrap();
    assert_eq!(
        session.watcher.take(),
        [
            record(1, "ES"),
            record(2, "IN"),
            record(3, "MC"),
            delta("echo:", false),
            delta("hello", false),
            delta("", true),
            record(4, "OUT"),
            record(5, "END"),
        ]
    );
    // A call that fails has no last delta.
    session.model.fail(1);
    session.exec(&echo, &["hello"]).await.unwrap_err();
    let told = session.watcher.take();
    assert_eq!(told, [record(6, "ES"), record(7, "IN"), record(8, "MC"), record(9, "ERR")]);
}

/// Reads the journal each time that it is told of a record.
#[derive(Debug)]
struct Reader {
    log: Arc<dyn EventLog>,
    uid: SessionUid,
    /// The position told, and the head found.
    found: Mutex<Vec<(Seq, Seq)>>,
}

impl Observer for Reader {
    fn on_record(&self, record: &LogRecord) {
        let head = tokio::task::block_in_place(|| {
            let reading = self.log.head(&self.uid, Level::Strict);
            tokio::runtime::Handle::current().block_on(reading).unwrap()
        });
        self.found.lock().unwrap().push((record.seq, head.seq));
    }

    fn on_delta(&self, _: Delta) {}
}

/// Whoever is told of a record finds it in the log, and nothing after what was appended with it.
async fn q03_durable_first(session: Fixture) {
    let reader = Arc::new(Reader {
        log: Arc::clone(&session.log),
        uid: session.uid.clone(),
        found: Mutex::default(),
    });
    let options = Options { observer: Arc::clone(&reader) as Arc<_>, ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    let echo = session.place(Probe::echo()).await;
    // A turn is driven by tasks of the host, where an observer may block.
    let driven = tokio::spawn(async move {
        session.model.fail(1);
        controller.exec(&echo.harness, turn(&["hello"])).await.unwrap_err();
        controller.resume(&echo.harness, None).await.result.unwrap();
    });
    driven.await.unwrap();
    let found = reader.found.lock().unwrap();
    let heads: Vec<u64> = found.iter().map(|(_, head)| head.get()).collect();
    assert_eq!(heads, [2, 2, 3, 4, 5, 6], "start and inputs are one unit");
    assert!(found.iter().map(|(seq, _)| seq.get()).eq(1..=6), "each once, in order");
}

/// A replay tells nothing, and a resume only what it adds.
async fn q04_replay_is_silent(session: Fixture) {
    session.model.stream_chunks();
    let echo = session.place(Probe::echo()).await;
    session.append(raw::echo_turn(&execution(1), "one")).await;
    session.replay_check(&echo, 1, &["echo:one"]).await;
    assert_eq!(session.watcher.take(), []);

    session.append(raw::echo_turn(&execution(2), "two").into_iter().take(4)).await;
    session.resume(&echo).await.result.unwrap();
    assert_eq!(session.watcher.take(), [record(10, "END")], "what was served is not told again");

    session.append(raw::echo_turn(&execution(3), "x").into_iter().take(3)).await;
    session.resume(&echo).await.result.unwrap();
    let told = [
        delta("echo:", false),
        delta("x", false),
        delta("", true),
        record(14, "OUT"),
        record(15, "END"),
    ];
    assert_eq!(session.watcher.take(), told);
}

/// Deltas carry the execution's id.
async fn deltas_name_their_execution(session: Fixture) {
    #[derive(Debug, Default)]
    struct Ids(Mutex<Vec<Delta>>);
    impl Observer for Ids {
        fn on_record(&self, _: &LogRecord) {}
        fn on_delta(&self, delta: Delta) {
            self.0.lock().unwrap().push(delta);
        }
    }
    session.model.stream_chunks();
    let ids = Arc::new(Ids::default());
    let options = Options { observer: Arc::clone(&ids) as Arc<_>, ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    let echo = session.place(Probe::echo()).await;
    let executed = controller.exec(&echo.harness, turn(&["a:b"])).await.unwrap();
    let deltas = ids.0.lock().unwrap();
    assert!(deltas.iter().all(|delta| delta.execution_id == executed.execution_id));
    let text: String = deltas.iter().map(|delta| delta.chunk.as_str()).collect();
    assert_eq!(text, TestModel::echo(&session.model.asked()[0]).message.plain_text());
}

/// An observer that panics at each record changes nothing: a park parks, and a receipt is handed on.
async fn an_observer_that_panics(session: Fixture) {
    #[derive(Debug)]
    struct Panics;
    impl Observer for Panics {
        fn on_record(&self, _: &LogRecord) {
            panic!("the observer panicked");
        }
        fn on_delta(&self, _: Delta) {
            panic!("the observer panicked");
        }
    }
    session.model.stream_chunks();
    let session = session.with_tools();
    let answers = Answers::default();
    let probe = Probe::handling([gated("c1", "pay")], &answers);
    let probe = session.place(probe).await;
    let options = Options { observer: Arc::new(Panics), ..session.options() };
    let controller = Controller::new(session.journal(), options.clone()).await.unwrap();
    let park = parked(controller.exec(&probe.harness, turn(&["hello"])).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ");
    session.decide(&park, true, "").await.unwrap();
    answers.take();
    let controller = Controller::new(session.journal(), options.clone()).await.unwrap();
    driven(controller.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    assert_eq!(answers.codes(), ["ok"]);
    let echo = session.place(Probe::echo()).await;
    let controller = Controller::new(session.journal(), options).await.unwrap();
    controller.exec(&echo.harness, turn(&["a:b"])).await.unwrap();
}

matrix! {
    run:
    everywhere {
        #[test] fn q01_journal_independent_of_streaming;
        #[test] fn q02_order;
        #[test] fn q03_durable_first;
        #[test] fn q04_replay_is_silent;
        #[test] fn deltas_name_their_execution;
    }
    in_process {
        #[test] fn an_observer_that_panics;
    }
}
