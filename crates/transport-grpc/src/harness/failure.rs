//! Failed calls that the harness may handle, as frames and back.
//!
//! In process a harness gets the error of a failed model or tool call as the
//! result of that call, and may go on. With `failure-replies` it does so here
//! too.

use std::sync::Arc;

use mainspring_api::{
    Classify, Condition, ErrorKind, HarnessError, Outcome, SharedError, SinkError,
};
use mainspring_wire::CallFailure;

use crate::status::bounded;

/// Which call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    Model,
    Tool,
    /// A tool call that needs an approval.
    Gate,
}

/// Codes of `ModelError`, which have no condition of their own.
const MODEL_CODES: [(&str, ErrorKind); 5] = [
    ("unsupported_part", ErrorKind::InvalidInput),
    ("model_refused", ErrorKind::Precondition),
    ("model_bad_answer", ErrorKind::Internal),
    ("model_unavailable", ErrorKind::Unavailable),
    ("model_not_configured", ErrorKind::Precondition),
];

/// Whether the harness may handle `error` and go on.
///
/// It may when the call alone failed: it was refused before anything was
/// recorded, or its intent stands in the journal without an answer, as in
/// process. It may not when the turn cannot go on, because the controller
/// returns the same error from then on (a park, a cancellation, a divergence, a
/// policy, arguments that cannot be recorded, whatever happens to a gated call
/// once it is recorded), or when it was the log that failed: then nobody can
/// say what is recorded.
///
/// What is not listed ends the turn, so that an error that is new ends it too.
pub(crate) fn is_handleable(error: &SinkError, called: Called) -> bool {
    let (model, gate) = (called == Called::Model, called == Called::Gate);
    match error {
        // Of a completion: its intent is recorded, and nothing after that.
        SinkError::CompletionMissing | SinkError::TooLarge { .. } => model,
        SinkError::UnmediatedToolCall
        | SinkError::MissingToolExecutor
        | SinkError::ToolResultMissing
        // An executor's reply with fields that only the host may set.
        | SinkError::ApprovalReceiptReport => called == Called::Tool,
        SinkError::MissingIdempotencyKey
        | SinkError::InvalidApprovalCall(_)
        | SinkError::MissingSessionUid => !model,
        SinkError::ApprovalUnavailable => gate,
        SinkError::Failed(_) => match called {
            Called::Model => {
                let code = error.code();
                code == Condition::ModelFailed.code()
                    || MODEL_CODES.iter().any(|(known, _)| *known == code)
            }
            Called::Tool => error.code() == Condition::ToolFailed.code(),
            Called::Gate => false,
        },
        _ => false,
    }
}

/// The frame that answers a failed call. Errors carry no key, prompt,
/// arguments or output, so their text may travel.
pub(crate) fn to_frame(call_id: String, error: &SinkError) -> CallFailure {
    CallFailure {
        call_id,
        code: error.code().to_owned(),
        description: bounded(&mainspring_api::report(error)),
    }
}

/// The error that the harness gets: the same variant where one can be made of a
/// code, else a wrapped failure with that code.
pub(crate) fn received(failure: &CallFailure, called: Called) -> SinkError {
    let condition = Condition::from_code(&failure.code);
    match condition {
        Some(Condition::CompletionMissing) => SinkError::CompletionMissing,
        Some(Condition::ToolResultMissing) => SinkError::ToolResultMissing,
        Some(Condition::UnmediatedToolCall) => SinkError::UnmediatedToolCall,
        Some(Condition::MissingToolExecutor) => SinkError::MissingToolExecutor,
        Some(Condition::MissingIdempotencyKey) => SinkError::MissingIdempotencyKey,
        Some(Condition::MissingSessionUid) => SinkError::MissingSessionUid,
        Some(Condition::ApprovalUnavailable) => SinkError::ApprovalUnavailable,
        Some(Condition::ApprovalReceiptReport) => SinkError::ApprovalReceiptReport,
        Some(Condition::InvalidApprovalCall) => {
            SinkError::InvalidApprovalCall("the host refused it")
        }
        _ => {
            let failed: SharedError = Arc::new(RemoteFailure::new(failure, condition, called));
            SinkError::failed(failed)
        }
    }
}

/// What an agent says that ends with this failure because it did not handle it.
pub(crate) fn unhandled_text(failure: &CallFailure, called: Called) -> String {
    bounded(&mainspring_api::report(&HarnessError::from(received(failure, called))))
}

/// A failure at the host, in its words.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{description}")]
struct RemoteFailure {
    description: String,
    code: &'static str,
    kind: ErrorKind,
}

impl RemoteFailure {
    fn new(failure: &CallFailure, condition: Option<Condition>, called: Called) -> Self {
        let known = match condition {
            Some(condition) => Some((condition.code(), condition.kind())),
            None => MODEL_CODES.into_iter().find(|(code, _)| *code == failure.code),
        };
        if let Some((code, kind)) = known {
            return Self { description: failure.description.clone(), code, kind };
        }
        // A newer host: keep its word for it, and say which call it was.
        let condition = match called {
            Called::Model => Condition::ModelFailed,
            Called::Tool | Called::Gate => Condition::ToolFailed,
        };
        Self {
            description: format!("{} ({})", failure.description, failure.code),
            code: condition.code(),
            kind: condition.kind(),
        }
    }
}

impl Classify for RemoteFailure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn code(&self) -> &'static str {
        self.code
    }

    /// The frame does not say, and a model or a tool may have been reached.
    fn outcome(&self) -> Outcome {
        Outcome::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_api::{ApprovalRef, CancelReason, Divergence, ModelError, ToolError};

    fn wrapped(error: impl Classify + Send + Sync + 'static) -> SinkError {
        SinkError::failed(Arc::new(error))
    }

    fn model_errors() -> Vec<SinkError> {
        [
            ModelError::UnsupportedPart { part: "file" },
            ModelError::Refused { status: 400, message: "no".to_owned() },
            ModelError::BadAnswer { message: "no".to_owned() },
            ModelError::Unavailable { message: "no".to_owned(), source: None },
            ModelError::NotConfigured { model: "m".to_owned() },
        ]
        .map(wrapped)
        .into()
    }

    fn tool_error() -> SinkError {
        wrapped(ToolError { message: "no".to_owned(), outcome: Outcome::NotApplied, source: None })
    }

    /// A stand-in for an error of the log, whose code is a condition's.
    fn log_error(condition: Condition) -> SinkError {
        wrapped(mainspring_api::SessionsError::new(condition, "log"))
    }

    #[test]
    fn what_the_harness_may_handle() {
        use Called::{Gate, Model, Tool};
        let check = |error: &SinkError, calls: &[Called]| {
            for called in [Model, Tool, Gate] {
                let expected = calls.contains(&called);
                assert_eq!(is_handleable(error, called), expected, "{called:?}: {error:?}");
            }
        };
        for error in model_errors() {
            check(&error, &[Model]);
        }
        check(&tool_error(), &[Tool]);
        check(&SinkError::CompletionMissing, &[Model]);
        check(&SinkError::UnmediatedToolCall, &[Tool]);
        check(&SinkError::MissingToolExecutor, &[Tool]);
        check(&SinkError::ToolResultMissing, &[Tool]);
        check(&SinkError::ApprovalReceiptReport, &[Tool]);
        check(&SinkError::MissingIdempotencyKey, &[Tool, Gate]);
        check(&SinkError::InvalidApprovalCall("x"), &[Tool, Gate]);
        check(&SinkError::MissingSessionUid, &[Tool, Gate]);
        check(&SinkError::ApprovalUnavailable, &[Gate]);
        check(&SinkError::TooLarge { what: "event", bytes: 2, bytes_max: 1 }, &[Model]);

        let park = ApprovalRef {
            execution_id: "e".to_owned(),
            tool_call_id: "t".to_owned(),
            request_seq: 1,
        };
        for error in [
            SinkError::Closed,
            SinkError::Reentered,
            SinkError::Parked(park),
            SinkError::Diverged(Divergence::beyond("x")),
            SinkError::InvalidToolArgs,
            SinkError::ModelNotAllowed("m".to_owned()),
            SinkError::InvalidModelPolicy(mainspring_api::InvalidModelPolicy("x")),
            SinkError::HarnessDescribeFailed(Arc::new(HarnessError::failed("x"))),
            SinkError::Unrecordable("x".to_owned()),
            SinkError::Unsupported("x"),
            SinkError::Canceled(CancelReason::User),
            SinkError::Interrupted,
            log_error(Condition::Conflict),
            log_error(Condition::Fenced),
            log_error(Condition::SessionNotFound),
            log_error(Condition::Unavailable),
            log_error(Condition::OutcomeUnknown),
            log_error(Condition::JournalTampered),
            log_error(Condition::Corrupt),
            log_error(Condition::Internal),
        ] {
            check(&error, &[]);
        }
    }

    #[test]
    fn a_failure_keeps_its_code_kind_and_words() {
        let there_and_back =
            |error: &SinkError, called| received(&to_frame("c".to_owned(), error), called);
        for error in model_errors() {
            let back = there_and_back(&error, Called::Model);
            assert_eq!((back.code(), back.kind()), (error.code(), error.kind()));
            assert_eq!(back.to_string(), error.to_string());
            assert_eq!(back.outcome(), Outcome::Unknown);
        }
        let back = there_and_back(&tool_error(), Called::Tool);
        assert_eq!((back.code(), back.to_string().as_str()), ("tool_failed", "tool executor: no"));
        for error in [
            SinkError::CompletionMissing,
            SinkError::ToolResultMissing,
            SinkError::UnmediatedToolCall,
            SinkError::MissingToolExecutor,
            SinkError::MissingIdempotencyKey,
            SinkError::MissingSessionUid,
            SinkError::ApprovalUnavailable,
            SinkError::ApprovalReceiptReport,
        ] {
            let back = there_and_back(&error, Called::Tool);
            assert_eq!(back.condition(), error.condition());
            assert_eq!(back.to_string(), error.to_string());
        }
        let back = there_and_back(&SinkError::InvalidApprovalCall("x"), Called::Gate);
        assert!(matches!(back, SinkError::InvalidApprovalCall(_)));
    }

    #[test]
    fn a_frame_cannot_forge_what_ends_a_turn() {
        let frame = |code: &str| CallFailure {
            call_id: "c".to_owned(),
            code: code.to_owned(),
            description: "words".to_owned(),
        };
        for code in ["approval_parked", "cancelled", "sink_closed", "replay_diverged"] {
            let error = received(&frame(code), Called::Tool);
            assert!(error.as_failed().is_some(), "{code}");
            assert_eq!((error.code(), error.to_string().as_str()), (code, "words"));
        }
        let error = received(&frame("brand_new"), Called::Model);
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("model_failed", "words (brand_new)")
        );
    }
}
