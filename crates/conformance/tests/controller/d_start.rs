//! Family D: what a turn starts from, and what may stop it.

use std::sync::{Arc, Mutex};

use mainspring_api::{
    ApprovalResult, Bytes, Classify as _, Descriptor, EventBody, Fence, FilePart, FileSource,
    Harness as _, Head, Message, Opaque, Outcome, Part, ReasoningPart, Seq, ToolResult,
};
use mainspring_controller::{Controller, ControllerError, Expected, Options, Turn};
use mainspring_eventlog::{Level, LogError};
use mainspring_harness::Echo;

use crate::support::raw::{self, execution};
use crate::support::{Fixture, Placed, Probe, turn};

/// A config with bytes that no text has.
const RAW_CONFIG: &[u8] = &[0x00, 0xff, 0xc3, 0x28, b'"', 0x00];

/// The config is recorded as it came, and a harness that writes into its copy changes nothing.
async fn d01_config_verbatim(session: Fixture) {
    let probe = Probe::new(|start, sink| async move {
        // In place where the bytes are not shared, in a copy where they are.
        let config = start.config.try_into_mut();
        let mut config = config.unwrap_or_else(|shared| shared.as_ref().into());
        config.fill(b'x');
        sink.output(String::from_utf8(config.to_vec()).unwrap()).await?;
        Ok(())
    });
    let probe = session.place(probe).await;
    let config = Bytes::copy_from_slice(RAW_CONFIG);
    session.exec_turn(&probe, Turn { config, ..turn(&["hello"]) }).await.unwrap();
    let events = session.events().await;
    let EventBody::ExecutionStart(Some(start)) = &events[0].body else { panic!("{events:?}") };
    assert_eq!(start.config, RAW_CONFIG);
    assert_eq!(probe.probe.seen()[0].config, RAW_CONFIG);
    session.replay_check(&probe, 1, &["xxxxxx"]).await;
    assert_eq!(probe.probe.seen()[1].config, RAW_CONFIG);
}

fn configured(config: &'static [u8], cursor: i64, text: &str) -> Turn {
    Turn { config: Bytes::from_static(config), resume_from_seq: cursor, ..turn(&[text]) }
}

/// A replay and a resume start a turn with what it recorded, not with what the controller ran last.
async fn d02_replay_uses_recorded_start(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let controller = session.controller().await;
    controller.exec(&echo.harness, configured(b"B", 9, "two")).await.unwrap();
    session.model.fail(1);
    controller.exec(&echo.harness, configured(b"A", 7, "one")).await.unwrap_err();
    controller.resume(&echo.harness, None).await.result.unwrap();
    let seen = echo.probe.seen();
    assert_eq!((seen[2].config.as_ref(), seen[2].resume_from_seq), (&b"A"[..], 7));
    assert_eq!(seen[2], seen[1], "a resume starts the turn as it was started");
    session.replay_check(&echo, 2, &["echo:two", "echo:one"]).await;
    assert_eq!(echo.probe.seen()[3..], seen[..2]);
}

#[track_caller]
fn conflict(result: Result<mainspring_controller::Executed, ControllerError>, at: u64) {
    let error = result.unwrap_err();
    assert_eq!((error.code(), error.outcome()), ("conflict", Outcome::NotApplied));
    let ControllerError::Log(LogError::Conflict { head, .. }) = error else {
        panic!("not the store's own conflict: {error:?}")
    };
    assert_eq!(head.seq, Seq::new(at));
}

/// A turn that expects another head is refused: no run, no record, nobody is told.
async fn d03_lost_compare_and_swap(session: Fixture) {
    session.append(raw::echo_turn(&execution(1), "one")).await;
    let head = session.head().await;
    let echo = session.place(Probe::echo()).await;
    let other = Head { hash: raw::head_at(&session.records().await, 4).hash, ..head };
    for expected in [
        Expected::Seq(Seq::new(4)),
        Expected::Seq(Seq::new(6)),
        Expected::At(raw::head_at(&session.records().await, 4)),
        Expected::At(other),
    ] {
        conflict(session.exec_turn(&echo, Turn { expected, ..turn(&["two"]) }).await, 5);
    }
    assert_eq!((echo.runs(), session.head().await), (0, head));
    assert_eq!(session.watcher.take(), []);
    let expected = Expected::Seq(Seq::new(5));
    session.exec_turn(&echo, Turn { expected, ..turn(&["two"]) }).await.unwrap();
    let expected = Expected::At(session.head().await);
    session.exec_turn(&echo, Turn { expected, ..turn(&["three"]) }).await.unwrap();
    assert_eq!(echo.runs(), 2);
}

/// A record that lands while the harness describes itself makes the start's append lose.
async fn a_head_that_moves_before_the_start_conflicts(session: Fixture) {
    let intruder = session.clone();
    let echo = Probe::echo().describing(move || {
        let intruder = intruder.clone();
        async move {
            intruder.append(raw::echo_turn(&execution(9), "intruder")).await;
            Echo.describe().await
        }
    });
    let echo = session.place(echo).await;
    conflict(session.exec(&echo, &["mine"]).await, 5);
    assert_eq!((echo.runs(), session.kinds().await.as_str()), (0, "ES IN MC OUT END"));
    assert_eq!(session.watcher.take(), []);
}

/// A controller whose fence was superseded is refused: no run, no record.
async fn d04_fenced(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let controller = session.controller().await;
    assert_eq!(controller.fence(), session.fence().await, "a fresh controller holds the fence");
    let newer = session.take_over().await;
    let error = controller.exec(&echo.harness, turn(&["hello"])).await.unwrap_err();
    assert!(
        matches!(error, ControllerError::Log(LogError::Fenced { current }) if current == newer),
        "{error:?}"
    );
    assert_eq!((echo.runs(), session.head().await), (0, Head::EMPTY));
    assert_eq!(session.watcher.take(), []);
}

/// A controller mints exactly one fence, a given one is used as it is, and a reader mints none.
async fn a_controller_mints_one_fence_unless_given_one(session: Fixture) {
    assert_eq!(session.fence().await, Fence::NONE);
    let minted = session.controller().await;
    assert_eq!((minted.fence(), session.fence().await), (Fence::new(1), Fence::new(1)));
    let given = Options { fence: Some(Fence::new(1)), ..session.options() };
    let given = Controller::new(session.journal(), given).await.unwrap();
    let reader = Controller::reader(session.journal(), session.options());
    assert_eq!((given.fence(), reader.fence()), (Fence::new(1), Fence::NONE));
    assert_eq!(session.fence().await, Fence::new(1));
    let echo = session.place(Probe::echo()).await;
    minted.exec(&echo.harness, turn(&["one"])).await.unwrap();
    given.exec(&echo.harness, turn(&["two"])).await.unwrap();
}

/// All inputs are recorded, in order, before the harness runs.
async fn d05_all_inputs_before_run(session: Fixture) {
    let found = Arc::new(Mutex::new(None));
    let (log, uid, keep) = (Arc::clone(&session.log), session.uid.clone(), Arc::clone(&found));
    let probe = Probe::new(move |_, _| {
        let (log, uid, keep) = (Arc::clone(&log), uid.clone(), Arc::clone(&keep));
        async move {
            let head = log.head(&uid, Level::Strict).await.unwrap();
            *keep.lock().unwrap() = Some(head.seq);
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    session.exec(&probe, &["one", "two", "three"]).await.unwrap();
    assert_eq!(*found.lock().unwrap(), Some(Seq::new(4)));
    assert_eq!(session.kinds().await, "ES IN IN IN END");
    assert_eq!(probe.probe.seen()[0].inputs, ["one", "two", "three"]);
    session.replay_check(&probe, 1, &[]).await;
}

/// What a host never records is taken out of an input: recorded, given to the harness and replayed is one form.
async fn an_input_is_given_in_its_recorded_form(session: Fixture) {
    let file = |source| {
        Part::File(FilePart { mime: "text/plain".to_owned(), source, ..FilePart::default() })
    };
    let reasoning = |opaque| Part::Reasoning(ReasoningPart { opaque, ..ReasoningPart::default() });
    let decided = |decision| {
        Part::ToolResult(ToolResult { id: "c1".to_owned(), decision, ..ToolResult::default() })
    };
    let message = |parts: Vec<Part>| Message { role: "user".to_owned(), parts };
    let given = message(vec![
        file(Some(FileSource::Bytes(Bytes::new()))),
        file(Some(FileSource::Uri(String::new()))),
        reasoning(Some(Opaque::Uri(String::new()))),
        decided(Some(ApprovalResult { approved: true, ..ApprovalResult::default() })),
    ]);
    let recorded = message(vec![file(None), file(None), reasoning(None), decided(None)]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let probe = Probe::new(move |start, _| {
        keep.lock().unwrap().extend(start.inputs);
        std::future::ready(Ok(()))
    });
    let probe = session.place(probe).await;
    session.exec_turn(&probe, Turn { inputs: vec![given], ..turn(&[]) }).await.unwrap();
    assert_eq!(session.events().await[1].body, EventBody::Input(Some(recorded.clone())));
    session.replay_check(&probe, 1, &[]).await;
    assert_eq!(*seen.lock().unwrap(), [recorded.clone(), recorded]);
}

/// An input that cannot be recorded refuses the whole turn: none of it is recorded.
async fn an_input_above_its_bound_refuses_the_whole_turn(session: Fixture) {
    let echo = session.place(Probe::echo()).await;
    let large = "x".repeat(session.log.limits().event_bytes_max);
    let error = session.exec(&echo, &["small", &large]).await.unwrap_err();
    assert_eq!(error.code(), "value_too_large", "{error}");
    assert_eq!((echo.runs(), session.head().await), (0, Head::EMPTY));
}

/// A pending turn's start can be read without driving it; a copy of it is a copy.
async fn d09_resume_invocation(session: Fixture) {
    let pending = mainspring_controller::resume_invocation;
    assert!(pending(&session.journal()).await.unwrap().is_none(), "empty");

    session.append(raw::echo_turn(&execution(1), "one")).await;
    assert!(pending(&session.journal()).await.unwrap().is_none(), "completed");

    let echo = session.place(Probe::echo()).await;
    session.model.fail(1);
    session.exec_turn(&echo, configured(b"A", 7, "two")).await.unwrap_err();
    let before = session.row().await;
    let (id, mut start) = pending(&session.journal()).await.unwrap().expect("a pending turn");
    let events = session.events().await;
    assert_eq!(events[5].execution_id, Some(id));
    assert_eq!(events[5].body, EventBody::ExecutionStart(Some(start.clone())));
    assert_eq!((start.config.as_ref(), start.resume_from_seq), (&b"A"[..], 7));
    start.harness = "another".to_owned();
    start.input_count = None;
    let (_, again) = pending(&session.journal()).await.unwrap().unwrap();
    assert_eq!((again.harness.as_str(), again.input_count), ("echo", Some(1)));

    session.append(raw::echo_turn(&execution(2), "three").into_iter().skip(1).take(2)).await;
    assert!(pending(&session.journal()).await.unwrap().is_none(), "markerless");
    assert_eq!(session.row().await.fence, before.fence, "it mints nothing");
    assert_eq!((echo.runs(), echo.describes()), (1, 1));
}

/// The descriptor's versionless form is legal, and is recorded as absent.
async fn a_harness_without_a_version_records_none(session: Fixture) {
    let echo = Probe::echo()
        .describing(|| async { Ok(Descriptor { id: "echo".to_owned(), ..Descriptor::default() }) });
    let echo: Placed = session.place(echo).await;
    session.exec(&echo, &["hello"]).await.unwrap();
    let events = session.events().await;
    let EventBody::ExecutionStart(Some(start)) = &events[0].body else { panic!("{events:?}") };
    assert_eq!((start.harness.as_str(), start.harness_version.as_str()), ("echo", ""));
    let text = String::from_utf8(session.records().await[0].canonical.to_vec()).unwrap();
    assert!(!text.contains("harness_version") && !text.contains("compute_instance"), "{text}");
    session.replay_check(&echo, 1, &["echo:hello"]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn d01_config_verbatim;
        #[test] fn d02_replay_uses_recorded_start;
        #[test] fn d03_lost_compare_and_swap;
        #[test] fn a_head_that_moves_before_the_start_conflicts;
        #[test] fn d04_fenced;
        #[test] fn a_controller_mints_one_fence_unless_given_one;
        #[test] fn d05_all_inputs_before_run;
        #[test] fn an_input_is_given_in_its_recorded_form;
        #[test] fn an_input_above_its_bound_refuses_the_whole_turn;
        #[test] fn d09_resume_invocation;
        #[test] fn a_harness_without_a_version_records_none;
    }
}
