//! Family K: a gated call, up to the decision.

use mainspring_api::{ApprovalRef, Classify as _, Event, HarnessError, ToolCall};
use mainspring_controller::{Controller, ControllerError, Options, inspect_approval};

use crate::support::raw::{self, execution};
use crate::support::{
    Answers, Cell, Fixture, Placed, Probe, Reach, Told, driven, gated, mediated, parked, refused,
    sink_error, turn,
};

/// The first records of a turn with one gated call.
fn cut(records: usize) -> Vec<Event> {
    let id = execution(1);
    let events = [
        raw::start(&id, Some(1)),
        raw::input(&id, "hello"),
        raw::tool_call(&id, gated("c1", "pay")),
        raw::approval_request(&id, "c1"),
    ];
    events.into_iter().take(records).collect()
}

/// A gated call records its intent and a request, and parks; no executor is needed for that.
async fn k01_park(session: Fixture) {
    let probe = session.place(Probe::calling_then_done([gated("c1", "pay")])).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ");
    let events = session.events().await;
    let expected = ApprovalRef {
        execution_id: events[0].execution_id.clone().unwrap().to_string(),
        tool_call_id: "c1".to_owned(),
        request_seq: 4,
    };
    assert_eq!(park, expected);
    let told: Vec<_> = session.watcher.take();
    assert_eq!(told.len(), 4, "both records are told of: {told:?}");
    session.replay_check(&probe, 0, &[]).await;
}

/// The executor of a host that has one is not asked anything before the decision.
async fn k01_park_runs_nothing(session: Fixture) {
    let session = session.with_tools();
    session.executor().declare("pay");
    let calls = [mediated("c0", "search"), gated("c1", "pay")];
    let probe = session.place(Probe::calling(calls)).await;
    parked(session.exec(&probe, &["hello"]).await);
    assert_eq!(session.kinds().await, "ES IN TC TR TC AQ");
    assert_eq!(session.executor().ledger(), ["key-c0"]);
    assert!(session.executor().consulted().is_empty());
}

/// A harness that swallows its park and says that all is well is parked, without an end.
async fn k02_swallowed_park(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        let _ = sink.tool_call(gated("c1", "pay")).await;
        Ok(())
    });
    let probe = session.place(probe).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    assert_eq!((park.tool_call_id.as_str(), park.request_seq), ("c1", 4));
    assert_eq!(session.kinds().await, "ES IN TC AQ");
}

/// A failure beside a park is not hidden by it, and the gate stays open without an error record.
async fn k02_a_failure_beside_a_park(session: Fixture) {
    let probe = Probe::new(|_, sink| async move {
        let park = sink.tool_call(gated("c1", "pay")).await.unwrap_err();
        Err(HarnessError::Joined(vec![park.into(), HarnessError::failed("and the disk is full")]))
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert!(matches!(error, ControllerError::Run(_)), "{error:?}");
    if session.cell.reach == Reach::InProcess {
        assert!(error.to_string().contains("the disk is full"), "{error}");
    }
    assert_eq!(session.kinds().await, "ES IN TC AQ");
    let again = session.place(Probe::calling([gated("c1", "pay")])).await;
    parked(session.resume(&again).await.result);
}

/// A harness that needs its memory cannot wait: nothing of the call is recorded.
async fn k03_non_stateless_descriptor(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(Probe::calling([gated("c1", "pay")]).with_memory()).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), "approval_unavailable");
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN ERR", 0));
}

/// A gate that is recorded cannot be driven by a harness that needs its memory; nothing is run or written.
async fn k03_recorded_gate_on_a_harness_with_memory(session: Fixture) {
    let session = session.with_tools();
    session.append(cut(4)).await;
    session.append([raw::approval_result(&execution(1), "c1", true, 4)]).await;
    let probe = session.place(Probe::calling([gated("c1", "pay")]).with_memory()).await;
    let error = refused(session.resume(&probe).await);
    assert_eq!((error.code(), probe.runs()), ("approval_unavailable", 0));
    assert_eq!(session.kinds().await, "ES IN TC AQ AR");
}

/// What a gated call lacks refuses it before anything of it is recorded.
async fn invalid_gate(cell: Cell, calls: Vec<ToolCall>, code: &str, journal: &str) {
    let session = Fixture::open(cell).await.with_tools();
    let probe = session.place(Probe::calling(calls)).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), code);
    assert_eq!(session.kinds().await, journal);
}

/// A gate without an id, with a used one, or without a key is refused.
async fn k04_gate_identity(session: Fixture) {
    let invalid = "invalid_approval_call";
    let no_id = ToolCall { id: String::new(), ..gated("c1", "pay") };
    invalid_gate(session.cell, vec![no_id], invalid, "ES IN ERR").await;
    let reused = vec![mediated("c1", "search"), gated("c1", "pay")];
    invalid_gate(session.cell, reused, invalid, "ES IN TC TR ERR").await;
    let no_key = ToolCall { idempotency_key: String::new(), ..gated("c1", "pay") };
    invalid_gate(session.cell, vec![no_key], "missing_idempotency_key", "ES IN ERR").await;
}

/// An id that a gate has used is used for every later call of the turn, gated or not.
async fn k04_id_of_a_gate_is_used(session: Fixture) {
    for second in [gated("c1", "search"), mediated("c1", "search")] {
        let session = Fixture::open(session.cell).await.with_tools();
        let probe = session.place(Probe::calling([gated("c1", "pay"), second])).await;
        let park = parked(session.exec(&probe, &["hello"]).await);
        session.decide(&park, true, "").await.unwrap();
        let resumed = session.resume(&probe).await;
        assert!(resumed.resumed);
        assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "invalid_approval_call");
        assert_eq!(session.kinds().await, "ES IN TC AQ AR TR ERR");
        // The receipt is served from here on, and the second call is refused as before.
        let resumed = session.resume(&probe).await;
        assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "invalid_approval_call");
        assert_eq!(session.executor().ledger(), ["key-c1"]);
    }
}

/// Ids of calls without a gate may repeat among themselves.
async fn k04_ungated_ids_may_repeat(session: Fixture) {
    let session = session.with_tools();
    let calls = [mediated("", "search"), mediated("", "search"), mediated("c1", "a")];
    let calls = calls.into_iter().chain([mediated("c1", "b")]);
    let calls = calls.map(|call| ToolCall { idempotency_key: "k".to_owned(), ..call });
    let probe = session.place(Probe::calling(calls)).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC TR TC TR TC TR TC TR END");
    session.replay_check(&probe, 1, &[]).await;
}

/// A controller without a session has nowhere to ask for an approval in.
async fn k04_no_session(session: Fixture) {
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let options = Options { session: None, ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    let error = controller.exec(&probe.harness, turn(&["hello"])).await.unwrap_err();
    assert_eq!(sink_error(&error).code(), "missing_session_uid");
    assert_eq!(session.kinds().await, "ES IN ERR");
}

async fn blocked(session: &Fixture, probe: &Placed) {
    let (head, describes) = (session.head().await, probe.describes());
    for inputs in [&["next"][..], &[]] {
        let error = session.exec(probe, inputs).await.unwrap_err();
        match &error {
            ControllerError::ApprovalBlocked(id) => assert_eq!(*id, execution(1)),
            other => panic!("not blocked: {other:?}"),
        }
    }
    assert_eq!((session.head().await, probe.describes(), probe.runs()), (head, describes, 0));
}

/// An open gate blocks new turns, with inputs and without, until its receipt; the decision does not unblock.
async fn k05_blocked_turn(session: Fixture) {
    let session = session.with_tools();
    let echo = session.place(Probe::echo()).await;
    session.append(cut(3)).await;
    blocked(&session, &echo).await;
    session.append([raw::approval_request(&execution(1), "c1")]).await;
    blocked(&session, &echo).await;
    let park = inspect_approval(&session.journal(), 0).await.unwrap().unwrap();
    let park = ApprovalRef {
        execution_id: park.execution.to_string(),
        tool_call_id: park.call.id,
        request_seq: 4,
    };
    session.decide(&park, true, "").await.unwrap();
    blocked(&session, &echo).await;
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    driven(session.resume(&probe).await);
    session.exec(&echo, &["next"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR END ES IN MC OUT END");
}

/// The receipt unblocks also when the turn goes no further.
async fn k05_the_receipt_unblocks(session: Fixture) {
    let session = session.with_tools();
    session.append(cut(4)).await;
    let id = execution(1);
    session.append([raw::approval_result(&id, "c1", false, 4)]).await;
    let denied = (mainspring_api::ResultCode::ApprovalDenied, true);
    session.append([raw::receipt(&id, "c1", denied, (4, 5))]).await;
    let echo = session.place(Probe::echo()).await;
    session.exec(&echo, &["next"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR ES IN MC OUT END");
}

/// Without a decision a resume parks again, with the same request, and asks nobody.
async fn k06_undecided_resume(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    let (head, runs, describes) = (session.head().await, probe.runs(), probe.describes());
    session.watcher.take();
    for _ in 0..2 {
        let resumed = session.resume(&probe).await;
        assert!(resumed.resumed);
        assert_eq!(parked(resumed.result), park);
        let again = session.controller().await.park_again().await.unwrap();
        assert_eq!(again.as_ref(), Some(&park), "also without a harness in reach");
        assert_eq!((session.head().await, session.watcher.take()), (head, Vec::new()));
        assert_eq!((probe.runs(), probe.describes()), (runs, describes));
        assert_eq!(session.executor().calls(), 0);
    }
}

/// A gate that was cut after its intent gets its request, once, and parks.
async fn k07_repair(session: Fixture) {
    let session = session.with_tools();
    session.append(cut(3)).await;
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let mut parks = Vec::new();
    for told in [1, 0] {
        let resumed = session.resume(&probe).await;
        assert!(resumed.resumed);
        parks.push(parked(resumed.result));
        assert_eq!(session.kinds().await, "ES IN TC AQ");
        let records = session.watcher.take();
        assert_eq!(records.len(), told, "{records:?}");
        assert!(records.iter().all(|told| matches!(told, Told::Record(..))));
    }
    assert_eq!(parks[0], parks[1]);
    assert_eq!(
        (parks[0].request_seq, parks[0].execution_id.clone()),
        (4, execution(1).to_string())
    );
    assert_eq!((probe.runs(), probe.describes(), session.executor().calls()), (0, 0, 0));
}

/// A turn of an old journal without ids cannot ask for an approval.
async fn k04_legacy_turn(session: Fixture) {
    session.append([raw::idless(raw::input(&execution(1), "hello"))]).await;
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let resumed = session.resume(&probe).await;
    assert!(resumed.resumed);
    assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "invalid_approval_call");
    assert_eq!(session.kinds().await, "IN ERR");
}

/// A refused gate may be handled, and the turn goes on without it, also on replay.
async fn k03_handled(session: Fixture) {
    let answers = Answers::default();
    let probe = Probe::handling([gated("c1", "pay")], &answers).with_memory();
    let probe = session.place(probe).await;
    session.exec(&probe, &["hello"]).await.unwrap();
    assert_eq!(session.kinds().await, "ES IN OUT END");
    session.replay_check(&probe, 1, &["done"]).await;
    assert_eq!(answers.codes(), ["approval_unavailable"; 2]);
}

matrix! {
    run:
    everywhere {
        #[test] fn k01_park;
        #[test] fn k01_park_runs_nothing;
        #[test] fn k02_swallowed_park;
        #[test] fn k02_a_failure_beside_a_park;
        #[test] fn k03_non_stateless_descriptor;
        #[test] fn k03_recorded_gate_on_a_harness_with_memory;
        #[test] fn k04_id_of_a_gate_is_used;
        #[test] fn k04_ungated_ids_may_repeat;
        #[test] fn k05_blocked_turn;
        #[test] fn k05_the_receipt_unblocks;
        #[test] fn k06_undecided_resume;
        #[test] fn k07_repair;
        #[test] fn k04_legacy_turn;
        #[test] fn k03_handled;
        #[test] fn k04_gate_identity;
        #[test] fn k04_no_session;
    }
}
