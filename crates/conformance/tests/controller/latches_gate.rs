//! The host's word that a turn is to stop, around an approval.

use std::sync::Arc;

use mainspring_api::{
    ApprovalRef, CancelReason, Classify as _, EventBody, ExecutionId, OsEntropy, ResultCode,
    Signal, SystemClock, ToolResult,
};
use mainspring_controller::{
    ApprovedRetry, Cancellation, Controller, ControllerError, EFFECT_GRACE, Options, TurnStop,
    cancel,
};
use mainspring_testkit::sample;
use tokio::time::Duration;

use crate::latches::{ended, listening};
use crate::support::raw::{self, execution};
use crate::support::{
    Answers, Fixture, Placed, Probe, TestTools, driven, gated, mediated, parked, refused, turn,
};

const CANCEL: TurnStop = TurnStop::Cancel(CancelReason::User);

const STOPS: [TurnStop; 2] = [CANCEL, TurnStop::Interrupt];

/// A request that was recorded before the word wins: the turn is parked, and closed like any parked one.
async fn latch_after_a_park(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await.with_tools();
        let word = Signal::default();
        let setting = word.clone();
        let probe = Probe::new(move |_, sink| {
            let setting = setting.clone();
            async move {
                let park = sink.tool_call(gated("c1", "pay")).await.unwrap_err();
                setting.set(stop);
                assert_eq!(
                    sink.output("more".to_owned()).await.unwrap_err().code(),
                    "approval_parked"
                );
                Err(park.into())
            }
        });
        let probe = session.place(probe).await;
        let controller = listening(&session, &word).await;
        let park = parked(controller.exec(&probe.harness, turn(&["hello"])).await);
        assert_eq!((session.kinds().await.as_str(), park.request_seq), ("ES IN TC AQ", 4));
        if stop == CANCEL {
            let request = Cancellation {
                execution: ExecutionId::new(&park.execution_id).unwrap(),
                reason: CancelReason::User,
                holder: sample::holder("canceler"),
                clock: Arc::new(SystemClock),
                entropy: Arc::new(OsEntropy),
                observer: Arc::clone(&session.watcher) as Arc<_>,
            };
            cancel(&session.journal(), &request).await.unwrap();
            ended(
                &session,
                &ControllerError::Canceled(CancelReason::User),
                stop,
                "ES IN TC AQ AR TR",
            )
            .await;
        } else {
            session.decide(&park, false, "no").await.unwrap();
            let again = session.place(Probe::calling([gated("c1", "pay")])).await;
            driven(session.resume(&again).await);
            assert_eq!(session.kinds().await, "ES IN TC AQ AR TR END");
        }
    }
}

/// A word that was given before the gated call refuses it: nothing of it is recorded.
async fn latch_before_a_gate(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await.with_tools();
        let word = Signal::default();
        word.set(stop);
        let probe = session.place(Probe::calling([gated("c1", "pay")])).await;
        let controller = listening(&session, &word).await;
        let error = controller.exec(&probe.harness, turn(&["hello"])).await.unwrap_err();
        ended(&session, &error, stop, "ES IN").await;
    }
}

/// A session whose gate was approved, and whose executor gets the word while it runs, so long before its answer.
async fn in_flight(
    session: &Fixture,
    word: &Signal<TurnStop>,
    stop: TurnStop,
    late: Duration,
) -> (Fixture, Placed, ApprovalRef) {
    let session = Fixture::open(session.cell).await.with_tools();
    let probe = session.place(Probe::calling_then_done([gated("c1", "pay")])).await;
    let park = parked(session.exec(&probe, &["hello"]).await);
    session.decide(&park, true, "").await.unwrap();
    let word = word.clone();
    session.executor().respond(move |call| {
        let word = word.clone();
        async move {
            tokio::time::pause();
            word.set(stop);
            tokio::time::sleep(late).await;
            Ok(TestTools::answer(&call))
        }
    });
    (session, probe, park)
}

async fn resume_with(
    session: &Fixture,
    placed: &Placed,
    stop: &Signal<TurnStop>,
    approved_retry: ApprovedRetry,
) -> Result<(), ControllerError> {
    let options = Options { stop: stop.clone(), approved_retry, ..session.options() };
    let controller = Controller::new(session.journal(), options).await.unwrap();
    let resumed = controller.resume(&placed.harness, None).await;
    assert!(resumed.resumed);
    resumed.result
}

const RETRIES: [ApprovedRetry; 2] = [ApprovedRetry::Always, ApprovedRetry::DeclaredOnly];

fn receipt(events: &[mainspring_api::Event]) -> ToolResult {
    match &events[5].body {
        EventBody::ToolResult(Some(result)) => result.clone(),
        other => panic!("not a receipt: {other:?}"),
    }
}

/// An approved call that is answered within its grace has its own receipt.
async fn latch_approved_within_the_grace(session: Fixture) {
    for stop in STOPS {
        for retry in RETRIES {
            let word = Signal::default();
            let late = EFFECT_GRACE - Duration::from_millis(1);
            let (session, probe, _) = in_flight(&session, &word, stop, late).await;
            let error = resume_with(&session, &probe, &word, retry).await.unwrap_err();
            tokio::time::resume();
            session.executor().recover();
            ended(&session, &error, stop, "ES IN TC AQ AR TR").await;
            let receipt = receipt(&session.events().await);
            assert_eq!((receipt.is_error, receipt.code), (false, ResultCode::Unspecified));
            if stop == TurnStop::Interrupt {
                driven(session.resume(&probe).await);
                assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
            }
            assert_eq!(session.executor().calls(), 1);
        }
    }
}

/// Beyond it a cancellation closes the gate with a failure that claims nothing it does not know.
async fn latch_approved_canceled_beyond_the_grace(session: Fixture) {
    for retry in RETRIES {
        let word = Signal::default();
        let (session, probe, _) = in_flight(&session, &word, CANCEL, EFFECT_GRACE * 2).await;
        let error = resume_with(&session, &probe, &word, retry).await.unwrap_err();
        tokio::time::resume();
        ended(&session, &error, CANCEL, "ES IN TC AQ AR TR").await;
        let receipt = receipt(&session.events().await);
        assert_eq!((receipt.is_error, receipt.code), (true, ResultCode::ExecutorError));
        assert_eq!((receipt.approval_request_seq, receipt.approval_decision_seq), (4, 5));
        let noted = retry == ApprovedRetry::DeclaredOnly;
        assert_eq!(receipt.error.contains("unknown"), noted, "{receipt:?}");
        // The executor was started: no receipt may say that it was not.
        assert!(!receipt.error.contains("before"), "{retry:?}: {receipt:?}");
    }
}

/// Beyond it an interruption leaves the gate as it is: run again as the contract says, or unknown under the stricter rule.
async fn latch_approved_interrupted_beyond_the_grace(session: Fixture) {
    let stop = TurnStop::Interrupt;
    for retry in RETRIES {
        let word = Signal::default();
        let (session, probe, _) = in_flight(&session, &word, stop, EFFECT_GRACE * 2).await;
        let error = resume_with(&session, &probe, &word, retry).await.unwrap_err();
        tokio::time::resume();
        session.executor().recover();
        ended(&session, &error, stop, "ES IN TC AQ AR").await;
        let options = Options { approved_retry: retry, ..session.options() };
        let controller = Controller::new(session.journal(), options).await.unwrap();
        let resumed = controller.resume(&probe.harness, None).await;
        if retry == ApprovedRetry::Always {
            driven(resumed);
            assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
            assert_eq!(session.executor().calls(), 2);
        } else {
            assert_eq!(refused(resumed).code(), "unanswered_tool_call");
            assert_eq!(session.executor().calls(), 1);
        }
    }
}

/// A word that comes before a decided gate is carried out: a cancellation closes it, an interruption leaves it.
async fn latch_before_a_decided_gate(session: Fixture) {
    for stop in STOPS {
        for approved in [true, false] {
            let session = Fixture::open(session.cell).await.with_tools();
            let probe = session.place(Probe::calling_then_done([gated("c1", "pay")])).await;
            let park = parked(session.exec(&probe, &["hello"]).await);
            session.decide(&park, approved, "").await.unwrap();
            let word = Signal::default();
            word.set(stop);
            let retry = ApprovedRetry::DeclaredOnly;
            let error = resume_with(&session, &probe, &word, retry).await.unwrap_err();
            let done = if stop == CANCEL { "ES IN TC AQ AR TR" } else { "ES IN TC AQ AR" };
            ended(&session, &error, stop, done).await;
            if stop == TurnStop::Interrupt {
                driven(session.resume(&probe).await);
                assert_eq!(session.kinds().await, "ES IN TC AQ AR TR OUT END");
                assert_eq!(session.executor().calls(), usize::from(approved));
            } else {
                let receipt = receipt(&session.events().await);
                let code =
                    if approved { ResultCode::ExecutorError } else { ResultCode::ApprovalDenied };
                assert_eq!((receipt.code, session.executor().calls()), (code, 0));
                assert!(!receipt.error.contains("unknown"), "it was not started: {receipt:?}");
            }
        }
    }
}

/// A word within a prefix that is being served: an interruption leaves it for the next host, and nothing diverged.
async fn latch_within_a_served_prefix(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await.with_tools();
        let id = execution(1);
        session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
        session.append([raw::tool_call(&id, mediated("c1", "search"))]).await;
        session
            .append([raw::tool_result(&id, raw::reported("c1")), raw::output(&id, "done")])
            .await;
        let word = Signal::default();
        word.set(stop);
        let answers = Answers::default();
        let call = mediated("c1", "search");
        let probe = session.place(Probe::answered([call], &answers)).await;
        let retry = ApprovedRetry::Always;
        let error = resume_with(&session, &probe, &word, retry).await.unwrap_err();
        ended(&session, &error, stop, "ES IN TC TR OUT").await;
        if stop == TurnStop::Interrupt {
            driven(session.resume(&probe).await);
            assert_eq!(session.kinds().await, "ES IN TC TR OUT END");
        }
        assert_eq!(session.executor().calls(), 0);
    }
}

/// A turn of an old journal without ids can be stopped as well.
async fn latch_in_a_legacy_turn(session: Fixture) {
    for stop in STOPS {
        let session = Fixture::open(session.cell).await;
        session.append([raw::idless(raw::input(&execution(1), "hello"))]).await;
        let word = Signal::default();
        word.set(stop);
        let echo = session.place(Probe::echo()).await;
        let retry = ApprovedRetry::Always;
        let error = resume_with(&session, &echo, &word, retry).await.unwrap_err();
        if stop == CANCEL {
            assert!(matches!(error, ControllerError::Canceled(_)), "{error:?}");
            assert_eq!(session.kinds().await, "IN END");
            assert!(session.events().await.iter().all(|event| event.execution_id.is_none()));
            assert!(!session.resume(&echo).await.resumed);
        } else {
            assert!(matches!(error, ControllerError::Interrupted), "{error:?}");
            driven(session.resume(&echo).await);
            assert_eq!(session.kinds().await, "IN MC OUT END");
        }
    }
}

mod on_threads {
    use super::{
        latch_after_a_park, latch_before_a_decided_gate, latch_before_a_gate,
        latch_in_a_legacy_turn, latch_within_a_served_prefix,
    };

    matrix! {
        run:
        everywhere {
            #[test] fn latch_after_a_park;
            #[test] fn latch_before_a_gate;
            #[test] fn latch_before_a_decided_gate;
            #[test] fn latch_within_a_served_prefix;
            #[test] fn latch_in_a_legacy_turn;
        }
    }
}

mod on_one_thread {
    use super::{
        latch_approved_canceled_beyond_the_grace, latch_approved_interrupted_beyond_the_grace,
        latch_approved_within_the_grace,
    };

    matrix! {
        run_on_one_thread:
        in_process {
            #[test] fn latch_approved_within_the_grace;
            #[test] fn latch_approved_canceled_beyond_the_grace;
            #[test] fn latch_approved_interrupted_beyond_the_grace;
        }
    }
}
