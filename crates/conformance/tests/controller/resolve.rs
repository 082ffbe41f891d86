//! A person's word on a tool call whose outcome nobody knows.

use std::sync::Arc;

use mainspring_api::{
    ApprovalResult, Classify as _, EventBody, ExecutionId, Head, OsEntropy, Outcome, Part,
    Resolution, ResultCode, ToolError, ToolResult,
};
use mainspring_controller::{
    ApprovedRetry, Controller, ControllerError, Options, Resolving, resolve,
};
use mainspring_testkit::sample;

use crate::support::raw::{self, execution};
use crate::support::{
    Answers, Fixture, Placed, Probe, TestTools, driven, gated, mediated, refused,
};

fn request(session: &Fixture, call: &str, resolution: Resolution) -> Resolving {
    Resolving {
        execution: execution(1),
        tool_call_id: call.to_owned(),
        resolution,
        holder: sample::holder("resolver"),
        entropy: Arc::new(OsEntropy),
        observer: Arc::clone(&session.watcher) as Arc<_>,
    }
}

async fn resolving(
    session: &Fixture,
    call: &str,
    resolution: Resolution,
) -> Result<Head, ControllerError> {
    resolve(&session.journal(), request(session, call, resolution)).await
}

/// How a call came to have an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// A mediated call without a result.
    Ungated,
    /// An approved call whose start is noted, without a receipt.
    Approved,
}

impl Unknown {
    const BOTH: [Self; 2] = [Self::Ungated, Self::Approved];

    const fn journal(self) -> &'static str {
        match self {
            Self::Ungated => "ES IN TC",
            Self::Approved => "ES IN TC AQ AR",
        }
    }
}

/// The records of a turn whose gated call was approved.
async fn append_gate(session: &Fixture, approved: Option<bool>) {
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    session.append([raw::tool_call(&id, gated("c1", "pay"))]).await;
    session.append([raw::approval_request(&id, "c1")]).await;
    if let Some(approved) = approved {
        session.append([raw::approval_result(&id, "c1", approved, 4)]).await;
    }
}

async fn append_call(session: &Fixture) {
    let id = execution(1);
    session.append([raw::start(&id, Some(1)), raw::input(&id, "hello")]).await;
    session.append([raw::tool_call(&id, mediated("c1", "pay"))]).await;
}

async fn note_start(session: &Fixture) {
    let fence = session.take_over().await;
    let seq = mainspring_api::Seq::new(3);
    session.log.annotate(&session.uid, seq, fence, "started", "1").await.unwrap();
}

/// A session at an unknown call of an undeclared tool, and its harness.
async fn unknown(session: &Fixture, how: Unknown) -> (Fixture, Placed, Answers) {
    let session = Fixture::open(session.cell).await.with_tools();
    let call = if how == Unknown::Ungated {
        append_call(&session).await;
        mediated("c1", "pay")
    } else {
        append_gate(&session, Some(true)).await;
        note_start(&session).await;
        gated("c1", "pay")
    };
    let answers = Answers::default();
    let probe = session.place(Probe::answered([call], &answers)).await;
    let error = refused(strict(&session).await.resume(&probe.harness, None).await);
    assert_eq!(error.code(), "unanswered_tool_call");
    (session, probe, answers)
}

/// A controller as our host sets it up.
async fn strict(session: &Fixture) -> Controller {
    let options = Options { approved_retry: ApprovedRetry::DeclaredOnly, ..session.options() };
    Controller::new(session.journal(), options).await.unwrap()
}

async fn finishes(session: &Fixture, probe: &Placed, how: Unknown) {
    driven(strict(session).await.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, format!("{} TR OUT END", how.journal()));
    session.replay_check(probe, 1, &["done"]).await;
}

/// The receipt as it is recorded, its bindings checked.
async fn receipt(session: &Fixture, how: Unknown) -> ToolResult {
    let event = session.events().await.pop().unwrap();
    let EventBody::ToolResult(Some(result)) = event.body else { panic!("{event:?}") };
    assert_eq!((event.execution_id, result.id.as_str()), (Some(execution(1)), "c1"));
    let bound = if how == Unknown::Approved { (4, 5) } else { (0, 0) };
    assert_eq!((result.approval_request_seq, result.approval_decision_seq), bound);
    result
}

/// A result that a person knows is the receipt: the turn goes on with it, nothing is run, and it replays.
async fn resolve_by_a_result(session: Fixture) {
    for how in Unknown::BOTH {
        let (session, probe, answers) = unknown(&session, how).await;
        let known = ToolResult { id: String::new(), ..raw::reported("c1") };
        let head = resolving(&session, "c1", Resolution::Result(Box::new(known))).await.unwrap();
        assert_eq!(head, session.head().await);
        assert_eq!(session.kinds().await, format!("{} TR", how.journal()));
        assert_eq!(session.watcher.take().len(), 1, "the observer is told");
        let receipt = receipt(&session, how).await;
        assert_eq!((receipt.is_error, receipt.code), (false, ResultCode::Unspecified));
        assert_eq!(receipt.output, raw::reported("c1").output);
        finishes(&session, &probe, how).await;
        for given in answers.take() {
            assert_eq!(ToolResult { decision: None, ..given.unwrap() }, receipt);
        }
        assert_eq!(session.executor().calls(), 0, "nothing was run");
    }
}

/// A failure that a person knows is the receipt, with their words.
async fn resolve_by_a_failure(session: Fixture) {
    for how in Unknown::BOTH {
        let (session, probe, answers) = unknown(&session, how).await;
        let words = "the bank knows of no transfer";
        resolving(&session, "c1", Resolution::Failed(words.to_owned())).await.unwrap();
        let receipt = receipt(&session, how).await;
        assert_eq!((receipt.is_error, receipt.code), (true, ResultCode::ExecutorError));
        assert_eq!(
            (receipt.error.as_str(), &*receipt.content),
            (words, &[Part::Text(words.to_owned())][..])
        );
        finishes(&session, &probe, how).await;
        assert!(answers.take().iter().all(|given| given.as_ref().unwrap().is_error));
        assert_eq!(session.executor().calls(), 0, "nothing was run");
    }
}

/// A retry records no event; the tool is run once more, under the recorded key.
async fn resolve_by_a_retry(session: Fixture) {
    for how in Unknown::BOTH {
        let (session, probe, answers) = unknown(&session, how).await;
        let before = session.head().await;
        for _ in 0..2 {
            // The same word again, before anything came of it, is the same word.
            let head = resolving(&session, "c1", Resolution::Retry).await.unwrap();
            assert_eq!((head, session.head().await), (before, before));
        }
        finishes(&session, &probe, how).await;
        assert_eq!(session.executor().ledger(), ["key-c1"]);
        assert_eq!(answers.codes(), ["ok", "ok"], "live and on replay");
    }
}

/// A retry is one more start: after a crash in it the outcome is unknown again, and takes another word.
async fn resolve_a_retry_is_one_start(session: Fixture) {
    for how in Unknown::BOTH {
        let (session, probe, _) = unknown(&session, how).await;
        for starts in 1..=3 {
            resolving(&session, "c1", Resolution::Retry).await.unwrap();
            let called = session.executor().hang();
            let controller = strict(&session).await;
            tokio::select! {
                ended = controller.resume(&probe.harness, None) => panic!("{ended:?}"),
                () = called.notified() => {}
            }
            session.executor().recover();
            let runs = probe.runs();
            for _ in 0..2 {
                let error = refused(strict(&session).await.resume(&probe.harness, None).await);
                assert_eq!((error.code(), probe.runs()), ("unanswered_tool_call", runs));
            }
            assert_eq!(session.executor().calls(), starts);
            assert_eq!(session.kinds().await, how.journal());
        }
        resolving(&session, "c1", Resolution::Retry).await.unwrap();
        finishes(&session, &probe, how).await;
        assert_eq!(session.executor().calls(), 4);
    }
}

/// A retry whose executor fails, and may have done its work, has been made.
async fn resolve_a_failed_retry_is_used_up(session: Fixture) {
    let (session, probe, _) = unknown(&session, Unknown::Ungated).await;
    resolving(&session, "c1", Resolution::Retry).await.unwrap();
    session.executor().respond(|_| async move {
        Err(ToolError { outcome: Outcome::Unknown, ..TestTools::failure() })
    });
    let resumed = strict(&session).await.resume(&probe.harness, None).await;
    assert_eq!(resumed.result.unwrap_err().code(), "tool_failed");
    assert_eq!(session.kinds().await, "ES IN TC ERR");
    let error = refused(strict(&session).await.resume(&probe.harness, None).await);
    assert_eq!((error.code(), session.executor().calls()), ("unanswered_tool_call", 1));
    resolving(&session, "c1", Resolution::Failed("it never came".to_owned())).await.unwrap();
    driven(strict(&session).await.resume(&probe.harness, None).await);
    assert_eq!(session.kinds().await, "ES IN TC ERR TR OUT END");
    session.replay_check(&probe, 1, &["done"]).await;
}

/// A word that fits no unknown call is refused; neither fence nor record exists.
#[track_caller]
fn precondition(result: Result<Head, ControllerError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, ControllerError::Precondition(_)), "{error:?}");
    assert_eq!(error.code(), "failed_precondition");
}

fn words() -> [Resolution; 3] {
    [
        Resolution::Result(Box::new(raw::reported("c1"))),
        Resolution::Failed("it failed".to_owned()),
        Resolution::Retry,
    ]
}

async fn unchanged(session: &Fixture, change: impl AsyncFnOnce()) {
    let (head, fence, records) =
        (session.head().await, session.fence().await, session.records().await);
    change().await;
    assert_eq!((session.head().await, session.fence().await), (head, fence));
    assert_eq!(session.records().await, records, "no note either");
}

/// Only the call that waits can be resolved, and only in the turn that is open.
async fn resolve_of_another_call(session: Fixture) {
    for how in Unknown::BOTH {
        let (session, probe, _) = unknown(&session, how).await;
        for word in words() {
            unchanged(&session, async || {
                precondition(resolving(&session, "c2", word.clone()).await);
                precondition(resolving(&session, "", word.clone()).await);
                let execution = ExecutionId::new("0123456789abcdef").unwrap();
                let request = Resolving { execution, ..request(&session, "c1", word) };
                precondition(resolve(&session.journal(), request).await);
            })
            .await;
        }
        let [result, ..] = words();
        resolving(&session, "c1", result).await.unwrap();
        for word in words() {
            unchanged(&session, async || {
                precondition(resolving(&session, "c1", word.clone()).await);
            })
            .await;
        }
        finishes(&session, &probe, how).await;
        for word in words() {
            unchanged(&session, async || precondition(resolving(&session, "c1", word).await)).await;
        }
    }
}

/// A gate that waits for its decision, or was denied, is no unknown outcome.
async fn resolve_of_an_undecided_or_denied_gate(session: Fixture) {
    for approved in [None, Some(false)] {
        let session = Fixture::open(session.cell).await.with_tools();
        append_gate(&session, approved).await;
        for word in words() {
            unchanged(&session, async || precondition(resolving(&session, "c1", word).await)).await;
        }
    }
}

/// An approved call that was not started needs no retry: a resume starts it.
async fn resolve_of_a_gate_that_was_not_started(session: Fixture) {
    let session = session.with_tools();
    append_gate(&session, Some(true)).await;
    unchanged(&session, async || {
        precondition(resolving(&session, "c1", Resolution::Retry).await);
    })
    .await;
    let probe = session.place(Probe::calling_then_done([gated("c1", "pay")])).await;
    finishes(&session, &probe, Unknown::Approved).await;
    assert_eq!(session.executor().calls(), 1);
}

/// A result that sets what only the host may set is refused.
async fn resolve_by_a_forged_result(session: Fixture) {
    let known = || raw::reported("c1");
    let decision = Some(ApprovalResult::default());
    let forged = [
        ToolResult { decision, ..known() },
        ToolResult { approval_request_seq: 4, ..known() },
        ToolResult { approval_decision_seq: 5, ..known() },
        ToolResult { code: ResultCode::ApprovalDenied, is_error: true, ..known() },
        ToolResult { code: ResultCode::ExecutorError, is_error: true, ..known() },
    ];
    for how in Unknown::BOTH {
        let (session, _, _) = unknown(&session, how).await;
        for forged in &forged {
            unchanged(&session, async || {
                let word = Resolution::Result(Box::new(forged.clone()));
                precondition(resolving(&session, "c1", word).await);
            })
            .await;
        }
    }
}

/// A call that a fork copied can be answered, for what became of it is known; run again it cannot.
async fn resolve_of_an_inherited_call(session: Fixture) {
    let parent = session.with_tools();
    append_call(&parent).await;
    let child = parent.fork(3, "child").await.unwrap();
    unchanged(&child, async || {
        let error = resolving(&child, "c1", Resolution::Retry).await.unwrap_err();
        assert!(matches!(error, ControllerError::InheritedToolIntent(seq) if seq.get() == 3));
    })
    .await;
    let [result, ..] = words();
    resolving(&child, "c1", result).await.unwrap();
    let probe = child.place(Probe::calling_then_done([mediated("c1", "pay")])).await;
    driven(child.resume(&probe).await);
    assert_eq!(child.kinds().await, "ES IN TC LC:FORK TR OUT END");
    child.replay_check(&probe, 1, &["done"]).await;
    assert_eq!((parent.kinds().await.as_str(), parent.executor().calls()), ("ES IN TC", 0));
}

/// A gate that a fork copied is not the child's to resolve.
async fn resolve_of_an_inherited_gate(session: Fixture) {
    let parent = session.with_tools();
    append_gate(&parent, Some(true)).await;
    note_start(&parent).await;
    let child = parent.fork(5, "child").await.unwrap();
    for word in words() {
        unchanged(&child, async || {
            let error = resolving(&child, "c1", word).await.unwrap_err();
            assert!(matches!(error, ControllerError::InheritedToolIntent(seq) if seq.get() == 3));
        })
        .await;
    }
}

matrix! {
    run:
    everywhere {
        #[test] fn resolve_by_a_result;
        #[test] fn resolve_by_a_failure;
        #[test] fn resolve_by_a_retry;
        #[test] fn resolve_a_retry_is_one_start;
        #[test] fn resolve_a_failed_retry_is_used_up;
        #[test] fn resolve_of_another_call;
        #[test] fn resolve_of_a_gate_that_was_not_started;
        #[test] fn resolve_of_an_inherited_call;
    }
    in_process {
        #[test] fn resolve_of_an_undecided_or_denied_gate;
        #[test] fn resolve_by_a_forged_result;
        #[test] fn resolve_of_an_inherited_gate;
    }
}
