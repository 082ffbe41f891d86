//! The rows of the cut table about tools and gates that no numbered case names.

use mainspring_api::{Classify as _, Event, ExecutionId, ResultCode, ToolCall, ToolResult};
use mainspring_controller::ControllerError;

use crate::support::raw::{self, execution, some_usage};
use crate::support::{
    Answers, Fixture, Probe, driven, gated, mediated, parked, refused, sink_error,
};

fn id() -> ExecutionId {
    execution(1)
}

async fn append_call(session: &Fixture, call: ToolCall) {
    session.append([raw::start(&id(), Some(1)), raw::input(&id(), "hello")]).await;
    session.append([raw::tool_call(&id(), call)]).await;
}

/// A gated call and what followed it: request, decision, receipt.
fn gate(approved: bool) -> [Event; 3] {
    let status = if approved {
        (ResultCode::Unspecified, false)
    } else {
        (ResultCode::ApprovalDenied, true)
    };
    [
        raw::approval_request(&id(), "c1"),
        raw::approval_result(&id(), "c1", approved, 4),
        raw::receipt(&id(), "c1", status, (4, 5)),
    ]
}

/// A declared call whose executor fails again, unhandled, stays trailing: each later resume drives it again.
async fn cut_table_failed_redrive(session: Fixture) {
    let session = session.with_tools();
    append_call(&session, mediated("c1", "search")).await;
    session.executor().declare("search");
    session.executor().fail(2);
    let probe = session.place_agreed(Probe::calling([mediated("c1", "search")])).await;
    for attempt in 1..=2 {
        let resumed = session.resume(&probe).await;
        assert!(resumed.resumed);
        assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "tool_failed");
        assert_eq!(session.executor().calls(), attempt);
    }
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC ERR ERR TR END");
    assert_eq!(session.executor().calls(), 3);
    let keys: Vec<_> =
        session.executor().attempts().into_iter().map(|(_, call)| call.idempotency_key).collect();
    assert_eq!(keys, ["key-c1"; 3], "each under the recorded key");
    session.replay_check(&probe, 1, &[]).await;
}

/// A call that another effect follows is never run again, declared or not.
async fn followed(session: Fixture) -> Fixture {
    let session = session.with_tools();
    session.executor().declare("search");
    append_call(&session, mediated("c1", "search")).await;
    session.append([raw::usage(&id(), some_usage())]).await;
    session
}

/// An intent that another effect follows is not driven again; the harness may handle that, also on replay.
async fn cut_table_call_then_effect(session: Fixture) {
    let session = followed(session).await;
    let probe = Probe::new(|_, sink| async move {
        let error = sink.tool_call(mediated("c1", "search")).await.unwrap_err();
        assert_eq!(error.code(), "tool_result_missing");
        sink.usage(some_usage()).await?;
        Ok(())
    });
    let probe = session.place_agreed(probe).await;
    driven(session.resume(&probe).await);
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC US END", 0)
    );
    session.replay_check(&probe, 1, &[]).await;
}

/// The same, unhandled: the turn fails by that name, and nothing is run.
async fn cut_table_call_then_effect_unhandled(session: Fixture) {
    let session = followed(session).await;
    let probe = session.place_agreed(Probe::calling([mediated("c1", "search")])).await;
    let resumed = session.resume(&probe).await;
    assert!(resumed.resumed);
    assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "tool_result_missing");
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC US ERR", 0)
    );
}

/// An approved call whose reply says that it failed has a receipt that says so.
async fn cut_table_reply_is_error(session: Fixture) {
    let session = session.with_tools();
    append_call(&session, gated("c1", "pay")).await;
    session.append(gate(true).into_iter().take(2)).await;
    session.executor().respond(|_| async {
        Ok(ToolResult { is_error: true, error: "no funds".to_owned(), ..raw::reported("other") })
    });
    let answers = Answers::default();
    let probe = session.place_agreed(Probe::answered([gated("c1", "pay")], &answers)).await;
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
    let receipt = answers.result();
    assert_eq!((receipt.id.as_str(), receipt.code), ("c1", ResultCode::ExecutorError));
    assert_eq!((receipt.is_error, receipt.error.as_str()), (true, "no funds"));
    session.replay_check(&probe, 1, &["done"]).await;
}

/// A receipt is served with its decision, and nothing is run, approved or denied.
async fn cut_table_receipt(session: Fixture) {
    for approved in [true, false] {
        let session = Fixture::open(session.cell).await.with_tools();
        append_call(&session, gated("c1", "pay")).await;
        session.append(gate(approved)).await;
        let answers = Answers::default();
        let probe = session.place_agreed(Probe::answered([gated("c1", "pay")], &answers)).await;
        driven(session.resume(&probe).await);
        assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
        let decision = answers.result().decision.unwrap();
        assert_eq!((decision.approved, decision.reason.as_str()), (approved, "because"));
        assert_eq!(session.executor().calls(), 0);
        session.replay_check(&probe, 1, &["done"]).await;
    }
}

/// A decided gate is carried out for the call that was decided, and for no other.
async fn cut_table_another_call_at_a_decided_gate(session: Fixture) {
    let key = ToolCall { idempotency_key: "another".to_owned(), ..gated("c1", "pay") };
    for other in [key, gated("c9", "pay"), mediated("c9", "pay")] {
        for approved in [true, false] {
            let session = Fixture::open(session.cell).await.with_tools();
            append_call(&session, gated("c1", "pay")).await;
            session.append(gate(approved).into_iter().take(2)).await;
            let changed = session.place_agreed(Probe::calling([other.clone()])).await;
            let resumed = session.resume(&changed).await;
            assert!(resumed.resumed);
            assert!(matches!(resumed.result, Err(ControllerError::ReplayDiverged(_))));
            assert_eq!(session.kinds().await, "ES IN TC AQ AR ERR");
            let probe = session.place_agreed(Probe::calling([gated("c1", "pay")])).await;
            driven(session.resume(&probe).await);
            assert_eq!(session.kinds().await, "ES IN TC AQ AR ERR TR END");
            assert_eq!(session.executor().calls(), usize::from(approved));
            session.replay_check(&probe, 1, &[]).await;
        }
    }
}

/// Error records after a cut change nothing: each row stays the row of the effect before them.
async fn cut_table_only_errors_after(session: Fixture) {
    let errors = || [raw::error(&id(), "one"), raw::error(&id(), "two")];
    // A gate without a request, with one, and decided.
    for records in 0..=3 {
        let session = Fixture::open(session.cell).await.with_tools();
        append_call(&session, gated("c1", "pay")).await;
        session.append(gate(true).into_iter().take(records)).await;
        session.append(errors()).await;
        let probe = session.place_agreed(Probe::calling([gated("c1", "pay")])).await;
        let resumed = session.resume(&probe).await;
        assert!(resumed.resumed);
        let kinds = session.kinds().await;
        match records {
            0 => {
                assert_eq!(parked(resumed.result).request_seq, 6);
                assert_eq!(kinds, "ES IN TC ERR ERR AQ");
            }
            1 => {
                assert_eq!(parked(resumed.result).request_seq, 4);
                assert_eq!(kinds, "ES IN TC AQ ERR ERR");
            }
            2 => {
                resumed.result.unwrap();
                assert_eq!(kinds, "ES IN TC AQ AR ERR ERR TR END");
            }
            _ => {
                resumed.result.unwrap();
                assert_eq!(kinds, "ES IN TC AQ AR TR ERR ERR END");
            }
        }
        assert_eq!(session.executor().calls(), usize::from(records == 2));
    }
    // A call without a gate.
    let session = session.with_tools();
    append_call(&session, mediated("c1", "search")).await;
    session.append(errors()).await;
    let probe = session.place_agreed(Probe::calling([mediated("c1", "search")])).await;
    assert_eq!(refused(session.resume(&probe).await).code(), "unanswered_tool_call");
    session.executor().declare("search");
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC ERR ERR TR END");
}

/// A turn that goes on live after a served result or receipt, and ends.
async fn cut_table_live_after_a_result(session: Fixture) {
    let session = session.with_tools();
    append_call(&session, gated("c1", "pay")).await;
    session.append(gate(true)).await;
    let calls = [gated("c1", "pay"), mediated("c2", "search"), gated("c3", "pay")];
    let probe = session.place_agreed(Probe::calling(calls)).await;
    let resumed = session.resume(&probe).await;
    assert!(resumed.resumed);
    let park = parked(resumed.result);
    assert_eq!((park.tool_call_id.as_str(), park.request_seq), ("c3", 10));
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR TC TR TC AQ");
    assert_eq!(session.executor().ledger(), ["key-c2"]);
}

/// A completed turn with tools and gates is not resumed, and asks nobody.
async fn cut_table_end(session: Fixture) {
    let session = session.with_tools();
    append_call(&session, gated("c1", "pay")).await;
    session.append(gate(true)).await;
    session.append([raw::end(&id())]).await;
    let probe = session.place_agreed(Probe::calling([gated("c1", "pay")])).await;
    let head = session.head().await;
    let resumed = session.resume(&probe).await;
    assert!(!resumed.resumed);
    resumed.result.unwrap();
    assert_eq!((probe.runs(), probe.describes(), session.head().await), (0, 0, head));
    session.replay_check(&probe, 1, &[]).await;
}

/// A gate that a fork copied without its receipt is refused at each of its phases; the child may start a turn of its own.
async fn cut_table_fork_after_a_gate(session: Fixture) {
    for records in 0..=2 {
        let parent = Fixture::open(session.cell).await.with_tools();
        append_call(&parent, gated("c1", "pay")).await;
        parent.append(gate(true).into_iter().take(records)).await;
        let child = parent.fork(3 + records as u64, "child").await.unwrap();
        let kinds = child.kinds().await;
        let probe = child.place_agreed(Probe::calling([gated("c1", "pay")])).await;
        let error = refused(child.resume(&probe).await);
        assert!(matches!(error, ControllerError::InheritedToolIntent(seq) if seq.get() == 3));
        let error = child.controller().await.park_again().await.unwrap_err();
        assert_eq!(error.code(), "inherited_tool_intent");
        assert_eq!((probe.runs(), probe.describes(), child.kinds().await), (0, 0, kinds.clone()));
        let echo = child.place_agreed(Probe::echo()).await;
        child.exec(&echo, &["anew"]).await.unwrap();
        assert_eq!(child.kinds().await, format!("{kinds} ES IN MC OUT END"));
        assert_eq!(child.executor().calls(), 0);
    }
}

/// The same for a call without a gate, declared or not.
async fn cut_table_fork_after_a_call(session: Fixture) {
    for declared in [false, true] {
        let parent = Fixture::open(session.cell).await.with_tools();
        if declared {
            parent.executor().declare("search");
        }
        append_call(&parent, mediated("c1", "search")).await;
        let child = parent.fork(3, "child").await.unwrap();
        let probe = child.place_agreed(Probe::calling([mediated("c1", "search")])).await;
        let error = refused(child.resume(&probe).await);
        assert_eq!((error.code(), probe.runs()), ("inherited_tool_intent", 0));
        assert!(child.executor().consulted().is_empty());
        // The parent's own call is not touched by that.
        if declared {
            let probe = parent.place_agreed(Probe::calling([mediated("c1", "search")])).await;
            driven(parent.resume(&probe).await);
            assert_eq!(parent.kinds().await, "ES IN TC TR END");
        }
    }
}

/// A copied call that another effect follows without a result is unresolved as well, before the marker or after it.
async fn cut_table_fork_after_a_followed_call(session: Fixture) {
    for before in [true, false] {
        let parent = Fixture::open(session.cell).await.with_tools();
        parent.executor().declare("search");
        append_call(&parent, mediated("c1", "search")).await;
        let effect = || [raw::usage(&id(), some_usage())];
        if before {
            parent.append(effect()).await;
        }
        let child = parent.fork(parent.head().await.seq.get(), "child").await.unwrap();
        if !before {
            child.append(effect()).await;
        }
        let probe = child.place_agreed(Probe::calling([mediated("c1", "search")])).await;
        let error = refused(child.resume(&probe).await);
        assert_eq!((error.code(), probe.runs()), ("inherited_tool_intent", 0));
    }
}

/// A call or a gate that a child adds to a copied turn is its own: driven again, parked, and decided like any other.
async fn cut_table_own_call_after_a_fork(session: Fixture) {
    let parent = session.with_tools();
    append_call(&parent, mediated("c0", "search")).await;
    parent.append([raw::tool_result(&id(), raw::reported("c0"))]).await;
    let child = parent.fork(4, "child").await.unwrap();
    child.append([raw::tool_call(&id(), mediated("c1", "search"))]).await;
    child.executor().declare("search");
    let calls = [mediated("c0", "search"), mediated("c1", "search"), gated("c2", "pay")];
    let probe = child.place_agreed(Probe::calling(calls)).await;
    let park = parked(child.resume(&probe).await.result);
    assert_eq!(child.kinds().await, "ES IN TC TR LC:FORK TC TR TC AQ");
    child.decide(&park, true, "").await.unwrap();
    driven(child.resume(&probe).await);
    assert_eq!(child.executor().ledger(), ["key-c1", "key-c2"]);
    child.replay_check(&probe, 1, &[]).await;
}

matrix! {
    run:
    everywhere {
        #[test] fn cut_table_failed_redrive;
        #[test] fn cut_table_call_then_effect_unhandled;
        #[test] fn cut_table_reply_is_error;
        #[test] fn cut_table_receipt;
        #[test] fn cut_table_another_call_at_a_decided_gate;
        #[test] fn cut_table_only_errors_after;
        #[test] fn cut_table_live_after_a_result;
        #[test] fn cut_table_end;
        #[test] fn cut_table_fork_after_a_gate;
        #[test] fn cut_table_fork_after_a_call;
        #[test] fn cut_table_fork_after_a_followed_call;
        #[test] fn cut_table_own_call_after_a_fork;
        #[test] fn cut_table_call_then_effect;
    }
}
