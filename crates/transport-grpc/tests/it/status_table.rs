//! Every condition travels as a code and comes back as itself.

use mainspring_api::{Classify as _, Condition, Outcome, SessionUid, SessionsError};
use mainspring_transport_grpc::{Effect, code_of, from_status, to_status};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

fn expected(condition: Condition) -> Code {
    use mainspring_api::ErrorKind as Kind;
    match condition {
        Condition::OutcomeUnknown => Code::Unknown,
        Condition::QuotaExceeded => Code::ResourceExhausted,
        Condition::Corrupt => Code::Internal,
        other => match other.kind() {
            Kind::NotFound => Code::NotFound,
            Kind::AlreadyExists => Code::AlreadyExists,
            Kind::Conflict | Kind::Fenced | Kind::Busy => Code::Aborted,
            Kind::Unauthenticated => Code::Unauthenticated,
            Kind::Denied => Code::PermissionDenied,
            Kind::Unsupported => Code::Unimplemented,
            Kind::InvalidInput | Kind::LimitExceeded => Code::InvalidArgument,
            Kind::Precondition | Kind::Corrupt => Code::FailedPrecondition,
            Kind::Unavailable => Code::Unavailable,
            Kind::Cancelled => Code::Cancelled,
            Kind::Deadline => Code::DeadlineExceeded,
            _ => Code::Internal,
        },
    }
}

#[test]
fn every_condition_round_trips() {
    let uid = SessionUid::new("sess-1").unwrap();
    for &condition in Condition::ALL {
        for outcome in [Outcome::NotApplied, Outcome::Unknown, Outcome::Applied] {
            let error = SessionsError::new(condition, "words").with_outcome(outcome).on(&uid);
            let status = to_status(&error);
            let code = match outcome {
                Outcome::Unknown => Code::Unknown,
                Outcome::NotApplied | Outcome::Applied
                    if condition == Condition::OutcomeUnknown =>
                {
                    Code::Unknown
                }
                Outcome::NotApplied | Outcome::Applied => expected(condition),
            };
            assert_eq!(status.code(), code, "{condition:?}");
            let info = status.get_details_error_info().unwrap();
            assert_eq!(
                (info.reason.as_str(), info.domain.as_str()),
                (condition.code(), "mainspring")
            );
            for effect in [Effect::Read, Effect::Write] {
                let back = from_status(&status, effect);
                assert_eq!(back.condition(), condition);
                assert_eq!(back.session(), Some(&uid));
                assert_eq!(back.to_string(), "words");
                let settled = match condition {
                    Condition::OutcomeUnknown => Outcome::Unknown,
                    _ => outcome,
                };
                assert_eq!(back.outcome(), settled);
            }
        }
    }
}

#[test]
fn a_known_condition_is_the_documented_code() {
    let rows = [
        (Condition::SessionBusy, Code::Aborted),
        (Condition::Fenced, Code::Aborted),
        (Condition::JournalTampered, Code::FailedPrecondition),
        (Condition::UnsupportedRecord, Code::FailedPrecondition),
        (Condition::ReplayDiverged, Code::FailedPrecondition),
        (Condition::StartTooLarge, Code::FailedPrecondition),
        (Condition::ValueTooLarge, Code::InvalidArgument),
        (Condition::UnknownHarness, Code::InvalidArgument),
        (Condition::HarnessUnavailable, Code::Unavailable),
        (Condition::Draining, Code::Unavailable),
        (Condition::HarnessFailed, Code::Internal),
        (Condition::AuthorizationUnavailable, Code::Internal),
    ];
    for (condition, code) in rows {
        assert_eq!(code_of(condition, Outcome::NotApplied), code, "{condition:?}");
    }
}

#[test]
fn a_peer_without_details_is_read_by_its_code() {
    let check = |code: Code, condition: Condition| {
        let error = from_status(&Status::new(code, "words"), Effect::Write);
        assert_eq!(error.condition(), condition, "{code:?}");
    };
    check(Code::NotFound, Condition::SessionNotFound);
    check(Code::Aborted, Condition::Conflict);
    check(Code::FailedPrecondition, Condition::FailedPrecondition);
    check(Code::OutOfRange, Condition::ValueTooLarge);
    check(Code::Unavailable, Condition::Unavailable);
    check(Code::Unknown, Condition::OutcomeUnknown);
    check(Code::Internal, Condition::Internal);
    let lost = from_status(&Status::unknown("x"), Effect::Write);
    assert_eq!(lost.outcome(), Outcome::Unknown);
    let reread = from_status(&Status::unknown("x"), Effect::Read);
    assert_eq!(reread.condition(), Condition::Unavailable);
}

#[test]
fn a_newer_peers_condition_keeps_its_name_in_the_text() {
    let details = tonic_types::ErrorDetails::with_error_info(
        "brand_new",
        "mainspring",
        [("outcome".to_owned(), "unknown".to_owned())],
    );
    let status = Status::with_error_details(Code::FailedPrecondition, "words", details);
    let error = from_status(&status, Effect::Read);
    assert_eq!(error.condition(), Condition::FailedPrecondition);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(error.to_string(), "words (brand_new)");
}

#[test]
fn long_texts_are_cut_to_what_a_header_takes() {
    let error = SessionsError::new(Condition::Internal, "\u{e9}".repeat(100_000));
    let status = to_status(&error);
    assert!(status.message().len() < 1100);
    assert!(status.message().ends_with("..."));
}
