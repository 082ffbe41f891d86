//! Exec: an ordinary turn.

use std::sync::Arc;

use mainspring_api::{
    Classify as _, Clock as _, ComputeState, Condition, EventBody, ExecRequest, ExecState,
    ExecUpdate, Message, Outcome, Seq, SystemClock,
};

use super::support::{Shown, positions, refuses, turn};
use super::{Setup, Subject};

/// "`session` empty: create one as CreateSession would (only `harness` is taken from the request)." and
/// "Send `ExecUpdate.session` (first frame of every stream that gets this far)."
pub async fn an_exec_without_session_creates_one<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let request = ExecRequest {
        inputs: vec![Message::user("go")],
        harness: "other".to_owned(),
        config: "out a".into(),
        ..ExecRequest::default()
    };
    let shown = Shown::of(world.me.exec(request).await).await.ok();
    let Some(ExecUpdate::Session(first)) = shown.updates.first() else {
        panic!("the session comes first: {shown:?}")
    };
    assert_eq!((first.last_seq, &*first.harness), (Seq::ZERO, "other"));
    assert_eq!(shown.kinds(), "ES IN OUT END");
    assert_eq!(world.journal(&first.uid).await, "ES IN OUT END");
    assert_eq!(world.me.get(&first.uid).await.unwrap().harness, "other");
}

/// "First refuse a set `expected_last_seq` other than 0 with ABORTED, so no orphan is left"
pub async fn an_exec_that_cannot_be_leaves_no_session<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let request = ExecRequest {
        inputs: vec![Message::user("go")],
        expected_last_seq: Some(3),
        ..ExecRequest::default()
    };
    refuses(world.me.exec(request).await, Condition::Conflict);
    assert_eq!(world.count().await, 0);
}

/// "Its last_seq is the cursor before the turn."
pub async fn the_first_frame_is_the_session_before_the_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let shown = world.me.run(&session, "out b").await.ok();
    assert_eq!(shown.sessions().len(), 1, "no final session frame on an ordinary turn");
    assert_eq!(shown.sessions()[0].last_seq, Seq::new(4));
    assert_eq!(positions(&shown.records()), [5, 6, 7, 8]);
    let stored = world.records(&session).await;
    let last = shown.records().pop().unwrap();
    assert_eq!((&last.hash, &last.event), (&stored[7].hash, &stored[7].event));
    assert_eq!(shown.kinds(), "ES IN OUT END");
}

/// "A CAS mismatch is therefore ABORTED **after** the session frame."
pub async fn another_position_conflicts_after_the_session<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    for expected in [0, 3, 5, 1_000] {
        let request = ExecRequest { expected_last_seq: Some(expected), ..turn(&session, "out b") };
        let shown = Shown::of(world.me.exec(request).await).await;
        assert_eq!(shown.failed().condition(), Condition::Conflict, "expected {expected}");
        assert_eq!(shown.failed().outcome(), Outcome::NotApplied, "expected {expected}");
        assert_eq!(shown.sessions().len(), 1, "expected {expected}");
        assert!(shown.records().is_empty(), "expected {expected}");
    }
    let request = ExecRequest { expected_last_seq: Some(-1), ..turn(&session, "") };
    let shown = Shown::of(world.me.exec(request).await).await;
    assert_eq!(shown.failed().condition(), Condition::InvalidArgument);
    assert_eq!(world.journal(&session).await, "ES IN OUT END");
    let request = ExecRequest { expected_last_seq: Some(4), ..turn(&session, "out b") };
    Shown::of(world.me.exec(request).await).await.ok();
}

/// "Unset means "append at the head"; 0 is a real assertion."
pub async fn zero_is_an_expectation<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { expected_last_seq: Some(0), ..turn(&session, "out a") };
    Shown::of(world.me.exec(request.clone()).await).await.ok();
    let shown = Shown::of(world.me.exec(request).await).await;
    assert_eq!(shown.failed().condition(), Condition::Conflict);
}

/// "Empty inputs on an ordinary session **start a new inputless turn** (`input_count` 0)"
pub async fn empty_inputs_are_a_turn_without_input<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.ran("out a").await;
    let request = ExecRequest { inputs: Vec::new(), ..turn(&session, "out b") };
    let shown = Shown::of(world.me.exec(request).await).await.ok();
    assert_eq!(shown.kinds(), "ES OUT END");
    let EventBody::ExecutionStart(Some(start)) = &shown.records()[0].event.body else {
        panic!("a start")
    };
    assert_eq!(start.input_count, Some(0));
}

/// "`config` and `resume_from_seq` are stored in EXECUTION_START verbatim before the harness runs."
pub async fn configuration_and_cursor_are_stored<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { resume_from_seq: 17, ..turn(&session, "out a, fail b") };
    let shown = Shown::of(world.me.exec(request).await).await;
    let EventBody::ExecutionStart(Some(start)) = &shown.records()[0].event.body else {
        panic!("a start")
    };
    assert_eq!(&start.config[..], b"out a, fail b");
    assert_eq!(start.resume_from_seq, 17);
}

/// Deltas: "empty chunks are not sent; after the model call a last delta with empty chunk and `done` true", "order
/// relative to records: before the OUTPUT they belong to".
pub async fn deltas_come_before_their_output<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let shown = world.me.run(&session, "model hello").await.ok();
    assert_eq!(shown.kinds(), "ES IN MC OUT END");
    let deltas = shown.deltas();
    let (last, chunks) = deltas.split_last().expect("the model streams");
    assert_eq!((&*last.chunk, last.done), ("", true));
    assert!(chunks.iter().all(|delta| !delta.done && !delta.chunk.is_empty()));
    let text: String = chunks.iter().map(|delta| &*delta.chunk).collect();
    assert_eq!(text, "I heard hello");
    let execution = world.execution(&session).await;
    assert!(deltas.iter().all(|delta| delta.execution_id == execution && delta.part_index == 0));
    let output = shown.updates.iter().position(|update| {
        matches!(update, ExecUpdate::Record(record)
            if matches!(record.event.body, EventBody::Output(_)))
    });
    let delta = shown.updates.iter().rposition(|update| matches!(update, ExecUpdate::Delta(_)));
    assert!(delta < output, "{:?}", shown.updates);
}

/// "Park: records, then a final `session` frame (AWAITING, pending_approval, compute COLD), then OK."
pub async fn a_parked_turn_shows_its_session_last<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let shown = world.me.run(&session, "gate c1").await.ok();
    assert_eq!(shown.kinds(), "ES IN TC AQ SUSPEND");
    let Some(ExecUpdate::Session(last)) = shown.updates.last() else {
        panic!("the session comes last: {shown:?}")
    };
    assert_eq!(last.exec_state, ExecState::Awaiting);
    assert_eq!(last.compute_state, ComputeState::Cold);
    let approval = last.pending_approval.clone().expect("it waits");
    assert_eq!((&*approval.tool_call_id, approval.request_seq), ("c1", 4));
    assert_eq!(world.me.get(&session).await.unwrap(), **last);
}

/// "Failure: a status after the frames already sent."
pub async fn a_failed_turn_ends_with_its_error<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let shown = world.me.run(&session, "out a, fail b").await;
    assert_eq!(shown.failed().condition(), Condition::HarnessFailed);
    assert_eq!(shown.failed().outcome(), Outcome::Applied, "it must not look repeatable");
    assert_eq!(shown.kinds(), "ES IN OUT ERR");
    assert_eq!(world.me.get(&session).await.unwrap().exec_state, ExecState::Failed);
    world.me.run(&session, "out c").await.ok();
    assert_eq!(world.me.get(&session).await.unwrap().exec_state, ExecState::Completed);
}

/// "inputs present, call owned and without receipt -> FAILED_PRECONDITION even if the named harness is unknown"
pub async fn inputs_do_not_pass_over_a_gate<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let (session, approval) = world.me.parked("").await;
    let blocked = Condition::ApprovalBlocked;
    refuses(world.me.exec(turn(&session, "out a")).await, blocked);
    let request = ExecRequest { harness: "nobody".to_owned(), ..turn(&session, "out a") };
    refuses(world.me.exec(request).await, blocked);
    world.me.approve(&session, &approval, true).await.unwrap();
    refuses(world.me.exec(turn(&session, "out a")).await, blocked);
    assert_eq!(world.journal(&session).await, "ES IN TC AQ SUSPEND AR");
}

/// "Expired during admission (Describe) -> DEADLINE_EXCEEDED, nothing journaled."
pub async fn an_expired_deadline_journals_nothing<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let request = ExecRequest { deadline_unix: 1, ..turn(&session, "out a") };
    let shown = Shown::of(world.me.exec(request).await).await;
    assert_eq!(shown.failed().condition(), Condition::DeadlineExceeded);
    assert_eq!(shown.failed().outcome(), Outcome::NotApplied);
    assert_eq!(world.journal(&session).await, "");
    let request = ExecRequest { deadline_unix: -1, ..turn(&session, "out a") };
    Shown::of(world.me.exec(request).await).await.ok();
}

/// "Expired during Run -> ... DEADLINE_EXCEEDED, ERROR journaled with code 4."
pub async fn a_deadline_ends_a_running_turn<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let deadline_unix = SystemClock.now().seconds + 2;
    let request = ExecRequest { deadline_unix, ..turn(&session, "out a, hold ever") };
    let shown = Shown::of(world.me.exec(request).await).await;
    assert_eq!(shown.failed().condition(), Condition::DeadlineExceeded);
    assert_eq!(shown.kinds(), "ES IN OUT ERR");
    let EventBody::Error(Some(error)) = &shown.records()[3].event.body else { panic!("an error") };
    assert_eq!(error.code, 4);
}

/// An input that cannot be recorded is refused before anything is.
pub async fn an_input_over_its_bound_is_refused_by_name<S: Subject>(setup: Setup<S>) {
    let world = setup.open().await;
    let session = world.me.created().await;
    let huge = Arc::new("x".repeat(17 << 20));
    let request =
        ExecRequest { inputs: vec![Message::user(huge.as_str())], ..turn(&session, "out a") };
    let error = refuses(world.me.exec(request).await, Condition::ValueTooLarge);
    assert!(error.to_string().contains("bytes"), "{error}");
    assert_eq!(world.journal(&session).await, "");
}
