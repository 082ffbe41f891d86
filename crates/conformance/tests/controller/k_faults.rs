//! Family K: gates and tools whose records are lost or have no form, and harnesses that were not described.

use std::sync::Arc;

use mainspring_api::{Classify as _, EventBody, HarnessError, Json, ResultCode, ToolResult};
use mainspring_controller::{ApprovedRetry, Controller, Options};
use mainspring_testkit::{CutMode, CutOp, CutPoint, CutSide, CutStore};

use crate::support::raw::{self, execution};
use crate::support::{
    Answers, Fixture, Probe, TestTools, driven, gated, mediated, parked, sink_error,
};

/// A request that cannot be recorded stops the turn for good: neither intent, error nor end is left, whatever the harness does.
async fn k01_request_is_not_recorded(session: Fixture) {
    let other = session.clone();
    let probe = Probe::new(move |_, sink| {
        let other = other.clone();
        async move {
            other.take_over().await;
            for call in [gated("c1", "pay"), mediated("c2", "search")] {
                let _ = sink.tool_call(call).await;
            }
            Ok(())
        }
    });
    let probe = session.place(probe).await;
    let error = session.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!((error.code(), session.kinds().await.as_str()), ("fenced", "ES IN"));
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let resumed = session.resume(&probe).await;
    assert_eq!(parked(resumed.result).request_seq, 4);
}

/// A receipt that cannot be recorded stops the turn; the next host runs the call again, under its one key.
async fn k08_receipt_is_not_recorded(session: Fixture) {
    let session = session.with_tools();
    session.executor().declare("pay");
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    session.decide(&park, true, "").await.unwrap();
    let other = session.clone();
    session.executor().respond(move |call| {
        let other = other.clone();
        async move {
            other.take_over().await;
            Ok(TestTools::answer(&call))
        }
    });
    let swallowing = Probe::new(|_, sink| async move {
        let _ = sink.tool_call(gated("c1", "pay")).await;
        let _ = sink.output("went on".to_owned()).await;
        Ok(())
    });
    let swallowing = session.place(swallowing).await;
    let resumed = session.resume(&swallowing).await;
    assert!(resumed.resumed);
    assert_eq!(resumed.result.unwrap_err().code(), "fenced");
    assert_eq!(session.kinds().await, "ES IN TC AQ AR");
    session.executor().recover();
    driven(session.resume(&probe).await);
    assert_eq!(session.kinds().await, "ES IN TC AQ AR TR END");
    assert_eq!((session.executor().calls(), session.executor().ledger().len()), (2, 1));
}

/// The same session in a log that refuses one write, and works before and after it.
fn refusing(session: &Fixture, op: CutOp, nth: u64) -> Fixture {
    let point = CutPoint { side: CutSide::Before, op, nth };
    let log = CutStore::new(Arc::clone(&session.log), point, CutMode::Error);
    session.through(Arc::new(log))
}

/// Calls, ignores what becomes of it, goes on, and says that all is well.
fn swallowing() -> Probe {
    Probe::new(|_, sink| async move {
        for _ in 0..2 {
            let _ = sink.tool_call(gated("c1", "pay")).await;
        }
        let _ = sink.output("went on".to_owned()).await;
        Ok(())
    })
}

/// One refused write of a request stops the turn, though the log works again: nothing follows.
async fn k01_one_refused_write_is_sticky(session: Fixture) {
    let probe = session.place(swallowing()).await;
    let refusing = refusing(&session, CutOp::Append, 2);
    let error = refusing.exec(&probe, &["hello"]).await.unwrap_err();
    assert_eq!((error.code(), session.kinds().await.as_str()), ("unavailable", "ES IN"));
    parked(session.resume(&probe).await.result);
    assert_eq!(session.kinds().await, "ES IN TC AQ");
}

/// The same for a receipt: the harness cannot go on without it.
async fn k08_one_refused_write_is_sticky(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(swallowing()).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    session.decide(&park, true, "").await.unwrap();
    let refusing = refusing(&session, CutOp::Append, 1);
    let resumed = refusing.resume(&probe).await;
    assert!(resumed.resumed);
    assert_eq!(resumed.result.unwrap_err().code(), "unavailable");
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN TC AQ AR", 1));
}

/// The same for the note of a start: without it the tool is not run.
async fn k12b_one_refused_note_is_sticky(session: Fixture) {
    let session = session.with_tools();
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    session.decide(&park, true, "").await.unwrap();
    let strict = async |session: &Fixture| {
        let approved_retry = ApprovedRetry::DeclaredOnly;
        let options = Options { approved_retry, ..session.options() };
        Controller::new(session.journal(), options).await.unwrap()
    };
    let unwilling = session.place(swallowing()).await;
    let controller = strict(&refusing(&session, CutOp::Annotate, 1)).await;
    let resumed = controller.resume(&unwilling.harness, None).await;
    assert!(resumed.resumed);
    assert_eq!(resumed.result.unwrap_err().code(), "unavailable");
    assert_eq!((session.kinds().await.as_str(), session.executor().calls()), ("ES IN TC AQ AR", 0));
    driven(strict(&session).await.resume(&probe.harness, None).await);
    assert_eq!(
        (session.kinds().await.as_str(), session.executor().calls()),
        ("ES IN TC AQ AR TR END", 1)
    );
}

fn unrecordable() -> ToolResult {
    ToolResult {
        output: Some([("n".to_owned(), Json::Number(f64::NAN))].into()),
        ..ToolResult::default()
    }
}

/// A result without a recorded form does not hide that the tool was run: its receipt says so, and is what the harness gets.
async fn k10_result_without_a_recorded_form(session: Fixture) {
    for gate in [false, true] {
        let session = Fixture::open(session.cell).await.with_tools();
        session.executor().respond(|_| async { Ok(unrecordable()) });
        let answers = Answers::default();
        let call = if gate { gated("c1", "pay") } else { mediated("c1", "pay") };
        let probe = session.place(Probe::answered([call], &answers)).await;
        if gate {
            let park = parked(session.exec(&probe, &["hello"]).await);
            session.decide(&park, true, "").await.unwrap();
            answers.take();
            driven(session.resume(&probe).await);
        } else {
            session.exec(&probe, &["hello"]).await.unwrap();
        }
        let (at, kinds) =
            if gate { (5, "ES IN TC AQ AR TR OUT END") } else { (3, "ES IN TC TR OUT END") };
        assert_eq!(session.kinds().await, kinds);
        let EventBody::ToolResult(Some(receipt)) = session.events().await.remove(at).body else {
            panic!("not a result")
        };
        assert_eq!((receipt.is_error, receipt.code), (true, ResultCode::ExecutorError));
        assert!(receipt.error.contains("was run"), "{receipt:?}");
        let bound = if gate { (4, 5) } else { (0, 0) };
        assert_eq!((receipt.approval_request_seq, receipt.approval_decision_seq), bound);
        assert_eq!(ToolResult { decision: None, ..answers.result() }, receipt);
        session.replay_check(&probe, 1, &["done"]).await;
    }
}

/// A turn that names no harness is described when it comes to a gate, and only once.
async fn k03_described_at_the_gate(session: Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
    let resumed = session.resume(&probe).await;
    assert_eq!(parked(resumed.result).request_seq, 4);
    assert_eq!((probe.runs(), probe.describes()), (1, 1));
    assert_eq!(session.kinds().await, "ES IN TC AQ");
}

/// The same with a harness that needs its memory: each gate is refused, and it is asked once.
async fn k03_described_at_the_gate_with_memory(session: Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    let answers = Answers::default();
    let calls = [gated("c1", "pay"), gated("c2", "pay")];
    let probe = session.place(Probe::handling(calls, &answers).with_memory()).await;
    driven(session.resume(&probe).await);
    assert_eq!(answers.codes(), ["approval_unavailable"; 2]);
    assert_eq!((session.kinds().await.as_str(), probe.describes()), ("ES IN OUT END", 1));
}

/// The same with one that cannot say: the gate is refused by that name, and nothing of it is recorded.
async fn k03_undescribed_at_the_gate(session: Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    let probe = Probe::calling([gated("c1", "pay")])
        .describing(|| async { Err(HarnessError::failed("who am I")) });
    let probe = session.place(probe).await;
    let resumed = session.resume(&probe).await;
    assert!(resumed.resumed);
    assert_eq!(sink_error(&resumed.result.unwrap_err()).code(), "harness_describe_failed");
    assert_eq!(session.kinds().await, "ES IN ERR");
}

matrix! {
    run:
    everywhere {
        #[test] fn k01_request_is_not_recorded;
        #[test] fn k08_receipt_is_not_recorded;
        #[test] fn k01_one_refused_write_is_sticky;
        #[test] fn k08_one_refused_write_is_sticky;
        #[test] fn k12b_one_refused_note_is_sticky;
        #[test] fn k10_result_without_a_recorded_form;
        #[test] fn k03_described_at_the_gate;
        #[test] fn k03_undescribed_at_the_gate;
    }
    // Nobody has described the harness, so the wire has no reply for a refusal.
    in_process {
        #[test] fn k03_described_at_the_gate_with_memory;
    }
}
