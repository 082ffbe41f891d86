//! Errors as gRPC statuses, and back.
//!
//! The code is for generic clients. Ours read `google.rpc.ErrorInfo`, which
//! carries the condition, the outcome and the session.

use std::collections::HashMap;
use std::error::Error as _;

use mainspring_api::{Classify, Condition, ErrorKind, Outcome, SessionUid, SessionsError};
use tonic::{Code, ConnectError, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of our error details.
pub const ERROR_DOMAIN: &str = "mainspring";

/// How much text a status carries. It travels in a header, where peers take
/// 8 to 16 KiB, three times over: escaped, and once more within the details.
const TEXT_BYTES_MAX: usize = 1024;

const OUTCOME: &str = "outcome";
const SESSION: &str = "session";
const NOT_APPLIED: &str = "not_applied";
const UNKNOWN: &str = "unknown";
const APPLIED: &str = "applied";

/// The code of a condition whose outcome is `outcome`.
#[must_use]
pub fn code_of(condition: Condition, outcome: Outcome) -> Code {
    // Never UNAVAILABLE: clients retry that by themselves, which would be a
    // second attempt at something that may have happened.
    if outcome == Outcome::Unknown || condition == Condition::OutcomeUnknown {
        return Code::Unknown;
    }
    match condition.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Busy => Code::Aborted,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::InvalidInput => Code::InvalidArgument,
        ErrorKind::LimitExceeded if condition == Condition::QuotaExceeded => {
            Code::ResourceExhausted
        }
        ErrorKind::LimitExceeded => Code::InvalidArgument,
        ErrorKind::Corrupt if condition == Condition::Corrupt => Code::Internal,
        ErrorKind::Precondition | ErrorKind::Corrupt => Code::FailedPrecondition,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Cancelled => Code::Cancelled,
        ErrorKind::Deadline => Code::DeadlineExceeded,
        _ => Code::Internal,
    }
}

/// The status of an error.
#[must_use]
pub fn to_status(error: &SessionsError) -> Status {
    let outcome = match error.condition() {
        Condition::OutcomeUnknown => Outcome::Unknown,
        _ => error.outcome(),
    };
    let mut metadata = HashMap::from([(
        OUTCOME.to_owned(),
        match outcome {
            Outcome::NotApplied => NOT_APPLIED,
            Outcome::Unknown => UNKNOWN,
            Outcome::Applied => APPLIED,
        }
        .to_owned(),
    )]);
    if let Some(session) = error.session() {
        metadata.insert(SESSION.to_owned(), session.to_string());
    }
    let details = ErrorDetails::with_error_info(error.condition().code(), ERROR_DOMAIN, metadata);
    Status::with_error_details(
        code_of(error.condition(), outcome),
        bounded(&mainspring_api::report(error)),
        details,
    )
}

/// `text`, cut at a character boundary if it is too long for a header.
pub(crate) fn bounded(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", &text[..end])
}

/// Whether a call changes anything, which decides what a lost reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only reads: a lost reply is a call to make again.
    Read,
    /// It may have been applied: a lost reply leaves its outcome unknown.
    Write,
}

/// The error of a status that answers a call.
#[must_use]
pub fn from_status(status: &Status, effect: Effect) -> SessionsError {
    let Some(info) = status.get_details_error_info().filter(|info| info.domain == ERROR_DOMAIN)
    else {
        return from_code(status, effect);
    };
    let outcome = match info.metadata.get(OUTCOME).map(String::as_str) {
        Some(UNKNOWN) => Outcome::Unknown,
        Some(APPLIED) => Outcome::Applied,
        _ => Outcome::NotApplied,
    };
    let error = match Condition::from_code(&info.reason) {
        Some(condition) => SessionsError::new(condition, status.message()),
        // A newer peer: keep its word for it, and the class by code.
        None => SessionsError::new(
            condition_of(status.code()),
            format!("{} ({})", status.message(), info.reason),
        ),
    };
    let error = error.with_outcome(outcome);
    match info.metadata.get(SESSION).map(|uid| SessionUid::new(uid)) {
        Some(Ok(session)) => error.on(&session),
        _ => error,
    }
}

fn from_code(status: &Status, effect: Effect) -> SessionsError {
    let lost = is_local(status) || status.code() == Code::Unknown;
    if is_connect_failure(status) {
        return SessionsError::new(Condition::Unavailable, status.message());
    }
    match (lost, effect) {
        (true, Effect::Write) => SessionsError::new(Condition::OutcomeUnknown, status.message())
            .with_outcome(Outcome::Unknown),
        (true, Effect::Read) => SessionsError::new(Condition::Unavailable, status.message()),
        (false, _) => SessionsError::new(condition_of(status.code()), status.message()),
    }
}

/// Whether the status was made on this side, by a connection that failed.
pub(crate) fn is_local(status: &Status) -> bool {
    status.source().is_some()
}

/// Whether the call never left.
fn is_connect_failure(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The condition of a code that came without details of ours.
#[must_use]
pub fn condition_of(code: Code) -> Condition {
    match code {
        Code::NotFound => Condition::SessionNotFound,
        Code::AlreadyExists => Condition::AlreadyExists,
        Code::Aborted => Condition::Conflict,
        Code::FailedPrecondition => Condition::FailedPrecondition,
        Code::InvalidArgument => Condition::InvalidArgument,
        Code::OutOfRange => Condition::ValueTooLarge,
        Code::ResourceExhausted => Condition::QuotaExceeded,
        Code::Unimplemented => Condition::Unimplemented,
        Code::PermissionDenied => Condition::PermissionDenied,
        Code::Unauthenticated => Condition::Unauthenticated,
        Code::Unavailable => Condition::Unavailable,
        Code::Cancelled => Condition::Cancelled,
        Code::DeadlineExceeded => Condition::DeadlineExceeded,
        Code::Unknown => Condition::OutcomeUnknown,
        Code::DataLoss => Condition::Corrupt,
        Code::Ok | Code::Internal => Condition::Internal,
    }
}
