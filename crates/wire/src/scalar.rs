//! Positions, ids, hashes and times.

use mainspring_api::{ExecutionId, Fence, Hash, Seq, SessionUid, Timestamp};

use crate::error::{FieldPath, WireError};

pub(crate) fn seq_from(field: &str, number: i64) -> Result<Seq, WireError> {
    Seq::from_i64(number).ok_or_else(|| WireError::out_of_range(field, number))
}

pub(crate) fn seq_to(field: &str, seq: Seq) -> Result<i64, WireError> {
    i64::try_from(seq.get()).map_err(|_| WireError::out_of_range(field, seq.get()))
}

pub(crate) fn fence_from(field: &str, number: i64) -> Result<Fence, WireError> {
    u64::try_from(number).map(Fence::new).map_err(|_| WireError::out_of_range(field, number))
}

pub(crate) fn fence_to(field: &str, fence: Fence) -> Result<i64, WireError> {
    i64::try_from(fence.get()).map_err(|_| WireError::out_of_range(field, fence.get()))
}

pub(crate) fn hash_from(field: &str, text: &str) -> Result<Hash, WireError> {
    Hash::from_hex(text).map_err(|_| WireError::BadHash { path: FieldPath::of(field) })
}

/// A session uid that came as a plain text field.
///
/// # Errors
/// [`WireError::BadId`], naming `field`, when it is empty or not of the form of a uid.
pub fn session_uid(field: &str, text: &str) -> Result<SessionUid, WireError> {
    SessionUid::new(text).map_err(|error| WireError::bad_id(field, error))
}

/// A session uid that may be left out: empty means that it is.
pub(crate) fn session_uid_opt(field: &str, text: &str) -> Result<Option<SessionUid>, WireError> {
    if text.is_empty() {
        return Ok(None);
    }
    session_uid(field, text).map(Some)
}

pub(crate) fn execution_id(field: &str, text: &str) -> Result<ExecutionId, WireError> {
    ExecutionId::new(text).map_err(|error| WireError::bad_id(field, error))
}

pub(crate) fn timestamp_from(time: prost_types::Timestamp) -> Result<Timestamp, WireError> {
    let bad = WireError::BadTimestamp { path: FieldPath::default() };
    let Ok(nanos) = u32::try_from(time.nanos) else {
        return Err(bad);
    };
    let time = Timestamp { seconds: time.seconds, nanos };
    if time.is_valid() { Ok(time) } else { Err(bad) }
}

pub(crate) fn timestamp_to(time: Timestamp) -> Result<prost_types::Timestamp, WireError> {
    if !time.is_valid() {
        return Err(WireError::BadTimestamp { path: FieldPath::default() });
    }
    Ok(prost_types::Timestamp {
        seconds: time.seconds,
        // A valid time has fewer than 10^9 nanoseconds.
        nanos: i32::try_from(time.nanos).unwrap_or_default(),
    })
}

/// A text field of an optional id.
pub(crate) fn text_of<T: ToString>(id: Option<&T>) -> String {
    id.map(ToString::to_string).unwrap_or_default()
}
